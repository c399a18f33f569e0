// pool.cc - the blocks that a codec benchmark works on, and the operations it times
#include "tools/bench/pool.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace gradlane {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
constexpr size_t kMaxBlocks = 64;
constexpr size_t kPoolBytes = size_t{256} << 10;  // of fp32, unless one block is larger; three such arrays fit L2

constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

void require(bool ok) {
  if (!ok) throw SetupError("a benchmark met a block that does not decode: this is a bug in gradlane");
}

void encode(const Codec& codec, BenchPool& pool) {
  for (size_t i = 0; i < pool.blocks(); ++i) (void)codec.encode(pool.in(i), pool.target(i));
}

void encode_feedback(const Codec& codec, BenchPool& pool) {
  for (size_t i = 0; i < pool.blocks(); ++i) (void)codec.encode_feedback(pool.in(i), pool.residual(i), pool.target(i));
}

void decode(const Codec& codec, BenchPool& pool) {
  for (size_t i = 0; i < pool.blocks(); ++i) require(codec.decode(pool.block(i), pool.out(i)) == Status::kOk);
}

void validate_decode(const Codec& codec, BenchPool& pool) {
  for (size_t i = 0; i < pool.blocks(); ++i) {
    require(codec.validate(pool.block(i), pool.out(i).size()) == Status::kOk);
    require(codec.decode(pool.block(i), pool.out(i)) == Status::kOk);
  }
}

void decode_add(const Codec& codec, BenchPool& pool) {
  for (size_t i = 0; i < pool.blocks(); ++i) require(codec.decode_add(pool.block(i), pool.out(i)) == Status::kOk);
}

void hop(const Codec& codec, BenchPool& pool) {
  for (size_t i = 0; i < pool.blocks(); ++i) {
    require(codec.hop(pool.block(i), pool.local(i), pool.target(i)).status == Status::kOk);
  }
}

void validate_hop(const Codec& codec, BenchPool& pool) {
  for (size_t i = 0; i < pool.blocks(); ++i) {
    require(codec.validate(pool.block(i), pool.local(i).size()) == Status::kOk);
    require(codec.hop(pool.block(i), pool.local(i), pool.target(i)).status == Status::kOk);
  }
}

void hop_feedback(const Codec& codec, BenchPool& pool) {
  for (size_t i = 0; i < pool.blocks(); ++i) {
    const HopResult result = codec.hop_feedback(pool.block(i), pool.local(i), pool.residual(i), pool.target(i));
    require(result.status == Status::kOk);
  }
}

constexpr BenchOp kOps[] = {
    {"encode", "encode", false, encode},
    {"decode", "decode", false, decode},
    {"validate+decode", "val+dec", false, validate_decode},
    {"decode_add", "dec_add", false, decode_add},
    {"hop", "hop", false, hop},
    {"validate+hop", "val+hop", false, validate_hop},
    {"hop_feedback", "hop+fb", true, hop_feedback},
    {"encode_feedback", "encode+fb", true, encode_feedback},
};

}  // namespace

BenchPool::BenchPool(size_t block_floats, size_t max_block_bytes, const Samples& data)
    : floats_(block_floats),
      blocks_(std::clamp(kPoolBytes / (block_floats * sizeof(float)), size_t{1}, kMaxBlocks)),
      stride_(round_up(max_block_bytes, kLine)),
      memory_(nullptr, nullptr),
      lengths_(blocks_, 0) {
  const size_t float_array = round_up(total_bytes(), kPage);
  const size_t block_array = round_up(blocks_ * stride_, kPage);
  constexpr size_t kColour = 11 * kLine;  // arrays are this much further into their page, each
  memory_ = allocate_memory(4 * float_array + 2 * block_array + 6 * (kPage + kColour));
  uint8_t* next = memory_.get();
  const auto take = [&next](size_t bytes) { return std::exchange(next, next + bytes + kColour); };
  in_ = reinterpret_cast<float*>(take(float_array));
  local_ = reinterpret_cast<float*>(take(float_array));
  residual_ = reinterpret_cast<float*>(take(float_array));
  out_ = reinterpret_cast<float*>(take(float_array));
  encoded_ = take(block_array);
  target_ = take(block_array);
  data.fill_arriving(floats_, {in_, blocks_ * floats_});
  data.fill_local(floats_, {local_, blocks_ * floats_});
}

void BenchPool::encode_with(const Codec& codec) {
  for (size_t i = 0; i < blocks_; ++i) lengths_[i] = codec.encode(in(i), {encoded_ + i * stride_, stride_}).bytes;
  std::fill_n(residual_, blocks_ * floats_, 0.0F);
  std::fill_n(out_, blocks_ * floats_, 0.0F);
}

std::span<const BenchOp> bench_ops() { return kOps; }

void copy_blocks(const Codec&, BenchPool& pool) {
  for (size_t i = 0; i < pool.blocks(); ++i) std::memcpy(pool.out(i).data(), pool.in(i).data(), pool.block_bytes());
}

}  // namespace gradlane
