// report.cc - verdicts of `gradlane check` as lines and as JSON (main thread only)
#include "tools/check/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace gradlane {

bool CheckReport::good() const noexcept {
  return std::ranges::none_of(items_, [](const Item& item) { return item.verdict == std::string_view("FAIL"); });
}

bool CheckReport::has_failed_like(std::string_view text) const noexcept {
  constexpr size_t kAlike = 40;  // characters that texts about different faults do not share
  return std::ranges::any_of(items_, [&](const Item& item) {
    const std::string_view why = item.why;
    return item.verdict == std::string_view("FAIL") && why.size() >= kAlike &&
           text.ends_with(why.substr(why.size() - kAlike));
  });
}

std::string CheckReport::news() {
  std::string text;
  for (; told_ < items_.size(); ++told_) {
    const Item& item = items_[told_];
    text += fmt::format("{:<4} {}", item.verdict, item.what);
    if (!item.why.empty()) text += ": " + item.why;
    if (!item.advice.empty()) text += "; " + item.advice;
    text += "\n";
  }
  return text;
}

nlohmann::json CheckReport::json() const {
  nlohmann::json items = nlohmann::json::array();
  for (const Item& item : items_) {
    items.push_back({{"verdict", item.verdict}, {"what", item.what}, {"why", item.why}, {"advice", item.advice}});
  }
  return {{"ok", good()}, {"items", items}};
}

}  // namespace gradlane
