// long_packets_test.cc - packets in segments through queues of sockets: lost, reordered and invalid segments
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rte_mbuf.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "config/addresses.h"
#include "dataplane/device/port_kinds.h"
#include "dataplane/udp/udp_queue.h"
#include "tests/dataplane/cluster.h"

namespace gradlane::test::long_packets_test {
namespace {

constexpr size_t kPayload = 1472;
constexpr SegmentSizes kSizes{.part = kPayload - kSegmentHeader, .count = 11};
constexpr uint16_t kPort = 18500;
constexpr uint8_t kTos = 0x28;
constexpr size_t kMarkerBytes = 77;
constexpr std::chrono::minutes kLong{10};  // a test that passes never waits that long

using Datagrams = std::vector<Bytes>;

uint32_t ip_of(unsigned node) { return 0x7f000000 | (static_cast<uint32_t>(getpid()) & 0x3ffff) << 6 | (32 + node); }

// Returns a packet that begins with fields of a link header.
Bytes packet(uint32_t sequence, size_t bytes = kSizes.packet_bytes()) {
  Bytes packet(bytes);
  for (size_t i = 0; i < bytes; ++i) packet[i] = static_cast<uint8_t>(sequence + i * 7 + i / 251);
  store(packet.data(), kMagic);
  store(packet.data() + offsetof(LinkHeader, sequence), sequence);
  store(packet.data() + offsetof(LinkHeader, session), uint64_t{0x1234567800000055});
  return packet;
}

Datagrams segments_of(const Bytes& packet) {
  Datagrams segments;
  SegmentHeader it = first_segment(packet.data());
  for (size_t at = 0; at < packet.size(); at += kSizes.part) {
    const size_t part = std::min(kSizes.part, packet.size() - at);
    it.index = static_cast<uint8_t>(at / kSizes.part);
    it.last = at + part == packet.size();
    Bytes& segment = segments.emplace_back(kSegmentHeader + part);
    store(segment.data(), pack(it));
    std::copy_n(packet.begin() + static_cast<ptrdiff_t>(at), part, segment.begin() + kSegmentHeader);
  }
  return segments;
}

class LongPackets : public testing::Test {
 protected:
  static UdpQueue::Setup setup_of(unsigned node) {
    return {.local = {.mac = mac_of(ip_of(node)), .ip = ip_of(node), .udp_port = kPort, .udp_ports = 1},
            .payload = kPayload,
            .receive_bytes = 4 << 20,
            .segments = kSizes};
  }
  static Endpoint endpoint(unsigned node) { return {ip_address(ip_of(node)), kPort}; }

  void send(const std::vector<Bytes>& packets, unsigned from, unsigned to, UdpQueue& queue) {
    std::vector<rte_mbuf*> burst;
    std::vector<DatagramPath> paths;
    for (const Bytes& it : packets) {
      rte_mbuf* const mbuf = pool.allocate();
      ASSERT_NE(mbuf, nullptr);
      std::ranges::copy(it, rte_pktmbuf_mtod_offset(mbuf, uint8_t*, kFrameBytes));
      mbuf->data_len = static_cast<uint16_t>(kFrameBytes + it.size());
      mbuf->pkt_len = mbuf->data_len;
      burst.push_back(mbuf);
      paths.push_back({.source_ip = ip_of(from),
                       .destination_ip = ip_of(to),
                       .source_port = kPort,
                       .destination_port = kPort,
                       .tos = kTos});
    }
    const auto end = std::chrono::steady_clock::now() + kLong;
    for (size_t gone = 0; gone < burst.size() && std::chrono::steady_clock::now() < end;) {
      gone += queue.send_datagrams(&burst[gone], &paths[gone], static_cast<uint16_t>(burst.size() - gone));
    }
  }

  // Sends datagrams in superpackets of `together`. All but the last one of each have the same length.
  static void send(const Datagrams& datagrams, SuperpacketSocket& from, unsigned to, size_t together = 44) {
    for (size_t first = 0; first < datagrams.size();) {
      std::vector<iovec> parts;
      const size_t each = datagrams[first].size();
      for (size_t i = first; i < datagrams.size() && parts.size() < together; ++i) {
        if (datagrams[i].size() > each) break;
        parts.push_back({const_cast<uint8_t*>(datagrams[i].data()), datagrams[i].size()});
        if (datagrams[i].size() < each) break;
      }
      ASSERT_EQ(from.send(endpoint(to), kTos, parts.data(), parts.size(), parts.size() > 1 ? each : 0),
                SuperpacketSocket::Sent::kYes);
      first += parts.size();
    }
  }

