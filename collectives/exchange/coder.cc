// coder.cc - encoding of elements to blocks, and decoding (lane's thread)
#include "collectives/exchange/coder.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/exchange/elements.h"
#include "compress/layout.h"

namespace gradlane {

namespace {

constexpr size_t kPieceBytes = 2048;

// Returns a codec with its kernels for a type that it serves.
Codec for_type(ElementType type, const Codec& codec) noexcept {
  if (type == ElementType::kFloat16) return codec.of(FloatForm::kFp16);
  return type == ElementType::kBfloat16 ? codec.of(FloatForm::kBf16) : codec;
}

// Returns the codec whose kernels the arithmetic of a type needs.
Codec kernels_of(ElementType type, const Codec& codec) noexcept {
  switch (type) {
    case ElementType::kFloat16:
      return codec_of(FloatForm::kFp16, codec.isa());
    case ElementType::kBfloat16:
      return codec_of(FloatForm::kBf16, codec.isa());
    default:
      return codec;
  }
}

ElementCombine combine_of(const ElementOps& ops, Reduction reduction) noexcept {
  switch (reduction) {
    case Reduction::kMin:
      return ops.min;
    case Reduction::kMax:
      return ops.max;
    default:
      return ops.add;
  }
}

// Copies bytes. Unlike memcpy(), it takes null pointers if there is nothing to copy.
void copy(void* to, const void* from, size_t bytes) noexcept {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace

FailureText packet_fault(const Codec& codec, size_t mtu, size_t around) noexcept {
  const bool chunks = codec.row().granule == 0;
  const bool smaller = chunks && codec.granule() > codec.row().extra.least;
  FailureText text = "codec ";
  text.add(codec.short_name().view()).add(chunks ? ": a chunk of " : ": its shortest run of ").add(codec.granule());
  text.add(" floats can take ").add(codec.max_bytes(codec.granule())).add(" bytes, but MTU ").add(mtu + around);
  text.add(" has room for ").add(mtu - sizeof(LinkHeader) - sizeof(RunHeader)).add(": ");
  return text.add(smaller ? "choose a smaller chunk" : "choose another codec").add(", or raise `mtu` on all nodes");
}

Coder::Coder(ElementType type, const Codec& codec, Reduction reduction) noexcept
    : rounds_once_(codec.row().rounds_once && encoded(type, reduction, codec.row().serves)),
      coded_(!rounds_once_ && encoded(type, reduction, codec.row().serves)),
      kernels_(kernels_of(type, codec)),
      codec_(coded_ ? for_type(type, codec) : kernels_),
      ops_(&element_ops(type)),
      combine_(combine_of(*ops_, reduction)),
      element_bytes_(gradlane::element_bytes(type)),
      granule_(kGranuleBytes / element_bytes_),
      cut_(granule_),
      least_room_(kLongestGroup),
      width_(element_bytes_),
      id_(kNoCodec),
      param_(0) {
  if (coded()) {
    width_ = codec_.row().width;
    id_ = codec_.id();
    param_ = codec_.param();
    cut_ = std::max(granule_, codec_.granule());
    if (cut_ != granule_) least_room_ = codec_.least_bytes(cut_);
  }
}

size_t Coder::max_bytes(size_t elements) const noexcept {
  return coded() ? codec_.max_bytes(elements) : elements * width_;
}

// Returns how many bytes of `room` a run of at most `elements` elements may use, so that it ends at a cut.
size_t Coder::run_room(size_t elements, size_t room) const noexcept {
  if (width_ == 0) return room;
  const size_t most = std::min(elements, kMaxRunElements) * width_;
  if (room >= most) return most;
  return room - static_cast<uint32_t>(room) % static_cast<uint32_t>(cut_ * width_);
}

EncodeJob Coder::job(const void* elements, size_t count, const ElementContext& origin,
                     std::span<uint8_t> out) const noexcept {
  const bool keeps = codec_.has_feedback();
  count = std::min(count, kMaxRunElements);
  return {.in = static_cast<const float*>(elements),
          .residual = keeps ? origin.residual : nullptr,
          .floats = count,
          .out = out.data(),
          .room = run_room(count, out.size()),
          .position = origin.position,
          .second = keeps ? origin.second : nullptr};
}

EncodeResult Coder::encode(const void* elements, size_t count, const ElementContext& origin,
                           std::span<uint8_t> out) const noexcept {
  if (coded()) return codec_.encode(job(elements, count, origin, out));
  return as_it_is(elements, count, out);
}

EncodeResult Coder::encode_sum(const void* elements, size_t count, const ElementContext& origin,
                               std::span<uint8_t> out) const noexcept {
  if (coded()) return codec_.encode_sum(job(elements, count, origin, out));
  return as_it_is(elements, count, out);
}

EncodeResult Coder::as_it_is(const void* elements, size_t count, std::span<uint8_t> out) const noexcept {
  const size_t room = run_room(count, out.size());
  copy(out.data(), elements, room);
  return {room / width_, room};
}

void Coder::finish(void* sums, size_t count, uint64_t position) const noexcept {
  if (coded()) codec_.finish({static_cast<float*>(sums), count}, position);
}

Status Coder::validate(std::span<const uint8_t> block, size_t count) const noexcept {
  return coded() ? codec_.validate(block, count) : compare_words(block.size(), count, width_);
}

HopResult Coder::hop(std::span<const uint8_t> block, const void* local, size_t count, const ElementContext& origin,
                     std::span<uint8_t> out, size_t first) const noexcept {
  const size_t room = run_room(count - first, out.size());
  if (coded()) {
    const bool keeps = codec_.has_feedback();
    return codec_.hop({.block = block.data(),
                       .block_bytes = block.size(),
                       .local = static_cast<const float*>(local),
                       .residual = keeps ? origin.residual : nullptr,
                       .floats = count,
                       .first = first,
                       .out = out.data(),
                       .room = room,
                       .position = origin.position,
                       .second = keeps ? origin.second : nullptr});
  }
  if (const Status status = validate(block, count); status != Status::kOk) return {status, 0, 0};
  const size_t elements = room / width_;
  const size_t skipped = first * width_;
  if (elements != 0) {
    combine_(kernels_, block.data() + skipped, static_cast<const uint8_t*>(local) + skipped, out.data(), elements);
  }
  return {Status::kOk, elements, room};
}

Status Coder::add(std::span<const uint8_t> block, void* accumulator, size_t count) const noexcept {
  if (coded()) return codec_.decode_add(block, {static_cast<float*>(accumulator), count});
  if (const Status status = validate(block, count); status != Status::kOk) return status;
  // The sums go through a buffer in the L1 cache, so that one kernel serves sums in place and elsewhere.
  std::array<uint8_t, kPieceBytes> piece;
  auto* const sums = static_cast<uint8_t*>(accumulator);
  for (size_t at = 0; at < block.size(); at += piece.size()) {
    const size_t bytes = std::min(piece.size(), block.size() - at);
    combine_(kernels_, block.data() + at, sums + at, piece.data(), bytes / width_);
    std::memcpy(sums + at, piece.data(), bytes);
  }
  return Status::kOk;
}

Status Coder::decode(std::span<const uint8_t> block, void* out, size_t count) const noexcept {
  if (coded()) return codec_.decode(block, {static_cast<float*>(out), count});
  const Status status = validate(block, count);
  if (status == Status::kOk) copy(out, block.data(), block.size());
  return status;
}

void Coder::sum_exactly(const void* const* in, unsigned arrays, unsigned divisor, void* out,
                        size_t count) const noexcept {
  ops_->sum_exactly(kernels_, in, arrays, divisor, static_cast<uint8_t*>(out), count);
}

size_t Coder::join(uint8_t* block, BlockSize first, BlockSize second) const noexcept {
  return coded() ? codec_.join(block, first, second) : first.bytes + second.bytes;
}

void Coder::divide(void* elements, size_t count, unsigned world) const noexcept {
  ops_->divide(kernels_, static_cast<uint8_t*>(elements), count, world);
}

}  // namespace gradlane
