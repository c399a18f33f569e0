// capture_test.cc - the frames of a ring of three nodes, captured once; the code must still send the same frames
//
// ring.pcap has frames of all kinds: hellos, acknowledgements, and operations of every kind with every codec that
// existed when it was made. Its links lose a few packets. `tcpdump -r` reads the file. If GRADLANE_WRITE_CAPTURE=FILE
// is set, the test writes the frames of today's code to FILE instead. After a change of the wire format
// (docs/wire-format.md), FILE becomes the new ring.pcap.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "collectives/wire.h"
#include "dataplane/frame/frame.h"
#include "tests/collectives/exchange/exchange_fixture.h"
#include "tests/dataplane/frame/frame_fixture.h"

namespace gradlane::test::capture_test {
namespace {

constexpr unsigned kNodes = 3;
constexpr size_t kMtu = 576;
constexpr uint64_t kSeed = 16;

struct Captured {
  Nanos at = 0;
  Bytes frame;
  bool operator==(const Captured&) const = default;
};

MacAddress mac_of_node(unsigned node) { return {0x02, 0, 0, 0, 0, static_cast<uint8_t>(1 + node)}; }
uint32_t ip_of_node(unsigned node) { return 0x0a4d0001 + node; }

// Returns the class that docs/wire-format.md gives a packet. The first run in the packet decides.
TrafficClass class_of_packet(std::span<const uint8_t> packet) {
  const bool data = packet[offsetof(LinkHeader, kind)] == static_cast<uint8_t>(PacketKind::kData);
  if (!data || packet.size() < sizeof(LinkHeader) + sizeof(RunHeader)) return TrafficClass::kControl;
  RunHeader run;
  std::memcpy(&run, packet.data() + sizeof(LinkHeader), sizeof(run));
  if (run.phase == Phase::kStart || run.phase == Phase::kAbort) return TrafficClass::kControl;
  return run.codec == static_cast<uint8_t>(CodecId::kRaw) ? TrafficClass::kRaw : TrafficClass::kCompressed;
}

std::vector<JobSpec> specs() {
  std::vector<JobSpec> all;
  for (const char* const codec : {"raw", "bf16", "fp16", "fixed:10", "inceptionn:10", "inceptionn:6,truncate"}) {
    for (const JobSpec& spec : all_kinds(kNodes, 321, 45, codec)) all.push_back(spec);
  }
  for (const ElementType type : {ElementType::kInt32, ElementType::kFloat64, ElementType::kBytes}) {
    all.push_back(
        {.kind = type == ElementType::kBytes ? OpKind::kBroadcast : OpKind::kAllReduce, .count = 99, .type = type});
  }
  return all;
}

// Returns all frames of a run of the simulated ring, in the order in which they arrive.
std::vector<Captured> sent_today() {
  SimConfig config;
  config.nodes = kNodes;
  config.seed = kSeed;
  config.exchange.mtu = kMtu;
  SimNet net(config);
  unsigned sent = 0;
  net.set_filter([&sent](unsigned, unsigned, std::span<const uint8_t>) { return ++sent % 97 != 0; });
  std::vector<Captured> frames;
  net.set_tap([&frames, &net](unsigned from, unsigned to, std::span<const uint8_t> packet) {
    const Flow flow{mac_of_node(from), mac_of_node(to), ip_of_node(from), ip_of_node(to), kPort, kPort};
    Captured& captured = frames.emplace_back();
    captured.at = net.now();
    captured.frame.resize(kFrameBytes);
    captured.frame.insert(captured.frame.end(), packet.begin(), packet.end());
    write_headers(captured.frame.data(), flow, kClassifier.tos_of(class_of_packet(packet)), packet.size());
    seal_udp(captured.frame.data(), packet.size());
  });
  std::vector<Job> jobs = make_jobs(specs(), kNodes, kSeed);
  EXPECT_TRUE(run(net, jobs));
  return frames;
}

// ---- pcap, version 2.4, with times in nanoseconds and this machine's byte order; Ethernet

constexpr uint32_t kPcapMagic = 0xa1b23c4d;
constexpr uint32_t kPcapHeader[] = {kPcapMagic, 2 | 4 << 16, 0, 0, 65535, 1};
using Record = std::array<uint32_t, 4>;  // seconds, nanoseconds, bytes here, bytes on the wire

void write_pcap(const std::string& path, const std::vector<Captured>& frames) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(kPcapHeader), sizeof(kPcapHeader));
  for (const Captured& it : frames) {
    const auto bytes = static_cast<uint32_t>(it.frame.size());
    const Record record{static_cast<uint32_t>(it.at / kSecond), static_cast<uint32_t>(it.at % kSecond), bytes, bytes};
    file.write(reinterpret_cast<const char*>(record.data()), sizeof(record));
    file.write(reinterpret_cast<const char*>(it.frame.data()), bytes);
  }
  ASSERT_TRUE(file.flush()) << path;
}

std::vector<Captured> read_pcap(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  EXPECT_GT(bytes.size(), sizeof(kPcapHeader)) << path;
  std::vector<Captured> frames;
  for (size_t at = sizeof(kPcapHeader); at + sizeof(Record) <= bytes.size();) {
    Record record;
    std::memcpy(record.data(), bytes.data() + at, sizeof(record));
    at += sizeof(record);
    const auto* const first = reinterpret_cast<const uint8_t*>(bytes.data()) + at;
    frames.push_back({record[0] * kSecond + record[1], Bytes(first, first + record[2])});
    at += record[2];
  }
  return frames;
}

TEST(Capture, TheSameFramesAreSent) {
  const std::vector<Captured> today = sent_today();
  if (const char* const path = std::getenv("GRADLANE_WRITE_CAPTURE")) {
    write_pcap(path, today);
    GTEST_SKIP() << "wrote " << path;
  }
  const std::vector<Captured> then = read_pcap(std::getenv("GRADLANE_CAPTURE"));
  ASSERT_EQ(today.size(), then.size());
  for (size_t i = 0; i < then.size(); ++i) ASSERT_EQ(today[i], then[i]) << "frame " << i;
}

TEST(Capture, FramesAreWhatTheyWere) {
  const std::vector<Captured> then = read_pcap(std::getenv("GRADLANE_CAPTURE"));
  std::array<size_t, kTrafficClasses> classes{};
  for (const Captured& it : then) {
    const unsigned to = it.frame[5] - 1U;
    const LocalAddress local{mac_of_node(to), ip_of_node(to), kPort, 1};
    const ParsedFrame parsed = parse_frame(it.frame, local, kClassifier);
    ASSERT_EQ(parsed.verdict, FrameVerdict::kGradlane);
    const std::span<const uint8_t> packet(it.frame.data() + kFrameBytes, parsed.bytes);
    ASSERT_EQ(parsed.traffic, class_of_packet(packet));
    ++classes[static_cast<size_t>(parsed.traffic)];
  }
  EXPECT_GT(classes[static_cast<size_t>(TrafficClass::kCompressed)], 100U);
  EXPECT_GT(classes[static_cast<size_t>(TrafficClass::kRaw)], 50U);
  EXPECT_GT(classes[static_cast<size_t>(TrafficClass::kControl)], 50U);
}

}  // namespace
}  // namespace gradlane::test::capture_test
