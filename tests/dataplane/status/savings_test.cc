// savings_test.cc - the benefit of compression for a job: figures in, text out
#include "dataplane/status/savings.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gradlane::test::worth_test {
namespace {

// Figures of a rank whose link was full for a part of the time. Times are in seconds. Bytes are those of elements.
struct Job {
  double raw = 1e9;
  double sent = 2e8;
  double exchange = 10;
  double full = 8;
  double while_full = 0.8;  // share of the sent bytes that were sent while the link was full
  double busy = 1;
  CodecId codec = CodecId::kFixed;
  const char* word = "fixed";
};

NodeFigures figures_of(const Job& job) {
  NodeFigures figures;
  figures.codec = "raw";
  RankFigures rank;
  const auto count = [&rank](const char* name, double value) {
    rank.counters.push_back({name, "", static_cast<uint64_t>(value)});
  };
  count("element_bytes", job.raw);
  count("run_bytes", job.sent);
  count("exchange_ns", 1e9 * job.exchange);
  rank.codecs.push_back({job.codec, job.word, static_cast<uint64_t>(job.raw), static_cast<uint64_t>(job.sent)});
  LinkFigures link;
  link.bytes = static_cast<uint64_t>(job.sent);
  link.full_us = 1e6 * job.full;
  link.full_bytes = static_cast<uint64_t>(job.while_full * job.sent);
  rank.links.push_back(link);
  figures.ranks.push_back(rank);
  figures.workers.push_back({1e6 * job.busy});
  return figures;
}

const Calibration kUsual = usual_calibration(PlanPort::kUdp);

TEST(WorthTest, WhileTheLinkIsWaitedForTimeGrowsAsBytesDo) {
  const Savings worth = savings_of(figures_of({}), nullptr, kUsual);
  EXPECT_DOUBLE_EQ(worth.rate, 2e7);
  EXPECT_DOUBLE_EQ(worth.raw_link, 50);
  EXPECT_DOUBLE_EQ(worth.longer(), 40);
  EXPECT_EQ(savings_lines(worth, 5),
            (std::vector<std::string>{
                "elements sent: 1 GB raw, 200 MB on the links: 5 times fewer (fixed)",
                "in exchange: 10 s, about 50 % of it hidden behind computing; a link was full for 8 s, a worker busy "
                "for 1 s",
                "uncompressed, at the 160 Mb/s that the link carries: about 50 s, 40 s longer"}));
}

TEST(WorthTest, IsOfTheJobAlone) {
  const NodeFigures before =
      figures_of({.raw = 4e8, .sent = 1e8, .exchange = 3, .full = 2, .while_full = 0.4, .busy = 0.5});
  const Savings worth = savings_of(figures_of({}), &before, kUsual);
  EXPECT_DOUBLE_EQ(worth.raw_bytes, 6e8);
  EXPECT_DOUBLE_EQ(worth.sent_bytes, 1e8);
  EXPECT_DOUBLE_EQ(worth.exchange, 7);
  EXPECT_DOUBLE_EQ(worth.full, 6);
  EXPECT_DOUBLE_EQ(worth.rate, 2e7);
  const NodeFigures all = figures_of({});
  EXPECT_TRUE(savings_lines(savings_of(all, &all, kUsual)).empty());
}

std::string warning_of(const Job& job) {
  const std::vector<std::string> lines = savings_lines(savings_of(figures_of(job), nullptr, kUsual));
  return lines.size() > 3 ? lines[3] : "";
}

TEST(WorthTest, WarnsOfWhatCostsMoreThanItSaves) {
  EXPECT_EQ(warning_of({}), "");
  EXPECT_NE(warning_of({.sent = 1.1e9}).find("did not reduce the bytes"), std::string::npos);
  // This codec has no calibration. Busy time that packets do not explain counts as the codec's.
  const Job slow{.sent = 9e8, .full = 1, .busy = 8, .codec = CodecId::kMsTopK, .word = "mstopk"};
  EXPECT_NE(warning_of(slow).find("mstopk took about "), std::string::npos) << warning_of(slow);
  NodeFigures chosen = figures_of(slow);
  chosen.codec = "auto:2^-10";
  EXPECT_EQ(savings_lines(savings_of(chosen, nullptr, kUsual)).size(), 3U) << "who measures knows better";
}

TEST(WorthTest, DoesNotWarnWhereRawElementsWouldHaveTakenLonger) {
  // The codec sends a tenth of the bytes, and never lets the link be full for long. Raw elements would take four times
  // as long.
  const Job dense{.sent = 1e8, .full = 1, .while_full = 0.25, .busy = 9, .codec = CodecId::kMsTopK, .word = "mstopk"};
  EXPECT_EQ(warning_of(dense), "");
  const Savings worth = savings_of(figures_of(dense), nullptr, kUsual);
  EXPECT_EQ(savings_lines(worth)[2],
            "uncompressed, at the 200 Mb/s that the link carries, or more: at most about 40 s, 30 s longer");
  // The rate of the link is not known.
  const Job unknown{.sent = 1e8, .full = 0, .while_full = 0, .busy = 9, .codec = CodecId::kMsTopK, .word = "mstopk"};
  EXPECT_EQ(warning_of(unknown), "");
  EXPECT_NE(savings_lines(savings_of(figures_of(unknown), nullptr, kUsual))[2].find("not known"), std::string::npos);
}

TEST(WorthTest, UnitsFitTheValues) {
  const Savings worth = savings_of(figures_of({.raw = 1.5e12, .sent = 1.5e9, .exchange = 0.9997}), nullptr, kUsual);
  EXPECT_NE(savings_lines(worth)[0].find("1.5 TB raw, 1.5 GB on the links: 1000 times fewer"), std::string::npos);
  EXPECT_NE(savings_lines(worth)[1].find("in exchange: 1 s"), std::string::npos);
}

TEST(WorthTest, WhereCoresAreTheLimitLinksSayNothing) {
  const Savings worth = savings_of(figures_of({.full = 1, .busy = 9}), nullptr, kUsual);
  EXPECT_EQ(worth.longer(), 0);
  EXPECT_NE(savings_lines(worth)[2].find("about the same time, of which links would need 6.25 s"), std::string::npos);
}

TEST(WorthTest, RawIsRaw) {
  const std::vector<std::string> lines =
      savings_lines(savings_of(figures_of({.sent = 1e9, .codec = kNoCodec, .word = "raw"}), nullptr, kUsual));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_NE(lines[0].find("nothing was compressed"), std::string::npos);
}

TEST(WorthTest, OfAllNodesTheSlowestCounts) {
  const std::vector<Savings> nodes = {savings_of(figures_of({.full = 2}), nullptr, kUsual),
                                      savings_of(figures_of({}), nullptr, kUsual)};
  const Savings all = savings_of_all(nodes);
  EXPECT_DOUBLE_EQ(all.raw_bytes, 2e9);
  EXPECT_DOUBLE_EQ(all.longer(), 40);
  EXPECT_EQ(all.codecs, std::vector<std::string>{"fixed"});
}

TEST(WorthTest, ComesThroughADocument) {
  const Savings worth = savings_of(figures_of({}), nullptr, kUsual);
  EXPECT_EQ(savings_lines(savings_from(savings_json(worth))), savings_lines(worth));
  for (const char* const text : {"null", "[]", "{}", R"({"raw_bytes": "x", "codecs": 3})"}) {
    EXPECT_TRUE(savings_lines(savings_from(nlohmann::json::parse(text))).empty()) << text;
  }
}

}  // namespace
}  // namespace gradlane::test::worth_test
