// probe_fuzz.cc - libFuzzer target: parses any bytes as a probe and as an answer to one
//
// Aborts if an accepted probe is not what write_probe() makes of the same fields, or if an answer with a wrong nonce is
// accepted. Input:
//   byte 0   bit 0: the CRC is made right
//            bit 1: the magic and the version are made right, so that other fields get past them
//   then the payload, in a heap block of its exact size
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "collectives/crc32c.h"
#include "dataplane/frame/probe.h"
#include "dataplane/lane/probe_board.h"

namespace gradlane::test {
namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "probe_fuzz: %s\n", what);
  std::abort();
}

void put_right(std::vector<uint8_t>& bytes, uint8_t flags) {
  if (bytes.size() < kLeastProbe) return;
  if ((flags & 2) != 0) {
    store(bytes.data(), kProbeMagic);
    bytes[2] = kProbeVersion;
  }
  if ((flags & 1) == 0) return;
  const uint32_t behind = crc32c(kCrcStart, bytes.data() + kLeastProbe, bytes.size() - kLeastProbe);
  store(bytes.data() + offsetof(ProbeHeader, crc), ~crc32c(behind, bytes.data(), offsetof(ProbeHeader, crc)));
}

void execute(uint8_t flags, std::span<const uint8_t> input) {
  std::vector<uint8_t> bytes(input.begin(), input.end());
  put_right(bytes, flags);
  const auto header = parse_probe(bytes);
  if (header && !is_probe(bytes)) fail("a probe without the magic");
  if (!header) return;
  std::vector<uint8_t> again(bytes.size());
  write_probe(again, *header);
  if (std::memcmp(again.data(), bytes.data(), offsetof(ProbeHeader, crc)) != 0) fail("written otherwise than read");

  const ProbeHeader reply = reply_to(*header, header->sender, 1, bytes.size());
  write_probe(again, reply);
  const auto answer = parse_probe(again);
  if (!answer || answer->kind != ProbeKind::kReply || answer->nonce != header->nonce) fail("a reply that is none");

  ProbeBoard board;
  ProbeOrder order{.id = header->id, .nonce = header->nonce, .tos = header->tos, .bytes = bytes.size()};
  board.post(order.id % ProbeBoard::kSlots, order);
  if (board.put_answer(*answer, 0, bytes.size(), 1)) fail("an answer before it was asked");
  if (!board.next(1, order)) fail("a probe that is not sent");
  ProbeHeader other = *answer;
  other.nonce = ~other.nonce;
  if (board.put_answer(other, 0, bytes.size(), 2)) fail("an answer with another nonce");
  if (!board.put_answer(*answer, 0, bytes.size(), 2)) fail("an answer that is not taken");
}

}  // namespace
}  // namespace gradlane::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size != 0) gradlane::test::execute(data[0], {data + 1, size - 1});
  return 0;
}
