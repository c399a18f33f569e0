// descriptor.h - the descriptor of an operation, which ranks compare before they exchange data (pure functions)
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collectives/operation.h"
#include "collectives/wire.h"

namespace gradlane {

// Returns the descriptor of an operation. `codec` counts only if the elements go through a codec: encoded().
[[nodiscard]] Descriptor describe(const Operation& operation, const Codec& codec) noexcept;

// Returns the number of bytes of a descriptor on the wire. The digest covers the same bytes.
[[nodiscard]] constexpr size_t descriptor_bytes(const Descriptor& descriptor) noexcept {
  if (descriptor.arguments != 0 || descriptor.back_arguments != 0) return sizeof(Descriptor);
  return descriptor.strategy == 0 ? kRingDescriptor : kPlainDescriptor;
}
[[nodiscard]] uint32_t digest_of(const Descriptor& descriptor) noexcept;
// Writes the payload of a start run: a descriptor and, if there is an offer, the offer after it. With an offer, the
// descriptor has its full length. Returns the number of bytes.
inline constexpr size_t kMostStart = sizeof(Descriptor) + sizeof(Offer);
[[nodiscard]] size_t write_start(const Descriptor& descriptor, std::optional<float> offer,
                                 std::span<uint8_t, kMostStart> out) noexcept;
// Read the payload of a start run that was received. is_start() checks its length and its offer; call the others only
// if it returns true.
[[nodiscard]] bool is_start(std::span<const uint8_t> bytes) noexcept;
[[nodiscard]] Descriptor read_descriptor(std::span<const uint8_t> bytes) noexcept;
[[nodiscard]] std::optional<float> read_offer(std::span<const uint8_t> bytes) noexcept;

// Return the seeds of an operation's random numbers: seed_of() is the same on all ranks, own_seed_of() differs by rank.
// Both are independent of the number of lanes and of the strategy.
[[nodiscard]] uint64_t seed_of(uint32_t generation, uint32_t number, uint64_t tag) noexcept;
[[nodiscard]] uint64_t own_seed_of(uint64_t seed, unsigned rank) noexcept;

// Returns whether this is the all-reduce by which the client libraries agree on what `auto` chooses. Users do not
// submit it.
[[nodiscard]] bool is_agreement(const Descriptor& descriptor) noexcept;

}  // namespace gradlane
