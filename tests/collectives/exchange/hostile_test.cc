// hostile_test.cc - tests with handmade link headers, acknowledgements and hellos, and the one counter for each
//
// CRC and session do not authenticate packets. Anyone who knows both can send whatever a neighbour could send. A packet
// that cannot be told from a neighbour's counts as one. The last tests of hostile_runs_test.cc show the most that it
// may do. All other packets must change nothing.
#include <functional>

#include "tests/collectives/exchange/hostile_fixture.h"

namespace gradlane::test::hostile_test {
namespace {

TEST_F(Hostile, LinkHeaders) {
  const Bytes good = data(kBefore, sums(1, 0, kGranule));
  const auto changed = [&](const std::function<void(LinkHeader&)>& change, bool sealed = true) {
    Bytes packet = good;
    auto header = load<LinkHeader>(packet.data());
    change(header);
    store(packet.data(), header);
    if (sealed) seal(packet);
    return packet;
  };
  const auto of_kind = [&](unsigned kind) {
    return changed([=](LinkHeader& header) { header.kind = static_cast<PacketKind>(kind); });
  };
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{43}}) {
    expect_counted("cut", kBefore, Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(bytes)),
                   Counter::kTooShort);
  }
  for (const size_t bytes : {size_t{1473}, ring_.net().max_packet()}) {
    expect_counted("longer than the MTU", kBefore, data(kBefore, Bytes(bytes - sizeof(LinkHeader))),
                   Counter::kTooShort);
  }
  expect_counted("magic", kBefore, changed([](LinkHeader& header) { header.magic ^= 0x100; }), Counter::kBadMagic);
  for (const unsigned kind : {0U, 4U, 255U}) expect_counted("kind", kBefore, of_kind(kind), Counter::kBadKind);
  for (const uint64_t bit : {uint64_t{1}, uint64_t{1} << 31, uint64_t{1} << 32, uint64_t{1} << 63}) {
    expect_counted("session", kBefore, changed([=](LinkHeader& header) { header.session ^= bit; }),
                   Counter::kStaleSession);
    expect_counted("session of an ack", kBefore, changed([=](LinkHeader& header) {
                     header.session ^= bit;
                     header.kind = PacketKind::kAck;
                   }),
                   Counter::kStaleSession);
  }
  for (const unsigned stranger : {kVictim, 3U, 255U, 65'536U}) {
    expect_counted("stranger", stranger, good, Counter::kUnknownPeer);
  }
  expect_counted("crc", kBefore, changed([](LinkHeader& header) { header.crc = ~header.crc; }, false),
                 Counter::kBadCrc);
  expect_counted("no crc", kBefore, changed([](LinkHeader& header) { header.crc = 0; }, false), Counter::kBadCrc);
  expect_unharmed();
}

// A change of any single byte is noticed.
TEST_F(Hostile, DamagedBytes) {
  const Bytes good = data(kBefore, sums(1, 0, kGranule));
  for (size_t at = 0; at < good.size(); ++at) {
    Bytes packet = good;
    packet[at] ^= static_cast<uint8_t>(1U << at % 8);
    const bool magic = at < sizeof(LinkHeader::magic);
    expect_counted("byte " + std::to_string(at), kBefore, packet, magic ? Counter::kBadMagic : Counter::kBadCrc);
  }
  for (size_t bytes = sizeof(LinkHeader); bytes < good.size(); ++bytes) {
    expect_counted("cut", kBefore, Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(bytes)), Counter::kBadCrc);
  }
  expect_unharmed();
}

