// stream_copy.h - a copy past the caches, to memory that is not read soon (any thread)
#pragma once

#include <cstddef>

namespace gradlane {

// Tensors of at least this many bytes are written past the caches. A plain store to a line that is in no cache reads
// the line first. Below this size, the reader still finds the line in a cache, and gains more than the writer loses.
inline constexpr size_t kStreamBytes = size_t{32} << 20;

// Copies `bytes` bytes, as memcpy() does. It writes whole cache lines of the destination without reading them, on
// x86-64. Other threads may see these stores late, until this thread calls stream_fence().
void stream_copy(void* to, const void* from, size_t bytes) noexcept;
void stream_fence() noexcept;

}  // namespace gradlane
