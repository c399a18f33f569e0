// codec_fuzz.cc - libFuzzer target: runs any block through any codec and op, on every instruction set of this CPU
//
// Aborts if an instruction set disagrees with the scalar one, or if validate() and decode() disagree. Spans lie in heap
// blocks of their exact size, so that AddressSanitizer finds accesses outside. Input:
//   byte 0    codec     byte 3  first, in granules   byte 6  source of the floats
//   byte 1    op        byte 4  room, low byte       byte 7  offset of all spans; from 128 on, the codec scans first
//   byte 2    floats    byte 5  high bits: room's 3,    byte 8  the block; also the floats, if byte 6 says so
//                               floats' 3 above them
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/compress/test_calls.h"

namespace gradlane::test {
namespace {

constexpr size_t kHeader = 8;

struct Variants {
  Variants(CodecId id, const CodecArguments& arguments, FloatForm elements = FloatForm::kFp32) {
    for (const Isa isa : kIsas) {
      if (!isa_supported(isa)) continue;
      const Codec codec = find_codec(id, arguments, isa).value();
      codecs.push_back(elements == FloatForm::kFp32 ? codec : codec.of(elements));
    }
  }
  std::vector<Codec> codecs;  // the same codec on each instruction set, the scalar one first
};

// Returns the codecs of the table: each row's example, also with the least and the greatest of each parameter, with the
// option, and with the lattice; then those for elements of 16 bits.
const std::vector<Variants>& table() {
  static const std::vector<Variants> all = [] {
    std::vector<Variants> made;
    for (const CodecRow& row : codec_table()) {
      CodecArguments arguments = find_codec(row.example).arguments();
      const auto add = [&] { made.emplace_back(row.id, arguments); };
      add();
      for (const unsigned bits : {row.min_bits, row.max_bits}) {
        if (row.max_bits == 0) break;
        arguments.bits = static_cast<uint8_t>(bits);
        add();
      }
      const CodecArguments example = arguments;
      for (const unsigned extra : {row.extra.least, row.extra.most}) {
        if (row.extra.most == 0) break;
        arguments.extra = static_cast<uint16_t>(extra);
        add();
      }
      arguments = example;
      for (const unsigned extra : {row.second_extra.least, row.second_extra.most}) {
        if (row.second_extra.most == 0) break;
        arguments.bits = static_cast<uint8_t>(extra);
        add();
      }
      arguments = example;
      if (row.option != nullptr) {
        arguments.bits |= kOptionBit;
        add();
      }
      if (row.takes_lattice) {
        arguments.value_bits = 10;
        add();
      }
    }
    for (const CodecRow& row : codec_table()) {
      const CodecArguments arguments = find_codec(row.example).arguments();
      if (row.bf16 != nullptr) made.emplace_back(row.id, arguments, FloatForm::kBf16);
      if (row.fp16 != nullptr) made.emplace_back(row.id, arguments, FloatForm::kFp16);
    }
    return made;
  }();
  return all;
}

[[noreturn]] void fail(const Codec& codec, const Call& call, const std::string& what) {
  std::fprintf(stderr, "%s: %s: %s\n", isa_name(codec.isa()), describe(codec, call).c_str(), what.c_str());
  std::abort();
}

// Returns floats from the input, repeated until there are `count` of them, or random floats.
std::vector<float> floats_of(const Codec& codec, std::span<const uint8_t> data, uint8_t choice, size_t count) {
  if (choice % 2 == 0 && data.size() >= sizeof(float)) {
    std::vector<float> floats(count);
    const size_t whole = data.size() / sizeof(float);
    for (size_t i = 0; i < count; ++i) std::memcpy(&floats[i], &data[i % whole * sizeof(float)], sizeof(float));
    return floats;
  }
  Rng rng(choice);
  return FloatSource(codec).make(rng, kKinds[choice / 2 % kKinds.size()], count);
}

void check(std::span<const uint8_t> header, std::span<const uint8_t> data) {
  const Variants& variants = table()[header[0] % table().size()];
  Codec scalar = variants.codecs[0];
  Call call{};
  call.op = static_cast<Op>(header[1] % kOps);
  const bool feedback = call.op == Op::kEncodeFeedback || call.op == Op::kHopFeedback;
  if (feedback && !scalar.has_feedback()) return;
  // up to 2047, which is several records of any codec
  const size_t count = header[2] | static_cast<size_t>(header[5] >> 3 & 7) << 8;
  const std::vector<float> floats = floats_of(scalar, data, header[6], count);
  const size_t states = feedback ? scalar.states() : 0;
  const std::vector<float> residual = floats_of(scalar, data, static_cast<uint8_t>(header[6] | 1), states * count);
  call.floats = floats;
  call.residual = residual;
  call.block = data;
  call.room = header[4] | static_cast<size_t>(header[5] & 7) << 8;
  call.first = std::min<size_t>(header[3], count / scalar.granule()) * scalar.granule();

  const size_t offset = header[7] % 64;
  const bool ready = header[7] >= 128;
  const float* const owed = states != 0 ? residual.data() : nullptr;
  const float* const second = states > 1 ? owed + count : nullptr;
  if (ready) scalar = ready_for(scalar, floats, owed, second);
  HeapMemory memory(offset);
  const Outcome want = run(scalar, call, memory);
  Call whole = call;
  for (const Codec& unready : variants.codecs) {
    const Codec codec = ready ? ready_for(unready, floats, owed, second) : unready;
    const Outcome got = run(codec, call, memory);
    if (!(got == want)) fail(codec, call, difference(want, got));
    if (got.bytes.size() > call.room && call.op != Op::kDecode && call.op != Op::kDecodeAdd) {
      fail(codec, call, "more bytes than room");
    }
    whole.op = Op::kValidate;
    const Status valid = run(codec, whole, memory).status;
    whole.op = Op::kDecode;
    if ((run(codec, whole, memory).status == Status::kOk) != (valid == Status::kOk)) {
      fail(codec, whole, "validate() and decode() disagree");
    }
  }
}

}  // namespace
}  // namespace gradlane::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using gradlane::test::kHeader;
  if (size >= kHeader) gradlane::test::check({data, kHeader}, {data + kHeader, size - kHeader});
  return 0;
}
