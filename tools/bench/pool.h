// pool.h - blocks for codec benchmarks, and the operations that are timed on them
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

// Blocks of fp32 side by side: 64 if they fit into L2, fewer of larger blocks. Arrays begin at different cache lines of
// a page. Otherwise equal page offsets alone would slow down accesses (4K aliasing).
class BenchPool {
 public:
  // `max_block_bytes` is the limit for encoded blocks (Codec::max_bytes()).
  BenchPool(size_t block_floats, size_t max_block_bytes, const Samples& data);

  // The output of one call of the codec: a whole block, or a part of it if the codec takes fewer floats per call.
  struct Piece {
    size_t first;  // index in its block
    size_t floats;
    size_t at;  // byte offset in its block
    size_t bytes;
  };

  // Encodes all blocks with `codec`, as input for decode and hop. Clears the states.
  void encode_with(const Codec& codec);
  void clear_states();
  // Returns the codec prepared for one operation on all blocks of in().
  [[nodiscard]] Codec prepared_for(const Codec& codec) const;

  [[nodiscard]] size_t block_bytes() const { return floats_ * sizeof(float); }
  [[nodiscard]] size_t total_bytes() const { return blocks_ * block_bytes(); }

  [[nodiscard]] size_t blocks() const { return blocks_; }
  [[nodiscard]] std::span<const float> in(size_t i) const { return {in_ + i * floats_, floats_}; }
  [[nodiscard]] std::span<const float> local(size_t i) const { return {local_ + i * floats_, floats_}; }
  // Returns the position of a block in the tensor that all blocks form.
  [[nodiscard]] size_t position(size_t i) const { return i * floats_; }
  // Return a block's state arrays; null if the codec has fewer.
  [[nodiscard]] float* residual(size_t i, const Codec& codec) {
    return codec.states() > 0 ? residual_ + i * floats_ : nullptr;
  }
  [[nodiscard]] float* second(size_t i, const Codec& codec) {
    return codec.states() > 1 ? second_ + i * floats_ : nullptr;
  }
  [[nodiscard]] std::span<float> out(size_t i) { return {out_ + i * floats_, floats_}; }
  [[nodiscard]] std::span<const Piece> pieces(size_t i) const { return pieces_[i]; }
  [[nodiscard]] std::span<const uint8_t> bytes(size_t i, const Piece& piece) const {
    return {encoded_ + i * stride_ + piece.at, piece.bytes};
  }
  [[nodiscard]] std::span<uint8_t> target(size_t i) { return {target_ + i * stride_, stride_}; }

 private:
  size_t floats_;
  size_t blocks_;
  size_t stride_;  // bytes between encoded blocks
  BenchMemory memory_;
  float* in_;
  float* local_;
  float* residual_;
  float* second_;
  float* out_;
  uint8_t* encoded_;
  uint8_t* target_;
  std::vector<std::vector<Piece>> pieces_;
};

struct BenchOp {
  const char* name;
  const char* label;  // head of its column
  bool (*possible)(const Codec& codec);
  bool keeps = false;  // true if it reads the states that its previous pass wrote
  // Runs the operation once over all blocks. `codec` is prepared for them.
  void (*run)(const Codec& codec, BenchPool& pool) = nullptr;
};

[[nodiscard]] std::span<const BenchOp> bench_ops();

// Copies all blocks with memcpy, for comparison.
void copy_blocks(const Codec&, BenchPool& pool);

}  // namespace gradlane
