// address_claim_test.cc - claims of an address (RFC 5227), and two machines that act as one node
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "dataplane/lane/address_claim.h"
#include "dataplane/lane/source_watch.h"

namespace gradlane::test::address_claim_test {
namespace {

using Step = AddressClaim::Step;
using State = AddressClaim::State;

constexpr Nanos kStart = 5 * kSecond;
constexpr uint64_t kA = 0xa, kB = 0xb, kC = 0xc;

// Kinds of packets that were to be sent, with their times in ms after `from`. poll() polls every 10 ms for `span`.
struct Sent {
  std::vector<Nanos> probes;
  std::vector<Nanos> announcements;
};
Sent poll(AddressClaim& claim, Nanos from, Nanos span, bool link = true) {
  Sent sent;
  for (Nanos at = 0; at < span; at += 10 * kMillisecond) {
    const Step step = claim.poll(link, from + at);
    if (step == Step::kProbe) sent.probes.push_back(at / kMillisecond);
    if (step == Step::kAnnounce) sent.announcements.push_back(at / kMillisecond);
  }
  return sent;
}

TEST(AddressClaim, ThreeProbesThenItIsHeldAndAnnounced) {
  AddressClaim claim(false);
  EXPECT_EQ(claim.state(), State::kWaiting);
  const Sent sent = poll(claim, kStart, kSecond);
  EXPECT_EQ(sent.probes, (std::vector<Nanos>{0, 100, 200}));
  EXPECT_EQ(sent.announcements, (std::vector<Nanos>{300}));
  EXPECT_TRUE(claim.held());
  EXPECT_EQ(claim.conflicts(), 0U);
}

TEST(AddressClaim, OfALinkInsideThisMachineIsHeldAtOnce) {
  AddressClaim claim(true);
  EXPECT_TRUE(claim.held());
  const Sent sent = poll(claim, kStart, kSecond);
  EXPECT_TRUE(sent.probes.empty() && sent.announcements.empty());
}

TEST(AddressClaim, WaitsForTheLink) {
  AddressClaim claim(false);
  EXPECT_TRUE(poll(claim, kStart, kSecond, false).probes.empty());
  EXPECT_EQ(claim.state(), State::kWaiting);
  EXPECT_EQ(poll(claim, kStart + kSecond, kSecond).probes.size(), 3U);
  EXPECT_TRUE(claim.held());
}

TEST(AddressClaim, WhoeverHasItOrWantsItTooIsARival) {
  for (const bool only_asks : {false, true}) {
    AddressClaim claim(false);
    (void)poll(claim, kStart, 150 * kMillisecond);
    only_asks ? claim.asked(kA) : claim.contest(kA);
    EXPECT_TRUE(poll(claim, kStart + 150 * kMillisecond, 500 * kMillisecond).announcements.empty());
    EXPECT_EQ(claim.state(), State::kTaken);
    EXPECT_EQ(claim.rival(), kA);
    // The address is asked for again, until nobody answers.
    const Sent later = poll(claim, kStart + 650 * kMillisecond, 3 * kSecond);
    EXPECT_EQ(later.probes.size(), 3U);
    EXPECT_TRUE(claim.held());
  }
}

TEST(AddressClaim, IsDefendedAtMostEveryTenSeconds) {
  AddressClaim claim(false);
  (void)poll(claim, kStart, kSecond);
  std::vector<Nanos> defended;
  for (Nanos at = 0; at < 25 * kSecond; at += kSecond) {
    claim.contest(kB);
    for (const Nanos it : poll(claim, kStart + kSecond + at, kSecond).announcements) {
      defended.push_back((at + it * kMillisecond) / kSecond);
    }
    EXPECT_TRUE(claim.held());
  }
  EXPECT_EQ(defended, (std::vector<Nanos>{0, 10, 20}));
  EXPECT_EQ(claim.conflicts(), 25U);
}

TEST(AddressClaim, WhoProbesForAnAddressThatIsHeldIsNoRival) {
  AddressClaim claim(false);
  (void)poll(claim, kStart, kSecond);
  claim.asked(kC);
  EXPECT_TRUE(poll(claim, kStart + kSecond, kSecond).announcements.empty());
  EXPECT_EQ(claim.conflicts(), 0U);
  EXPECT_EQ(claim.times_asked(), 1U);
  EXPECT_EQ(claim.asker(), kC);
}

// ---- Two machines that are one node

using Verdict = SourceWatch::Verdict;

constexpr Nanos kPeerTimeout = 2 * kSecond;

// Passes a packet every `spacing` from these sources. Returns the verdicts.
std::vector<Verdict> see(SourceWatch& watch, const std::string& sources, Nanos from = kStart,
                         Nanos spacing = 10 * kMillisecond) {
  std::vector<Verdict> verdicts;
  for (size_t i = 0; i < sources.size(); ++i) {
    verdicts.push_back(watch.see(static_cast<uint64_t>(sources[i]), from + i * spacing));
  }
  return verdicts;
}

size_t count(const std::vector<Verdict>& verdicts, Verdict which) {
  return static_cast<size_t>(std::count(verdicts.begin(), verdicts.end(), which));
}

TEST(SourceWatch, OneSourceIsBelieved) {
  SourceWatch watch(kPeerTimeout);
  EXPECT_EQ(count(see(watch, std::string(100, 'a')), Verdict::kBelieved), 100U);
  EXPECT_EQ(watch.believed(), uint64_t{'a'});
}

TEST(SourceWatch, TwoThatAlternateAreDoubledAndNamed) {
  SourceWatch watch(kPeerTimeout);
  const auto verdicts = see(watch, "aababbabbbaba");
  EXPECT_EQ(count(verdicts, Verdict::kDuplicateRank), 1U);
  EXPECT_EQ(verdicts[12], Verdict::kDuplicateRank);
  EXPECT_EQ(watch.believed(), uint64_t{'a'});
  EXPECT_EQ(watch.stranger(), uint64_t{'b'});
  // While the two sources alternate, the duplicate is found again.
  EXPECT_GE(count(see(watch, "babababababababa", kStart + kSecond), Verdict::kDuplicateRank), 1U);
}

TEST(SourceWatch, ANodeThatMovesIsBelievedWhenItsOldSourceIsSilent) {
  SourceWatch watch(kPeerTimeout);
  (void)see(watch, "aaaa");
  const auto verdicts = see(watch, std::string(200, 'b'), kStart + 40 * kMillisecond);
  EXPECT_EQ(count(verdicts, Verdict::kDuplicateRank), 0U);
  EXPECT_EQ(count(verdicts, Verdict::kStranger), 149U);
  EXPECT_EQ(watch.believed(), uint64_t{'b'});
}

TEST(SourceWatch, LatePacketsAndDamagedOnesAreNotTwo) {
  SourceWatch watch(kPeerTimeout);
  // The node moves and some old packets come late; then single packets come with addresses that no machine has.
  EXPECT_EQ(count(see(watch, "aaaabaabbbbbbbbb"), Verdict::kDuplicateRank), 0U);
  SourceWatch damaged(kPeerTimeout);
  EXPECT_EQ(count(see(damaged, "aaxaayaazaaxaayaazaaxaa"), Verdict::kDuplicateRank), 0U);
}

TEST(SourceWatch, SeldomReturnsAreNotTwo) {
  SourceWatch watch(kPeerTimeout);
  // This is like a failover every two seconds.
  EXPECT_EQ(count(see(watch, "abababababababab", kStart, 2 * kSecond), Verdict::kDuplicateRank), 0U);
}

TEST(SourceWatch, TwoThatAreIdleAreDoubledWithAnyTimeout) {
  for (const Nanos peer_timeout : {kPeerTimeout, 30 * kSecond, 3600 * kSecond}) {
    SourceWatch watch(peer_timeout);
    EXPECT_EQ(count(see(watch, "abababababab", kStart, peer_timeout / 32), Verdict::kDuplicateRank), 1U);
  }
}

}  // namespace
}  // namespace gradlane::test::address_claim_test
