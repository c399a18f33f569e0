// bundle_fuzz.cc - libFuzzer target: parses any frame as a bundle, and restores the packets of a valid one
//
// Aborts if a restored packet is not one that could be delivered, or if two readers of a bundle disagree. The frame and
// the restored packets lie in heap blocks of their exact sizes, so that AddressSanitizer finds accesses outside. Input:
//   byte 0   bit 0: the checksums of the frame are made right, so that damage gets past them
//            bit 1: also the lengths and the mark of a bundle, so that damage reaches the records
//            bits 2 to 7: the MTU, in steps of 32 bytes from 64 on
//   then the frame
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dataplane/accelerator/engine/bundle.h"
#include "tests/dataplane/accelerator/engine/frames.h"

namespace gradlane::test {
namespace {

using accel::BundleFault;
using accel::BundleReader;
using accel::PacketView;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "bundle_fuzz: %s\n", what.c_str());
  std::abort();
}

void put_right(Bytes& frame, uint8_t flags) {
  if ((flags & 2) != 0 && frame.size() >= kL4 + 28) {
    put16(frame, 12, 0x0800);
    frame[kIp] = 0x45;
    put16(frame, kIp + 2, static_cast<unsigned>(frame.size() - kIp));
    put16(frame, kIp + 6, 0x4000);
    const bool udp = frame[kIp + 9] % 2 != 0;
    frame[kIp + 9] = udp ? 17 : 6;
    if (udp) {
      put16(frame, kL4 + 4, static_cast<unsigned>(frame.size() - kL4));
      put16(frame, kL4 + 6, 1);
    } else {
      frame[kL4 + 12] =
          static_cast<uint8_t>(std::clamp<size_t>(frame[kL4 + 12] >> 4, 5, (frame.size() - kL4) / 4) << 4);
      frame[kL4 + 13] &= 0xd8;
    }
    const size_t at = payload_at(frame);
    if (at + 4 <= frame.size()) frame[at] = 0xa6;
  }
  if ((flags & 3) != 0) seal_frame(frame);
}

void restore_all(BundleReader& reader, const PacketView& view, size_t mtu) {
  const size_t records = reader.records();
  if (records == 0 || records > accel::kMaxRecords) fail("a number of records that there cannot be");
  std::unique_ptr<uint8_t[]> out(new uint8_t[mtu + 14]);
  for (size_t i = 0; i < records; ++i) {
    const size_t bytes = reader.next(kTosCompressed, {out.get(), mtu + 14});
    if (bytes == 0) fail("a record that was right cannot be restored");
    if (bytes > mtu + 14) fail("a packet longer than the MTU");
    const Bytes packet(out.get(), out.get() + bytes);
    const std::string fault = fault_in(packet);
    if (!fault.empty()) fail("a restored packet with a wrong " + fault);
    const PacketView restored = accel::view_packet(packet);
    if (!may_compress(restored) || !(restored.key == view.key)) fail("a packet of another kind or flow");
    if ((restored.tos & 0xfc) != kTosCompressed || (restored.tos & 3) != (view.tos & 3)) fail("another ToS");
  }
  if (reader.records() != 0 || reader.next(kTosCompressed, {out.get(), mtu + 14}) != 0) fail("one packet more");
}

void execute(uint8_t flags, std::span<const uint8_t> input) {
  Bytes frame(input.begin(), input.end());
  put_right(frame, flags);
  const size_t mtu = 64 + 32 * (flags >> 2);
  std::unique_ptr<uint8_t[]> exact(new uint8_t[frame.size()]);
  std::copy(frame.begin(), frame.end(), exact.get());
  const std::span<const uint8_t> bytes(exact.get(), frame.size());
  const PacketView view = accel::view_packet(bytes);
  if (accel::too_long(bytes, mtu) && 14 + view.length > frame.size()) fail("a view longer than the frame");
  BundleReader reader(select_isa()), again;
  const BundleFault fault = reader.begin(bytes, view, mtu);
  if (fault >= BundleFault::kCount) fail("no such fault");
  if (again.begin(bytes, view, mtu) != fault) fail("two readers that differ");
  if (fault != BundleFault::kNone) {
    if (reader.records() != 0) fail("records of what was refused");
  } else if (reader.kind() == accel::kKindRecords) {
    restore_all(reader, view, mtu);
    restore_all(again, view, mtu);
  } else if (reader.kind() == accel::kKindHello) {
    if (reader.records() != 0) fail("a hello with records");
    if (frame.size() < accel::kHelloFrameBytes) fail("a short hello");
    std::unique_ptr<uint8_t[]> answer(new uint8_t[frame.size()]);
    std::copy(frame.begin(), frame.end(), answer.get());
    const size_t length = answer_hello(answer.get(), view);
    BundleReader asker;
    const std::span<const uint8_t> back(answer.get(), length);
    if (asker.begin(back, accel::view_packet(back), mtu) != BundleFault::kNone) fail("an answer that is refused");
    if (asker.kind() != accel::kKindAnswer || asker.nonce() != reader.nonce()) fail("an answer to something else");
  }
}

}  // namespace
}  // namespace gradlane::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size != 0) gradlane::test::execute(data[0], {data + 1, size - 1});
  return 0;
}
