// descriptor.cc - the descriptor of an operation, which ranks compare before they exchange data (pure functions)
#include "collectives/descriptor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/random.h"
#include "client/tuner/agreement.h"
#include "collectives/codec_value.h"
#include "collectives/crc32c.h"

namespace gradlane {

Descriptor describe(const Operation& operation, const Codec& codec) noexcept {
  const bool codec_counts = encoded(operation.type, operation.reduction, codec.row().serves);
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
          .reserved2 = 0,
          .arguments = codec_counts ? more_arguments(codec.arguments()) : 0,
          .back_arguments = back_counts ? more_arguments(operation.back_codec->arguments()) : 0};
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

size_t write_start(const Descriptor& descriptor, std::optional<float> offer,
                   std::span<uint8_t, kMostStart> out) noexcept {
  store(out.data(), descriptor);
  if (!offer) return descriptor_bytes(descriptor);
  store(out.data() + sizeof(Descriptor), Offer{.value = *offer, .reserved = 0});
  return kMostStart;
}

bool is_start(std::span<const uint8_t> bytes) noexcept {
  if (bytes.size() == kMostStart) {
    const auto offer = load<Offer>(bytes.data() + sizeof(Descriptor));
    return std::isfinite(offer.value) && !std::signbit(offer.value) && offer.reserved == 0;
  }
  return bytes.size() == kRingDescriptor || bytes.size() == kPlainDescriptor || bytes.size() == sizeof(Descriptor);
}

std::optional<float> read_offer(std::span<const uint8_t> bytes) noexcept {
  if (bytes.size() != kMostStart) return std::nullopt;
  return load<Offer>(bytes.data() + sizeof(Descriptor)).value;
}

uint64_t seed_of(uint32_t generation, uint32_t number, uint64_t tag) noexcept {
  return Random::mix(uint64_t{generation} << 32 | number, tag);
}

uint64_t own_seed_of(uint64_t seed, unsigned rank) noexcept { return Random::mix(seed, rank + uint64_t{1}); }

bool is_agreement(const Descriptor& descriptor) noexcept {
  return descriptor.kind == static_cast<uint8_t>(OpKind::kAllReduce) &&
         descriptor.type == static_cast<uint8_t>(ElementType::kFloat64) && gl_is_agreement_tag(descriptor.tag);
}

}  // namespace gradlane
