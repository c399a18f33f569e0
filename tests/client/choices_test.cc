// choices_test.cc - tests of `auto`: submissions and reports of operations for which the library chooses codec and
// strategy
#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/choices_fixture.h"

extern "C" {
#include "client/tuner/trials.h"
}

namespace gradlane::test::choices_test {
namespace {

using namespace choices_fixture;

TEST_F(Choices, RanksAgreeBeforeTheFirst) {
  reduce();
  const auto seen = daemon_->seen(0);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_TRUE(internal(seen[0]));
  EXPECT_NE(seen[0].flags & GL_FLAG_MAX, 0U);
  EXPECT_EQ(seen[0].count, GL_MAX_WAYS * GL_SIZES + 4);
  EXPECT_EQ(seen[1].codec, kRaw);
  EXPECT_EQ(seen[1].strategy, kRing);
  EXPECT_NE(seen[1].flags & GL_FLAG_CODEC, 0U);
  EXPECT_EQ(seen[1].tag, 0U) << "tags count the caller's operations";
  gradlane_figures figures{};
  figures.struct_size = sizeof(figures);
  ASSERT_EQ(gradlane_get_figures(gl_.get(), &figures), GRADLANE_OK);
  EXPECT_EQ(figures.operations, 1U);
}

TEST_F(Choices, WhatWinsIsChosenWithTheBoundThatIsAskedFor) {
  reduce(20);
  const auto seen = own();
  ASSERT_EQ(seen.size(), 20U);
  EXPECT_EQ(std::ranges::count(seen, kRaw, &gl_submission::codec), 2) << "by each strategy once";
  for (size_t i = 8; i < 20; ++i) {
    EXPECT_EQ(seen[i].codec, kFixed) << i;
    EXPECT_EQ(seen[i].codec_arguments, 8U);
    EXPECT_EQ(seen[i].strategy, kRing);
  }
  EXPECT_EQ(internals(), 3U) << "predictions, and the two stages of trials";
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(seen[i].tag, i);
}

TEST_F(Choices, WhatLosesIsBackWithinTwenty) {
  open({.world = 2, .codec = "raw", .ways = fake_candidates(), .worked = slow_fixed, .sent_bytes = 100});
  reduce(40);
  const auto seen = own();
  EXPECT_EQ(seen[1].codec, kFixed) << "it is predicted to win";
  for (size_t i = 20; i < seen.size(); ++i) EXPECT_EQ(seen[i].codec, kRaw) << i;
  const auto reports = daemon_->reports();
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].reason, GL_REASON_SLOWER);
  EXPECT_EQ(reports[0].exact, 1);
  EXPECT_STREQ(static_cast<const char*>(reports[0].rival), "fixed:8");
  EXPECT_GT(reports[0].rival_measured, reports[0].measured);
  EXPECT_EQ(reports[0].operations, 40U);
  EXPECT_EQ(reports[0].bytes, 40 * kCount * sizeof(float));
  EXPECT_EQ(reports[0].sent_bytes, 4000U) << "what ranks agree on is not the caller's";
}

TEST_F(Choices, AutoAloneIsExact) {
  how_.codec = "auto";
  reduce(20);
  for (const gl_submission& it : own()) EXPECT_EQ(it.codec, kRaw);
  EXPECT_EQ(daemon_->reports().at(0).reason, GL_REASON_EXACT);
}

// `auto` may choose a codec that it was not asked for, if that loses nothing, also with residuals.
TEST_F(Choices, AnotherExactCodecMayWin) {
  std::vector<gl_codec_row> codecs = fake_codecs();
  codecs.push_back({"pack", "pack", "pack", "", 23, 0, 0, 0, GL_CODEC_EXACT, {}, "", "", "exact", ""});
  std::vector<gl_way_row> ways = fake_candidates();
  gl_way_row pack = ways[0];
  pack.codec = 23;
  std::strncpy(static_cast<char*>(pack.name), "pack", GL_NAME - 1);
  for (double& ns : pack.ns) ns *= 0.9;
  ways.push_back(pack);
  const auto fast = [](const gl_submission& it) {
    return uint64_t{internal(it) ? 10U : it.codec == 23 ? 700U : 1000U};
  };
  for (const bool keeps : {false, true}) {
    open({.world = 2, .codec = "raw", .codecs = codecs, .ways = ways, .worked = fast});
    how_.codec = "auto";
    how_.residual = keeps ? data_ + kCount : nullptr;
    reduce(20);
    ASSERT_EQ(own().size(), 20U);
    EXPECT_EQ(own().front().codec, kRaw);
    EXPECT_EQ(own().back().codec, 23);
    EXPECT_EQ(own().back().strategy, kRing);
    EXPECT_EQ(own().back().flags & GL_FLAG_RESIDUAL, 0U);
    EXPECT_EQ(daemon_->reports().at(0).reason, GL_REASON_EXACT);
  }
}

