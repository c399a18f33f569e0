// segments_fuzz.cc - libFuzzer target: reassembles packets from any datagrams
//
// Aborts if a packet that counts as complete lacks a byte. Buffers are heap blocks of the longest packet's size, so
// that AddressSanitizer finds accesses outside. Input:
//   byte 0   modulo 32, plus 1: bytes of a packet in a segment
//   byte 1   modulo 64, plus 1: segments of the longest packet
//   then datagrams, each with a byte for its length
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "dataplane/udp/segments.h"

namespace gradlane::test {
namespace {

constexpr uint8_t kNothing = 0xee;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "segments_fuzz: %s\n", what);
  std::abort();
}

class Receiver {
 public:
  explicit Receiver(const SegmentSizes& sizes) : sizes_(sizes) {}
  ~Receiver() {
    for (const PartialPacket& it : packets_.all()) delete[] static_cast<uint8_t*>(it.buffer);
  }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  void take(std::span<const uint8_t> datagram) {
    if (datagram.size() <= kSegmentHeader || !is_segment(datagram.data())) return;
    const SegmentHeader it = unpack_segment(load<uint64_t>(datagram.data()));
    const auto part = datagram.subspan(kSegmentHeader);
    if (it.report) {
      if (datagram.size() >= kReportBytes) reports_.add(1, it, load<uint64_t>(part.data()));
      (void)reports_.take_arrived(1, it);
      return;
    }
    if (!sizes_.is_valid(it, part.size())) return;
    PartialPacket* packet = packets_.find(1, it);
    if (packet == nullptr) {
      while (PartialPacket* const earlier = packets_.unreported_before(1, it)) earlier->reported = earlier->arrived;
      packet = &begin(it);
    }
    packet->add(it, part, sizes_);
    (void)packets_.look([](PartialPacket& overdue) { overdue.reported = overdue.arrived; });
    if (!packet->complete()) return;
    if (packet->bytes > sizes_.packet_bytes()) fail("a packet longer than the longest");
    for (size_t i = 0; i < packet->bytes; ++i) {
      if (packet->data[i] == kNothing) fail("a complete packet with a hole");
    }
    delete[] packet->data;
    packets_.end(*packet);
  }

 private:
  PartialPacket& begin(const SegmentHeader& name) {
    auto* const buffer = new uint8_t[sizes_.packet_bytes()];
    std::fill_n(buffer, sizes_.packet_bytes(), kNothing);
    void* replaced = nullptr;
    PartialPacket& it = packets_.begin({.from = 1, .name = name, .buffer = buffer, .data = buffer}, replaced);
    delete[] static_cast<uint8_t*>(replaced);
    return it;
  }

  const SegmentSizes sizes_;
  PartialPackets packets_;
  SegmentReports reports_;
};

}  // namespace
}  // namespace gradlane::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gradlane;
  if (size < 2) return 0;
  test::Receiver receiver({.part = data[0] % 32U + 1, .count = data[1] % 64U + 1});
  std::span<const uint8_t> rest(data + 2, size - 2);
  while (!rest.empty()) {
    const size_t bytes = std::min<size_t>(rest[0], rest.size() - 1);
    std::vector<uint8_t> datagram(rest.begin() + 1, rest.begin() + 1 + static_cast<ptrdiff_t>(bytes));
    for (size_t i = kSegmentHeader; i < bytes; ++i) datagram[i] &= 0x7f;  // never kNothing
    receiver.take(datagram);
    rest = rest.subspan(1 + bytes);
  }
  return 0;
}