TEST_F(Hostile, SequenceNumbersAndAcknowledgements) {
  const Bytes runs = sums(1, 0, kGranule);
  const auto with = [&](const std::function<void(LinkHeader&)>& change) {
    LinkHeader header = data_header(kBefore);
    change(header);
    return make_packet(header, header.kind == PacketKind::kAck ? Bytes() : runs);
  };
  const uint32_t next = next_[kBefore];
  for (const uint32_t back : {1U, 2U, next, 0x7fffffffU}) {
    expect_counted("old number", kBefore, with([=](LinkHeader& header) { header.sequence -= back; }),
                   Counter::kDuplicate);
  }
  const auto window = static_cast<uint32_t>(ring_.net().node(kVictim).config().window);
  for (const uint32_t ahead : {window, window + 1, 10'000U, 0x7ffffff0U}) {
    expect_counted("far ahead", kBefore, with([=](LinkHeader& header) { header.sequence += ahead; }), Counter::kTooFar);
  }
  const auto ack = [&](const std::function<void(LinkHeader&)>& change) {
    return with([&](LinkHeader& header) {
      header.kind = PacketKind::kAck;
      header.sack = 0;
      change(header);
    });
  };
  expect_counted("nothing new", kBefore, ack([](LinkHeader&) {}), Counter::kAckReceived);
  expect_counted("old ack", kBefore, ack([](LinkHeader& header) { header.ack -= 1; }), Counter::kAckReceived);
  expect_counted("very old ack", kBefore, ack([](LinkHeader& header) { header.ack -= 0x7fffffff; }),
                 Counter::kAckReceived);
  // The neighbour acknowledges packets that were never sent.
  for (const uint32_t ahead : {1U, 100U, 0x7fffffffU}) {
    expect_counted("ack " + std::to_string(ahead), kBefore, ack([=](LinkHeader& header) { header.ack += ahead; }),
                   Counter::kAckReceived, {{Counter::kBadAck, 1}});
  }
  for (const unsigned bit : {0U, 17U, 63U}) {
    for (const unsigned from : {0U, 1U, 4096U, 65535U}) {
      expect_counted("sack", kBefore, ack([=](LinkHeader& header) {
                       header.sack = uint64_t{1} << bit;
                       header.sack_from = static_cast<uint16_t>(from);
                     }),
                     Counter::kAckReceived, {{Counter::kBadAck, 1}});
    }
  }
  expect_counted("all of it", kBefore, ack([](LinkHeader& header) {
                   header.sack = ~uint64_t{0};
                   header.sack_from = 0xffff;
                   header.ack += 0x7fff0000;
                 }),
                 Counter::kAckReceived, {{Counter::kBadAck, 1}});
  // Stamps, echoes and credit may have any value.
  for (const uint32_t number : {0U, 1U, 0x7fffffffU, 0x80000000U, 0xffffffffU}) {
    expect_counted("stamp", kBefore, ack([=](LinkHeader& header) { header.stamp = number; }), Counter::kAckReceived);
    expect_counted("echo", kBefore, ack([=](LinkHeader& header) { header.echo = number; }), Counter::kAckReceived);
    expect_counted("credit", kBefore, ack([=](LinkHeader& header) { header.credit = static_cast<uint16_t>(number); }),
                   Counter::kAckReceived);
  }
  // An acknowledgement that is followed by other bytes is still accepted. So is one in a data packet that is refused.
  expect_counted("with payload", kBefore, make_packet(ack_header(kBefore), Bytes(100)), Counter::kAckReceived);
  expect_counted("in vain", kBefore, with([=](LinkHeader& header) {
                   header.sequence += window;
                   header.ack += 500;
                 }),
                 Counter::kTooFar, {{Counter::kBadAck, 1}});
  expect_unharmed();
}

TEST_F(Hostile, Hellos) {
  const auto hello = [&](unsigned from, const std::function<void(LinkHeader&, Hello&)>& change) {
    Bytes packet = hello_[from];
    packet.resize(sizeof(LinkHeader) + sizeof(Hello));  // fields that a hello leaves out are 0
    auto header = load<LinkHeader>(packet.data());
    auto body = load<Hello>(packet.data() + sizeof(LinkHeader));
    change(header, body);
    store(packet.data(), header);
    store(packet.data() + sizeof(LinkHeader), body);
    seal(packet);
    return packet;
  };
  for (const unsigned from : {kBefore, kBehind}) {
    expect_counted("as it is", from, hello(from, [](LinkHeader&, Hello&) {}), Counter::kHelloReceived);
    Bytes shorter = hello_[from];
    shorter.resize(sizeof(LinkHeader) + kLeastHello - 1);
    seal(shorter);
    expect_counted("too short", from, shorter, Counter::kTooShort);
    shorter.resize(sizeof(LinkHeader));
    seal(shorter);
    expect_counted("empty", from, shorter, Counter::kTooShort);
    Bytes brief = hello_[from];
    brief.resize(sizeof(LinkHeader) + kLeastHello);
    seal(brief);
    expect_counted("of the first form, shorter", from, brief, Counter::kHelloReceived);
    Bytes longer = hello_[from];
    longer.resize(500);
    seal(longer);
    expect_counted("of a later version, longer", from, longer, Counter::kHelloReceived);
    expect_counted("unknown life", from,
                   hello(from,
                         [](LinkHeader&, Hello& h) {
                           h.incarnation ^= 1;
                           h.echo ^= 1;
                         }),
                   Counter::kHelloStale);
    expect_counted("unknown life of a later session", from,
                   hello(from,
                         [](LinkHeader& l, Hello& h) {
                           l.session += uint64_t{5} << 32;
                           h.incarnation ^= 1;
                           h.echo ^= 1;
                         }),
                   Counter::kHelloStale);
    // No rank can have missed more than 2^30 generations, so a hello that is further ahead counts as stale.
    for (const uint64_t later : {(uint64_t{1} << 30) + 1, uint64_t{1} << 31}) {
      expect_counted("a generation that cannot be", from,
                     hello(from, [later](LinkHeader& l, Hello&) { l.session += later << 32; }), Counter::kHelloStale);
    }
    ring_.run_for(3 * kMillisecond);
    expect_counted("earlier session", from, hello(from, [](LinkHeader& l, Hello&) { l.session -= 1; }),
                   Counter::kHelloReceived);
    ring_.run_for(3 * kMillisecond);  // the victim answers the question in the hello
    expect_counted("another world", from, hello(from, [](LinkHeader&, Hello& h) { h.world = 4; }),
                   Counter::kHelloRefused);
    ring_.run_for(3 * kMillisecond);
  }
  expect_unharmed();
}

// A forged packet about a neighbour's configuration is forgotten with the session at the latest. The next session
// starts, and the operations that wait for it do not fail.
TEST_F(Hostile, RefusalsAreForgotten) {
  Bytes version = data(kBefore, {});
  version[offsetof(LinkHeader, version)] = 9;
  seal(version);
  expect_counted("version", kBefore, version, Counter::kBadVersion);
  Bytes world = hello_[kBehind];
  world.resize(sizeof(LinkHeader) + sizeof(Hello));
  auto body = load<Hello>(world.data() + sizeof(LinkHeader));
  body.world = 9;
  store(world.data() + sizeof(LinkHeader), body);
  seal(world);
  expect_counted("world", kBehind, world, Counter::kHelloRefused);
  ring_.net().close(kBehind);
  EXPECT_TRUE(ring_.finish(std::array{sum_, coded_}, 50 * kMicrosecond, {kBehind}));
  EXPECT_TRUE(ring_.works());
}

}  // namespace
}  // namespace gradlane::test::hostile_test
