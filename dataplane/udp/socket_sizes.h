// socket_sizes.h - how much room sockets ask the kernel for (constants)
#pragma once

#include <cstddef>

namespace gradlane {

// For what came and was not fetched yet.
inline constexpr size_t kSocketReceiveBytes = size_t{4} << 20;
// For what was sent and has not left. So small that a queue that is full shows: beyond it the kernel drops without a
// word.
inline constexpr size_t kSocketSendBytes = size_t{128} << 10;

}  // namespace gradlane
