// descriptor.cc - an operation as its ranks compare it (pure functions)
#include "collectives/descriptor.h"

namespace gradlane {

Descriptor describe(const Operation& operation, const Codec& codec) noexcept {
  const bool codec_counts = encoded(operation.type, operation.reduction);
  return {.tag = operation.tag,
          .count = operation.whole != 0 ? operation.whole : operation.count,
          .root = static_cast<uint16_t>(operation.root),
          .kind = static_cast<uint8_t>(operation.kind),
          .type = static_cast<uint8_t>(operation.type),
          .reduction = static_cast<uint8_t>(operation.reduction),
          .codec = static_cast<uint8_t>(codec_counts ? codec.id() : kNoCodec),
          .param = codec_counts ? codec.param() : uint8_t{0},
          .reserved = 0};
}

Failure mismatch(const Descriptor& ours, const Descriptor& theirs, uint16_t rank) noexcept {
  const auto codec_value = [](const Descriptor& of) { return uint64_t{of.codec} << 8 | of.param; };
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
