// faults.cc - a collection of the faults in a configuration file, and the message about the first one (set-up only)
#include "config/faults.h"

#include <fmt/format.h>

#include "base/error.h"

namespace gradlane {
namespace {

constexpr size_t kLongestQuote = 60;

}  // namespace

void ConfigFaults::keep(const Fault& fault) {
  ++count_;
  // If two faults have the same place, the one that was found first stays.
  if (!first_ || fault.order() < first_->order()) first_ = fault;
}

void ConfigFaults::throw_first() const {
  if (!first_) return;
  const auto& [missing, place, path, what] = *first_;
  throw SetupError(fmt::format("{}: {}{}{}", text_of(place), path, path.empty() ? "" : ": ", what));
}

std::string ConfigFaults::text_of(Place place) const {
  if (place.line == 0) return words_.at(place.column);
  return fmt::format("{}:{}:{}", file_, place.line, place.column);
}

void refuse_word(const std::string& word, const std::string& what) {
  throw SetupError(fmt::format("{}: {}", word, what));
}

std::string quote_text(std::string_view text) {
  std::string result = "'";
  for (const char c : text.substr(0, kLongestQuote)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  return result + (text.size() > kLongestQuote ? "...'" : "'");
}

}  // namespace gradlane
