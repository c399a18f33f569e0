// udp_queue_test.cc - frames through sockets of the kernel: in groups, of any lengths, with few buffers
#include "dataplane/udp/udp_queue.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rte_mbuf.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "config/addresses.h"
#include "config/loader.h"
#include "dataplane/device/port_kinds.h"
#include "dataplane/frame/internet.h"
#include "tests/dataplane/cluster.h"

namespace gradlane::test::udp_queue_test {
namespace {

constexpr size_t kPayload = 1472;
constexpr uint16_t kPort = 18400;
constexpr uint8_t kTos = 0x28;
constexpr std::chrono::minutes kLong{10};  // a test that passes never waits that long
const Classifier kClasses(0x28, 0x20, 0xc0);

uint32_t ip_of(unsigned node) { return 0x7f000000 | (static_cast<uint32_t>(getpid()) & 0x3ffff) << 6 | (32 + node); }

UdpQueue::Setup setup_of(unsigned node, uint16_t ports) {
  return {.local = {.mac = mac_of(ip_of(node)), .ip = ip_of(node), .udp_port = kPort, .udp_ports = ports},
          .payload = kPayload,
          .receive_bytes = 1 << 20};
}

Flow flow_to(unsigned from, unsigned to, uint16_t source, uint16_t destination) {
  return {.source_mac = mac_of(ip_of(from)),
          .destination_mac = mac_of(ip_of(to)),
          .source_ip = ip_of(from),
          .destination_ip = ip_of(to),
          .source_port = source,
          .destination_port = destination};
}

struct Frame {
  ParsedFrame parsed;
  Bytes payload;
};

class UdpQueues : public testing::Test {
 protected:
  // Makes a packet, and notes its path for send_all().
  rte_mbuf* frame(const Flow& flow, const Bytes& payload) { return frame(pool, flow, payload); }
  rte_mbuf* frame(PacketPool& from, const Flow& flow, const Bytes& payload) {
    rte_mbuf* const mbuf = from.allocate();
    if (mbuf == nullptr) return nullptr;
    auto* const bytes = rte_pktmbuf_mtod(mbuf, uint8_t*);
    path_of[mbuf] = {.source_ip = flow.source_ip,
                     .destination_ip = flow.destination_ip,
                     .source_port = flow.source_port,
                     .destination_port = flow.destination_port,
                     .tos = kTos};
    std::memcpy(bytes + kFrameBytes, payload.data(), payload.size());
    mbuf->data_len = static_cast<uint16_t>(kFrameBytes + payload.size());
    mbuf->pkt_len = mbuf->data_len;
    return mbuf;
  }

  // Receives frames until there are `count`.
  std::vector<Frame> receive(UdpQueue& queue, const UdpQueue::Setup& setup, size_t count) {
    std::vector<Frame> frames;
    const auto end = std::chrono::steady_clock::now() + kLong;
    while (frames.size() < count && std::chrono::steady_clock::now() < end) {
      rte_mbuf* burst[32];
      const uint16_t got = queue.receive(burst, 32);
      for (uint16_t i = 0; i < got; ++i) {
        const auto* const bytes = rte_pktmbuf_mtod(burst[i], const uint8_t*);
        Frame& it = frames.emplace_back();
        it.parsed = parse_frame({bytes, burst[i]->data_len}, setup.local, kClasses);
        it.payload.assign(bytes + kFrameBytes, bytes + burst[i]->data_len);
        rte_pktmbuf_free(burst[i]);
      }
      if (got == 0) std::this_thread::yield();
    }
    return frames;
  }

  // Receives the frames that are there now and frees them. Returns their lengths.
  static std::vector<size_t> receive_once(UdpQueue& queue) {
    std::vector<size_t> lengths;
    rte_mbuf* burst[32];
    const uint16_t got = queue.receive(burst, 32);
    for (uint16_t i = 0; i < got; ++i) {
      lengths.push_back(burst[i]->data_len);
      rte_pktmbuf_free(burst[i]);
    }
    return lengths;
  }

