// memory.h - memory for benchmarks
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace gradlane {

using BenchMemory = std::unique_ptr<uint8_t, void (*)(uint8_t*)>;

// Returns zeroed memory, in huge pages where the system has them. Throws SetupError if there is not enough.
[[nodiscard]] BenchMemory allocate_memory(size_t bytes);

// Returns the bytes per s that one core reads and writes in arrays that no cache holds. It computes y += x, as adding
// to a tensor does.
[[nodiscard]] double memory_speed();

}  // namespace gradlane
