// pool.h - the blocks that a codec benchmark works on, and the operations it times
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "compress/codec.h"
#include "tools/bench/memory.h"
#include "tools/bench/samples.h"

namespace gradlane {

// Blocks of fp32 side by side: 64 where they fit L2, fewer of the large ones. Arrays begin at different cache lines of
// a page, so that none stands in another's way by address alone (4K aliasing).
class BenchPool {
 public:
  // `max_block_bytes` is what no encoded block will exceed (Codec::max_bytes()).
  BenchPool(size_t block_floats, size_t max_block_bytes, const Samples& data);

  // Encodes all blocks with `codec`; what decode and hop read from then on.
  void encode_with(const Codec& codec);

  [[nodiscard]] size_t block_bytes() const { return floats_ * sizeof(float); }
  [[nodiscard]] size_t total_bytes() const { return blocks_ * block_bytes(); }

  [[nodiscard]] size_t blocks() const { return blocks_; }
  [[nodiscard]] std::span<const float> in(size_t i) const { return {in_ + i * floats_, floats_}; }
  [[nodiscard]] std::span<const float> local(size_t i) const { return {local_ + i * floats_, floats_}; }
  [[nodiscard]] float* residual(size_t i) { return residual_ + i * floats_; }
  [[nodiscard]] std::span<float> out(size_t i) { return {out_ + i * floats_, floats_}; }
  [[nodiscard]] std::span<const uint8_t> block(size_t i) const { return {encoded_ + i * stride_, lengths_[i]}; }
  [[nodiscard]] std::span<uint8_t> target(size_t i) { return {target_ + i * stride_, stride_}; }

 private:
  size_t floats_;
  size_t blocks_;
  size_t stride_;  // bytes between encoded blocks
  BenchMemory memory_;
  float* in_;
  float* local_;
  float* residual_;
  float* out_;
  uint8_t* encoded_;
  uint8_t* target_;
  std::vector<size_t> lengths_;
};

struct BenchOp {
  const char* name;
  const char* label;  // a column's head
  bool needs_feedback;
  void (*run)(const Codec& codec, BenchPool& pool);  // once over all blocks
};

[[nodiscard]] std::span<const BenchOp> bench_ops();

// memcpy of all blocks, the yardstick.
void copy_blocks(const Codec&, BenchPool& pool);

}  // namespace gradlane
