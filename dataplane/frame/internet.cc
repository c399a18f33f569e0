// internet.cc - the Internet checksum over many bytes (worker threads; pure functions)
#include "dataplane/frame/internet.h"

namespace gradlane::internet {

uint16_t ones_sum(const uint8_t* data, size_t bytes) noexcept {
  // Adds 32-bit halves of 64-bit words, in two vectors of two words: every x86-64 CPU has registers for these.
  using Words = uint64_t __attribute__((vector_size(16)));
  Words sums[4] = {};
  for (; bytes >= 2 * sizeof(Words); data += 2 * sizeof(Words), bytes -= 2 * sizeof(Words)) {
    const auto first = load<Words>(data);
    const auto second = load<Words>(data + sizeof(Words));
    sums[0] += first & 0xffffffff;
    sums[1] += first >> 32;
    sums[2] += second & 0xffffffff;
    sums[3] += second >> 32;
  }
  sums[0] += sums[1] + sums[2] + sums[3];
  uint64_t sum = sums[0][0] + sums[0][1];
  for (; bytes >= 4; data += 4, bytes -= 4) sum += load<uint32_t>(data);
  if (bytes >= 2) sum += load<uint16_t>(data);
  if (bytes % 2 != 0) sum += data[bytes - 1];
  return fold(sum);
}

void seal(uint8_t* data, size_t bytes, size_t field) noexcept {
  store(data + field, uint16_t{0});
  store(data + field, static_cast<uint16_t>(~ones_sum(data, bytes)));
}

void seal_l4(const uint8_t* ip, uint8_t* l4, uint8_t protocol, size_t length) noexcept {
  uint8_t* const field = l4 + (protocol == kUdp ? kUdpChecksum : kTcpChecksum);
  store(field, uint16_t{0});
  const uint16_t sum = fold(pseudo_header_sum(ip, protocol, length) + ones_sum(l4, length));
  store(field, static_cast<uint16_t>(protocol == kUdp && sum == 0xffff ? 0xffff : ~sum));
}

}  // namespace gradlane::internet
