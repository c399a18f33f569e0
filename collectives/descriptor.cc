// descriptor.cc - an operation as its ranks compare it (pure functions)
#include "collectives/descriptor.h"

#include <algorithm>
#include <cstring>

#include "collectives/crc32c.h"

namespace gradlane {

Descriptor describe(const Operation& operation, const Codec& codec) noexcept {
  const bool codec_counts = encoded(operation.type, operation.reduction);
  const bool round_the_ring = !operation.strategy || *operation.strategy == StrategyId{};
  const bool back_counts = codec_counts && !round_the_ring && operation.back_codec;
  return {.tag = operation.tag,
          .count = operation.whole != 0 ? operation.whole : operation.count,
          .root = static_cast<uint16_t>(operation.root),
          .kind = static_cast<uint8_t>(operation.kind),
          .type = static_cast<uint8_t>(operation.type),
          .reduction = static_cast<uint8_t>(operation.reduction),
          .codec = static_cast<uint8_t>(codec_counts ? codec.id() : kNoCodec),
          .param = codec_counts ? codec.param() : uint8_t{0},
          .reserved = 0,
          .strategy = round_the_ring ? 0 : operation.strategy->code(),
          .back_codec = static_cast<uint8_t>(back_counts ? operation.back_codec->id() : kNoCodec),
          .back_param = back_counts ? operation.back_codec->param() : uint8_t{0},
          .reserved2 = 0};
}

uint32_t digest_of(const Descriptor& descriptor) noexcept {
  uint8_t bytes[sizeof(descriptor)];
  store(bytes, descriptor);
  return ~crc32c(kCrcStart, bytes, descriptor_bytes(descriptor));
}

Descriptor read_descriptor(std::span<const uint8_t> bytes) noexcept {
  Descriptor descriptor{};
  std::memcpy(&descriptor, bytes.data(), std::min(bytes.size(), sizeof(descriptor)));
  return descriptor;
}

Failure mismatch(const Descriptor& ours, const Descriptor& theirs, uint16_t rank) noexcept {
  const auto codec_value = [](const Descriptor& of) { return uint64_t{of.codec} << 8 | of.param; };
  const auto back_value = [](const Descriptor& of) { return uint64_t{of.back_codec} << 8 | of.back_param; };
  const auto strategy_value = [](const Descriptor& of) {
    return uint64_t{of.strategy == 0 ? StrategyId{}.code() : of.strategy};
  };
  const struct {
    Field field;
    uint64_t ours;
    uint64_t theirs;
  } fields[] = {
      {Field::kKind, ours.kind, theirs.kind},
      {Field::kType, ours.type, theirs.type},
      {Field::kCount, ours.count, theirs.count},
      {Field::kRoot, ours.root, theirs.root},
      {Field::kReduction, ours.reduction, theirs.reduction},
      {Field::kCodec, codec_value(ours), codec_value(theirs)},
      {Field::kStrategy, strategy_value(ours), strategy_value(theirs)},
      {Field::kBackCodec, back_value(ours), back_value(theirs)},
      {Field::kTag, ours.tag, theirs.tag},
  };
  for (const auto& each : fields) {
    if (each.ours == each.theirs) continue;
    return {
        .code = FailureCode::kMismatch, .rank = rank, .field = each.field, .ours = each.ours, .theirs = each.theirs};
  }
  return {};
}

}  // namespace gradlane
