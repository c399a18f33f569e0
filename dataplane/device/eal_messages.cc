// eal_messages.cc - a stream that DPDK writes its messages to (control thread, at the start; and DPDK's own threads)
#include "dataplane/device/eal_messages.h"

#include <rte_log.h>

#include <cstdio>
#include <mutex>
#include <string_view>

namespace gradlane {
namespace {

constexpr size_t kMost = 300;  // most bytes of errors to keep

// State that is never freed: DPDK's threads may still write a message after the last EalMessages is gone.
struct Heard {
  std::mutex mutex;
  std::string errors;
  bool listening = false;
  std::FILE* stream = nullptr;
};

Heard& heard() {
  static auto* const stays = new Heard;
  return *stays;
}

ssize_t take(void*, const char* text, size_t bytes) {
  std::fwrite(text, 1, bytes, stderr);
  std::string_view line(text, bytes);
  while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.remove_suffix(1);
  Heard& all = heard();
  const std::lock_guard lock(all.mutex);
  const bool error = rte_log_cur_msg_loglevel() <= static_cast<int>(RTE_LOG_ERR);
  if (all.listening && error && all.errors.size() + line.size() < kMost) {
    if (!all.errors.empty()) all.errors += "; ";
    all.errors += line;
  }
  return static_cast<ssize_t>(bytes);
}

}  // namespace

EalMessages::EalMessages() noexcept {
  Heard& all = heard();
  const std::lock_guard lock(all.mutex);
  all.errors.clear();
  all.listening = true;
  if (all.stream == nullptr) {
    all.stream = fopencookie(nullptr, "w", {nullptr, take, nullptr, nullptr});
    if (all.stream == nullptr) return;
    setvbuf(all.stream, nullptr, _IONBF, 0);
  }
  rte_openlog_stream(all.stream);
}

EalMessages::~EalMessages() {
  Heard& all = heard();
  const std::lock_guard lock(all.mutex);
  all.listening = false;
  rte_openlog_stream(nullptr);
}

std::string EalMessages::errors() const {
  Heard& all = heard();
  const std::lock_guard lock(all.mutex);
  return all.errors;
}

}  // namespace gradlane
