// descriptor.h - an operation as its ranks compare it (pure functions)
#pragma once

#include <cstdint>

#include <span>

#include "collectives/operation.h"
#include "collectives/wire.h"

namespace gradlane {

// `codec` is for sums of fp32; all else travels as it is.
[[nodiscard]] Descriptor describe(const Operation& operation, const Codec& codec) noexcept;

// So many bytes of it are on the wire, and in the digest.
[[nodiscard]] constexpr size_t descriptor_bytes(const Descriptor& descriptor) noexcept {
  return descriptor.strategy == 0 ? kRingDescriptor : sizeof(Descriptor);
}
[[nodiscard]] uint32_t digest_of(const Descriptor& descriptor) noexcept;
// Of what arrived: kRingDescriptor bytes, or all.
[[nodiscard]] Descriptor read_descriptor(std::span<const uint8_t> bytes) noexcept;

// kMismatch with `rank`, which says `theirs`, and the first field that differs; none: they are one operation.
[[nodiscard]] Failure mismatch(const Descriptor& ours, const Descriptor& theirs, uint16_t rank) noexcept;

}  // namespace gradlane
