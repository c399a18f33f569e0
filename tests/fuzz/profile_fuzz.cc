// profile_fuzz.cc - libFuzzer target: parses any text as a profile of a model
//
// Aborts unless the text is refused with an error that names the file, or gives a model whose numbers are usable.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "collectives/cost/step.h"
#include "tools/plan/profile.h"

namespace gradlane::test {
namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "profile_fuzz: %s\n", what.c_str());
  std::abort();
}

void check_profile(const Profile& profile) {
  const ModelTable& table = profile.table;
  if (table.batch < 1 || table.layers.empty()) fail("a batch or layers are missing");
  if (!(table.backward >= 0) || !(profile.forward >= 0)) fail("a time is none");
  if (!(table.elements() >= 1) || !(table.work() > 0) || !std::isfinite(table.work())) fail("layers are none");
  for (const PlanBucket& bucket : buckets_of(table)) {
    if (!std::isfinite(bucket.elements)) fail("a bucket is none");
  }
}

void check(std::string_view text) {
  try {
    check_profile(parse_profile(text, "fuzz.json"));
  } catch (const SetupError& error) {
    const std::string_view why = error.what();
    if (!why.starts_with("fuzz.json: ") || why.size() > 1000) fail("refused with " + std::string(why));
  }
}

}  // namespace
}  // namespace gradlane::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(data, data + size);
  gradlane::test::check(text);
  return 0;
}
