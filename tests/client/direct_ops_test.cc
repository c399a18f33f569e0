// direct_ops_test.cc - tests of reduce, gather, scatter and all-to-all: submissions to the daemon, and refused calls
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/client_fixture.h"

namespace gradlane::test::direct_ops_test {
namespace {

constexpr size_t kCount = 2048;

class DirectOps : public testing::Test {
 protected:
  void open(FakeDaemon::Settings settings) {
    gl_.reset();
    daemon_ = std::make_unique<FakeDaemon>(std::move(settings));
    gl_ = open_context(*daemon_);
    data_ = allocate(gl_, 4 * kCount);
    out_ = allocate(gl_, 4 * kCount);
  }
  void SetUp() override { open({.world = 2}); }

  gradlane_code reduce(int root = 1) {
    return gradlane_reduce(gl_.get(), data_, kCount, GRADLANE_FLOAT32, root, &how_, nullptr);
  }
  gradlane_code gather(int root = 1) {
    return gradlane_gather(gl_.get(), data_, kCount, GRADLANE_FLOAT32, root, &how_, nullptr);
  }
  gradlane_code scatter(int root = 1) {
    return gradlane_scatter(gl_.get(), data_, kCount, GRADLANE_FLOAT32, root, &how_, nullptr);
  }
  gradlane_code all_to_all(void* out) {
    return gradlane_all_to_all(gl_.get(), data_, out, kCount, GRADLANE_FLOAT32, &how_, nullptr);
  }
  gl_submission last() { return daemon_->seen(0).back(); }
  void expect_refused(gradlane_code code, const std::string& text) {
    EXPECT_EQ(code, GRADLANE_BAD_ARGUMENT);
    EXPECT_STREQ(gradlane_error(gl_.get()), text.c_str());
  }

