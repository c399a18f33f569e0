// frame_fixture.h - frames written byte by byte from the RFCs, apart from the code under test
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/frame/frame.h"

namespace gradlane::test {

using Bytes = std::vector<uint8_t>;

inline const MacAddress kOurMac{0x02, 0, 0, 0, 0, 0x0a};
inline const MacAddress kTheirMac{0x02, 0, 0, 0, 0, 0x0b};
inline const MacAddress kEverybody{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
inline constexpr uint32_t kOurIp = 0x0a000001;
inline constexpr uint32_t kTheirIp = 0x0a000002;
inline constexpr uint16_t kPort = 18400, kPorts = 4;
inline constexpr uint8_t kTosCompressed = 0x28, kTosRaw = 0x20, kTosControl = 0xc0;

inline const LocalAddress kLocal{kOurMac, kOurIp, kPort, kPorts};
inline const Classifier kClassifier(kTosCompressed, kTosRaw, kTosControl);

inline constexpr size_t kIp = 14, kL4 = 34;  // start of headers in frames without IP options

inline void put16(Bytes& bytes, size_t at, unsigned value) {
  bytes[at] = static_cast<uint8_t>(value >> 8);
  bytes[at + 1] = static_cast<uint8_t>(value);
}
inline void put32(Bytes& bytes, size_t at, uint32_t value) {
  put16(bytes, at, value >> 16);
  put16(bytes, at + 2, value & 0xffff);
}
inline unsigned get16(const Bytes& bytes, size_t at) { return unsigned{bytes[at]} << 8 | bytes[at + 1]; }
inline uint32_t get32(const Bytes& bytes, size_t at) { return get16(bytes, at) << 16 | get16(bytes, at + 2); }

// Returns the checksum as RFC 1071 defines it: 16 bits at a time, with each carry added at once. The bytes at `field`
// count as zero.
inline unsigned slow_checksum(const Bytes& bytes, size_t begin, size_t end, size_t field) {
  unsigned sum = 0;
  for (size_t at = begin; at < end; at += 2) {
    unsigned word = unsigned{bytes[at]} << 8;
    if (at + 1 < end) word |= bytes[at + 1];
    if (at == field) word = 0;
    sum += word;
    if (sum > 0xffff) sum -= 0xffff;
  }
  return 0xffff - sum;
}

inline void seal_ip(Bytes& frame) {
  const size_t header = (frame[kIp] & 15U) * 4;
  put16(frame, kIp + 10, slow_checksum(frame, kIp, kIp + header, kIp + 10));
}
inline void seal_icmp(Bytes& frame) {
  const size_t at = kIp + (frame[kIp] & 15U) * 4;
  const size_t end = kIp + get16(frame, kIp + 2);
  put16(frame, at + 2, slow_checksum(frame, at, end, at + 2));
}

inline Bytes ethernet(const MacAddress& to, const MacAddress& from, unsigned type) {
  Bytes frame(14);
  std::copy(to.begin(), to.end(), frame.begin());
  std::copy(from.begin(), from.end(), frame.begin() + 6);
  put16(frame, 12, type);
  return frame;
}

// Returns a frame from kTheirIp to kOurIp. It has `options` bytes of IP options that do nothing, then `content`.
inline Bytes ipv4(uint8_t tos, uint8_t protocol, const Bytes& content, size_t options = 0) {
  Bytes frame = ethernet(kOurMac, kTheirMac, 0x0800);
  frame.resize(kL4 + options, 1);
  frame[kIp] = static_cast<uint8_t>(0x45 + options / 4);
  frame[kIp + 1] = tos;
  put16(frame, kIp + 2, static_cast<unsigned>(20 + options + content.size()));
  put16(frame, kIp + 4, 0x1234);
  put16(frame, kIp + 6, 0x4000);
  frame[kIp + 8] = 63;
  frame[kIp + 9] = protocol;
  put32(frame, kIp + 12, kTheirIp);
  put32(frame, kIp + 16, kOurIp);
  seal_ip(frame);
  frame.insert(frame.end(), content.begin(), content.end());
  return frame;
}

// Returns bytes whose pattern repeats only after 768 bytes, so that a copy that is shifted by less differs.
inline Bytes some_bytes(size_t count) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i * i / 3 + 7 * i + 1);
  return bytes;
}

inline Bytes udp(uint8_t tos, uint16_t to, size_t payload, size_t options = 0) {
  Bytes content(8);
  put16(content, 0, 40000);
  put16(content, 2, to);
  put16(content, 4, static_cast<unsigned>(8 + payload));
  const Bytes bytes = some_bytes(payload);
  content.insert(content.end(), bytes.begin(), bytes.end());
  return ipv4(tos, 17, content, options);
}

inline Bytes ping(size_t payload, size_t options = 0, uint8_t tos = 0) {
  Bytes content(8);
  content[0] = 8;
  put16(content, 4, 0x0102);  // identifier
  put16(content, 6, 3);       // sequence number
  const Bytes bytes = some_bytes(payload);
  content.insert(content.end(), bytes.begin(), bytes.end());
  Bytes frame = ipv4(tos, 1, content, options);
  seal_icmp(frame);
  return frame;
}

inline Bytes arp(const MacAddress& to, unsigned operation, uint32_t sender_ip, uint32_t target_ip) {
  Bytes frame = ethernet(to, kTheirMac, 0x0806);
  frame.resize(42);
  put16(frame, 14, 1);
  put16(frame, 16, 0x0800);
  frame[18] = 6;
  frame[19] = 4;
  put16(frame, 20, operation);
  for (size_t i = 0; i < 6; ++i) frame[22 + i] = kTheirMac[i];
  put32(frame, 28, sender_ip);
  put32(frame, 38, target_ip);
  return frame;
}

}  // namespace gradlane::test