TEST_F(Choices, OfTheConfiguration) {
  open({.world = 2, .codec = "auto:2^-8", .ways = fake_candidates(), .worked = fast_fixed});
  how_ = GRADLANE_HOW_INIT;
  reduce(20);
  EXPECT_EQ(own().back().codec, kFixed);
  EXPECT_STREQ(gradlane_codec(gl_.get()), "auto:2^-8");
  open({.world = 2,
        .flags = GL_WELCOME_AUTO_STRATEGY,
        .codec = "raw",
        .ways = fake_candidates(),
        .worked = [](const auto& it) { return uint64_t{it.strategy == kDirect ? 10U : 100U}; }});
  how_ = GRADLANE_HOW_INIT;
  reduce(20);
  EXPECT_EQ(own().back().strategy, kDirect);
}

TEST_F(Choices, StrategyAlone) {
  how_.codec = "fixed:7";
  how_.strategy = "auto";
  open({.world = 2, .codec = "raw", .ways = fake_candidates(), .worked = [](const auto& it) {
          return uint64_t{it.strategy == kDirect ? 10U : 100U};
        }});
  how_.codec = "fixed:7";
  how_.strategy = "auto";
  reduce(20);
  for (const gl_submission& it : own()) {
    EXPECT_EQ(it.codec, kFixed);
    EXPECT_EQ(it.codec_arguments, 7U);
  }
  EXPECT_EQ(own().back().strategy, kDirect);
}

TEST_F(Choices, ANamedStrategyStays) {
  how_.strategy = "direct";
  reduce(20);
  for (const gl_submission& it : own()) EXPECT_EQ(it.strategy, kDirect);
  EXPECT_EQ(own().back().codec, kFixed);
}

TEST_F(Choices, NothingIsTriedWhereNothingCanBeChosen) {
  reduce(3, GRADLANE_EXACT_BELOW - 1);
  EXPECT_EQ(internals(), 0U);
  for (const gl_submission& it : own()) EXPECT_NE(it.flags & GL_FLAG_EXACT, 0U);
  how_.codec = nullptr;
  reduce(3);
  EXPECT_EQ(internals(), 0U);
  how_.codec = "auto:2^-8";
  ASSERT_EQ(gradlane_broadcast(gl_.get(), data_, kCount, GRADLANE_FLOAT32, 0, &how_, nullptr), GRADLANE_OK);
  EXPECT_EQ(internals(), 0U);
  open({.world = 1, .codec = "raw", .ways = fake_candidates()});
  reduce(3);
  EXPECT_EQ(internals(), 0U);
}

TEST_F(Choices, OtherTypesAreReported) {
  reduce(5, kCount / 2, GRADLANE_INT32);
  for (const gl_submission& it : own()) EXPECT_EQ(it.flags & GL_FLAG_CODEC, 0U);
  const auto reports = daemon_->reports();
  const auto found = std::ranges::find(reports, GL_REASON_TYPE, &gl_report_row::reason);
  ASSERT_NE(found, reports.end());
  EXPECT_EQ(found->type, GRADLANE_INT32);
  EXPECT_EQ(found->operations, 5U);
  how_.residual = data_ + kCount;
  EXPECT_EQ(gradlane_all_reduce(gl_.get(), data_, kCount / 2, GRADLANE_INT32, &how_, nullptr), GRADLANE_BAD_ARGUMENT);
  const auto after = daemon_->reports();
  EXPECT_EQ(std::ranges::find(after, GL_REASON_TYPE, &gl_report_row::reason)->operations, 5U) << "refused";
}

