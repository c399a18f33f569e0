// strangers_test.cc - a stranger on the network of a ring: junk, forgeries and replays change no result
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "collectives/crc32c.h"
#include "collectives/wire.h"
#include "dataplane/frame/frame.h"
#include "dataplane/secure/envelope.h"
#include "tests/dataplane/test_eal.h"
#include "tests/stack/stack.h"
#include "tests/stack/trainers.h"

namespace gradlane::test::strangers_test {
namespace {

constexpr unsigned kVictim = 1;
constexpr unsigned kStranger = 3;
constexpr MacAddress kMac = {0x02, 0, 0, 0, 0, 0x99};
constexpr size_t kAtOnce = 4;  // frames that the stranger sends in each step

// Three nodes, their trainers, and a stranger. All results are compared with the right ones.
class Strangers {
 public:
  explicit Strangers(const std::string& key = "")
      : stack_({.nodes = 3,
                .spare = 1,
                .change =
                    [&key](NodeConfig& it) {
                      it.key_file = key;
                      if (!key.empty()) it.security = Security::kAuthenticated;
                    }}),
        team_(stack_) {}

  [[nodiscard]] Stack& stack() { return stack_; }

  void work() {
    for (const size_t count : {1U, 300U, 2000U, 30'000U}) {
      for (const char* const codec : {"raw", "fixed:10"}) {
        EXPECT_TRUE(all_succeeded(team_.all_reduce(count, {.codec = codec}))) << count << " " << codec;
      }
    }
  }

  // Records the next `most` frames that reach the victim while trainers work. Returns those of the exchange.
  [[nodiscard]] std::vector<Bytes> caught(size_t most) {
    stack_.network().record(kVictim, most);
    work();
    std::vector<Bytes> frames = stack_.network().recorded();
    std::erase_if(frames, [](const Bytes& it) { return it.size() <= kFrameBytes || it[12] != 0x08 || it[23] != 17; });
    return frames;
  }

  // Trainers work while the stranger sends all frames `rounds` times. Each counter of the victim in `names` must grow.
  void work_under(const std::vector<Bytes>& frames, const std::vector<std::string>& names, size_t rounds = 1) {
    std::map<std::string, uint64_t> before;
    for (const std::string& name : names) before[name] = stack_.counter_sum(kVictim, name);
    size_t sent = 0;
    stack_.set_background([&] {
      for (size_t i = 0; i < kAtOnce && sent < rounds * frames.size(); ++i) {
        Bytes frame = frames[sent++ % frames.size()];
        // The stranger's own MAC address keeps the switch from taking it for the neighbour.
        std::ranges::copy(kMac, frame.begin() + 6);
        stack_.network().send(kStranger, frame);
      }
    });
    while (sent < rounds * frames.size()) work();
    stack_.set_background(nullptr);
    work();
    for (const std::string& name : names) EXPECT_GT(stack_.counter_sum(kVictim, name), before[name]) << name;
  }

  // Returns the addresses and ports of a packet from `from` to the victim.
  [[nodiscard]] Flow flow_of(uint32_t from) {
    const NodeConfig& config = stack_.config(kVictim);
    return {.source_mac = kMac,
            .destination_mac = *config.ports[0].mac,
            .source_ip = from,
            .destination_ip = config.nodes[kVictim].ip,
            .source_port = config.udp_port,
            .destination_port = config.udp_port};
  }
  [[nodiscard]] uint32_t neighbour() { return stack_.config(kVictim).nodes[0].ip; }

 private:
  Stack stack_;
  TrainerGroup team_;
};

Bytes random_bytes(Random& random, size_t count) {
  Bytes bytes(count);
  for (uint8_t& it : bytes) it = static_cast<uint8_t>(random.next());
  return bytes;
}

Bytes frame_of(const Flow& flow, uint8_t tos, const Bytes& payload) {
  Bytes frame(kFrameBytes + payload.size());
  std::ranges::copy(payload, frame.begin() + kFrameBytes);
  write_headers(frame.data(), flow, tos, payload.size());
  return frame;
}

// Sets the packet's CRC to that of its present content.
void set_crc(std::span<uint8_t> packet) {
  const uint32_t behind = crc32c(kCrcStart, packet.data() + sizeof(LinkHeader), packet.size() - sizeof(LinkHeader));
  const uint32_t crc = ~crc32c(behind, packet.data(), kCrcOffset);
  std::memcpy(packet.data() + kCrcOffset, &crc, sizeof(crc));
}

void leave_out_udp_checksum(Bytes& frame) { frame[kFrameBytes - 2] = frame[kFrameBytes - 1] = 0; }

TEST(Strangers, RandomDatagrams) {
  Strangers ring;
  Random random(1);
  std::vector<Bytes> frames;
  for (int i = 0; i < 1000; ++i) {
    constexpr uint8_t kTos[] = {0, 0x28, 0x20, 0xc0};
    frames.push_back(frame_of(ring.flow_of(0x01020304), kTos[i % 4], random_bytes(random, random.below(1400))));
  }
  ring.work_under(frames, {"not_neighbour", "host"});
}

// The stranger sends noise and complete packets of a wrong session from a neighbour's address, and complete packets
// from another address.
TEST(Strangers, JunkWithANeighboursAddress) {
  Strangers ring;
  Random random(2);
  std::vector<Bytes> frames;
  for (int i = 0; i < 300; ++i) {
    const Bytes noise = random_bytes(random, 100 + random.below(1300));
    frames.push_back(frame_of(ring.flow_of(ring.neighbour()), 0x28, noise));
    frames.push_back(frame_of(ring.flow_of(ring.neighbour()), 0, noise));
  }
  for (Bytes frame : ring.caught(600)) {
    frame[kFrameBytes + offsetof(LinkHeader, session) + static_cast<size_t>(random.below(8))] ^= 0x55;
    leave_out_udp_checksum(frame);
    set_crc(std::span(frame).subspan(kFrameBytes));
    frames.push_back(frame);
    Bytes payload(frame.begin() + kFrameBytes, frame.end());
    frames.push_back(frame_of(ring.flow_of(0x01020304), 0x28, payload));
  }
  ring.work_under(frames, {"bad_magic", "stale_session", "not_neighbour", "host"});
}

TEST(Strangers, ReplaysWithinASessionAndOfAnEarlierRing) {
  std::vector<Bytes> frames;
  {
    Strangers ring;
    frames = ring.caught(1000);
    ASSERT_GT(frames.size(), 200U);
    ring.work_under(frames, {"duplicate"});
  }
  Strangers later;
  later.work_under(frames, {"stale_session"}, 3);
}

// Packets of the running session get other content and a right CRC. Only the key shows that they are forged.
TEST(Strangers, ForgeriesInARingWithAKey) {
  const std::filesystem::path folder = new_folder("strangers");
  Strangers ring(write_key(folder));
  std::vector<Bytes> forged = ring.caught(200);
  ASSERT_GT(forged.size(), 100U);
  for (Bytes& frame : forged) {
    leave_out_udp_checksum(frame);
    const std::span<uint8_t> packet =
        std::span(frame).subspan(kFrameBytes, frame.size() - kFrameBytes - kEnvelopeBytes);
    frame[frame.size() - kEnvelopeBytes + 5] ^= 1;  // a packet that the receiver has not seen
    packet[4] ^= 0x80;                              // a bit of the sequence number
    if (packet.size() > 70) packet[68] ^= 0x10;
    set_crc(packet);
  }
  ring.work_under(forged, {"forged"});
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gradlane::test::strangers_test
