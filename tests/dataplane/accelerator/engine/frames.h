// frames.h - TCP and UDP frames for tests of the accelerator, written from the RFCs, apart from the code under test
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compress/codec.h"
#include "tests/dataplane/frame/frame_fixture.h"

namespace gradlane::test {

inline constexpr uint8_t kTosWire = 0x30;

// Contents of a frame without its checksums and lengths. `protocol` is 6 or 17.
struct Packet {
  uint8_t protocol = 6;
  MacAddress to = kOurMac, from = kTheirMac;
  std::optional<uint16_t> vlan = {};
  uint8_t tos = kTosCompressed;
  uint16_t id = 0x1234;
  uint16_t fragment = 0x4000;  // flags and offset
  uint8_t ttl = 64;
  uint32_t source_ip = kTheirIp, destination_ip = kOurIp;
  Bytes ip_options = {};  // length: a multiple of 4
  uint16_t source_port = 40000, destination_port = 5001;
  bool udp_checksum = true;
  uint32_t seq = 1000, ack = 2000;
  uint8_t flags = 0x10;  // ACK
  uint16_t window = 500, urgent = 0;
  Bytes tcp_options = {};  // length: a multiple of 4
  Bytes payload = {};
};
[[nodiscard]] Bytes frame_of(const Packet& packet);

// Returns the TCP options NOP, NOP, timestamps (RFC 7323).
[[nodiscard]] Bytes timestamps(uint32_t value, uint32_t echo);

// payload_at() returns where the payload of an IPv4 TCP or UDP frame without VLAN tag starts. payload_end() returns
// where it ends.
[[nodiscard]] size_t payload_at(const Bytes& frame);
[[nodiscard]] size_t payload_end(const Bytes& frame);
[[nodiscard]] Bytes payload_of(const Bytes& frame);

// Corrects the IP checksum of an IPv4 frame. Also corrects its TCP or UDP checksum, unless the lengths in its headers
// are wrong. A UDP checksum of 0 stays.
void seal_frame(Bytes& frame);
// Returns the right L4 checksum of a whole TCP or UDP packet (never 0 for UDP). l4_checksum_at() returns its position.
[[nodiscard]] unsigned right_l4_checksum(const Bytes& frame);
[[nodiscard]] size_t l4_checksum_at(const Bytes& frame);

// Returns the fault in lengths and checksums of a frame that must be exactly one TCP or UDP packet; "" if there is
// none.
[[nodiscard]] std::string fault_in(const Bytes& frame);

// Kinds of payloads that compress differently. A payload may have any length.
enum class Data { kZeros, kGradients, kLarge, kMixed, kSpecial, kBits };
inline constexpr Data kAllData[] = {Data::kZeros, Data::kGradients, Data::kLarge,
                                    Data::kMixed, Data::kSpecial,   Data::kBits};
[[nodiscard]] Bytes payload(Data data, size_t bytes, uint64_t seed, size_t lead = 0);

// Returns the payload as it is after the codec. The floats after the first `lead` bytes are those of decode(encode()).
// All other bytes are exact.
[[nodiscard]] Bytes lossy(const Codec& codec, const Bytes& payload, size_t lead);
// Returns the frame with lossy() of its payload, and right checksums. The receiver of a compressed packet must get this
// frame.
[[nodiscard]] Bytes lossy_frame(const Codec& codec, const Bytes& frame, size_t lead);

}  // namespace gradlane::test
