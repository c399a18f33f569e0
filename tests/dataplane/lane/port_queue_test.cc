// port_queue_test.cc - a port queue: counters of received packets, buffers that are refused, a port that accepts
// nothing
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "collectives/wire.h"
#include "tests/dataplane/cluster.h"
#include "tests/dataplane/frame/frame_fixture.h"

namespace gradlane::test::port_queue_test {
namespace {

constexpr Nanos kStall = 5 * kMillisecond;

Bytes from_port(Bytes frame, uint16_t port) {
  put16(frame, kL4, port);
  return frame;
}

Bytes from_ip(Bytes frame, uint32_t ip) {
  put32(frame, kIp + 12, ip);
  seal_ip(frame);
  return frame;
}

// Returns the frame with the magic of the ring's packets. Its other bytes are no valid header of such a packet.
Bytes with_magic(Bytes frame) {
  store(frame.data() + kFrameBytes, kMagic);
  return frame;
}

Bytes changed(Bytes frame, size_t at, uint8_t value) {
  frame[at] = value;
  return frame;
}

Bytes shortened(Bytes frame, size_t bytes) {
  frame.resize(bytes);
  return frame;
}

struct Case {
  const char* what;
  Bytes frame;
  const char* counter;
};

// Expects that each frame is counted once, by the name of its case.
void expect_counted(Cluster& cluster, const std::vector<Case>& cases) {
  for (const Case& it : cases) {
    const uint64_t before = cluster.counted(0, it.counter);
    const uint64_t received = cluster.counted(0, "received");
    cluster.peer().send(it.frame);
    (void)cluster.round(0);
    EXPECT_EQ(cluster.counted(0, it.counter), before + 1) << it.what;
    EXPECT_EQ(cluster.counted(0, "received"), received + 1) << it.what;
  }
}

const ClusterConfig kPlayed{.nodes = 2, .played = true};

TEST(PortQueue, FramesAreCountedByWhatTheyAre) {
  Cluster cluster(kPlayed);
  const Bytes good = from_port(udp(kTosRaw, kPort, 100), kPort);
  const Bytes ours = with_magic(good);
  expect_counted(cluster, {
                              {"a packet of the neighbour", good, "gradlane"},
                              {"the same, counted by its class", good, "raw"},
                              {"another class", from_port(udp(kTosCompressed, kPort, 100), kPort), "compressed"},
                              {"of an address that no node has", from_ip(good, 0x0a000009), "not_neighbour"},
                              {"from a port of no rank", from_port(good, 40000), "not_neighbour"},
                              {"with a ToS byte of no class", changed(good, kIp + 1, 0x04), "bad_ip_header"},
                              {"to another UDP port", from_port(udp(kTosRaw, kPort + 1, 100), kPort), "host"},
                              {"TCP", ipv4(0, 6, some_bytes(40)), "host"},
                              {"cut off", shortened(good, 60), "runt"},
                              {"with IP options", udp(kTosRaw, kPort, 100, 4), "ip_options"},
                              {"with a wrong UDP length", changed(good, kL4 + 5, 3), "bad_udp"},
                              {"to another MAC address", changed(good, 5, 0x77), "not_for_us"},
                              {"IPv6", ethernet(kOurMac, kTheirMac, 0x86dd), "other_ethertype"},
                              {"a ping", ping(56), "echo"},
                              {"a question by ARP", arp(kEverybody, 1, kTheirIp, kOurIp), "arp"},
                              {"ARP of who has our address", arp(kEverybody, 1, kOurIp, kOurIp), "rival"},
                              {"that says it is of the ring, and is not", ours, "gradlane"},
                          });
  // A wrong ToS byte is not counted as a damaged header if the header's checksum is right.
  Bytes other_class = from_port(with_magic(udp(0x04, kPort, 100)), kPort);
  expect_counted(cluster, {{"with a ToS byte of no class", other_class, "host"}});
  expect_counted(cluster, {{"the same, of a neighbour", other_class, "wrong_tos"}});
}

TEST(PortQueue, FramesInTwoBuffersAreDropped) {
  Cluster cluster(kPlayed);
  cluster.peer().send_in_two(from_port(udp(kTosRaw, kPort, 1000), kPort));
  (void)cluster.round(0);
  EXPECT_EQ(cluster.counted(0, "segmented"), 1U);
  EXPECT_EQ(cluster.counted(0, "gradlane"), 0U);
}

TEST(PortQueue, PacketsForAnotherWorkersLaneAreDropped) {
  Cluster cluster({.nodes = 2, .played = true, .change = [](NodeConfig& it) { it.lanes = it.threads = 2; }});
  ASSERT_EQ(cluster.node(0).workers().size(), 2U);
  const Bytes for_lane_1 = from_port(udp(kTosRaw, kPort + 1, 100), kPort + 1);
  cluster.peer().send(for_lane_1, 0);
  cluster.peer().send(for_lane_1, 1);
  (void)cluster.round(0);
  EXPECT_EQ(cluster.counted(0, 0, "wrong_lane"), 1U);
  EXPECT_EQ(cluster.counted(0, 1, "wrong_lane"), 0U);
  cluster.peer().send(from_port(for_lane_1, kPort), 1);
  (void)cluster.round(0);
  EXPECT_EQ(cluster.counted(0, 1, "not_neighbour"), 1U) << "ranks of different lanes never meet";
}

TEST(PortQueue, OneWorkerHasPacketsOfAllLanesAtAnyQueue) {
  Cluster cluster({.nodes = 2, .played = true, .change = [](NodeConfig& it) { it.lanes = 2; }});
  cluster.peer().send(from_port(udp(kTosRaw, kPort + 1, 100), kPort + 1), 0);
  (void)cluster.round(0);
  EXPECT_EQ(cluster.counted(0, "wrong_lane"), 0U);
  uint64_t seen = 0;
  cluster.node(0).for_each_lane([&seen](const Lane& lane, unsigned number) {
    if (number == 1) seen = lane.exchange().counters()[Counter::kBadMagic];
  });
  EXPECT_EQ(seen, 1U);
}

TEST(PortQueue, PacketsWithoutATagAreForged) {
  Cluster cluster({.nodes = 2, .played = true, .change = [](NodeConfig& it) {
                     it.security = Security::kAuthenticated;
                     it.key_file = write_key(std::filesystem::path(it.socket).parent_path());
                   }});
  const Bytes good = from_port(udp(kTosRaw, kPort, 100), kPort);
  expect_counted(cluster, {{"without a tag", good, "forged"},
                           {"too short for one", from_port(udp(kTosRaw, kPort, 8), kPort), "forged"},
                           {"of an address that no node has", from_ip(good, 0x0a000009), "not_neighbour"}});
  EXPECT_EQ(cluster.node(0).neighbours()[0]->forged.load(), 2U);
  for (const auto& neighbour : cluster.node(0).neighbours()) EXPECT_EQ(neighbour->untagged.load(), 0U);
}

// Packets that only look sealed go to a lane of another worker. Their source alternates between two MAC addresses, as
// if two machines had one address, and they begin with a hello of a ring with other settings.
TEST(PortQueue, UnsealedPacketsForAnotherWorkersLaneChangeNothing) {
  Cluster cluster({.nodes = 2, .played = true, .change = [](NodeConfig& it) {
                     it.lanes = it.threads = 2;
                     it.security = Security::kEncrypted;
                     it.key_file = write_key(std::filesystem::path(it.socket).parent_path());
                   }});
  constexpr Envelope kFake{.counter = 7, .key = 0, .kind = EnvelopeKind::kData, .reserved = 0};
  Bytes frame = from_port(udp(kTosRaw, kPort + 1, 300), kPort + 1);
  LinkHeader header{};
  header.magic = kMagic;
  header.kind = PacketKind::kHello;
  std::memcpy(frame.data() + kFrameBytes, &header, sizeof(header));
  std::memcpy(frame.data() + kFrameBytes + 300 - kEnvelopeBytes, &kFake, sizeof(kFake));
  const Neighbour& neighbour = *cluster.node(0).neighbours()[0];
  MacAddress other = kTheirMac;
  other[5] ^= 1;
  Bytes claim = arp(kOurMac, 2, kTheirIp, kOurIp);
  cluster.peer().send(claim);
  for (const size_t at : {size_t{6}, size_t{22}}) std::memcpy(claim.data() + at, other.data(), other.size());
  for (unsigned i = 0; i < 40; ++i) {
    if (i == 1) cluster.peer().send(claim);
    const MacAddress& from = i % 2 == 0 ? kTheirMac : other;
    std::memcpy(frame.data() + 6, from.data(), from.size());
    cluster.set_now(cluster.now() + 20 * kMillisecond);
    cluster.peer().send(frame, 0);
    (void)cluster.round(0);
  }
  EXPECT_EQ(cluster.counted(0, 0, "wrong_lane"), 40U);
  EXPECT_EQ(cluster.counted(0, "stranger"), 0U);
  EXPECT_EQ(neighbour.doubled_until.load(), 0U);
  EXPECT_EQ(neighbour.peer_settings_at.load(), 0U);
}

TEST(PortQueue, PingsAreAnswered) {
  Cluster cluster(kPlayed);
  (void)cluster.round(0);
  while (cluster.peer().receive()) {
  }
  cluster.peer().send(ping(56));
  (void)cluster.round(0);
  const auto answer = cluster.peer().receive();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ((*answer)[kL4], 0) << "an echo reply";
  EXPECT_EQ(get32(*answer, kIp + 16), kTheirIp);
  EXPECT_EQ(cluster.counted(0, "answered"), 1U);
}

TEST(PortQueue, AsksForAddressesAgainAndAgain) {
  Cluster cluster(kPlayed);
  const auto asked = [&cluster] { return cluster.counted(0, "arp_sent"); };
  (void)cluster.round(0);
  EXPECT_EQ(asked(), 1U);
  const Nanos next = cluster.now() + 100 * kMillisecond;
  cluster.set_now(next - 1);
  (void)cluster.round(0);
  EXPECT_EQ(asked(), 1U);
  cluster.set_now(next);
  (void)cluster.round(0);
  EXPECT_EQ(asked(), 2U);
  EXPECT_EQ(cluster.node(0).neighbours()[0]->mac.load(), 0U);
  cluster.peer().send(arp(kOurMac, 2, kTheirIp, kOurIp));
  (void)cluster.round(0);
  EXPECT_EQ(unpack_mac(cluster.node(0).neighbours()[0]->mac.load()), kTheirMac);
}

// ---- A port that accepts nothing: the peer does not read, and the link has room for 511 frames.

// Pings the node until the link is full and no more frames may wait in the queue.
void fill_up(Cluster& cluster) {
  const uint64_t dropped = cluster.counted(0, "echo") - cluster.counted(0, "answered");
  for (unsigned i = 0; i < 1000; ++i) {
    cluster.peer().send(ping(56));
    (void)cluster.round(0);
    if (cluster.counted(0, "echo") - cluster.counted(0, "answered") != dropped) return;
  }
  FAIL() << "the link does not fill up";
}

TEST(PortQueue, APortThatTakesNothingIsGivenUpToTheNanosecond) {
  Cluster cluster(kPlayed);
  fill_up(cluster);
  const Nanos full = cluster.now();
  (void)cluster.round(0);
  EXPECT_EQ(cluster.counted(0, "link_down"), 0U);
  cluster.set_now(full + kStall - 1);
  (void)cluster.round(0);
  EXPECT_EQ(cluster.counted(0, "link_down"), 0U);
  cluster.set_now(full + kStall);
  (void)cluster.round(0);
  EXPECT_EQ(cluster.counted(0, "link_down"), 64U) << "what waited";
}

TEST(PortQueue, APortThatTakesFramesAgainIsUsedAgain) {
  Cluster cluster(kPlayed);
  fill_up(cluster);
  const uint64_t sent = cluster.counted(0, "sent");
  for (unsigned i = 0; i < 40; ++i) {  // 20 ms, in which the port is given up and tried again more than once
    cluster.set_now(cluster.now() + kStall / 10);
    (void)cluster.round(0);
  }
  EXPECT_EQ(cluster.counted(0, "sent"), sent);
  size_t read = 0;
  while (cluster.peer().receive()) ++read;
  EXPECT_EQ(read, 511U);
  cluster.set_now(cluster.now() + 2 * kStall);
  cluster.peer().send(ping(56));
  (void)cluster.round(0);
  (void)cluster.round(0);
  EXPECT_GT(cluster.counted(0, "sent"), sent);
  EXPECT_TRUE(cluster.peer().receive().has_value());
}

// ---- No buffers

TEST(PortQueue, WithoutBuffersNothingIsAskedAndAnswersGoOn) {
  Cluster cluster(kPlayed);
  {
    const Hoard all(cluster.node(0));
    ASSERT_GT(all.buffers(), 0U);
    (void)cluster.round(0);
    EXPECT_EQ(cluster.counted(0, "arp_sent"), 0U);
    cluster.peer().send(ping(56));
    (void)cluster.round(0);
    EXPECT_EQ(cluster.counted(0, "answered"), 1U) << "in the buffer of the question";
  }
  cluster.set_now(cluster.now() + 100 * kMillisecond);
  (void)cluster.round(0);
  EXPECT_EQ(cluster.counted(0, "arp_sent"), 1U);
}

TEST(PortQueue, FiguresArePublishedEvery100Milliseconds) {
  Cluster cluster(kPlayed);
  const auto published = [&cluster] {
    uint64_t received = 0;
    cluster.node(0).for_each_queue([&received](const PortQueue& queue, unsigned) {
      queue.for_each_published([&received](const CounterValue& each) {
        if (std::string(each.name) == "received") received += each.value;
      });
    });
    return received;
  };
  (void)cluster.round(0);
  const Nanos first = cluster.now();
  cluster.peer().send(ping(56));
  cluster.set_now(first + 100 * kMillisecond - 1);
  (void)cluster.round(0);
  EXPECT_EQ(published(), 0U);
  cluster.set_now(first + 100 * kMillisecond);
  (void)cluster.round(0);
  EXPECT_EQ(published(), 1U);
}

}  // namespace
}  // namespace gradlane::test::port_queue_test
