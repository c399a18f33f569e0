// frames.cc - frames and payloads for tests of the accelerator (any thread)
#include "tests/dataplane/accelerator/engine/frames.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "tests/compress/test_floats.h"

namespace gradlane::test {
namespace {

constexpr size_t kChecksum = 10, kProtocol = 9;  // offsets from the start of the IP header

size_t l4_at(const Bytes& frame) { return kIp + (frame[kIp] & 15U) * 4; }
size_t header_bytes(const Packet& packet) { return packet.protocol == 17 ? 8 : 20 + packet.tcp_options.size(); }

void append(Bytes& to, const Bytes& what) { to.insert(to.end(), what.begin(), what.end()); }

Bytes l4_of(const Packet& packet) {
  Bytes l4(packet.protocol == 17 ? 8 : 20);
  put16(l4, 0, packet.source_port);
  put16(l4, 2, packet.destination_port);
  if (packet.protocol == 17) {
    put16(l4, 4, static_cast<unsigned>(8 + packet.payload.size()));
    put16(l4, 6, packet.udp_checksum ? 1 : 0);
  } else {
    put32(l4, 4, packet.seq);
    put32(l4, 8, packet.ack);
    l4[12] = static_cast<uint8_t>(header_bytes(packet) / 4 << 4);
    l4[13] = packet.flags;
    put16(l4, 14, packet.window);
    put16(l4, 18, packet.urgent);
    append(l4, packet.tcp_options);
  }
  append(l4, packet.payload);
  return l4;
}

float laplace(Rng& rng, float scale) {
  const float uniform = (static_cast<float>(rng.bits() >> 8) + 0.5F) * 0x1p-24F;
  const float magnitude = -std::log(uniform) * scale;
  return (rng.bits() & 1) != 0 ? -magnitude : magnitude;
}

float value_of(Data data, Rng& rng) {
  constexpr uint32_t kSpecials[] = {0x7f800000, 0xff800000, 0x7fc00001, 0x80000000, 1, 0x7f7fffff, 0x3f800000};
  const uint32_t bits = data == Data::kBits ? rng.bits() : kSpecials[rng.below(std::size(kSpecials))];
  float special;
  std::memcpy(&special, &bits, sizeof(special));
  switch (data) {
    case Data::kZeros:
      return 0;
    case Data::kGradients:
      return laplace(rng, 1e-3F);
    case Data::kLarge:
      return laplace(rng, 1e6F);
    case Data::kMixed:
      return rng.one_in(4) ? laplace(rng, 10) : laplace(rng, 1e-4F);
    case Data::kSpecial:
      return rng.one_in(8) ? special : laplace(rng, 1e-3F);
    case Data::kBits:
      return special;
  }
  std::abort();
}

}  // namespace

Bytes timestamps(uint32_t value, uint32_t echo) {
  Bytes options{1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0};
  put32(options, 4, value);
  put32(options, 8, echo);
  return options;
}

Bytes frame_of(const Packet& packet) {
  Bytes frame = ethernet(packet.to, packet.from, 0x0800);
  frame.resize(kL4);
  frame[kIp] = static_cast<uint8_t>(0x45 + packet.ip_options.size() / 4);
  frame[kIp + 1] = packet.tos;
  put16(frame, kIp + 4, packet.id);
  put16(frame, kIp + 6, packet.fragment);
  frame[kIp + 8] = packet.ttl;
  frame[kIp + kProtocol] = packet.protocol;
  put32(frame, kIp + 12, packet.source_ip);
  put32(frame, kIp + 16, packet.destination_ip);
  append(frame, packet.ip_options);
  append(frame, l4_of(packet));
  put16(frame, kIp + 2, static_cast<unsigned>(frame.size() - kIp));
  seal_frame(frame);
  if (packet.vlan) {
    const Bytes tag{0x81, 0, static_cast<uint8_t>(*packet.vlan >> 8), static_cast<uint8_t>(*packet.vlan)};
    frame.insert(frame.begin() + 12, tag.begin(), tag.end());
  }
  return frame;
}

size_t payload_at(const Bytes& frame) {
  const size_t l4 = l4_at(frame);
  return frame[kIp + kProtocol] == 17 ? l4 + 8 : l4 + (frame[l4 + 12] >> 4) * 4U;
}
size_t payload_end(const Bytes& frame) { return kIp + get16(frame, kIp + 2); }
Bytes payload_of(const Bytes& frame) {
  const auto at = [&](size_t i) { return frame.begin() + static_cast<ptrdiff_t>(i); };
  return Bytes(at(payload_at(frame)), at(payload_end(frame)));
}

size_t l4_checksum_at(const Bytes& frame) { return l4_at(frame) + (frame[kIp + kProtocol] == 17 ? 6 : 16); }

unsigned right_l4_checksum(const Bytes& frame) {
  const size_t l4 = l4_at(frame), end = payload_end(frame);
  Bytes all(frame.begin() + kIp + 12, frame.begin() + kIp + 20);
  append(all, {0, frame[kIp + kProtocol], 0, 0});
  put16(all, 10, static_cast<unsigned>(end - l4));
  const size_t field = all.size() + l4_checksum_at(frame) - l4;
  all.insert(all.end(), frame.begin() + static_cast<ptrdiff_t>(l4), frame.begin() + static_cast<ptrdiff_t>(end));
  const unsigned checksum = slow_checksum(all, 0, all.size(), field);
  return frame[kIp + kProtocol] == 17 && checksum == 0 ? 0xffff : checksum;
}

void seal_frame(Bytes& frame) {
  if (frame.size() < kL4 || get16(frame, 12) != 0x0800) return;
  const size_t header = (frame[kIp] & 15U) * 4;
  if (header < 20 || frame.size() < kIp + header) return;
  seal_ip(frame);
  const uint8_t protocol = frame[kIp + kProtocol];
  const size_t least = kIp + header + (protocol == 17 ? 8 : 20);
  if ((protocol != 6 && protocol != 17) || payload_end(frame) < least || payload_end(frame) > frame.size()) return;
  const size_t field = l4_checksum_at(frame);
  if (protocol == 17 && get16(frame, field) == 0) return;
  put16(frame, field, right_l4_checksum(frame));
}

std::string fault_in(const Bytes& frame) {
  if (frame.size() < kL4 || get16(frame, 12) != 0x0800) return "not IPv4";
  if (frame[kIp] != 0x45) return "IP version or options";
  if (payload_end(frame) != frame.size()) return "IP length";
  if (get16(frame, kIp + kChecksum) != slow_checksum(frame, kIp, kL4, kIp + kChecksum)) return "IP checksum";
  if ((get16(frame, kIp + 6) & 0xbfff) != 0) return "IP flags";
  const uint8_t protocol = frame[kIp + kProtocol];
  if (protocol != 6 && protocol != 17) return "protocol";
  if (frame.size() < kL4 + (protocol == 17 ? 8 : 20) || payload_at(frame) > frame.size()) return "L4 header";
  if (protocol == 17 && get16(frame, kL4 + 4) != frame.size() - kL4) return "UDP length";
  if (protocol == 6 && (frame[kL4 + 13] & 0x27) != 0) return "TCP flags";
  const unsigned checksum = get16(frame, l4_checksum_at(frame));
  const bool none = protocol == 17 && checksum == 0;
  return none || checksum == right_l4_checksum(frame) ? "" : "L4 checksum";
}

Bytes payload(Data data, size_t bytes, uint64_t seed, size_t lead) {
  Rng rng(seed);
  Bytes out(bytes);
  for (uint8_t& byte : out) byte = static_cast<uint8_t>(rng.bits());  // lead and trail keep these bytes
  for (size_t at = lead; at + 4 <= bytes; at += 4) {
    const float value = value_of(data, rng);
    std::memcpy(out.data() + at, &value, sizeof(value));
  }
  return out;
}

Bytes lossy(const Codec& codec, const Bytes& payload, size_t lead) {
  if (payload.size() < lead + 4) return payload;
  std::vector<float> floats((payload.size() - lead) / 4);
  std::memcpy(floats.data(), payload.data() + lead, floats.size() * 4);
  Bytes block(codec.max_bytes(floats.size()));
  const EncodeResult result = codec.encode(floats, block);
  block.resize(result.bytes);
  if (result.floats != floats.size() || codec.decode(block, floats) != Status::kOk) std::abort();
  Bytes out = payload;
  std::memcpy(out.data() + lead, floats.data(), floats.size() * 4);
  return out;
}

Bytes lossy_frame(const Codec& codec, const Bytes& frame, size_t lead) {
  const Bytes values = lossy(codec, payload_of(frame), lead);
  Bytes out = frame;
  std::copy(values.begin(), values.end(), out.begin() + static_cast<ptrdiff_t>(payload_at(frame)));
  seal_frame(out);
  return out;
}

}  // namespace gradlane::test
