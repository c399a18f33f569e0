// config_fuzz.cc - libFuzzer target: parses any text as a configuration file
//
// Aborts unless the text is refused with an error that names the file, or gives a configuration that is the same after
// it is written and read again.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "base/error.h"
#include "config/accelerator.h"
#include "config/loader.h"
#include "tests/config/same_config.h"

namespace gradlane::test {
namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

// Returns what parse_any_config() makes of the text, or nothing if it refuses the text.
std::optional<AnyConfig> parse(std::string_view text) {
  try {
    return parse_any_config(text, "fuzz.yaml");
  } catch (const SetupError& error) {
    if (!std::string_view(error.what()).starts_with("fuzz.yaml:")) fail("no place: " + std::string(error.what()));
    return std::nullopt;
  }
}

template <class Config>
void check_config(const Config& config) {
  const std::string written = config_text(config);
  const auto again = parse(written);
  const Config* const other = again ? std::get_if<Config>(&*again) : nullptr;
  if (other == nullptr || !same(*other, config)) fail("does not read to the same:\n" + written);
  if constexpr (std::is_same_v<Config, NodeConfig>) {
    if (rank_table_digest(*other) != rank_table_digest(config)) fail("another digest:\n" + written);
  }
}

void check(std::string_view text) {
  if (const auto config = parse(text)) std::visit([](const auto& it) { check_config(it); }, *config);
}

}  // namespace
}  // namespace gradlane::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(data, data + size);
  gradlane::test::check(text);
  return 0;
}
