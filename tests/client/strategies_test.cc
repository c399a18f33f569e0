// strategies_test.cc - tests of strategies, minima and maxima, and two codecs: submissions and refused calls
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/client_fixture.h"

namespace gradlane::test::strategies_test {
namespace {

static_assert(sizeof(gradlane_how) == 136 && offsetof(gradlane_how, strategy) == 56);

constexpr size_t kCount = 2048;

class Strategies : public testing::Test {
 protected:
  void open(FakeDaemon::Settings settings) {
    gl_.reset();
    daemon_ = std::make_unique<FakeDaemon>(std::move(settings));
    gl_ = open_context(*daemon_);
    data_ = allocate(gl_, 2 * kCount);
  }
  void SetUp() override { open({.world = 2}); }

  // Starts an all-reduce and returns its submission.
  gl_submission submit(size_t count = kCount, gradlane_type type = GRADLANE_FLOAT32) {
    EXPECT_EQ(gradlane_all_reduce(gl_.get(), data_, count, type, &how_, nullptr), GRADLANE_OK)
        << gradlane_error(gl_.get());
    return daemon_->seen(0).back();
  }
  void expect_refused(const std::string& text, gradlane_type type = GRADLANE_FLOAT32) {
    const size_t before = daemon_->seen(0).size();
    EXPECT_EQ(gradlane_all_reduce(gl_.get(), data_, kCount, type, &how_, nullptr), GRADLANE_BAD_ARGUMENT);
    EXPECT_STREQ(gradlane_error(gl_.get()), text.c_str());
    EXPECT_EQ(daemon_->seen(0).size(), before);
  }

