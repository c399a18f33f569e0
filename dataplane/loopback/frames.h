// frames.h - the packets that circulate: making them, and decoding and encoding them in mode codec (the loopback's one
// thread)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/loopback/loopback.h"

namespace gradlane {

inline constexpr size_t kMaxRunFloats = 65535;

// Fills a frame. `number` % 4 is its traffic class. If the frame is long enough, gradlane packets are valid, with
// config.data encoded.
void write_loopback_frame(std::span<uint8_t> frame, const LoopbackConfig& config, size_t number) noexcept;

// Decodes all runs of a data packet and encodes them again in place. Other packets stay unchanged. Length and CRC
// remain valid, because encoding a decoded block gives the same bytes. Returns false if the packet is not of this
// codec, or is not one that the codec would write. `scratch` has kMaxRunFloats elements. `floats` is increased by the
// number of recoded elements.
[[nodiscard]] bool recode_packet(std::span<uint8_t> packet, const Codec& codec, std::span<float> scratch,
                                 uint64_t& floats) noexcept;

}  // namespace gradlane