  void send_all(UdpQueue& queue, std::vector<rte_mbuf*> burst) {
    const auto end = std::chrono::steady_clock::now() + kLong;
    while (!burst.empty() && std::chrono::steady_clock::now() < end) {
      std::vector<DatagramPath> to;
      for (rte_mbuf* const it : burst) to.push_back(path_of.at(it));
      const uint16_t sent = queue.send_datagrams(burst.data(), to.data(), static_cast<uint16_t>(burst.size()));
      burst.erase(burst.begin(), burst.begin() + sent);
    }
    EXPECT_TRUE(burst.empty());
  }

  struct Eal {
    Eal() { start_eal_once(); }
  } eal;
  PacketPool pool{"udp_queue", 1023, 1500};
  std::map<const rte_mbuf*, DatagramPath> path_of;
};

Bytes payload_of(size_t bytes, uint8_t first) {
  Bytes payload(bytes);
  for (size_t i = 0; i < bytes; ++i) payload[i] = static_cast<uint8_t>(first + i * 7);
  return payload;
}

// Packets of a flow arrive in order and with their headers, whatever their lengths are.
TEST_F(UdpQueues, PacketsComeInOrder) {
  const auto one = setup_of(0, 1);
  const auto other = setup_of(1, 1);
  const uint16_t port = kPort;
  UdpQueue from(one, {&port, 1}, pool.mempool());
  UdpQueue to(other, {&port, 1}, pool.mempool());
  const std::vector<std::vector<size_t>> runs = {
      {kPayload},
      {kPayload, kPayload, kPayload, 100},
      {100, kPayload, kPayload, 99, 99, 98, kPayload, 1},
      std::vector<size_t>(60, kPayload),
      std::vector<size_t>(60, 200),
      {1, 2, 3, 4, 5, 4, 3, 2, 1},
      {kPayload, 700, 700, 700, kPayload, kPayload},
  };
  for (const auto& lengths : runs) {
    std::vector<rte_mbuf*> burst;
    std::vector<Bytes> sent;
    for (const size_t bytes : lengths) {
      sent.push_back(payload_of(bytes, static_cast<uint8_t>(sent.size())));
      burst.push_back(frame(flow_to(0, 1, kPort, kPort), sent.back()));
      ASSERT_NE(burst.back(), nullptr);
    }
    send_all(from, burst);
    const auto got = receive(to, other, sent.size());
    ASSERT_EQ(got.size(), sent.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].payload, sent[i]) << i;
      EXPECT_EQ(got[i].parsed.source_ip, ip_of(0));
      EXPECT_EQ(got[i].parsed.source_port, kPort);
      EXPECT_EQ(got[i].parsed.destination_port, kPort);
      EXPECT_TRUE(got[i].parsed.verdict == FrameVerdict::kGradlane || got[i].payload.size() < 64)
          << static_cast<int>(got[i].parsed.verdict);
    }
  }
}

// Packets go to two nodes and from two ports in turn. Each flow keeps its order.
TEST_F(UdpQueues, FlowsDoNotMix) {
  const auto one = setup_of(2, 2);
  const auto second = setup_of(3, 2);
  const auto third = setup_of(4, 2);
  const uint16_t ports[] = {kPort, kPort + 1};
  UdpQueue from(one, ports, pool.mempool());
  UdpQueue to(second, ports, pool.mempool());
  UdpQueue third_queue(third, ports, pool.mempool());
  std::vector<rte_mbuf*> burst;
  for (unsigned i = 0; i < 48; ++i) {
    const auto port = static_cast<uint16_t>(kPort + i % 2);
    burst.push_back(frame(flow_to(2, 3 + i / 2 % 2, port, port), payload_of(kPayload, static_cast<uint8_t>(i))));
  }
  send_all(from, burst);
  for (auto* const each : {&to, &third_queue}) {
    const auto& setup = each == &to ? second : third;
    const auto got = receive(*each, setup, 24);
    ASSERT_EQ(got.size(), 24U);
    int last[2] = {-1, -1};
    for (const Frame& it : got) {
      const int number = it.payload[0];
      int& before = last[it.parsed.destination_port - kPort];
      EXPECT_GT(number, before);
      EXPECT_EQ(number % 2, it.parsed.destination_port - kPort);
      before = number;
    }
  }
}

