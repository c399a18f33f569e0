// socket_sizes.h - the sizes of buffers that sockets ask the kernel for (constants)
#pragma once

#include <cstddef>

namespace gradlane {

// Bytes for packets that have arrived and were not fetched yet.
inline constexpr size_t kSocketReceiveBytes = size_t{4} << 20;
// Bytes for packets that were sent and have not left the machine. They are few, so that a full queue is noticed: with a
// larger buffer, the kernel would drop packets without reporting it.
inline constexpr size_t kSocketSendBytes = size_t{128} << 10;

}  // namespace gradlane
