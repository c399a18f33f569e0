// log.cc - lines in NCCL's log (any thread)
#include "client/nccl/log.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace gradlane::nccl {
namespace {

std::atomic<Logger> logger = nullptr;

}  // namespace

void set_logger(Logger given) { logger.store(given, std::memory_order_release); }

void log(LogLevel level, const char* format, ...) {
  const Logger to = logger.load(std::memory_order_acquire);
  if (to == nullptr) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  to(level, kLogInit | kLogNet, "libnccl-net-gradlane.so", 0, "gradlane: %s", text);
}

}  // namespace gradlane::nccl