TEST_F(Choices, Names) {
  for (const char* const name : {"auto:", "auto:8", "auto:2^-0", "auto:2^-31", "auto:2^-010", "auto:rel=", "auto/raw",
                                 "auto:2^-8/raw", "auto:rel=8,truncate"}) {
    how_.codec = name;
    EXPECT_EQ(gradlane_all_reduce(gl_.get(), data_, kCount, GRADLANE_FLOAT32, &how_, nullptr), GRADLANE_BAD_ARGUMENT);
    EXPECT_SAYS(gl_.get(), "usage: auto (exact), auto:2^-B or auto:rel=B");
  }
  gradlane_codec_info info = GRADLANE_CODEC_INFO_INIT;
  ASSERT_EQ(gradlane_find_codec(gl_.get(), "auto:2^-8", &info), GRADLANE_OK);
  EXPECT_STREQ(info.word, "auto");
  EXPECT_EQ(info.flags, GRADLANE_CODEC_FEEDBACK | GRADLANE_CODEC_ADAPTIVE);
  EXPECT_EQ(info.states, 1U);
  EXPECT_EQ(gradlane_check_codec(gl_.get(), "auto:2^-8", nullptr), GRADLANE_OK);
  EXPECT_EQ(gradlane_check_codec(gl_.get(), "auto", "auto"), GRADLANE_OK);
  open({.world = 2, .codec = "raw"});
  EXPECT_EQ(gradlane_all_reduce(gl_.get(), data_, kCount, GRADLANE_FLOAT32, &how_, nullptr), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl_.get(), "this daemon is too old for auto");
}

// Any number of codec names may be checked and used. Only the number of classes of operations is limited, and all ranks
// have the same classes.
TEST_F(Choices, ManyNames) {
  const auto names = [](unsigned bits) {
    return std::vector<std::string>{"auto:2^-" + std::to_string(bits), "auto:rel=" + std::to_string(bits)};
  };
  for (unsigned bits = 1; bits <= 30; ++bits) {
    for (const std::string& name : names(bits)) {
      EXPECT_EQ(gradlane_check_codec(gl_.get(), name.c_str(), nullptr), GRADLANE_OK);
    }
  }
  for (unsigned bits = 1; bits <= 30; ++bits) {
    for (const std::string& name : names(bits)) {
      how_.codec = name.c_str();
      reduce();
    }
    if (bits % 10 == 0) {
      ASSERT_EQ(gradlane_resume(gl_.get(), 1000 * bits), GRADLANE_OK);
    }
  }
  std::vector<gl_submission> all = own();
  std::erase_if(all, [](const gl_submission& it) { return it.kind == GL_RESUME; });
  EXPECT_EQ(all.size(), 60U);
  for (const gl_submission& it : all) EXPECT_EQ(it.flags & GL_FLAG_EXACT, 0U) << it.tag;
}

// An operation with an exact codec adds the residual to its data.
TEST_F(Choices, Residuals) {
  float* const residual = data_ + kCount;
  std::fill_n(residual, kCount, 1.0F);
  how_.residual = residual;
  data_[0] = 2;
  reduce();
  EXPECT_EQ(data_[0], 3);
  EXPECT_EQ(residual[0], 0);
  EXPECT_EQ(own()[0].flags & GL_FLAG_RESIDUAL, 0U);
  reduce(20);
  EXPECT_NE(own().back().flags & GL_FLAG_RESIDUAL, 0U);
  EXPECT_EQ(own().back().codec, kFixed);
}

// Calls that start operations do not wait for agreements. The operations wait in the queue instead.
TEST_F(Choices, CallsDoNotWait) {
  std::atomic<bool> hold = true;
  open({.world = 2,
        .codec = "raw",
        .ways = fake_candidates(),
        .on_submission = [&hold](unsigned, const auto&) { return !hold; },
        .worked = fast_fixed});
  std::vector<gradlane_request> requests(4);
  for (unsigned i = 0; i < 4; ++i) {
    ASSERT_EQ(gradlane_all_reduce(gl_.get(), data_ + i * 4096, 4096, GRADLANE_FLOAT32, &how_, &requests[i]),
              GRADLANE_OK);
  }
  ASSERT_TRUE(daemon_->await_seen(0, 2));  // agreement and first operation; the other operations wait for predictions
  EXPECT_EQ(daemon_->seen(0).size(), 2U);
  hold = false;
  daemon_->complete(0, 1);
  daemon_->complete(0, 2);
  for (const gradlane_request it : requests) EXPECT_EQ(gradlane_wait(gl_.get(), it, 10000), GRADLANE_OK);
}

