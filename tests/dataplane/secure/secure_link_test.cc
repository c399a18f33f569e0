// secure_link_test.cc - two ends that meet, restart, and get packets late, twice, changed, or from elsewhere
#include "dataplane/secure/secure_link.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "collectives/wire.h"

namespace gradlane::test::secure_link_test {
namespace {

using Bytes = std::vector<uint8_t>;
using Verdict = SecureLink::Verdict;

constexpr LinkEnds kEnds{0x0a000001, 0x0a000002, 18400, 18401};

const KeyRing& key() {
  static const KeyRing it(RingKey(Bytes(32, 7)));
  return it;
}

// A packet of the exchange whose content is `number`.
Bytes packet_of(PacketKind kind, uint64_t number = 0) {
  LinkHeader header{};
  header.magic = kMagic;
  header.kind = kind;
  Bytes packet(sizeof(header) + sizeof(number));
  std::memcpy(packet.data(), &header, sizeof(header));
  std::memcpy(packet.data() + sizeof(header), &number, sizeof(number));
  return packet;
}

Bytes sealed(SecureLink& link, const Bytes& packet) {
  Bytes out(packet.size() + sealed_bytes(EnvelopeKind::kHello));
  out.resize(link.seal(packet.data(), packet.size(), out.data()));
  return out;
}
Bytes hello(SecureLink& link) { return sealed(link, packet_of(PacketKind::kHello)); }
Bytes data(SecureLink& link, uint64_t number = 0) { return sealed(link, packet_of(PacketKind::kData, number)); }
Bytes answer(SecureLink& link, Nanos now = 0) {
  Bytes out(sealed_bytes(EnvelopeKind::kHello));
  EXPECT_EQ(link.answer(out.data(), now), out.size());
  return out;
}

SecureLink::Opened open(SecureLink& link, Bytes payload, uint64_t* number = nullptr) {
  const auto envelope = envelope_of(payload);
  if (!envelope) return {};
  const SecureLink::Opened opened = link.open(*envelope, payload.data(), payload.size());
  if (number != nullptr && opened.verdict == Verdict::kGood && opened.bytes != 0) {
    *number = load<uint64_t>(payload.data() + sizeof(LinkHeader));
  }
  return opened;
}

std::unique_ptr<SecureLink> left(Security security = Security::kEncrypted) {
  return std::make_unique<SecureLink>(key(), security, kEnds);
}
std::unique_ptr<SecureLink> right(Security security = Security::kEncrypted) {
  return std::make_unique<SecureLink>(key(), security, kEnds.reversed());
}

// Hellos and answers go back and forth until both ends know each other.
void meet(SecureLink& one, SecureLink& two) {
  EXPECT_EQ(open(two, hello(one)).verdict, Verdict::kUnmet);
  ASSERT_TRUE(two.needs_answer(0));
  EXPECT_EQ(open(one, answer(two)).verdict, Verdict::kGood);
  ASSERT_TRUE(one.needs_answer(0));
  EXPECT_EQ(open(two, answer(one)).verdict, Verdict::kGood);
  ASSERT_TRUE(two.needs_answer(0));
  EXPECT_EQ(open(one, answer(two)).verdict, Verdict::kGood);
  EXPECT_FALSE(one.needs_answer(0));
}

TEST(SecureLinks, MeetAndExchange) {
  for (const Security security : {Security::kAuthenticated, Security::kEncrypted, Security::kEncrypted128}) {
    const auto one = left(security);
    const auto two = right(security);
    EXPECT_TRUE(data(*one).empty()) << "nothing but hellos before they have met";
    meet(*one, *two);
    for (uint64_t i = 1; i < 100; ++i) {
      uint64_t number = 0;
      ASSERT_EQ(open(*two, data(*one, i), &number).verdict, Verdict::kGood);
      ASSERT_EQ(number, i);
      ASSERT_EQ(open(*one, data(*two, i), &number).verdict, Verdict::kGood);
      ASSERT_EQ(number, i);
      ASSERT_EQ(open(*one, hello(*two)).verdict, Verdict::kGood);
    }
  }
}

TEST(SecureLinks, PacketsCountOnce) {
  const auto one = left();
  const auto two = right();
  meet(*one, *two);
  std::vector<Bytes> packets;
  for (size_t i = 0; i < 2 * ReplayWindow::kBits; ++i) packets.push_back(i % 100 == 0 ? hello(*one) : data(*one));
  // The window takes late packets, and those that are too late are refused.
  EXPECT_EQ(open(*two, packets[ReplayWindow::kBits]).verdict, Verdict::kGood);
  EXPECT_EQ(open(*two, packets[1]).verdict, Verdict::kGood);
  EXPECT_EQ(open(*two, packets[ReplayWindow::kBits + 1]).verdict, Verdict::kGood);
  EXPECT_EQ(open(*two, packets[2]).verdict, Verdict::kGood);
  EXPECT_EQ(open(*two, packets.back()).verdict, Verdict::kGood);
  EXPECT_EQ(open(*two, packets[3]).verdict, Verdict::kReplayed);
  for (const size_t i : {size_t{1}, size_t{2}, ReplayWindow::kBits, packets.size() - 1}) {
    EXPECT_EQ(open(*two, packets[i]).verdict, Verdict::kReplayed) << i;
  }
  size_t good = 0;
  for (const Bytes& it : packets) good += open(*two, it).verdict == Verdict::kGood ? 1 : 0;
  EXPECT_EQ(good, ReplayWindow::kBits - 3) << "all of the window that had not come";
  for (const Bytes& it : packets) EXPECT_EQ(open(*two, it).verdict, Verdict::kReplayed);
}

// Both ends send hellos, and the answers that are due.
void greet(SecureLink& one, SecureLink& two, Nanos& now, int rounds = 3) {
  for (int i = 0; i < rounds; ++i) {
    now += 10 * kMillisecond;
    (void)open(two, hello(one));
    if (two.needs_answer(now)) (void)open(one, answer(two, now));
    (void)open(one, hello(two));
    if (one.needs_answer(now)) (void)open(two, answer(one, now));
  }
}
bool works(SecureLink& one, SecureLink& two) {
  return open(two, data(one)).verdict == Verdict::kGood && open(one, data(two)).verdict == Verdict::kGood;
}

TEST(SecureLinks, RestartsAreNoticedAndReplaysOfEarlierLivesRefused) {
  const auto two = right();
  std::vector<Bytes> recorded;
  Nanos now = 0;
  for (int life = 0; life < 100; ++life) {
    const auto one = left();
    recorded.push_back(hello(*one));
    EXPECT_EQ(open(*two, recorded.back()).verdict, Verdict::kUnmet);
    recorded.push_back(answer(*two));
    EXPECT_EQ(open(*one, recorded.back()).verdict, Verdict::kGood);
    recorded.push_back(hello(*one));
    EXPECT_EQ(open(*two, recorded.back()).verdict, Verdict::kGood);
    greet(*one, *two, now);
    recorded.push_back(hello(*one));
    EXPECT_EQ(open(*two, recorded.back()).verdict, Verdict::kGood);
    recorded.push_back(data(*one));
    EXPECT_EQ(open(*two, recorded.back()).verdict, Verdict::kGood);
    for (size_t i = 0; i < recorded.size(); ++i) {
      EXPECT_NE(open(*two, recorded[i]).verdict, Verdict::kGood) << i;
    }
    EXPECT_TRUE(works(*one, *two)) << "a replay has disturbed the link";
  }
  // A new end at the other side has another life, so nothing that was recorded is good for it.
  const auto later = right();
  for (const Bytes& it : recorded) EXPECT_NE(open(*later, it).verdict, Verdict::kGood);
}

TEST(SecureLinks, HelloThatWasHeldBackComesTooLate) {
  const auto two = right();
  Nanos now = 0;
  Bytes held;
  {
    const auto first = left();
    greet(*first, *two, now);
    const auto second = left();
    EXPECT_EQ(open(*two, hello(*second)).verdict, Verdict::kUnmet);
    EXPECT_EQ(open(*second, answer(*two, now)).verdict, Verdict::kGood);
    held = answer(*second);
  }
  const auto third = left();
  now += kSecond;
  greet(*third, *two, now);
  EXPECT_TRUE(works(*third, *two));
  EXPECT_EQ(open(*two, held).verdict, Verdict::kUnmet);
  EXPECT_TRUE(works(*third, *two));
}

// Another machine has the address and the key for a while.
TEST(SecureLinks, NeighbourThatWasReplacedCanComeBack) {
  const auto two = right();
  const auto one = left();
  Nanos now = 0;
  greet(*one, *two, now);
  for (int i = 0; i < 3; ++i) {
    const auto other = left();
    greet(*other, *two, now);
    EXPECT_TRUE(works(*other, *two));
    greet(*one, *two, now);
    EXPECT_TRUE(works(*one, *two));
  }
}

TEST(SecureLinks, AnswerAfterAMeetingGoesToTheNeighbour) {
  const auto one = left();
  const auto two = right();
  const auto stranger = left();
  EXPECT_EQ(open(*two, hello(*one)).verdict, Verdict::kUnmet);
  EXPECT_EQ(open(*one, answer(*two)).verdict, Verdict::kGood);
  const Bytes greeting = answer(*one);
  EXPECT_EQ(open(*two, hello(*stranger)).verdict, Verdict::kUnmet);
  EXPECT_EQ(open(*two, greeting).verdict, Verdict::kGood);
  EXPECT_EQ(open(*one, answer(*two)).verdict, Verdict::kGood);
}

TEST(SecureLinks, ReflectionsAndSplicesAreForged) {
  const auto one = left();
  const auto two = right();
  meet(*one, *two);
  const Bytes packet = data(*one);
  const Bytes greeting = hello(*one);
  EXPECT_EQ(open(*one, packet).verdict, Verdict::kForged) << "sent back";
  EXPECT_EQ(open(*one, greeting).verdict, Verdict::kForged) << "sent back";
  // Another lane of the same two nodes, and another pair of nodes.
  for (const LinkEnds& ends :
       {LinkEnds{0x0a000001, 0x0a000002, 18401, 18402}, LinkEnds{0x0a000001, 0x0a000003, 18400, 18401}}) {
    SecureLink from(key(), Security::kEncrypted, ends);
    SecureLink to(key(), Security::kEncrypted, ends.reversed());
    meet(from, to);
    EXPECT_EQ(open(to, packet).verdict, Verdict::kForged);
    EXPECT_EQ(open(to, greeting).verdict, Verdict::kForged);
  }
  // The head of one packet and the tail of another.
  const Bytes other = data(*one);
  for (size_t at = 1; at < packet.size(); ++at) {
    Bytes spliced(packet.begin(), packet.begin() + static_cast<ptrdiff_t>(at));
    spliced.insert(spliced.end(), other.begin() + static_cast<ptrdiff_t>(at), other.end());
    if (spliced != packet && spliced != other) {
      EXPECT_EQ(open(*two, spliced).verdict, Verdict::kForged) << at;
    }
  }
  for (size_t bit = 0; bit < packet.size() * 8; ++bit) {
    Bytes changed = packet;
    changed[bit / 8] = static_cast<uint8_t>(changed[bit / 8] ^ 1 << bit % 8);
    const Verdict verdict = open(*two, changed).verdict;
    EXPECT_TRUE(verdict == Verdict::kForged || verdict == Verdict::kReplayed) << bit;
  }
  EXPECT_EQ(open(*two, packet).verdict, Verdict::kGood) << "what was changed has not used up its number";
}

// A network loses, delays, repeats and changes packets, and sends old ones again. Both ends restart at any time.
TEST(SecureLinks, NothingIsTakenTwiceOrFromAnEarlierLife) {
  std::mt19937_64 random(20261129);
  const auto chance = [&random](unsigned percent) { return random() % 100 < percent; };
  struct End {
    std::unique_ptr<SecureLink> link;
    std::set<uint64_t> taken;  // numbers of packets
    uint64_t start = 0;        // first number of a packet that was sealed after this end's latest start
    uint64_t heard_from = 0;   // the same for the other end's latest life that a packet was taken from
  };
  End ends[2];
  std::vector<std::pair<unsigned, Bytes>> network;  // all packets ever, and where they go
  uint64_t next_number = 1;
  uint64_t taken = 0;
  Nanos now = 0;
  const auto restart = [&](unsigned side) {
    ends[side].link = side == 0 ? left() : right();
    ends[side].taken.clear();
    ends[side].start = next_number;
    ends[side].heard_from = 0;
  };
  restart(0);
  restart(1);
  for (unsigned step = 0; step < 60000; ++step) {
    now += 300 * kMicrosecond;
    const auto side = static_cast<unsigned>(random() % 2);
    End& end = ends[side];
    if (step % 5000 == 4999) restart(side);
    if (chance(20)) network.emplace_back(1 - side, hello(*end.link));
    if (Bytes packet = data(*end.link, next_number); !packet.empty()) {
      ++next_number;
      network.emplace_back(1 - side, std::move(packet));
    }
    // Mostly one of the latest packets arrives; sometimes any, or a changed one.
    if (network.empty()) continue;
    const size_t back = chance(80) ? random() % std::min<size_t>(8, network.size()) : random() % network.size();
    auto [to, packet] = network[network.size() - 1 - back];
    if (chance(3)) packet[random() % packet.size()] ^= static_cast<uint8_t>(1 + random() % 255);
    End& receiver = ends[to];
    uint64_t number = 0;
    const SecureLink::Opened opened = open(*receiver.link, packet, &number);
    if (opened.verdict == Verdict::kGood && number != 0) {
      ASSERT_TRUE(receiver.taken.insert(number).second) << "taken twice";
      ASSERT_GE(number, receiver.start) << "it was not for this life";
      ASSERT_GE(number, receiver.heard_from) << "of an earlier life of its sender";
      if (number >= ends[1 - to].start) receiver.heard_from = ends[1 - to].start;
      ++taken;
    }
    if (receiver.link->needs_answer(now)) network.emplace_back(1 - to, answer(*receiver.link, now));
  }
  EXPECT_GT(taken, 10000U);
}

// ---- Keys that change

RingKey numbered_key(uint32_t number) {
  Bytes secret(32, 7);
  std::memcpy(secret.data(), &number, sizeof(number));
  return RingKey(secret);
}

TEST(KeyRings, HaveTheNewestKeyAndTheOneBefore) {
  KeyRing ring(numbered_key(1));
  EXPECT_EQ(ring.keys().newest->id(), numbered_key(1).id());
  EXPECT_EQ(ring.keys().old, nullptr);
  for (uint32_t number = 2; number < 100; ++number) {
    const uint32_t before = ring.version();
    ring.add(numbered_key(number));
    EXPECT_NE(ring.version(), before);
    EXPECT_EQ(*ring.keys().newest, numbered_key(number));
    EXPECT_EQ(*ring.keys().old, numbered_key(number - 1));
    EXPECT_EQ(ring.keys().with(numbered_key(number - 1).id()), ring.keys().old);
    EXPECT_EQ(ring.keys().with(0xffff), nullptr);
    ring.drop_old();
    ring.wipe();
    EXPECT_EQ(*ring.keys().newest, numbered_key(number));
    EXPECT_EQ(ring.keys().old, nullptr);
    EXPECT_EQ(ring.keys().version, ring.version());
  }
}

// Two ends of a link, each with its own keys.
struct KeyedEnds {
  KeyRing keys[2] = {KeyRing(numbered_key(1)), KeyRing(numbered_key(1))};
  SecureLink one{keys[0], Security::kEncrypted, kEnds};
  SecureLink two{keys[1], Security::kEncrypted, kEnds.reversed()};
};

uint16_t key_of(const Bytes& payload) { return envelope_of(payload)->key; }

TEST(SecureLinks, UseANewKeyWhenBothEndsHaveIt) {
  KeyedEnds ends;
  auto& [keys, one, two] = ends;
  meet(one, two);
  const uint16_t first = numbered_key(1).id();
  const uint16_t second = numbered_key(2).id();
  const Bytes early = data(one);
  keys[0].add(numbered_key(2));
  EXPECT_EQ(key_of(data(one)), first) << "the other end does not have the new one";
  EXPECT_EQ(key_of(hello(one)), first);
  EXPECT_EQ(open(two, hello(one)).verdict, Verdict::kGood);
  keys[1].add(numbered_key(2));
  EXPECT_EQ(key_of(data(two)), second) << "the hello has said that the neighbour has it";
  EXPECT_EQ(one.neighbour_key(), first);
  EXPECT_EQ(open(one, hello(two)).verdict, Verdict::kGood);
  EXPECT_EQ(one.neighbour_key(), second);
  ASSERT_TRUE(one.needs_answer(0));
  const Bytes reply = answer(one);
  EXPECT_EQ(key_of(reply), second);
  EXPECT_EQ(open(two, reply).verdict, Verdict::kGood);
  EXPECT_EQ(two.neighbour_key(), second);
  EXPECT_EQ(key_of(data(one)), second);
  // Packets that were sealed before are good until the old key is dropped.
  EXPECT_EQ(open(two, early).verdict, Verdict::kGood);
  EXPECT_EQ(open(two, early).verdict, Verdict::kReplayed);
  const Bytes late = [] {
    KeyRing old(numbered_key(1));
    SecureLink it(old, Security::kEncrypted, kEnds);
    return hello(it);
  }();
  EXPECT_EQ(open(two, late).verdict, Verdict::kUnmet);
  keys[1].drop_old();
  keys[1].wipe();
  EXPECT_EQ(open(two, late).verdict, Verdict::kForged);
  EXPECT_EQ(open(two, early).verdict, Verdict::kForged);
  EXPECT_EQ(open(two, data(one)).verdict, Verdict::kGood);
}

TEST(SecureLinks, MeetWithTheKeyThatBothHave) {
  for (const bool newer : {false, true}) {
    KeyRing both(numbered_key(1));
    both.add(numbered_key(2));
    KeyRing single(numbered_key(newer ? 2 : 1));
    SecureLink one(both, Security::kEncrypted, kEnds);
    SecureLink two(single, Security::kEncrypted, kEnds.reversed());
    EXPECT_EQ(open(one, hello(two)).verdict, Verdict::kUnmet);
    const Bytes first = answer(one);
    EXPECT_EQ(open(two, first).verdict, Verdict::kGood);
    const Bytes second = answer(two);
    EXPECT_EQ(open(one, second).verdict, Verdict::kGood);
    for (uint64_t i = 1; i < 5; ++i) {
      EXPECT_EQ(open(two, data(one, i)).verdict, Verdict::kGood);
      EXPECT_EQ(open(one, data(two, i)).verdict, Verdict::kGood);
      EXPECT_EQ(open(two, hello(one)).verdict, Verdict::kGood);
      EXPECT_EQ(open(one, hello(two)).verdict, Verdict::kGood);
    }
  }
}

// A link that is settled sends hellos only by wants_hello(). Any of the first packets may get lost, and a hello of an
// earlier start may be replayed at any time.
TEST(SecureLinks, AgreeOnTheNewestKeyWhateverIsLost) {
  const uint16_t second = numbered_key(2).id();
  for (unsigned lost = 0; lost < 1 << 8; ++lost) {
    KeyedEnds ends;
    auto& [keys, one, two] = ends;
    SecureLink earlier(keys[0], Security::kEncrypted, kEnds);
    const Bytes replay_one = hello(earlier);
    meet(one, two);
    Nanos now = kSecond;
    unsigned sent = 0;
    const auto carry = [&](SecureLink& to, const Bytes& packet) {
      const unsigned number = sent++;
      if (number >= 8 || (lost >> number & 1) == 0) (void)open(to, packet);
    };
    keys[0].add(numbered_key(2));
    keys[1].add(numbered_key(2));
    for (int tick = 0; tick < 12; ++tick) {
      now += 100 * kMillisecond;
      if (lost % 2 == 0) (void)open(two, replay_one);
      if (one.wants_hello()) carry(two, answer(one, now));
      if (two.needs_answer(now)) carry(one, answer(two, now));
      if (two.wants_hello()) carry(one, answer(two, now));
      if (one.needs_answer(now)) carry(two, answer(one, now));
      if (tick == 6 && lost % 3 == 0) {  // the old key is dropped at one end, whatever the other one knows
        keys[0].drop_old();
        keys[0].wipe();
      }
    }
    EXPECT_EQ(one.neighbour_key(), second) << lost;
    EXPECT_EQ(two.neighbour_key(), second) << lost;
    EXPECT_FALSE(one.wants_hello() || two.wants_hello()) << lost;
    EXPECT_TRUE(works(one, two)) << lost;
  }
}

TEST(SecureLinks, DataShowsWhichKeyTheNeighbourHas) {
  KeyedEnds ends;
  auto& [keys, one, two] = ends;
  meet(one, two);
  keys[0].add(numbered_key(2));
  keys[1].add(numbered_key(2));
  EXPECT_EQ(open(two, hello(one)).verdict, Verdict::kGood);
  // No hello of `two` arrives, only data, which it seals with the new key.
  EXPECT_EQ(open(one, data(two)).verdict, Verdict::kGood);
  EXPECT_EQ(one.neighbour_key(), numbered_key(2).id());
  EXPECT_EQ(key_of(data(one)), numbered_key(2).id());
}

// The network loses, delays and repeats packets while keys change again and again, at one end some time before the
// other. No packet is forged, because each end drops its old key only when the neighbour has used the new one.
TEST(SecureLinks, NoPacketIsForgedWhileKeysChange) {
  std::mt19937_64 random(46);
  KeyedEnds ends;
  SecureLink* const links[] = {&ends.one, &ends.two};
  meet(ends.one, ends.two);
  std::vector<std::pair<unsigned, Bytes>> network;
  uint32_t latest[2] = {1, 1};
  unsigned changes = 0;
  uint64_t good = 0;
  Nanos now = 0;
  for (unsigned step = 0; step < 200000; ++step) {
    now += 300 * kMicrosecond;
    const auto side = static_cast<unsigned>(random() % 2);
    KeyRing& keys = ends.keys[side];
    if (random() % 20 == 0 && latest[side] <= latest[1 - side] &&
        links[side]->neighbour_key() == keys.keys().newest->id()) {
      if (keys.keys().old != nullptr) keys.drop_old();
      keys.wipe();
      // The network has no packets any more that were sealed with the dropped key.
      std::erase_if(network,
                    [&](const auto& it) { return it.first == side && keys.keys().with(key_of(it.second)) == nullptr; });
      keys.add(numbered_key(++latest[side]));
      ++changes;
    }
    network.emplace_back(1 - side, random() % 4 == 0 ? hello(*links[side]) : data(*links[side], step + 1));
    if (network.size() > 200) network.erase(network.begin(), network.begin() + 100);
    const auto& [to, packet] = network[random() % network.size()];
    const Verdict verdict = open(*links[to], packet).verdict;
    ASSERT_TRUE(verdict == Verdict::kGood || verdict == Verdict::kReplayed) << "step " << step;
    good += verdict == Verdict::kGood ? 1 : 0;
    if (links[to]->needs_answer(now)) network.emplace_back(1 - to, answer(*links[to], now));
  }
  EXPECT_GT(changes, 1000U);
  EXPECT_GT(good, 100000U);
}

// ---- The window

TEST(ReplayWindows, AgreeWithASet) {
  std::mt19937_64 random(3);
  ReplayWindow window;
  std::set<uint64_t> taken;
  uint64_t latest = 0;
  for (int i = 0; i < 200000; ++i) {
    const uint64_t base = latest + (random() % 50 == 0 ? random() % 20000 : random() % 4);
    const uint64_t back = random() % (random() % 10 == 0 ? 9000 : 20);
    const uint64_t counter = base > back ? base - back : 0;
    const bool is_new = taken.count(counter) == 0 && counter + ReplayWindow::kBits > latest;
    ASSERT_EQ(window.is_new(counter), is_new) << counter << " after " << latest;
    if (!is_new) continue;
    window.take(counter);
    taken.insert(counter);
    latest = std::max(latest, counter);
  }
}

}  // namespace
}  // namespace gradlane::test::secure_link_test
