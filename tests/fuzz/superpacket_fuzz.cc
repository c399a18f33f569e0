// superpacket_fuzz.cc - libFuzzer target: cuts any frame with any header into packets, and joins these again
//
// Aborts if a packet that was cut could not be delivered, or if joined packets differ after they are cut again. Frames
// and packets lie in heap blocks of their exact sizes, so that AddressSanitizer finds accesses outside. Input: the
// header of 10 bytes, then the frame.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "dataplane/accelerator/packet/superpacket.h"

namespace gradlane::test {
namespace {

struct Block {
  explicit Block(size_t count) : bytes(new uint8_t[count]), size(count) {}
  std::unique_ptr<uint8_t[]> bytes;
  size_t size;
  [[nodiscard]] std::span<uint8_t> all() const noexcept { return {bytes.get(), size}; }
};

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "superpacket_fuzz: %s\n", what);
  std::abort();
}

std::vector<Block> cut(const VnetHeader& header, std::span<const uint8_t> input) {
  const Block frame(input.size());
  std::ranges::copy(input, frame.bytes.get());
  SuperpacketCutter cutter;
  std::vector<Block> packets;
  if (!cutter.begin(header, frame.all())) return packets;
  while (const size_t bytes = cutter.next_bytes()) {
    if (cutter.several() && bytes > 14 + 8 + 65535) fail("a packet longer than there are");
    packets.emplace_back(bytes);
    cutter.next(packets.back().bytes.get());
    if (packets.size() > input.size()) fail("more packets than bytes");
  }
  if (packets.empty()) fail("nothing of a frame that was taken");
  return packets;
}

void put_together(const std::vector<Block>& packets) {
  SuperpacketJoiner joiner;
  for (size_t first = 0; first < packets.size();) {
    size_t next = first + 1;
    if (joiner.begin(packets[first].all())) {
      while (next < packets.size() && joiner.add(packets[next].all())) ++next;
    }
    if (next - first > SuperpacketJoiner::kMostPackets) fail("more packets than there is place for");
    if (next - first > 1) {
      joiner.finish();
      std::vector<uint8_t> whole(joiner.front().begin(), joiner.front().end());
      for (const auto part : joiner.payload()) whole.insert(whole.end(), part.begin(), part.end());
      const std::vector<Block> again = cut(joiner.header(), whole);
      if (again.size() != next - first) fail("another number of packets");
      for (size_t i = 0; i < again.size(); ++i) {
        const auto before = packets[first + i].all(), after = again[i].all();
        // Bytes 18 to 25 may differ: the IP identification has no meaning in a packet that must not be fragmented.
        if (before.size() != after.size()) fail("a packet of another length");
        if (std::memcmp(before.data(), after.data(), 18) != 0) fail("another packet");
        if (std::memcmp(before.data() + 26, after.data() + 26, before.size() - 26) != 0) fail("other bytes");
      }
    }
    first = next;
  }
}

}  // namespace
}  // namespace gradlane::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gradlane;
  VnetHeader header;
  if (size < sizeof(header) || size > 70000) return 0;
  std::memcpy(&header, data, sizeof(header));
  test::put_together(test::cut(header, {data + sizeof(header), size - sizeof(header)}));
  return 0;
}
