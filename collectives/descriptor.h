// descriptor.h - an operation as its ranks compare it (pure functions)
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collectives/operation.h"
#include "collectives/wire.h"

namespace gradlane {

// `codec` is for sums of fp32; all else travels as it is.
[[nodiscard]] Descriptor describe(const Operation& operation, const Codec& codec) noexcept;

// So many bytes of it are on the wire, and in the digest.
[[nodiscard]] constexpr size_t descriptor_bytes(const Descriptor& descriptor) noexcept {
  if (descriptor.arguments != 0 || descriptor.back_arguments != 0) return sizeof(Descriptor);
  return descriptor.strategy == 0 ? kRingDescriptor : kPlainDescriptor;
}
[[nodiscard]] uint32_t digest_of(const Descriptor& descriptor) noexcept;
// A start: a descriptor, where there is an offer all of it, and that behind. Returns its bytes.
inline constexpr size_t kMostStart = sizeof(Descriptor) + sizeof(Offer);
[[nodiscard]] size_t write_start(const Descriptor& descriptor, std::optional<float> offer,
                                 std::span<uint8_t, kMostStart> out) noexcept;
// Of what arrived.
[[nodiscard]] bool is_start(std::span<const uint8_t> bytes) noexcept;
[[nodiscard]] Descriptor read_descriptor(std::span<const uint8_t> bytes) noexcept;
[[nodiscard]] std::optional<float> read_offer(std::span<const uint8_t> bytes) noexcept;

// What random numbers of an operation follow from, on all ranks, for any number of lanes, and by any strategy; and
// those of one rank.
[[nodiscard]] uint64_t seed_of(uint32_t generation, uint32_t number, uint64_t tag) noexcept;
[[nodiscard]] uint64_t own_seed_of(uint64_t seed, unsigned rank) noexcept;

// Whether it is one by which libraries agree on what to choose, and nobody's of their callers.
[[nodiscard]] bool is_agreement(const Descriptor& descriptor) noexcept;

}  // namespace gradlane