// Packets without headers arrive with their path: one path for each call, whatever they were sent with.
TEST_F(UdpQueues, PacketsWithoutHeadersHaveAPath) {
  const auto one = setup_of(16, 2);
  const auto other = setup_of(17, 2);
  const uint16_t ports[] = {kPort, kPort + 1};
  UdpQueue from(one, ports, pool.mempool());
  UdpQueue to(other, ports, pool.mempool());
  std::vector<rte_mbuf*> burst;
  std::vector<DatagramPath> paths;
  for (unsigned i = 0; i < 60; ++i) {
    const auto port = static_cast<uint16_t>(kPort + i / 3 % 2);
    burst.push_back(frame(flow_to(0, 0, 0, 0), payload_of(kPayload, static_cast<uint8_t>(i))));
    paths.push_back({.source_ip = ip_of(16),
                     .destination_ip = ip_of(17),
                     .source_port = port,
                     .destination_port = port,
                     .tos = static_cast<uint8_t>(i % 3 == 0 ? 0x20 : kTos)});
  }
  const std::vector<DatagramPath> sent_with = paths;
  const auto end = std::chrono::steady_clock::now() + kLong;
  for (size_t gone = 0; gone < burst.size() && std::chrono::steady_clock::now() < end;) {
    gone += from.send_datagrams(&burst[gone], &paths[gone], static_cast<uint16_t>(burst.size() - gone));
  }
  size_t got = 0;
  while (got < sent_with.size() && std::chrono::steady_clock::now() < end) {
    rte_mbuf* arrived[32];
    DatagramPath path;
    const uint16_t count = to.receive_datagrams(arrived, 32, path);
    for (uint16_t i = 0; i < count; ++i) {
      const auto* const payload = rte_pktmbuf_mtod_offset(arrived[i], const uint8_t*, kFrameBytes);
      EXPECT_EQ(arrived[i]->data_len, kFrameBytes + kPayload);
      EXPECT_EQ(path, sent_with.at(*payload));
      make_frame(arrived[i], path);
      const ParsedFrame parsed = parse_frame({payload - kFrameBytes, arrived[i]->data_len}, other.local, kClasses);
      EXPECT_EQ(parsed.verdict, FrameVerdict::kGradlane);
      EXPECT_EQ(parsed.tos, path.tos);
      rte_pktmbuf_free(arrived[i]);
    }
    got += count;
  }
  EXPECT_EQ(got, sent_with.size());
}

// A queue without free buffers fetches nothing. Packets that the kernel keeps are not lost.
TEST_F(UdpQueues, WaitsForBuffers) {
  const auto one = setup_of(5, 1);
  const auto other = setup_of(6, 1);
  const uint16_t port = kPort;
  PacketPool few("udp_few", 511, 1500);
  UdpQueue from(one, {&port, 1}, pool.mempool());
  UdpQueue to(other, {&port, 1}, few.mempool());
  std::vector<rte_mbuf*> all;
  while (rte_mbuf* const mbuf = few.allocate()) all.push_back(mbuf);
  std::vector<rte_mbuf*> burst;
  for (unsigned i = 0; i < 8; ++i) burst.push_back(frame(flow_to(5, 6, kPort, kPort), payload_of(500, 3)));
  send_all(from, burst);
  rte_mbuf* got[32];
  EXPECT_EQ(to.receive(got, 32), 0U);
  for (rte_mbuf* const mbuf : all) rte_pktmbuf_free(mbuf);
  EXPECT_EQ(receive(to, other, 8).size(), 8U);
}