  std::unique_ptr<FakeDaemon> daemon_;
  Context gl_;
  float* data_ = nullptr;
  float* out_ = nullptr;
  gradlane_how how_ = GRADLANE_HOW_INIT;
};

TEST_F(DirectOps, Submitted) {
  ASSERT_EQ(reduce(), GRADLANE_OK) << gradlane_error(gl_.get());
  EXPECT_EQ(last().kind, GL_REDUCE);
  EXPECT_EQ(last().root, 1U);
  EXPECT_EQ(last().flags, 0U);
  ASSERT_EQ(gather(), GRADLANE_OK);
  EXPECT_EQ(last().kind, GL_GATHER);
  EXPECT_EQ(last().block_root, 1U);
  EXPECT_EQ(last().pitch, 0U);
  EXPECT_EQ(last().count, kCount);
  EXPECT_EQ(last().flags, GL_FLAG_EXACT);
  ASSERT_EQ(scatter(), GRADLANE_OK);
  EXPECT_EQ(last().kind, GL_SCATTER);
  EXPECT_EQ(last().block_root, 1U);
  EXPECT_EQ(last().flags, GL_FLAG_EXACT);
  ASSERT_EQ(all_to_all(out_ + 1), GRADLANE_OK);
  EXPECT_EQ(last().kind, GL_ALL_TO_ALL);
  EXPECT_EQ(last().flags, GL_FLAG_EXACT);
  EXPECT_EQ(last().strategy, 0U);
  const gl_submission there = last();
  ASSERT_EQ(gradlane_all_reduce(gl_.get(), out_, 8, GRADLANE_FLOAT32, nullptr, nullptr), GRADLANE_OK);
  EXPECT_EQ(there.residual_segment, last().segment);
  EXPECT_EQ(there.residual_offset, last().offset + 4);
}

TEST_F(DirectOps, Options) {
  how_.strategy = "direct";
  how_.average = 1;
  ASSERT_EQ(reduce(0), GRADLANE_OK);
  EXPECT_EQ(last().flags, GL_FLAG_AVERAGE);
  EXPECT_EQ(last().strategy, 258U);
  how_.average = 0;
  how_.residual = out_;
  ASSERT_EQ(reduce(), GRADLANE_OK);
  EXPECT_EQ(last().flags, GL_FLAG_RESIDUAL);
  how_.residual = nullptr;
  how_.codec = "fixed:7";
  ASSERT_EQ(all_to_all(out_), GRADLANE_OK);
  EXPECT_EQ(last().flags, GL_FLAG_CODEC);
  EXPECT_EQ(last().codec_arguments, 7U);
  ASSERT_EQ(gradlane_all_to_all(gl_.get(), data_, out_, 10, GRADLANE_FLOAT32, &how_, nullptr), GRADLANE_OK);
  EXPECT_EQ(last().flags, GL_FLAG_EXACT);  // 10 floats are too few for a codec
  expect_refused(gather(), "gather: codec fixed:7 rounds, but copies are exact; use raw, or no codec");
  expect_refused(scatter(), "scatter: codec fixed:7 rounds, but copies are exact; use raw, or no codec");
}

// Each part of a gather has the root of the whole, and each part of an all-to-all has the distance of blocks of the
// whole.
TEST_F(DirectOps, Parts) {
  open({.world = 2, .max_bytes = 8192});
  ASSERT_EQ(gather(), GRADLANE_OK);
  ASSERT_EQ(all_to_all(out_), GRADLANE_OK);
  const auto seen = daemon_->seen(0);
  ASSERT_EQ(seen.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(seen[i].count, kCount / 2);
    EXPECT_EQ(seen[i].pitch, kCount);
    EXPECT_EQ(seen[i].block_root, i < 2 ? 1U : 0U);
  }
  EXPECT_EQ(seen[3].offset, seen[2].offset + kCount / 2 * sizeof(float));
  EXPECT_EQ(seen[3].residual_offset, seen[2].residual_offset + kCount / 2 * sizeof(float));
}

TEST_F(DirectOps, Refused) {
  expect_refused(reduce(2), "reduce: root 2; ranks are 0 to 1");
  expect_refused(gather(-1), "gather: root -1; ranks are 0 to 1");
  const std::string bytes = std::to_string(2 * kCount * sizeof(float));
  expect_refused(all_to_all(data_), "all_to_all: data and out, of " + bytes + " bytes each, overlap");
  expect_refused(all_to_all(data_ + 2 * kCount - 1), "all_to_all: data and out, of " + bytes + " bytes each, overlap");
  EXPECT_EQ(all_to_all(data_ + 2 * kCount), GRADLANE_OK);
  EXPECT_EQ(all_to_all(out_ + 2 * kCount + 1), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl_.get(), "all_to_all: out needs " + bytes + " bytes, but its buffer has");
  EXPECT_EQ(all_to_all(this), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl_.get(), "is not in a buffer of gradlane_alloc()");
  how_.residual = out_;
  expect_refused(gather(),
                 "gather of float32: a residual is only for sums of float32 by all_reduce, reduce_scatter or reduce");
  how_.residual = nullptr;
  how_.average = 1;
  expect_refused(scatter(), "scatter: this operation has no sum to average");
}

// The output belongs to the daemon until the caller has waited for the request.
TEST_F(DirectOps, OutputIsInUse) {
  open({.world = 2, .on_submission = [](unsigned, const gl_submission&) { return false; }});
  gradlane_request request = 0;
  ASSERT_EQ(gradlane_all_to_all(gl_.get(), data_, out_, kCount, GRADLANE_FLOAT32, nullptr, &request), GRADLANE_OK);
  gradlane_request other = 0;
  EXPECT_EQ(gradlane_all_reduce(gl_.get(), out_ + 5, 1, GRADLANE_FLOAT32, nullptr, &other), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl_.get(), "in use");
}

TEST_F(DirectOps, WithoutDirect) {
  open({.world = 2, .strategies = {{257, 31, 0, 0, "ring"}}});
  const std::string text =
      ": this operation needs links between all nodes: put `direct` in `strategies` of the daemons' configuration";
  expect_refused(reduce(), "reduce" + text);
  expect_refused(gather(), "gather" + text);
  expect_refused(scatter(), "scatter" + text);
  expect_refused(all_to_all(out_), "all_to_all" + text);
  how_.strategy = "ring";
  EXPECT_EQ(reduce(), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl_.get(), "reduce: strategy ring cannot do this operation");
  open({.world = 2, .flags = GL_WELCOME_LOCAL_REDUCE});
  how_.strategy = nullptr;
  for (const gradlane_code code : {reduce(), gather(), scatter(), all_to_all(out_)}) {
    EXPECT_EQ(code, GRADLANE_BAD_ARGUMENT);
    EXPECT_SAYS(gl_.get(), "not possible with local_reduce");
  }
}

}  // namespace
}  // namespace gradlane::test::direct_ops_test
