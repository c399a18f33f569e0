// frame_fuzz.cc - libFuzzer target: parses any frame, answers it if it asks for that, and parses the answer
//
// Aborts if a verdict or an answer contradicts itself. The frame lies in a heap block of its exact size, so that
// AddressSanitizer finds accesses outside. A packet for the exchange is also opened as a sealed one. Input:
//   byte 0   bit 0: the checksum of the IP header is made right, so that damage gets past it
//            bit 1: the ICMP checksum, too
//            bit 2: a packet for the exchange is sealed, and must then open
//   then the frame
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "dataplane/frame/frame.h"
#include "dataplane/secure/secure_link.h"
#include "tests/dataplane/frame/frame_fixture.h"

namespace gradlane::test {
namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "frame_fuzz: %s\n", what);
  std::abort();
}

void put_right(Bytes& frame, uint8_t flags) {
  if (frame.size() < kL4 || get16(frame, 12) != 0x0800) return;
  const size_t header = (frame[kIp] & 15U) * 4;
  const size_t end = kIp + get16(frame, kIp + 2);
  if (header < 20 || frame.size() < kIp + header) return;
  if ((flags & 1) != 0) seal_ip(frame);
  if ((flags & 2) != 0 && frame[kIp + 9] == 1 && end <= frame.size() && kIp + header + 4 <= end) seal_icmp(frame);
}

void check_answer(const Bytes& answer, const ParsedFrame& request) {
  // The address of the asker, as the request gives it.
  LocalAddress asker{{}, request.source_ip, kPort, kPorts};
  std::copy(answer.begin(), answer.begin() + 6, asker.mac.begin());
  const ParsedFrame reply = parse_frame(answer, asker, kClassifier);
  if (!std::equal(kOurMac.begin(), kOurMac.end(), answer.begin() + 6)) fail("an answer from another MAC");
  if (request.verdict == FrameVerdict::kArp) {
    if (asker.mac != request.source_mac) fail("an ARP reply to somebody else");
    if (reply.verdict != FrameVerdict::kArp) fail("an ARP reply that is none");
    if (reply.source_ip != kOurIp || reply.source_mac != kOurMac) fail("an ARP reply that lies");
    return;
  }
  // A node drops echo replies: if the IP header is in order, the verdict is kHost.
  if (reply.verdict != FrameVerdict::kHost) fail("an echo reply that is not in order");
  if (answer[kL4] != 0) fail("an echo reply of another type");
  if (get16(answer, kL4 + 2) != slow_checksum(answer, kL4, answer.size(), kL4 + 2)) fail("a wrong ICMP checksum");
}

// Opens the payload as a sealed packet, which only one that this program has sealed may be. The packet is in a block of
// its exact size.
void check_envelope(const Bytes& frame, const ParsedFrame& parsed, bool seal) {
  static const RingKey key(Bytes(32, 0x5a));
  static const LinkEnds ends{kTheirIp, kOurIp, kPort, kPort};
  static const KeyRing keys(key);
  static LooseCipher cipher(Security::kEncrypted);
  static SecureLink link(keys, Security::kEncrypted, ends.reversed());
  const auto payload = frame.begin() + static_cast<ptrdiff_t>(kFrameBytes);
  Bytes exact(payload, payload + static_cast<ptrdiff_t>(parsed.bytes));
  exact.shrink_to_fit();
  if (seal) {
    Bytes sealed(exact.size() + sealed_bytes(EnvelopeKind::kProbe));
    cipher.seal_probe(key, exact.data(), exact.size(), ends, sealed.data());
    exact = std::move(sealed);
  }
  const auto envelope = envelope_of(exact);
  if (seal && !envelope) fail("an envelope that is none");
  if (!envelope) return;
  Bytes copy = exact;
  if (link.open(*envelope, copy.data(), copy.size()).verdict == SecureLink::Verdict::kGood)
    fail("a link that nobody made");
  const auto bytes = cipher.open(keys, *envelope, exact.data(), exact.size(), ends);
  if (bytes.has_value() != seal ||
      (bytes && !std::equal(exact.begin(), exact.begin() + static_cast<ptrdiff_t>(*bytes), payload))) {
    fail("a tag that lies");
  }
}

void execute(uint8_t flags, std::span<const uint8_t> input) {
  Bytes frame(input.begin(), input.end());
  put_right(frame, flags);
  const ParsedFrame parsed = parse_frame(frame, kLocal, kClassifier);
  if (parsed.verdict >= FrameVerdict::kCount) fail("no such verdict");
  const Bytes before = frame;
  const size_t bytes = answer_frame(frame, parsed, kLocal);
  if (parsed.verdict == FrameVerdict::kGradlane) {
    if (kFrameBytes + parsed.bytes > frame.size()) fail("a payload longer than the frame");
    if (parsed.traffic == TrafficClass::kHost) fail("a packet of no gradlane class");
    if (!std::equal(kOurMac.begin(), kOurMac.end(), frame.begin())) fail("a packet to another MAC");
    check_envelope(frame, parsed, (flags & 4) != 0);
  }
  if (parsed.verdict == FrameVerdict::kProbe && kFrameBytes + parsed.bytes > frame.size()) fail("a probe too long");
  if (bytes == 0) {
    if (parsed.verdict == FrameVerdict::kEcho) fail("a ping without an answer");
    if (frame != before) fail("no answer, but another frame");
    return;
  }
  if (parsed.verdict != FrameVerdict::kArp && parsed.verdict != FrameVerdict::kEcho) fail("an unasked answer");
  if (bytes > frame.size()) fail("an answer longer than its frame");
  frame.resize(bytes);
  check_answer(frame, parsed);
}

}  // namespace
}  // namespace gradlane::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size != 0) gradlane::test::execute(data[0], {data + 1, size - 1});
  return 0;
}
