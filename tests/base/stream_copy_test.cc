// stream_copy_test.cc - copies of all lengths and alignments, and what lies around them
#include "base/stream_copy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

namespace gradlane::test::stream_copy_test {
namespace {

TEST(StreamCopy, CopiesAllLengthsAtAllAlignments) {
  std::vector<uint8_t> from(400);
  std::iota(from.begin(), from.end(), uint8_t{1});
  for (size_t bytes :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{127}, size_t{128}, size_t{300}}) {
    for (size_t at = 0; at < 64; ++at) {
      std::vector<uint8_t> to(500, 0xee);
      stream_copy(to.data() + at, from.data() + at % 7, bytes);
      stream_fence();
      std::vector<uint8_t> want(500, 0xee);
      std::copy_n(from.begin() + static_cast<ptrdiff_t>(at % 7), bytes, want.begin() + static_cast<ptrdiff_t>(at));
      EXPECT_EQ(to, want) << bytes << " bytes at " << at;
    }
  }
}

}  // namespace
}  // namespace gradlane::test::stream_copy_test