  // Receives all packets that were sent so far: up to a marker, which `from` sends.
  static std::vector<Bytes> receive_all(UdpQueue& queue, SuperpacketSocket& from, unsigned to) {
    send({Bytes(kMarkerBytes, 1)}, from, to);
    std::vector<Bytes> packets;
    receive(queue, packets, [&] { return !packets.empty() && packets.back().size() == kMarkerBytes; });
    if (!packets.empty()) packets.pop_back();
    return packets;
  }
  static std::vector<Bytes> receive(UdpQueue& queue, size_t count) {
    std::vector<Bytes> packets;
    receive(queue, packets, [&] { return packets.size() >= count; });
    return packets;
  }
  template <class Done>
  static void receive(UdpQueue& queue, std::vector<Bytes>& packets, Done done) {
    DatagramPath path;
    rte_mbuf* burst[32];
    for (const auto end = std::chrono::steady_clock::now() + kLong; !done();) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      const uint16_t got = queue.receive_datagrams(burst, 32, path);
      for (uint16_t i = 0; i < got; ++i) {
        const auto* const bytes = rte_pktmbuf_mtod_offset(burst[i], const uint8_t*, kFrameBytes);
        packets.emplace_back(bytes, bytes + burst[i]->data_len - kFrameBytes);
        EXPECT_EQ(path.tos, kTos);
        rte_pktmbuf_free(burst[i]);
      }
    }
  }

  // Looks for overdue packets, each time when the queue says, until it says never.
  static void look_until_given_up(UdpQueue& queue, std::vector<Nanos>& times) {
    rte_mbuf* none = nullptr;
    DatagramPath path;
    ASSERT_EQ(queue.receive_datagrams(&none, 1, path), 0);
    times.clear();
    for (Nanos now = kSecond; (now = queue.report_overdue(now)) != kNever;) {
      ASSERT_TRUE(times.empty() || now > times.back());
      times.push_back(now);
    }
  }

  // Receives `count` datagrams.
  static Datagrams receive(SuperpacketSocket& socket, size_t count) {
    Datagrams datagrams;
    Bytes room(65536);
    for (const auto end = std::chrono::steady_clock::now() + kLong; datagrams.size() < count;) {
      iovec part{room.data(), room.size()};
      const auto arrival = socket.receive(&part, 1);
      if (!arrival.came && std::chrono::steady_clock::now() > end) break;
      for (size_t at = 0; at < arrival.bytes; at += arrival.each) {
        const size_t behind = std::min(at + arrival.each, arrival.bytes);
        datagrams.emplace_back(room.begin() + static_cast<ptrdiff_t>(at),
                               room.begin() + static_cast<ptrdiff_t>(behind));
      }
    }
    return datagrams;
  }

