// table.h - a view as lines of text that fit a screen (pure functions)
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/top/view.h"

namespace gradlane {

struct PageLine {
  enum class Style : unsigned char { kPlain, kTitle, kGood, kWarning, kBad };
  std::string text;
  Style style = Style::kPlain;
};

// least width at which there are additional columns
inline constexpr size_t kWide = 130;

// Returns the lines for a screen. `events`: the latest is last, and at most three are shown. No line is longer than
// `width`, and there are at most `height` lines; 0: no limit.
[[nodiscard]] std::vector<PageLine> page_of(const TopView& view, const std::vector<std::string>& events, size_t width,
                                            size_t height);

}  // namespace gradlane
