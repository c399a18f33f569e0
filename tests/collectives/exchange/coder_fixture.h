// coder_fixture.h - combinations of element type and codec, for tests of a Coder
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "collectives/exchange/coder.h"
#include "tests/collectives/exchange/reference_elements.h"
#include "tests/compress/isa_test.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test::coder_test {

// An element type, a codec and an instruction set. Tests pass spans that begin at odd addresses and end where their
// memory ends.
struct CoderCase {
  ElementType type;
  bool coded;   // elements go through the codec
  Codec codec;  // for the type, if it serves it
  Coder coder;

  CoderCase(ElementType element_type, const Codec& named)
      : type(element_type),
        coded(encoded(element_type, Reduction::kSum, named.row().serves)),
        codec(!coded || type == ElementType::kFloat32 ? named
              : type == ElementType::kFloat16         ? named.of(FloatForm::kFp16)
                                                      : named.of(FloatForm::kBf16)),
        coder(element_type, named) {}

  [[nodiscard]] std::string name() const { return std::string(element_name(type)) + " " + codec.name(); }
  [[nodiscard]] size_t width() const { return element_bytes(type); }

  [[nodiscard]] Bytes make(Rng& rng, size_t count) const {
    Bytes bytes(count * width());
    if (coded) {
      const std::vector<float> floats = FloatSource(codec).make(rng, Kind::kMixed, count);
      if (count != 0) std::memcpy(bytes.data(), floats.data(), bytes.size());
      return bytes;
    }
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.bits());
    // Two random doubles rarely have about the same size.
    for (size_t i = 0; type == ElementType::kFloat64 && i < count; i += 1 + rng.below(3)) {
      set_word(bytes, 8, i, word_of((static_cast<double>(rng.below(2000)) - 1000) / 7));
    }
    return bytes;
  }

  // Returns the block that encodes all elements.
  [[nodiscard]] Bytes block(const Bytes& elements) const {
    if (!coded) return elements;
    const size_t count = elements.size() / width();
    std::vector<float> floats(count);  // at least as many bytes as the elements
    if (count != 0) std::memcpy(floats.data(), elements.data(), elements.size());
    return encode_all(codec, floats);
  }

  [[nodiscard]] Bytes sum_block(const Bytes& elements, const Bytes& local) const {
    if (type == ElementType::kFloat32) {
      const std::vector<uint8_t> first = block(elements);
      std::vector<float> sum = decode_all(codec, first, elements.size() / 4);
      const bool sparse = codec.row().layout == Form::kSparse;  // only what the codec selects is added
      const std::vector<float> second =
          sparse ? decode_all(codec, encode_all(codec, floats(local)), sum.size()) : floats(local);
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] += sparse ? second[i] : contribution(codec, second[i]);
        if (std::isnan(sum[i])) sum[i] = float_of(0x7fc00000);
      }
      return encode_all_sums(codec, sum);
    }
    return block(sums(elements, local));
  }

  // Returns the sums of elements of any other type than fp32.
  [[nodiscard]] Bytes sums(const Bytes& elements, const Bytes& local) const {
    Bytes sums(elements.size());
    for (size_t i = 0; i < sums.size() / width(); ++i) {
      set_word(sums, width(), i, reference_sum(type, word_at(elements, width(), i), word_at(local, width(), i)));
    }
    return sums;
  }

  static std::vector<float> floats(const Bytes& bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
};

// A copy of bytes at an odd address. It ends where its allocation ends.
class Odd {
 public:
  explicit Odd(const Bytes& bytes) : bytes_(bytes.size() + 1) {
    std::copy(bytes.begin(), bytes.end(), bytes_.begin() + 1);
  }
  explicit Odd(size_t size) : bytes_(size + 1) {}
  uint8_t* data() { return bytes_.data() + 1; }
  std::span<uint8_t> span() { return {data(), bytes_.size() - 1}; }
  [[nodiscard]] Bytes first(size_t size) const {
    return {bytes_.begin() + 1, bytes_.begin() + 1 + static_cast<ptrdiff_t>(size)};
  }

 private:
  Bytes bytes_;
};

inline constexpr size_t kCounts[] = {0, 1, 15, 31, 32, 33, 64, 100, 129, 1000, 4097};

class CoderTest : public IsaTest {
 protected:
  // Returns fp32, fp16 and bf16 with the codecs that serve them, that encode sums like contributions, and each element
  // by itself; and all other types. `inceptionn:B,literal` is left out, because other bytes come of what its blocks
  // decode to. codecs_test.cc tests all codecs.
  static std::vector<CoderCase> ways() {
    std::vector<CoderCase> list;
    for (const CodecRow& row : codec_table()) {
      const Codec of_row = codec(row.example);
      const bool by_element = row.is_additive && row.granule <= kGroupFloats && row.id != CodecId::kInceptionnLiteral;
      if (!by_element || of_row.selects()) continue;
      for (const ElementType type : {ElementType::kFloat32, ElementType::kFloat16, ElementType::kBfloat16}) {
        if (encoded(type, Reduction::kSum, row.serves)) list.emplace_back(type, of_row);
      }
    }
    for (const ElementType type : {ElementType::kFloat64, ElementType::kFloat16, ElementType::kBfloat16,
                                   ElementType::kInt32, ElementType::kInt64, ElementType::kBytes}) {
      list.emplace_back(type, codec("fixed:10"));
    }
    return list;
  }
};

}  // namespace gradlane::test::coder_test