  struct Eal {
    // Packets on loopback keep their order if the thread that sends them stays on its CPU.
    Eal() {
      start_eal_once();
      cpu_set_t here;
      CPU_ZERO(&here);
      CPU_SET(sched_getcpu(), &here);
      EXPECT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
      EXPECT_EQ(sched_setaffinity(0, sizeof(here), &here), 0);
    }
    ~Eal() { EXPECT_EQ(sched_setaffinity(0, sizeof(before), &before), 0); }
    cpu_set_t before{};
  } eal;
  PacketPool pool{"long_packets", 511, 16384};
  const uint16_t port = kPort;
};

TEST_F(LongPackets, ComeInOrder) {
  UdpQueue from(setup_of(0), {&port, 1}, pool.mempool());
  UdpQueue to(setup_of(1), {&port, 1}, pool.mempool());
  const size_t full = kSizes.packet_bytes();
  const std::vector<std::vector<size_t>> runs = {
      {full},
      {full, full, full, full, full, full, full, full, full},
      {kPayload, kPayload + 1, full - 1, 50, full, kSizes.part, 2 * kSizes.part, 2 * kSizes.part + 1},
      {50, full, 50, full, full, 50},
      std::vector<size_t>(30, 3000),
      std::vector<size_t>(30, kPayload),
      std::vector<size_t>(30, full),
  };
  uint32_t sequence = 0;
  for (const auto& lengths : runs) {
    std::vector<Bytes> sent;
    for (const size_t bytes : lengths) sent.push_back(packet(sequence++, bytes));
    send(sent, 0, 1, from);
    EXPECT_EQ(receive(to, sent.size()), sent);
  }
}

// Superpackets may begin and end anywhere, and datagrams may come alone.
TEST_F(LongPackets, SuperpacketsOfAnyLength) {
  UdpQueue to(setup_of(3), {&port, 1}, pool.mempool());
  SuperpacketSocket from(endpoint(2), 1 << 20);
  uint32_t sequence = 0;
  for (size_t together = 1; together <= 44; ++together) {
    std::vector<Bytes> sent;
    Datagrams datagrams;
    for (unsigned i = 0; i < 6; ++i) {
      sent.push_back(packet(sequence++));
      for (Bytes& it : segments_of(sent.back())) datagrams.push_back(std::move(it));
    }
    send(datagrams, from, 3, together);
    EXPECT_EQ(receive(to, sent.size()), sent) << together;
  }
}

// When the next packet begins, the receiver reports which segments of an incomplete packet have arrived. The missing
// ones alone then complete it.
TEST_F(LongPackets, LostSegmentsComeAlone) {
  UdpQueue to(setup_of(5), {&port, 1}, pool.mempool());
  SuperpacketSocket from(endpoint(4), 1 << 20);
  const Bytes first = packet(100);
  const Bytes second = packet(101);
  Datagrams lossy = segments_of(first);
  lossy.erase(lossy.begin() + 7);
  lossy.erase(lossy.begin() + 3);
  send(lossy, from, 5);
  EXPECT_TRUE(receive_all(to, from, 5).empty());
  send(segments_of(second), from, 5);
  EXPECT_EQ(receive_all(to, from, 5), std::vector<Bytes>{second});
  const Datagrams reports = receive(from, 1);
  ASSERT_EQ(reports.size(), 1U);
  ASSERT_EQ(reports[0].size(), kReportBytes);
  const SegmentHeader report = unpack_segment(load<uint64_t>(reports[0].data()));
  EXPECT_TRUE(report.valid && report.report && !report.last);
  EXPECT_TRUE(report.same_packet(first_segment(first.data())));
  EXPECT_EQ(load<uint64_t>(reports[0].data() + kSegmentHeader), 0b111'0111'0111U);
  // The header of the packet is that of the later transmission.
  Bytes again = first;
  again[sizeof(LinkHeader) - 1] ^= 0xff;
  const Datagrams all = segments_of(again);
  send({all[0], all[3]}, from, 5);
  EXPECT_TRUE(receive_all(to, from, 5).empty());
  // Other packets arrive while some of its segments are there.
  const Bytes third = packet(102);
  send(segments_of(third), from, 5, 1);
  EXPECT_EQ(receive_all(to, from, 5), std::vector<Bytes>{third});
  send({all[7]}, from, 5);
  EXPECT_EQ(receive_all(to, from, 5), std::vector<Bytes>{again});
}

// No later packet begins, so time shows that segments are missing. The report is repeated, more and more seldom, as it
// may get lost.
TEST_F(LongPackets, OverduePacketsAreReported) {
  UdpQueue to(setup_of(19), {&port, 1}, pool.mempool());
  SuperpacketSocket from(endpoint(18), 1 << 20);
  const Bytes sent = packet(3);
  const Datagrams all = segments_of(sent);
  const Nanos now = kSecond;
  EXPECT_EQ(to.report_overdue(now), kNever);
  send(Datagrams{all.begin(), all.begin() + 7}, from, 19);
  EXPECT_TRUE(receive_all(to, from, 19).empty());
  // Until the socket is known to be empty, the rest may be in it.
  EXPECT_EQ(to.report_overdue(to.report_overdue(now)), to.report_overdue(now));
  std::vector<Nanos> waits;
  look_until_given_up(to, waits);
  EXPECT_GT(waits.size(), 128U);
  const Datagrams reports = receive(from, 8);
  ASSERT_EQ(reports.size(), 8U);
  for (const Bytes& it : reports) {
    const SegmentHeader report = unpack_segment(load<uint64_t>(it.data()));
    EXPECT_TRUE(report.valid && report.report && report.last);
    EXPECT_TRUE(report.same_packet(first_segment(sent.data())));
    EXPECT_EQ(load<uint64_t>(it.data() + kSegmentHeader), 0b111'1111U);
  }
  // A complete retransmission that loses the same segments makes it report again, although nothing has come that is
  // new.
  send(Datagrams{all.begin(), all.begin() + 7}, from, 19);
  EXPECT_TRUE(receive_all(to, from, 19).empty());
  look_until_given_up(to, waits);
  EXPECT_EQ(receive(from, 8).size(), 8U);
  // So does another segment; a complete packet does not.
  send(Datagrams{all[7]}, from, 19);
  EXPECT_TRUE(receive_all(to, from, 19).empty());
  EXPECT_NE(to.report_overdue(now), kNever);
  send(Datagrams{all.begin() + 8, all.end()}, from, 19);
  EXPECT_EQ(receive_all(to, from, 19), std::vector<Bytes>{sent});
  look_until_given_up(to, waits);
  Bytes room(64);
  iovec part{room.data(), room.size()};
  EXPECT_FALSE(from.receive(&part, 1).came);
}

// A retransmission omits the segments that have arrived, except the first one. This is so for two retransmissions.
TEST_F(LongPackets, ReportsSpareSegments) {
  UdpQueue from(setup_of(6), {&port, 1}, pool.mempool());
  SuperpacketSocket to(endpoint(7), 1 << 20);
  const Bytes sent = packet(7);
  const Datagrams all = segments_of(sent);
  send({sent}, 6, 7, from);
  EXPECT_EQ(receive(to, all.size()), all);
  Bytes report(kReportBytes);
  store(report.data(), pack({.sequence = 7, .session = 0x55, .report = true}));
  store(report.data() + kSegmentHeader, uint64_t{0b111'1101'1111});
  send(Datagrams{report}, to, 6);
  // The link gets the report, too.
  EXPECT_EQ(receive_all(from, to, 6), std::vector<Bytes>{report});
  for (unsigned time = 0; time < 2; ++time) {
    send({packet(6), sent, packet(8)}, 6, 7, from);
    Datagrams expected = segments_of(packet(6));
    expected.push_back(all[0]);
    expected.push_back(all[5]);
    for (const Bytes& it : segments_of(packet(8))) expected.push_back(it);
    EXPECT_EQ(receive(to, expected.size()), expected);
  }
  send({sent}, 6, 7, from);
  EXPECT_EQ(receive(to, all.size()), all);
}

// Two senders, losses, duplicates, other orders, and superpackets of any length: packets that come are right, and each
// comes when it has been sent often enough.
TEST_F(LongPackets, RandomLossAndOrder) {
  UdpQueue to(setup_of(9), {&port, 1}, pool.mempool());
  SuperpacketSocket senders[] = {SuperpacketSocket(endpoint(10), 1 << 20), SuperpacketSocket(endpoint(11), 1 << 20)};
  Random random(44);
  uint32_t next = 0;
  for (unsigned round = 0; round < 150; ++round) {
    struct Missing {
      unsigned sender;
      Bytes bytes;
    };
    std::vector<Missing> missing;
    for (unsigned sender = 0; sender < 2; ++sender) {
      for (unsigned i = 0; i < 5; ++i) {
        const size_t shorter = random.chance(0.3) ? random.below(kSizes.packet_bytes() - kPayload) : 0;
        missing.push_back({sender, packet(next++, kSizes.packet_bytes() - shorter)});
      }
    }
    for (unsigned attempt = 0; !missing.empty(); ++attempt) {
      ASSERT_LT(attempt, 1000U);
      const double loss = attempt < 4 ? 0.2 : 0.02;
      for (unsigned sender = 0; sender < 2; ++sender) {
        Datagrams datagrams;
        for (const Missing& it : missing) {
          if (it.sender != sender) continue;
          for (Bytes& segment : segments_of(it.bytes)) {
            if (random.chance(loss)) continue;
            datagrams.push_back(segment);
            if (random.chance(0.01)) datagrams.push_back(segment);
            if (random.chance(0.02) && datagrams.size() > 1)
              std::swap(datagrams.back(), datagrams[datagrams.size() - 2]);
          }
          if (random.chance(0.2)) datagrams.emplace_back(44, uint8_t{1});  // an acknowledgement
        }
        send(datagrams, senders[sender], 9, 1 + random.below(44));
      }
      std::vector<Bytes> packets = receive_all(to, senders[0], 9);
      for (const Bytes& got : packets) {
        if (got.size() == 44) continue;
        const auto it = std::ranges::find(missing, got, &Missing::bytes);
        if (it != missing.end()) missing.erase(it);
        const uint32_t sequence = load<uint32_t>(got.data() + offsetof(LinkHeader, sequence));
        ASSERT_EQ(got, packet(sequence, got.size()));
      }
    }
  }
}

// Invalid segments do not change a packet.
TEST_F(LongPackets, InvalidSegments) {
  UdpQueue to(setup_of(13), {&port, 1}, pool.mempool());
  SuperpacketSocket from(endpoint(12), 1 << 20);
  const Bytes good = packet(1);
  const Datagrams all = segments_of(good);
  const auto changed = [&all](size_t number, SegmentHeader header, size_t bytes) {
    Bytes segment = all[number];
    header.sequence = 1;
    header.session = 0x55;
    store(segment.data(), pack(header));
    segment.resize(bytes);
    return segment;
  };
  send(Datagrams{all.begin(), all.begin() + 5}, from, 13);
  const Datagrams wrong = {
      changed(5, {.index = 11, .last = true}, 100),
      changed(5, {.index = 63}, kPayload),
      changed(5, {.index = 10}, kPayload),
      changed(5, {.index = 5}, kPayload - 1),
      changed(5, {.index = 5, .last = true}, 8),
      changed(5, {.report = true}, 15),
      changed(5, {.index = 5}, 9),
  };
  for (const Bytes& it : wrong) send(Datagrams{it}, from, 13);
  // A datagram of eight bytes and no more is an ordinary packet, which is too short for the exchange.
  const std::vector<Bytes> got = receive_all(to, from, 13);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].size(), 8U);
  send(Datagrams{all.begin() + 5, all.end()}, from, 13);
  EXPECT_EQ(receive_all(to, from, 13), std::vector<Bytes>{good});
  EXPECT_EQ(to.times(UdpQueue::Problem::kUnfit), 5U);
}