  std::unique_ptr<FakeDaemon> daemon_;
  Context gl_;
  float* data_ = nullptr;
  gradlane_how how_ = GRADLANE_HOW_INIT;
};

TEST_F(Strategies, Listed) {
  ASSERT_EQ(gradlane_strategies(gl_.get()), 3U);
  EXPECT_STREQ(gradlane_get_strategy(gl_.get(), 0), "ring");
  EXPECT_STREQ(gradlane_get_strategy(gl_.get(), 1), "direct");
  EXPECT_STREQ(gradlane_get_strategy(gl_.get(), 2), "aggregator:1");
  EXPECT_EQ(gradlane_get_strategy(gl_.get(), 3), nullptr);
  EXPECT_EQ(gradlane_strategies(nullptr), 0U);
  EXPECT_EQ(gradlane_get_strategy(nullptr, 0), nullptr);
}

TEST_F(Strategies, Named) {
  EXPECT_EQ(submit().strategy, 0U);
  how_.strategy = "ring";
  EXPECT_EQ(submit().strategy, 257U);
  how_.strategy = "direct";
  EXPECT_EQ(submit().strategy, 258U);
  EXPECT_EQ(submit(10, GRADLANE_INT32).strategy, 258U);
  ASSERT_EQ(gradlane_broadcast(gl_.get(), data_, 10, GRADLANE_BYTES, 1, &how_, nullptr), GRADLANE_OK);
  EXPECT_EQ(daemon_->seen(0).back().strategy, 258U);
  ASSERT_EQ(gradlane_barrier(gl_.get(), &how_, nullptr), GRADLANE_OK);
  EXPECT_EQ(daemon_->seen(0).back().strategy, 258U);
}

TEST_F(Strategies, NotAllowed) {
  for (const char* const name : {"rings:2", "Ring", "", "aggregator:0", "aggregator:1,stream"}) {
    how_.strategy = name;
    expect_refused("all_reduce: strategy '" + std::string(name) +
                   "': the daemon allows ring, direct, aggregator:1 (strategies in its configuration)");
  }
  how_.strategy = "aggregator:1";
  EXPECT_EQ(gradlane_all_gather(gl_.get(), data_, 10, GRADLANE_FLOAT32, &how_, nullptr), GRADLANE_BAD_ARGUMENT);
  EXPECT_STREQ(gradlane_error(gl_.get()),
               "all_gather: strategy aggregator:1 cannot do this operation; allowed ones that can (strategies in the "
               "daemon's configuration): ring, direct");
  open({.strategies = {}});
  how_.strategy = "ring";
  expect_refused("all_reduce: strategy 'ring': the daemon allows none by name (strategies in its configuration)");
  how_.strategy = nullptr;
  EXPECT_EQ(submit().strategy, 0U);
}

// Every part of a long tensor uses the same strategy.
TEST_F(Strategies, Parts) {
  open({.world = 2, .max_bytes = 4096});
  how_.strategy = "aggregator:1";
  how_.codec = "fixed:7/fixed:9";
  (void)submit();
  const auto seen = daemon_->seen(0);
  ASSERT_EQ(seen.size(), 2U);
  for (const gl_submission& part : seen) {
    EXPECT_EQ(part.strategy, 260U);
    EXPECT_EQ(part.flags, GL_FLAG_CODEC | GL_FLAG_BACK);
    EXPECT_EQ(part.codec_arguments, 7U);
    EXPECT_EQ(part.back_arguments, 9U);
  }
}

TEST_F(Strategies, TwoCodecs) {
  how_.strategy = "aggregator:1";
  how_.codec = "fixed:7/raw";
  const gl_submission pair = submit();
  EXPECT_EQ(pair.flags, GL_FLAG_CODEC | GL_FLAG_BACK);
  EXPECT_EQ(pair.codec, 5);
  EXPECT_EQ(pair.codec_arguments, 7U);
  EXPECT_EQ(pair.back_codec, 1);
  EXPECT_EQ(pair.back_arguments, 0U);
  how_.codec = "fixed:7";
  EXPECT_EQ(submit().flags, GL_FLAG_CODEC);
  // A sum with too few elements for a codec is exact both to the aggregator and back.
  how_.codec = "fixed:7/fixed:8";
  EXPECT_EQ(submit(1023).flags, GL_FLAG_EXACT);
  EXPECT_EQ(submit(kCount, GRADLANE_FLOAT64).flags, GL_FLAG_EXACT);

  how_.strategy = "direct";
  expect_refused(
      "all_reduce: codec fixed:7/fixed:8 has one for the way back, which only an aggregator uses; strategy "
      "is direct");
  how_.strategy = nullptr;
  expect_refused(
      "all_reduce: codec fixed:7/fixed:8 has one for the way back, which only an aggregator uses; strategy "
      "is ring");
  how_.strategy = "aggregator:1";
  how_.codec = "fixed:7/";
  expect_refused("there is no codec ''; there are raw, fixed");
  how_.codec = "fixed:7/raw/raw";
  expect_refused("there is no codec 'raw/raw'; usage: raw");
  const std::string long_name(70, 'x');
  for (const std::string& name : {long_name + "/raw", "raw/" + long_name}) {
    how_.codec = name.c_str();
    expect_refused("codec '" + name.substr(name.find('x'), 40) +
                   "...': no codec has a name of more than 63 characters");
  }
  gradlane_codec_info info = GRADLANE_CODEC_INFO_INIT;
  EXPECT_EQ(gradlane_find_codec(gl_.get(), "fixed:7/raw", &info), GRADLANE_OK);
  EXPECT_STREQ(info.word, "fixed");
}

// The default strategy is an aggregator. The operation names two codecs.
TEST_F(Strategies, DefaultThatIsAnAggregator) {
  std::vector<gl_strategy_row> rows = fake_strategies();
  std::swap(rows[0], rows[2]);
  open({.strategies = rows});
  how_.codec = "fixed:7/raw";
  EXPECT_EQ(submit().flags, GL_FLAG_CODEC | GL_FLAG_BACK);
  EXPECT_EQ(submit().strategy, 0U);
  // The aggregator cannot do a reduce-scatter. The ring can, but it has no second codec.
  EXPECT_EQ(gradlane_reduce_scatter(gl_.get(), data_, kCount, GRADLANE_FLOAT32, &how_, nullptr), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl_.get(), "strategy is ring");
}

TEST_F(Strategies, MinimaAndMaxima) {
  how_.reduction = GRADLANE_MIN;
  EXPECT_EQ(submit().flags, GL_FLAG_MIN | GL_FLAG_EXACT);
  EXPECT_EQ(submit(10, GRADLANE_INT64).flags, GL_FLAG_MIN);
  how_.reduction = GRADLANE_MAX;
  how_.codec = "raw";
  EXPECT_EQ(submit().flags, GL_FLAG_MAX | GL_FLAG_EXACT);
  how_.strategy = "direct";
  ASSERT_EQ(gradlane_reduce_scatter(gl_.get(), data_, 10, GRADLANE_BYTES, &how_, nullptr), GRADLANE_OK);
  EXPECT_EQ(daemon_->seen(0).back().flags, GL_FLAG_MAX);
  EXPECT_EQ(daemon_->seen(0).back().strategy, 258U);

  how_.codec = "fixed:10";
  expect_refused("all_reduce: codec fixed:10 rounds, but minima and maxima are exact; use raw, or no codec");
  how_.codec = nullptr;
  how_.residual = data_ + kCount;
  expect_refused(
      "all_reduce of float32: a residual is only for sums of float32 by all_reduce, reduce_scatter or reduce");
  how_.residual = nullptr;
  how_.average = 1;
  expect_refused("all_reduce: average and maximum cannot be combined; choose one");
  how_.average = 0;
  for (const int reduction : {-1, 3, 1000}) {
    how_.reduction = reduction;
    expect_refused("all_reduce: there is no reduction " + std::to_string(reduction) +
                   "; allowed: GRADLANE_SUM, GRADLANE_MIN and GRADLANE_MAX");
  }
  how_.reduction = GRADLANE_MIN;
  EXPECT_EQ(gradlane_broadcast(gl_.get(), data_, 10, GRADLANE_BYTES, 0, &how_, nullptr), GRADLANE_BAD_ARGUMENT);
  EXPECT_STREQ(gradlane_error(gl_.get()), "broadcast: this operation has no minimum, as it does not reduce");
}

// Programs that were built with the header of version 4 name neither strategy nor reduction.
TEST_F(Strategies, OlderPrograms) {
  how_.struct_size = offsetof(gradlane_how, strategy);
  how_.strategy = "nonsense";
  how_.reduction = GRADLANE_MAX;
  const gl_submission it = submit();
  EXPECT_EQ(it.strategy, 0U);
  EXPECT_EQ(it.flags, 0U);
}

// A newer daemon's rows are longer, with fields that this library does not know. A name without a final 0 is cut.
TEST(StrategyTable, NewerDaemon) {
  std::vector<gl_strategy_row> rows(4);
  rows[0] = fake_strategies()[1];
  std::memset(&rows[1], 0xff, 3 * sizeof rows[1]);
  FakeDaemon daemon({.strategies = rows, .control = [](gl_control& control) {
                       control.strategies = 2;
                       control.strategy_row_bytes = 2 * sizeof(gl_strategy_row);
                     }});
  const Context gl = open_context(daemon);
  ASSERT_EQ(gradlane_strategies(gl.get()), 2U);
  EXPECT_STREQ(gradlane_get_strategy(gl.get(), 0), "direct");
  EXPECT_EQ(gradlane_get_strategy(gl.get(), 1), std::string(GL_NAME - 1, '\xff'));
}

TEST(StrategyTable, ThatMakesNoSense) {
  const std::pair<uint32_t, uint32_t> tables[] = {
      {4, sizeof(gl_strategy_row)}, {3, sizeof(gl_strategy_row) + 1}, {3, sizeof(gl_strategy_row) - 1}, {1, 0},
      {GL_MAX_STRATEGIES + 1, 48},  {UINT32_MAX, UINT32_MAX},
  };
  for (const auto& [count, bytes] : tables) {
    FakeDaemon daemon({.control = [rows = count, row_bytes = bytes](gl_control& control) {
      control.strategies = rows;
      control.strategy_row_bytes = row_bytes;
    }});
    const gradlane_options options = options_for(daemon.path(), 200);
    gradlane_context* gl = nullptr;
    EXPECT_EQ(gradlane_open(&gl, &options), GRADLANE_VERSION) << count << " of " << bytes;
    EXPECT_SAYS(nullptr, "an invalid table of strategies");
  }
}

}  // namespace
}  // namespace gradlane::test::strategies_test
