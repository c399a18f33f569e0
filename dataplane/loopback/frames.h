// frames.h - the packets that go in circles: how they are made, and what mode codec does to them
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/loopback/loopback.h"

namespace gradlane {

inline constexpr size_t kMaxRunFloats = 65535;

// Fills a frame: the four traffic classes in turn by `number`. Where there is room, gradlane packets are genuine, with
// config.data encoded.
void write_loopback_frame(std::span<uint8_t> frame, const LoopbackConfig& config, size_t number) noexcept;

// Decodes all runs of a data packet, and encodes them again in their place; other packets stay as they are. As encoding
// what was decoded gives the same bytes, length and CRC stay right. False: no packet of this codec, or not one that it
// would write. `scratch` has kMaxRunFloats; `floats` is advanced by those that were recoded.
[[nodiscard]] bool recode_packet(std::span<uint8_t> packet, const Codec& codec, std::span<float> scratch,
                                 uint64_t& floats) noexcept;

}  // namespace gradlane
