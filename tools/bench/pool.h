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

  // What a codec writes in one go: a whole block, but where it takes fewer floats than that at a time.
  struct Piece {
    size_t first;  // float of its block
    size_t floats;
    size_t at;  // byte of its block
    size_t bytes;
  };

  // Encodes all blocks with `codec`; what decode and hop read from then on. Forgets states.
  void encode_with(const Codec& codec);
  void clear_states();
  // The codec for one operation with all blocks of in().
  [[nodiscard]] Codec settled_for(const Codec& codec) const;

  [[nodiscard]] size_t block_bytes() const { return floats_ * sizeof(float); }
  [[nodiscard]] size_t total_bytes() const { return blocks_ * block_bytes(); }

  [[nodiscard]] size_t blocks() const { return blocks_; }
  [[nodiscard]] std::span<const float> in(size_t i) const { return {in_ + i * floats_, floats_}; }
  [[nodiscard]] std::span<const float> local(size_t i) const { return {local_ + i * floats_, floats_}; }
  // Where a block is in the tensor that all of them are.
  [[nodiscard]] size_t position(size_t i) const { return i * floats_; }
  // The state arrays; null where the codec has fewer.
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
  const char* label;  // a column's head
  bool (*possible)(const Codec& codec);
  bool keeps = false;  // it goes on from the states that it left
  // Once over all blocks. `codec` is settled for them.
  void (*run)(const Codec& codec, BenchPool& pool) = nullptr;
};

[[nodiscard]] std::span<const BenchOp> bench_ops();

// memcpy of all blocks, the yardstick.
void copy_blocks(const Codec&, BenchPool& pool);

}  // namespace gradlane
