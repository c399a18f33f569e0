// trunc.cc - codec trunc: the upper bits of each float as they are, cut and not rounded (any thread)
//
// docs/codec-format.md says the same in prose. A baseline: no shortcuts.
#include "compress/baselines.h"
#include "compress/scalar/elements.h"
#include "compress/scalar/scalar.h"

namespace gradlane::scalar {
namespace {

constexpr uint32_t kQuiet = 0x00400000;  // keeps a NaN from becoming Inf

size_t whole_groups(size_t floats) { return floats / kGroupFloats * kGroupFloats; }

float load(const float* p, size_t i) {
  float f;  // floats may lie at odd addresses
  std::memcpy(&f, p + i, sizeof f);
  return f;
}

// One stream of bits, the lowest of a byte first.
template <class Next>
EncodeResult write(const CodecParams& params, size_t floats, uint8_t* out, size_t room, Next next) {
  if (room < trunc_bytes(params.bits, floats)) {
    floats = smaller(floats, whole_groups(smaller(room, kMaxPacket) * 8 / params.bits));
  }
  uint64_t held = 0;
  unsigned count = 0;
  uint8_t* at = out;
  for (size_t i = 0; i < floats; ++i) {
    const float f = next(i);
    const uint32_t bits = to_bits(f) | (std::isnan(f) ? kQuiet : 0);
    held |= static_cast<uint64_t>(bits >> (32 - params.bits)) << count;
    for (count += params.bits; count >= 8; count -= 8, held >>= 8) *at++ = static_cast<uint8_t>(held);
  }
  if (count != 0) *at++ = static_cast<uint8_t>(held);
  return {floats, static_cast<size_t>(at - out)};
}

// Float i, of a block that is long enough.
float read(const CodecParams& params, const uint8_t* block, size_t bytes, size_t i) {
  const size_t bit = i * params.bits;
  uint64_t word = 0;
  std::memcpy(&word, block + bit / 8, smaller(sizeof word, bytes - bit / 8));
  const auto upper = static_cast<uint32_t>(word >> bit % 8) & ((1U << params.bits) - 1);
  return to_float(upper << (32 - params.bits));
}

EncodeResult encode(const CodecParams& params, const EncodeJob& job) noexcept {
  return write(params, job.floats, job.out, job.room, [&](size_t i) { return load(job.in, i); });
}

Status validate(const CodecParams& params, const uint8_t*, size_t bytes, size_t floats) noexcept {
  if (floats / 8 > bytes) return Status::kShort;  // not by a product: `floats` may be anything
  return compare_length(bytes, trunc_bytes(params.bits, floats));
}

template <bool kAdd>
Status decode(const CodecParams& params, const uint8_t* block, size_t bytes, float* out, size_t floats) noexcept {
  if (const Status status = validate(params, block, bytes, floats); status != Status::kOk) return status;
  for (size_t i = 0; i < floats; ++i) {
    float f = read(params, block, bytes, i);
    if (kAdd) f = add(load(out, i), f);
    std::memcpy(out + i, &f, sizeof f);
  }
  return Status::kOk;
}

HopResult hop(const CodecParams& params, const HopJob& job) noexcept {
  const Status status = validate(params, job.block, job.block_bytes, job.floats);
  if (status != Status::kOk) return {status, 0, 0};
  const auto sum = [&](size_t i) {
    return add(read(params, job.block, job.block_bytes, job.first + i), load(job.local, job.first + i));
  };
  const EncodeResult written = write(params, job.floats - job.first, job.out, job.room, sum);
  return {Status::kOk, written.floats, written.bytes};
}

}  // namespace

constexpr CodecOps kTrunc = {encode, validate, decode<false>, decode<true>, hop};

}  // namespace gradlane::scalar
