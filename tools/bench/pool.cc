// pool.cc - blocks for codec benchmarks, and the operations that are timed on them
#include "tools/bench/pool.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"
#include "tools/bench/settle.h"

namespace gradlane {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
constexpr size_t kMaxBlocks = 64;
// bytes of fp32, unless one block is larger; three such arrays fit into L2
constexpr size_t kPoolBytes = size_t{256} << 10;

// Number of floats that every codec encodes in one call. A codec may cut longer inputs into pieces, which take more
// bytes.
constexpr size_t kOneGo = 8192;

constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

void require(bool ok) {
  if (!ok) throw SetupError("a benchmark met a block that does not decode: this is a bug in gradlane");
}

// Encodes a block in as many calls as the codec needs. Stores the pieces in `pieces`, unless that is null.
template <bool kStates>
void encode_block(const Codec& codec, BenchPool& pool, size_t i, std::vector<BenchPool::Piece>* pieces, uint8_t* out,
                  size_t room) {
  const std::span<const float> in = pool.in(i);
  float* const residual = kStates ? pool.residual(i, codec) : nullptr;
  float* const second = kStates ? pool.second(i, codec) : nullptr;
  for (size_t first = 0, at = 0; first < in.size();) {
    const EncodeResult done = codec.encode({.in = in.data() + first,
                                            .residual = residual == nullptr ? nullptr : residual + first,
                                            .floats = in.size() - first,
                                            .out = out + at,
                                            .room = room - at,
                                            .position = pool.position(i) + first,
                                            .second = second == nullptr ? nullptr : second + first});
    require(done.floats > 0);
    if (pieces != nullptr) pieces->push_back({first, done.floats, at, done.bytes});
    first += done.floats;
    at += done.bytes;
  }
}

template <bool kStates>
void encode(const Codec& codec, BenchPool& pool) {
  for (size_t i = 0; i < pool.blocks(); ++i) {
    encode_block<kStates>(codec, pool, i, nullptr, pool.target(i).data(), pool.target(i).size());
  }
}

// Calls visit(block's number, piece, its bytes, its floats of out()) for all pieces.
template <class Visit>
void for_pieces(BenchPool& pool, Visit visit) {
  for (size_t i = 0; i < pool.blocks(); ++i) {
    for (const BenchPool::Piece& piece : pool.pieces(i)) {
      visit(i, piece, pool.bytes(i, piece), pool.out(i).subspan(piece.first, piece.floats));
    }
  }
}

template <bool kValidate>
void decode(const Codec& codec, BenchPool& pool) {
  for_pieces(pool, [&](size_t, const BenchPool::Piece&, std::span<const uint8_t> bytes, std::span<float> out) {
    if (kValidate) require(codec.validate(bytes, out.size()) == Status::kOk);
    require(codec.decode(bytes, out) == Status::kOk);
  });
}

void decode_add(const Codec& codec, BenchPool& pool) {
  for_pieces(pool, [&](size_t, const BenchPool::Piece&, std::span<const uint8_t> bytes, std::span<float> out) {
    require(codec.decode_add(bytes, out) == Status::kOk);
  });
}

template <bool kValidate, bool kStates>
void hop(const Codec& codec, BenchPool& pool) {
  for_pieces(pool, [&](size_t i, const BenchPool::Piece& piece, std::span<const uint8_t> bytes, std::span<float>) {
    if (kValidate) require(codec.validate(bytes, piece.floats) == Status::kOk);
    float* const residual = kStates ? pool.residual(i, codec) : nullptr;
    float* const second = kStates ? pool.second(i, codec) : nullptr;
    HopJob job{.block = bytes.data(),
               .block_bytes = bytes.size(),
               .local = pool.local(i).data() + piece.first,
               .residual = residual == nullptr ? nullptr : residual + piece.first,
               .floats = piece.floats,
               .first = 0,
               .out = pool.target(i).data(),
               .room = pool.target(i).size(),
               .position = pool.position(i) + piece.first,
               .second = second == nullptr ? nullptr : second + piece.first};
    while (job.first < job.floats) {
      const HopResult done = codec.hop(job);
      require(done.status == Status::kOk && done.floats > 0);
      job.first += done.floats;
    }
  });
}

void scan(const Codec& codec, BenchPool& pool) {
  const Codec settled = pool.prepared_for(codec);
  asm volatile("" : : "r"(&settled) : "memory");  // keeps the compiler from leaving the scan out
}

// Scans all blocks with their states, as the exchange does before an operation with feedback.
void scan_states(const Codec& codec, BenchPool& pool) {
  constexpr size_t kSlice = 32768;
  const size_t all = pool.total_bytes() / sizeof(float);
  const float* const residual = pool.residual(0, codec);
  const float* const second = pool.second(0, codec);
  Codec own = codec;
  const auto scan = std::make_unique<TensorScan>();
  while (scan->pass < own.passes()) {
    // later passes leave out values that do not matter
    while ((scan->values = std::clamp<uint64_t>(scan->next, scan->values, all)) < all) {
      const size_t first = scan->values;
      own.scan(*scan, {pool.in(0).data() + first, residual == nullptr ? nullptr : residual + first,
                       second == nullptr ? nullptr : second + first, std::min(kSlice, all - first), first});
    }
    own.end_pass(*scan);
  }
  own.finish_scan(*scan, 0);
  asm volatile("" : : "r"(&own) : "memory");  // keeps the compiler from leaving the scan out
}

bool always(const Codec&) { return true; }
bool adds(const Codec& codec) { return codec.row().is_additive; }
bool looks(const Codec& codec) { return codec.passes() > 0; }
bool looks_back(const Codec& codec) { return codec.passes() > 0 && codec.has_feedback(); }
bool feeds_back(const Codec& codec) { return codec.has_feedback(); }
bool adds_back(const Codec& codec) { return codec.has_feedback() && codec.row().is_additive; }

constexpr BenchOp kOps[] = {
    {"encode", "encode", always, false, encode<false>},
    {"decode", "decode", always, false, decode<false>},
    {"validate+decode", "val+dec", always, false, decode<true>},
    {"decode_add", "dec_add", always, false, decode_add},
    {"hop", "hop", adds, false, hop<false, false>},
    {"validate+hop", "val+hop", adds, false, hop<true, false>},
    {"hop_feedback", "hop+fb", adds_back, true, hop<false, true>},
    {"encode_feedback", "encode+fb", feeds_back, true, encode<true>},
    {"look", "look", looks, false, scan},
    {"look_feedback", "look+fb", looks_back, true, scan_states},
};

}  // namespace

