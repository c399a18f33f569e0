// counters.cc - names and descriptions of the counters
#include "collectives/counters.h"

namespace gradlane {
namespace {

struct Text {
  const char* name;
  const char* help;
};

constexpr Text kTexts[] = {
#define GRADLANE_COUNTER_TEXT(symbol, name, help) {name, help},
    GRADLANE_COUNTERS(GRADLANE_COUNTER_TEXT)
#undef GRADLANE_COUNTER_TEXT
};
static_assert(std::size(kTexts) == kCounters);

}  // namespace

const char* counter_name(Counter counter) noexcept { return kTexts[static_cast<size_t>(counter)].name; }

const char* counter_help(Counter counter) noexcept { return kTexts[static_cast<size_t>(counter)].help; }

}  // namespace gradlane
