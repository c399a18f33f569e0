// log_limiter.cc - limits the lines that trainers can cause in the log (control thread; no clock)
#include "dataplane/trainer/log_limiter.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

namespace gradlane {

LogLimiter::LogLimiter() : LogLimiter([](Level level, const std::string& text) { spdlog::log(level, "{}", text); }) {}

LogLimiter::Kind& LogLimiter::kind_of(std::string_view name) {
  const auto known = std::ranges::find(kinds_, name, &Kind::name);
  if (known != kinds_.end()) return *known;
  if (kinds_.size() < kMostKinds) return kinds_.emplace_back(Kind{.name = std::string(name)});
  return kinds_.back();
}

void LogLimiter::step(Nanos now) {
  now_ = now;
  for (Kind& it : kinds_) {
    const auto refilled = static_cast<unsigned>(std::min<Nanos>((now - it.refilled_at) / kRefill, it.lines));
    it.lines -= refilled;
    it.refilled_at += refilled * kRefill;
    if (it.left_out == 0 || now - it.left_out_at < kTold) continue;
    sink_(it.level, fmt::format("{} more line{} like this in the last {} s: {}", it.left_out,
                                it.left_out == 1 ? "" : "s", (now - it.left_out_at) / kSecond, it.latest));
    it.left_out = 0;
  }
  std::erase_if(kinds_, [](const Kind& it) { return it.lines == 0 && it.left_out == 0; });
}

void LogLimiter::log(Level level, const std::string& text) {
  std::string kind = text;
  std::erase_if(kind, [](char c) { return c >= '0' && c <= '9'; });
  log(level, kind, text);
}

void LogLimiter::log(Level level, std::string_view kind, const std::string& text) {
  Kind& it = kind_of(kind);
  if (it.lines < kBurst) {
    if (it.lines++ == 0) it.refilled_at = now_;
    return sink_(level, text);
  }
  if (it.left_out++ == 0) it.left_out_at = now_;
  it.level = level;
  it.latest = text;
}

}  // namespace gradlane