// Segments of an earlier session may have the name of a shorter packet. They do not keep it from arriving.
TEST_F(LongPackets, NamesOfEarlierSessions) {
  UdpQueue to(setup_of(17), {&port, 1}, pool.mempool());
  SuperpacketSocket from(endpoint(16), 1 << 20);
  const Datagrams old = segments_of(packet(1));
  send(Datagrams{old.begin(), old.begin() + 9}, from, 17);
  EXPECT_TRUE(receive_all(to, from, 17).empty());
  const Bytes now = packet(1, 3000);
  send(segments_of(now), from, 17);
  EXPECT_EQ(receive_all(to, from, 17), std::vector<Bytes>{now});
}

// A queue without free buffers keeps what it has, and goes on when there are some.
TEST_F(LongPackets, FewBuffers) {
  PacketPool few("few_long", 511, 16384);
  UdpQueue to(setup_of(15), {&port, 1}, few.mempool());
  SuperpacketSocket from(endpoint(14), 1 << 20);
  std::vector<rte_mbuf*> taken;
  while (rte_mbuf* const mbuf = few.allocate()) taken.push_back(mbuf);
  const Bytes sent = packet(5);
  send(segments_of(sent), from, 15, 3);
  rte_mbuf* none = nullptr;
  DatagramPath path;
  for (unsigned i = 0; i < 100; ++i) ASSERT_EQ(to.receive_datagrams(&none, 1, path), 0);
  for (rte_mbuf* const it : taken) rte_pktmbuf_free(it);
  EXPECT_EQ(receive(to, 1), std::vector<Bytes>{sent});
}

}  // namespace
}  // namespace gradlane::test::long_packets_test
