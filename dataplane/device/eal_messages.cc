// eal_messages.cc - a stream that DPDK writes its messages to (control thread, at the start)
#include "dataplane/device/eal_messages.h"

#include <rte_log.h>

#include <string_view>

namespace gradlane {
namespace {

constexpr size_t kMost = 300;  // bytes to keep

}  // namespace

EalMessages::EalMessages() noexcept : stream_(fopencookie(this, "w", {nullptr, take, nullptr, nullptr})) {
  if (stream_ == nullptr) return;
  setvbuf(stream_, nullptr, _IONBF, 0);
  rte_openlog_stream(stream_);
}

EalMessages::~EalMessages() {
  if (stream_ == nullptr) return;
  rte_openlog_stream(nullptr);
  std::fclose(stream_);
}

ssize_t EalMessages::take(void* self, const char* text, size_t bytes) {
  std::fwrite(text, 1, bytes, stderr);
  std::string_view line(text, bytes);
  while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.remove_suffix(1);
  std::string& errors = static_cast<EalMessages*>(self)->errors_;
  if (rte_log_cur_msg_loglevel() <= static_cast<int>(RTE_LOG_ERR) && errors.size() + line.size() < kMost) {
    if (!errors.empty()) errors += "; ";
    errors += line;
  }
  return static_cast<ssize_t>(bytes);
}

}  // namespace gradlane