// During trials of candidates, only one operation is in flight. After the trials, operations overlap.
TEST_F(Choices, TrialsAreAlone) {
  std::atomic<unsigned> under_way = 0;
  std::atomic<bool> alone = true;
  open({.world = 2,
        .codec = "raw",
        .ways = fake_candidates(),
        .on_submission =
            [&](unsigned, const auto& it) {
              if (!internal(it) && ++under_way > 1) alone = false;
              return internal(it);
            },
        .worked = fast_fixed});
  std::vector<gradlane_request> requests(24);
  for (unsigned i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(gradlane_all_reduce(gl_.get(), data_ + i * 4096, 4096, GRADLANE_FLOAT32, &how_, &requests[i]),
              GRADLANE_OK);
  }
  size_t ended = 0;
  for (const gradlane_request it : requests) {
    gradlane_code code = GRADLANE_PENDING;
    while ((code = gradlane_wait(gl_.get(), it, 20)) == GRADLANE_PENDING) {
      const auto seen = own();
      for (; ended < seen.size(); ++ended) {
        --under_way;
        daemon_->complete(0, seen[ended].cookie);
      }
    }
    EXPECT_TRUE(code == GRADLANE_OK && (alone || ended > 8)) << ended;
  }
  EXPECT_FALSE(alone) << "once it has settled, operations overlap";
}

TEST_F(Choices, ResetsChoicesOnResume) {
  reduce(20);
  EXPECT_EQ(own().back().codec, kFixed);
  ASSERT_EQ(gradlane_resume(gl_.get(), 1000), GRADLANE_OK);
  const size_t before = internals();
  reduce();
  EXPECT_EQ(own().back().codec, kRaw);
  EXPECT_EQ(internals(), before + 1);
  const auto seen = daemon_->seen(0);
  EXPECT_EQ(seen[seen.size() - 2].tag, seen[0].tag) << "as on a rank that has just come";
}

// gradlane_resume() may end a generation, and the rank that calls it gets no report of that. The other ranks get one.
// All ranks discard their choices once. A failure that ends no generation discards no choices, on any rank.
TEST_F(Choices, ResetsChoicesOnReportedEnd) {
  std::atomic<bool> hold = false;
  open({.world = 2,
        .codec = "raw",
        .ways = fake_candidates(),
        .on_submission = [&hold](unsigned, const gl_submission& it) { return !hold || it.kind == GL_RESUME; },
        .worked = fast_fixed});
  reduce(14);
  ASSERT_EQ(gradlane_resume(gl_.get(), 1000), GRADLANE_OK);
  reduce(14);
  EXPECT_EQ(internals(), 6U);
  daemon_->set_ends(0, 1);  // the resume has ended a generation, but the library could not see that before
  const auto fail = [&](uint8_t tells_end) {
    hold = true;
    gradlane_request request = 0;
    const size_t before = daemon_->seen(0).size();
    ASSERT_EQ(gradlane_all_reduce(gl_.get(), data_, kCount, GRADLANE_FLOAT32, &how_, &request), GRADLANE_OK);
    ASSERT_TRUE(daemon_->await_seen(0, before + 1));
    gl_completion completion{};
    completion.cookie = daemon_->seen(0).back().cookie;
    completion.code = GRADLANE_FAILED;
    completion.tells_end = tells_end;
    hold = false;
    daemon_->put_completion(0, completion);
    EXPECT_EQ(gradlane_wait(gl_.get(), request, 10000), GRADLANE_FAILED);
  };
  fail(0);
  reduce();
  EXPECT_EQ(internals(), 6U);
  EXPECT_EQ(own().back().codec, kFixed);
  fail(1);
  reduce();
  EXPECT_EQ(internals(), 7U);
  EXPECT_EQ(own().back().codec, kRaw);
}

// If an agreement fails, the operation that waited for it fails on all ranks, because other ranks may have agreed. All
// operations use raw until the choices start again.
TEST_F(Choices, AFailedAgreement) {
  std::atomic<bool> fail = true;
  open({.world = 2,
        .codec = "raw",
        .ways = fake_candidates(),
        .on_submission = [&fail](unsigned, const gl_submission& it) { return !fail || !internal(it); },
        .worked = fast_fixed});
  gradlane_request first = 0;
  gradlane_request second = 0;
  how_.timeout_ms = 1234567;
  ASSERT_EQ(gradlane_all_reduce(gl_.get(), data_, kCount, GRADLANE_FLOAT32, &how_, &first), GRADLANE_OK);
  ASSERT_EQ(gradlane_all_reduce(gl_.get(), data_ + kCount, kCount, GRADLANE_FLOAT32, &how_, &second), GRADLANE_OK);
  ASSERT_TRUE(daemon_->await_seen(0, 2));
  EXPECT_EQ(daemon_->seen(0)[0].timeout_ms, 1234567U) << "of the operation that it is for";
  fail = false;
  daemon_->complete(0, 1, GRADLANE_FAILED, "rank 1 has died");
  EXPECT_EQ(gradlane_wait(gl_.get(), first, 10000), GRADLANE_OK);
  EXPECT_EQ(gradlane_wait(gl_.get(), second, 10000), GRADLANE_FAILED);
  EXPECT_STREQ(gradlane_error(gl_.get()), "rank 1 has died");
  EXPECT_NE(daemon_->seen(0).back().flags & GL_FLAG_CANCELLED, 0U);
  reduce(30);
  for (const gl_submission& it : own()) EXPECT_EQ(it.codec, kRaw);
  EXPECT_EQ(internals(), 1U);
  EXPECT_EQ(daemon_->reports().at(0).reason, GL_REASON_FAILED);
}