BenchPool::BenchPool(size_t block_floats, size_t max_block_bytes, const Samples& data)
    : floats_(block_floats),
      blocks_(std::clamp(kPoolBytes / (block_floats * sizeof(float)), size_t{1}, kMaxBlocks)),
      stride_(round_up(max_block_bytes + (block_floats > kOneGo ? max_block_bytes / 16 : 0), kLine)),
      memory_(nullptr, nullptr),
      pieces_(blocks_) {
  const size_t float_array = round_up(total_bytes(), kPage);
  const size_t block_array = round_up(blocks_ * stride_, kPage);
  constexpr size_t kColour = 11 * kLine;  // each array starts this much later in its page than the one before
  memory_ = allocate_memory(5 * float_array + 2 * block_array + 7 * (kPage + kColour));
  uint8_t* next = memory_.get();
  const auto take = [&next](size_t bytes) { return std::exchange(next, next + bytes + kColour); };
  in_ = reinterpret_cast<float*>(take(float_array));
  local_ = reinterpret_cast<float*>(take(float_array));
  residual_ = reinterpret_cast<float*>(take(float_array));
  second_ = reinterpret_cast<float*>(take(float_array));
  out_ = reinterpret_cast<float*>(take(float_array));
  encoded_ = take(block_array);
  target_ = take(block_array);
  data.fill_arriving(floats_, {in_, blocks_ * floats_});
  data.fill_local(floats_, {local_, blocks_ * floats_});
}

void BenchPool::encode_with(const Codec& codec) {
  for (size_t i = 0; i < blocks_; ++i) {
    pieces_[i].clear();
    encode_block<false>(codec, *this, i, &pieces_[i], encoded_ + i * stride_, stride_);
  }
  clear_states();
  std::fill_n(out_, blocks_ * floats_, 0.0F);
}

void BenchPool::clear_states() {
  std::fill_n(residual_, blocks_ * floats_, 0.0F);
  std::fill_n(second_, blocks_ * floats_, 0.0F);
}

Codec BenchPool::prepared_for(const Codec& codec) const {
  return settled(codec, {std::span<const float>(in_, blocks_ * floats_)}).front();
}

std::span<const BenchOp> bench_ops() { return kOps; }

void copy_blocks(const Codec&, BenchPool& pool) {
  for (size_t i = 0; i < pool.blocks(); ++i) std::memcpy(pool.out(i).data(), pool.in(i).data(), pool.block_bytes());
}

}  // namespace gradlane