// Packets that are too long for the MTU are dropped. They do not affect other packets.
TEST_F(UdpQueues, TooLongForTheMtu) {
  auto wide = setup_of(7, 1);
  wide.payload = 4000;
  const auto other = setup_of(8, 1);
  const uint16_t port = kPort;
  PacketPool long_ones("udp_long", 511, 4500);
  UdpQueue from(wide, {&port, 1}, long_ones.mempool());
  UdpQueue to(other, {&port, 1}, pool.mempool());
  for (const size_t bytes : {size_t{4000}, size_t{1000}}) {
    send_all(from, {frame(long_ones, flow_to(7, 8, kPort, kPort), Bytes(bytes, 5))});
  }
  const auto got = receive(to, other, 1);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].payload, Bytes(1000, 5));
}

// A neighbour may send any superpackets. The packets may be longer or shorter than expected, more than the posted
// buffers, or longer than the MTU. The last packet may be shorter. Each superpacket here differs from what the queue
// expects.
TEST_F(UdpQueues, SuperpacketsOfOtherSizes) {
  const auto other = setup_of(10, 1);
  const uint16_t port = kPort;
  UdpQueue to(other, {&port, 1}, pool.mempool());
  SuperpacketSocket from({ip_address(ip_of(9)), kPort}, 1 << 20);
  struct Shape {
    size_t each, count, last;
  };
  std::vector<Shape> shapes = {
      {kPayload, 44, kPayload}, {100, 44, 7},   {1000, 64, 1000}, {1471, 44, 1470}, {1000, 3, 1},
      {kPayload + 1, 5, 100},   {100, 64, 100}, {4000, 10, 500},  {1471, 2, 1471},  {1, 44, 1},
      {kPayload, 2, 1},         {9000, 7, 9000}};
  // After eight superpackets of one size in a row, the queue expects that size.
  for (const size_t each : {200UL, 1400UL, 700UL}) shapes.insert(shapes.end(), 12, {each, 10, each - 1});
  const std::vector<Shape> reversed(shapes.rbegin(), shapes.rend());
  shapes.insert(shapes.end(), reversed.begin(), reversed.end());
  uint64_t unfit = 0;
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(fmt::format("{} packets of {}, the last one of {}", shape.count, shape.each, shape.last));
    std::vector<Bytes> sent;
    std::vector<iovec> packets;
    size_t fit = 0;
    for (size_t i = 0; i < shape.count; ++i) {
      sent.push_back(payload_of(i + 1 < shape.count ? shape.each : shape.last, static_cast<uint8_t>(i)));
    }
    for (Bytes& it : sent) {
      packets.push_back({it.data(), it.size()});
      if (it.size() <= kPayload) ++fit;
    }
    const Endpoint there{ip_address(ip_of(10)), kPort};
    ASSERT_EQ(from.send(there, kTos, packets.data(), packets.size(), shape.each), SuperpacketSocket::Sent::kYes);
    const auto got = receive(to, other, fit);
    ASSERT_EQ(got.size(), fit);
    unfit += sent.size() - fit;
    for (size_t i = 0; i < fit; ++i) EXPECT_EQ(got[i].payload, sent[sent.size() - fit + i]) << i;
    if (fit == 0) {
      EXPECT_TRUE(receive_once(to).empty());
    }
    EXPECT_EQ(to.times(UdpQueue::Problem::kUnfit), unfit);
  }
}

// Empty datagrams delay no other packets, and are counted.
TEST_F(UdpQueues, EmptyDatagrams) {
  const auto other = setup_of(12, 1);
  const uint16_t port = kPort;
  UdpQueue to(other, {&port, 1}, pool.mempool());
  SuperpacketSocket from({ip_address(ip_of(11)), kPort}, 1 << 20);
  const Endpoint there{ip_address(ip_of(12)), kPort};
  Bytes bytes = payload_of(700, 1);
  for (const size_t length : {0UL, 0UL, 0UL, 0UL, 0UL, 700UL}) {
    iovec packet{bytes.data(), length};
    ASSERT_EQ(from.send(there, kTos, &packet, 1, 0), SuperpacketSocket::Sent::kYes);
  }
  EXPECT_EQ(receive_once(to), std::vector<size_t>{kFrameBytes + 700});
  EXPECT_EQ(to.times(UdpQueue::Problem::kUnfit), 5U);
}

