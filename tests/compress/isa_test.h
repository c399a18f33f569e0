// isa_test.h - fixture of tests that run once for each instruction set, and are skipped if the CPU does not have it
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "compress/codec.h"

namespace gradlane {

// Prints test parameters for GoogleTest.
inline void PrintTo(Isa isa, std::ostream* out) { *out << isa_name(isa); }

}  // namespace gradlane

namespace gradlane::test {

// Use with INSTANTIATE_TEST_SUITE_P(Isa, ..., testing::ValuesIn(kIsas), isa_test_name).
class IsaTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!isa_supported(GetParam())) GTEST_SKIP() << "this CPU has no " << isa_name(GetParam());
  }

  // Returns the codec with the kernels under test.
  [[nodiscard]] static Codec codec(const std::string& name) {
    const Codec found = find_codec(name, GetParam());
    EXPECT_EQ(found.isa(), GetParam());
    return found;
  }
};

inline std::string isa_test_name(const testing::TestParamInfo<Isa>& info) { return isa_name(info.param); }

}  // namespace gradlane::test
