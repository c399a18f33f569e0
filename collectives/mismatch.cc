// mismatch.cc - which field of an operation differs between two ranks (pure functions)
#include "collectives/mismatch.h"

#include "collectives/codec_value.h"
#include "collectives/descriptor.h"
#include "collectives/strategy/strategy_id.h"

namespace gradlane {

Failure mismatch(const Descriptor& ours, const Descriptor& theirs, uint16_t rank) noexcept {
  const auto value = [](const Descriptor& of) { return codec_value(of.codec, read_arguments(of.param, of.arguments)); };
  const auto back_value = [](const Descriptor& of) {
    return codec_value(of.back_codec, read_arguments(of.back_param, of.back_arguments));
  };
  const auto strategy_value = [](const Descriptor& of) {
    return uint64_t{of.strategy == 0 ? StrategyId{}.code() : of.strategy};
  };
  const struct {
    Field field;
    uint64_t ours;
    uint64_t theirs;
  } fields[] = {
      {Field::kChoice, is_agreement(ours), is_agreement(theirs)},
      {Field::kKind, ours.kind, theirs.kind},
      {Field::kType, ours.type, theirs.type},
      {Field::kCount, ours.count, theirs.count},
      {Field::kRoot, ours.root, theirs.root},
      {Field::kReduction, ours.reduction, theirs.reduction},
      {Field::kCodec, value(ours), value(theirs)},
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