// If an operation that waits for an agreement is cancelled, the agreement is cancelled at once, too.
TEST_F(Choices, CancelsWhatItWaitsFor) {
  open({.world = 2,
        .codec = "raw",
        .ways = fake_candidates(),
        .on_submission = [](unsigned, const gl_submission& it) { return it.kind != GL_CANCEL && !internal(it); },
        .worked = fast_fixed});
  gradlane_request requests[2] = {};
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(gradlane_all_reduce(gl_.get(), data_ + i * kCount, kCount, GRADLANE_FLOAT32, &how_, &requests[i]),
              GRADLANE_OK);
  }
  ASSERT_TRUE(daemon_->await_seen(0, 2));
  EXPECT_EQ(gradlane_cancel(gl_.get(), requests[1]), GRADLANE_OK);
  ASSERT_TRUE(daemon_->await_seen(0, 3));
  EXPECT_EQ(daemon_->seen(0)[2].kind, GL_CANCEL);
  EXPECT_TRUE(internal(daemon_->seen(0)[0]));
  EXPECT_EQ(daemon_->seen(0)[2].cookie, daemon_->seen(0)[0].cookie);
  daemon_->complete(0, 1, GRADLANE_FAILED, "cancelled on rank 0");
  (void)gradlane_wait(gl_.get(), requests[1], 10000);
  ASSERT_TRUE(daemon_->await_seen(0, 4));
  EXPECT_NE(daemon_->seen(0)[3].flags & GL_FLAG_CANCELLED, 0U);
}

TEST_F(Choices, ClassesOfSizesChooseByThemselves) {
  open({.world = 2, .codec = "raw", .ways = fake_candidates(), .worked = [](const gl_submission& it) {
          return it.count > 10000 ? fast_fixed(it) : slow_fixed(it);
        }});
  for (int i = 0; i < 20; ++i) {
    reduce(1, kCount);
    reduce(1, 4096);
  }
  const auto seen = own();
  EXPECT_EQ(seen[38].codec, kFixed);
  EXPECT_EQ(seen[39].codec, kRaw);
}

// Some ranks finish a reduce before it is over on all ranks. So ranks agree on the greatest time.
TEST_F(Choices, ReducesGoByTheSlowestRank) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(gradlane_reduce(gl_.get(), data_, kCount, GRADLANE_FLOAT32, 0, &how_, nullptr), GRADLANE_OK);
  }
  const auto seen = daemon_->seen(0);
  const auto last = std::find_if(seen.rbegin(), seen.rend(), internal);
  ASSERT_NE(last, seen.rend());
  EXPECT_EQ(last->count, static_cast<uint64_t>(GL_TRIALS));
  EXPECT_EQ(last->flags, GL_FLAG_MAX);
}

// The library refuses tables that no daemon writes.
TEST_F(Choices, GarbageIsRefused) {
  const std::vector<std::function<void(gl_control&)>> all = {
      [](gl_control& it) { it.ways = GL_MAX_WAYS + 1; }, [](gl_control& it) { it.way_row_bytes = 8; },
      [](gl_control& it) { it.plan_rows = 1000; }, [](gl_control& it) { it.reports = GL_MAX_REPORTS + 1; }};
  for (const auto& garbage : all) {
    daemon_ = std::make_unique<FakeDaemon>(
        FakeDaemon::Settings{.world = 2, .codec = "raw", .ways = fake_candidates(), .control = garbage});
    const gradlane_options options = options_for(daemon_->path());
    gradlane_context* gl = nullptr;
    EXPECT_EQ(gradlane_open(&gl, &options), GRADLANE_VERSION);
    gradlane_close(gl);
  }
}

}  // namespace
}  // namespace gradlane::test::choices_test
