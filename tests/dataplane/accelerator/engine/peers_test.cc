// peers_test.cc - the peers that the accelerator asks, believes, and gives up
#include "dataplane/accelerator/engine/peers.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

namespace gradlane::accel::test::peers_test {
namespace {

constexpr uint32_t kIp = 0x0a4d0002;
constexpr Nanos kStart = 100 * kSecond;

class PeersTest : public ::testing::Test {
 protected:
  bool restores(Nanos now, uint32_t ip = kIp) { return peers_->restores(headers_.data(), ip, now); }

  std::vector<uint64_t> questions(Nanos now) {
    std::vector<uint64_t> nonces;
    for (auto it = peers_->next_question(now); it.headers != nullptr; it = peers_->next_question(now)) {
      nonces.push_back(it.nonce);
    }
    return nonces;
  }

  Peers::State state(Nanos now, uint32_t wanted = kIp) {
    auto found = Peers::State::kAsked;
    peers_->for_each(now, [&](uint32_t ip, Peers::State state, uint64_t, uint64_t, Nanos) {
      if (ip == wanted) found = state;
    });
    return found;
  }

  std::array<uint8_t, Peers::kTemplate> headers_{0x02, 1, 2, 3, 4, 5};
  std::unique_ptr<Peers> peers_ = std::make_unique<Peers>(7);
};

TEST_F(PeersTest, NothingIsCompressedBeforeAnAnswer) {
  EXPECT_FALSE(restores(kStart));
  const auto nonces = questions(kStart);
  ASSERT_EQ(nonces.size(), 1U);
  EXPECT_FALSE(restores(kStart + 1));
  EXPECT_TRUE(peers_->answered(kIp, nonces[0], kStart + 2));
  EXPECT_TRUE(restores(kStart + 3));
  EXPECT_EQ(state(kStart + 3), Peers::State::kAnswers);
}

TEST_F(PeersTest, AnAnswerHoldsForSomeSeconds) {
  (void)restores(kStart);
  ASSERT_TRUE(peers_->answered(kIp, questions(kStart).at(0), kStart));
  EXPECT_TRUE(restores(kStart + Peers::kHolds - 1));
  EXPECT_FALSE(restores(kStart + Peers::kHolds));
}

TEST_F(PeersTest, OnlyTheQuestionsNonceIsAnAnswerAndOnlyOnce) {
  (void)restores(kStart);
  const uint64_t first = questions(kStart).at(0);
  EXPECT_FALSE(peers_->answered(kIp, first + 1, kStart));
  EXPECT_FALSE(peers_->answered(kIp, 0, kStart));
  EXPECT_FALSE(peers_->answered(kIp + 1, first, kStart));
  EXPECT_FALSE(restores(kStart + 1));
  // The question is asked again with the same nonce, because the first answer may be in flight.
  EXPECT_EQ(questions(kStart + Peers::kQuick).at(0), first);
  EXPECT_TRUE(peers_->answered(kIp, first, kStart + Peers::kQuick));
  EXPECT_FALSE(peers_->answered(kIp, first, kStart + Peers::kQuick));
  const uint64_t second = questions(kStart + Peers::kQuick + Peers::kAgain).at(0);
  EXPECT_NE(second, first);
  EXPECT_FALSE(peers_->answered(kIp, first, kStart + 2 * Peers::kAgain));
  EXPECT_TRUE(peers_->answered(kIp, second, kStart + 2 * Peers::kAgain));
}

TEST_F(PeersTest, AsksQuicklyThenSlowlyThenStops) {
  (void)restores(kStart);
  size_t asked = 0;
  for (Nanos now = kStart; now < kStart + kSecond; now += kMillisecond) {
    (void)restores(now);
    asked += questions(now).size();
  }
  EXPECT_EQ(asked, Peers::kQuickAsks);
  EXPECT_EQ(state(kStart + kSecond), Peers::State::kAsked);
  (void)questions(kStart + 1300 * kMillisecond);
  EXPECT_EQ(state(kStart + 1300 * kMillisecond), Peers::State::kSilent);
  asked = 0;
  for (Nanos now = kStart + kSecond; now < kStart + 200 * kSecond; now += 10 * kMillisecond) {
    asked += questions(now).size();
  }
  EXPECT_GE(asked, 58U);  // questions go on for kKept after the last packet
  EXPECT_LE(asked, 62U);
  EXPECT_EQ(questions(kStart + 201 * kSecond).size(), 0U);
  (void)restores(kStart + 202 * kSecond);
  EXPECT_EQ(questions(kStart + 202 * kSecond).size(), 1U);
}

TEST_F(PeersTest, KeepsAskingWhereSomebodyAnswers) {
  (void)restores(kStart);
  size_t answers = 0;
  for (Nanos now = kStart; now < kStart + 30 * kSecond; now += 10 * kMillisecond) {
    for (const uint64_t nonce : questions(now)) answers += peers_->answered(kIp, nonce, now) ? 1U : 0U;
    EXPECT_TRUE(restores(now));
  }
  EXPECT_EQ(answers, 30U);
}

TEST_F(PeersTest, OneThatFallsSilentIsNotCompressedFor) {
  (void)restores(kStart);
  ASSERT_TRUE(peers_->answered(kIp, questions(kStart).at(0), kStart));
  Nanos now = kStart;
  for (; now < kStart + 10 * kSecond; now += 10 * kMillisecond) {
    (void)questions(now);
    EXPECT_EQ(restores(now), now < kStart + Peers::kHolds);
  }
  EXPECT_EQ(state(now), Peers::State::kSilent);
  const uint64_t nonce = questions(now + Peers::kAgain).at(0);
  EXPECT_TRUE(peers_->answered(kIp, nonce, now + Peers::kAgain));
  EXPECT_TRUE(restores(now + Peers::kAgain));
}

TEST_F(PeersTest, GroupsAreNeverAsked) {
  EXPECT_FALSE(restores(kStart, 0xe0000001));
  EXPECT_FALSE(restores(kStart, 0xffffffff));
  EXPECT_FALSE(restores(kStart, 0));
  headers_[0] = 0x01;
  EXPECT_FALSE(restores(kStart, kIp));
  EXPECT_TRUE(questions(kStart).empty());
}

TEST_F(PeersTest, CountsWhatBecameOfPackets) {
  (void)restores(kStart);
  peers_->count(kIp, true);
  peers_->count(kIp, false);
  peers_->count(kIp, false);
  peers_->count(kIp + 1, true);  // this address is not known
  unsigned seen = 0;
  peers_->for_each(kStart + 5, [&](uint32_t ip, Peers::State state, uint64_t compressed, uint64_t raw, Nanos ago) {
    ++seen;
    EXPECT_EQ(ip, kIp);
    EXPECT_EQ(state, Peers::State::kAsked);
    EXPECT_EQ(compressed, 1U);
    EXPECT_EQ(raw, 2U);
    EXPECT_EQ(ago, 5);
  });
  EXPECT_EQ(seen, 1U);
}

TEST_F(PeersTest, NoncesAreNotThoseOfAnotherSeed) {
  Peers other(8);
  (void)restores(kStart);
  (void)other.restores(headers_.data(), kIp, kStart);
  const uint64_t nonce = questions(kStart).at(0);
  EXPECT_NE(nonce, other.next_question(kStart).nonce);
  EXPECT_NE(nonce, 0U);
}

TEST_F(PeersTest, WhoAsksIsAnAccelerator) {
  EXPECT_FALSE(peers_->is_accelerator(kIp, kStart));
  peers_->asks(kIp, kStart);
  EXPECT_TRUE(peers_->is_accelerator(kIp, kStart + Peers::kKept - 1));
  EXPECT_FALSE(peers_->is_accelerator(kIp, kStart + Peers::kKept));
  EXPECT_FALSE(restores(kStart));  // it must answer a question first
  EXPECT_EQ(questions(kStart).size(), 1U);
  EXPECT_FALSE(peers_->is_accelerator(kIp + 1, kStart));
}

// An address that asks must not replace another one that has asked while its bucket has free entries.
TEST_F(PeersTest, AllWhoAskAreAccelerators) {
  constexpr uint32_t kCount = 100;  // of 1024 entries in 128 buckets
  for (uint32_t i = 0; i < kCount; ++i) peers_->asks(kIp + i, kStart + i);
  for (uint32_t i = 0; i < kCount; ++i) EXPECT_TRUE(peers_->is_accelerator(kIp + i, kStart + kSecond)) << i;
}

// With thousands of addresses at once, not every packet leads to a question.
TEST_F(PeersTest, QuestionsAreNotMoreThanOneAMillisecond) {
  size_t asked = 0;
  for (uint32_t i = 0; i < 80'000; ++i) {
    const Nanos now = kStart + i * 10 * kMicrosecond;
    (void)restores(now, 0x0b000000 + i % 4000);
    asked += questions(now).size();
  }
  EXPECT_LE(asked, 801U);
  EXPECT_GE(asked, 400U);
}

// There are more addresses than entries in the table. Addresses in use stay.
TEST_F(PeersTest, ManyAddressesDoNotPushOutTheUsedOne) {
  (void)restores(kStart);
  ASSERT_TRUE(peers_->answered(kIp, questions(kStart).at(0), kStart));
  Nanos now = kStart;
  for (uint32_t i = 1; i <= 20 * Peers::kMost; ++i) {
    now += 100 * kMicrosecond;
    for (const uint64_t nonce : questions(now)) (void)peers_->answered(kIp, nonce, now);
    (void)restores(now, 0x0b000000 + i);
    EXPECT_TRUE(restores(now));
  }
  size_t known = 0;
  peers_->for_each(now, [&](auto...) { ++known; });
  EXPECT_LE(known, Peers::kMost);
  EXPECT_GE(known, Peers::kMost / 2);
}

}  // namespace
}  // namespace gradlane::accel::test::peers_test