// A socket that always has packets does not make other sockets wait.
TEST_F(UdpQueues, SocketsTakeTurns) {
  const auto other = setup_of(14, 2);
  const uint16_t ports[] = {kPort, kPort + 1};
  UdpQueue to(other, ports, pool.mempool());
  SuperpacketSocket from({ip_address(ip_of(13)), kPort}, 1 << 20);
  Bytes bytes = payload_of(1000, 1);
  std::vector<iovec> packets(20, {bytes.data(), bytes.size()});
  for (unsigned i = 0; i < 10; ++i) {
    ASSERT_EQ(from.send({ip_address(ip_of(14)), kPort}, kTos, packets.data(), 20, 1000), SuperpacketSocket::Sent::kYes);
  }
  packets[0].iov_len = 77;
  ASSERT_EQ(from.send({ip_address(ip_of(14)), kPort + 1}, kTos, packets.data(), 1, 0), SuperpacketSocket::Sent::kYes);
  const std::vector<size_t> first = receive_once(to);
  EXPECT_EQ(std::ranges::count(first, kFrameBytes + 77), 1);
}

// Several nodes have one address. In frames each node has its own address, and all nodes have the same ports.
TEST_F(UdpQueues, NodesAtOneAddress) {
  for (const std::string ip : {"::1", "127.0.0.1"}) {
    const unsigned first = 20000 + static_cast<unsigned>(getpid()) % 2000 * 4;
    const NodeConfig nodes = parse_config(
        fmt::format("rank: 0\nnodes: [{{rank: 0, ip: '{0}', udp_port: {1}}}, {{rank: 1, ip: '{0}', udp_port: {2}}}]\n"
                    "ports: [{{udp: auto}}]\nworkers: {{lanes: 2}}\n",
                    ip, first, first + 2),
        "n.yaml");
    const auto setup_for = [&nodes](unsigned node) {
      const uint32_t own = nodes.nodes[node].ip;
      return UdpQueue::Setup{.local = {.mac = mac_of(own), .ip = own, .udp_port = kPort, .udp_ports = 2},
                             .nodes = NodeTable(nodes),
                             .payload = kPayload,
                             .receive_bytes = 1 << 20};
    };
    const auto other = setup_for(1);
    const uint16_t ports[] = {kPort, kPort + 1};
    UdpQueue from(setup_for(0), ports, pool.mempool());
    UdpQueue to(other, ports, pool.mempool());
    std::vector<rte_mbuf*> burst;
    for (unsigned i = 0; i < 20; ++i) {
      const auto port = static_cast<uint16_t>(kPort + i / 10);
      const Flow flow{.source_mac = mac_of(kMadeUpIp),
                      .destination_mac = other.local.mac,
                      .source_ip = kMadeUpIp,
                      .destination_ip = other.local.ip,
                      .source_port = port,
                      .destination_port = port};
      burst.push_back(frame(flow, payload_of(1400, static_cast<uint8_t>(i))));
    }
    send_all(from, burst);
    const auto got = receive(to, other, 20);
    ASSERT_EQ(got.size(), 20U) << ip;
    for (const Frame& it : got) {
      EXPECT_EQ(it.parsed.verdict, FrameVerdict::kGradlane);
      EXPECT_EQ(it.parsed.source_ip, kMadeUpIp);
      EXPECT_EQ(it.parsed.source_port, kPort + it.payload[0] / 10);
      EXPECT_EQ(it.parsed.destination_port, kPort + it.payload[0] / 10);
    }
  }
}

}  // namespace
}  // namespace gradlane::test::udp_queue_test
