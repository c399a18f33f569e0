// calibration_fuzz.cc - libFuzzer target: parses any text as a calibration
//
// Aborts unless the text is refused with an error that names the file, or gives a calibration that is the same after it
// is written and read again.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "collectives/cost/cost.h"
#include "config/calibration_file.h"

namespace gradlane::test {
namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "calibration_fuzz: %s\n", what.c_str());
  std::abort();
}

std::optional<Calibration> parse(std::string_view text) {
  try {
    return parse_calibration(text, "fuzz.yaml");
  } catch (const SetupError& error) {
    if (!std::string_view(error.what()).starts_with("fuzz.yaml:")) fail("no place: " + std::string(error.what()));
    return std::nullopt;
  }
}

void check(std::string_view text) {
  const auto calibration = parse(text);
  if (!calibration) return;
  const std::string written = calibration_text(*calibration);
  const auto again = parse(written);
  if (!again || calibration_text(*again) != written) fail("does not read to the same:\n" + written);
  // A time is never NaN or negative, for any calibration.
  for (const CodecCost& codec : calibration->codecs) {
    const AllReduceTime time = all_reduce_time(*calibration, codec, {1e6, 4, {}});
    if (std::isnan(time.seconds) || time.seconds < 0) fail("no time of " + codec.name + ":\n" + written);
  }
}

}  // namespace
}  // namespace gradlane::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(data, data + size);
  gradlane::test::check(text);
  return 0;
}
