// fixed_text.h - a text in a buffer of fixed size, for threads that must not allocate
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gradlane {

// A text of at most kRoom - 1 characters, followed by a 0. Longer texts are cut off.
template <size_t kRoom>
class FixedText {
 public:
  FixedText() noexcept = default;
  FixedText(std::string_view text) noexcept { add(text); }
  FixedText(const char* text) noexcept { add(text); }

  FixedText& add(std::string_view text) noexcept {
    const size_t length = std::min(text.size(), kRoom - 1 - length_);
    std::copy_n(text.data(), length, text_.data() + length_);
    length_ += length;
    text_[length_] = 0;
    return *this;
  }
  // Adds the digits of `number`, with zeros in front if there are fewer than `least` digits.
  FixedText& add(uint64_t number, int base = 10, size_t least = 1) noexcept {
    std::array<char, 64> digits;
    const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), number, base).ptr;
    const auto length = static_cast<size_t>(end - digits.data());
    for (size_t i = length; i < least; ++i) add("0");
    return add({digits.data(), length});
  }

  void clear() noexcept {
    length_ = 0;
    text_[0] = 0;
  }
  [[nodiscard]] bool empty() const noexcept { return length_ == 0; }
  [[nodiscard]] size_t size() const noexcept { return length_; }
  [[nodiscard]] const char* c_str() const noexcept { return text_.data(); }
  [[nodiscard]] std::string_view view() const noexcept { return {text_.data(), length_}; }

 private:
  std::array<char, kRoom> text_{};
  size_t length_ = 0;
};

}  // namespace gradlane
