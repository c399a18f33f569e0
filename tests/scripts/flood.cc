// flood.cc - a stranger on the network, for tests: sends a node packets that it must refuse, as fast as it can or is
// told
//
//   flood INTERFACE MAC IP UDP_PORT NEIGHBOUR_IP PACKETS_PER_SECOND SECONDS
//
// MAC, IP and UDP_PORT are the node's. The packets are, in turn: noise with the right address, ports and ToS, as if
// from the neighbour; a whole data packet with a right CRC in a wrong session, as if from the neighbour; the same from
// an address that is no node's; noise of no ToS class. Prints one line of JSON: {"sent": ..., "seconds": ...}.
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string>

#include "collectives/crc32c.h"
#include "collectives/wire.h"
#include "config/values.h"
#include "dataplane/frame/frame.h"

namespace {

using namespace gradlane;

constexpr size_t kKinds = 4;
constexpr size_t kBatch = 64;
constexpr size_t kPayload = 64;  // from the link header on
constexpr uint32_t kStranger = (10U << 24) | (77U << 16) | 199;
constexpr uint8_t kToS[kKinds] = {0x28, 0x28, 0x28, 0x00};

struct Frame {
  std::array<uint8_t, kFrameBytes + kPayload> bytes{};
};

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "flood: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

double now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void fill_packet(uint8_t* packet, std::mt19937_64& random, bool whole) {
  for (size_t i = 0; i < kPayload; ++i) packet[i] = static_cast<uint8_t>(random());
  if (!whole) return;
  LinkHeader header{};
  header.magic = kMagic;
  header.version = kProtocolVersion;
  header.kind = PacketKind::kData;
  header.session = random();
  store(packet, header);
  const uint32_t payload = crc32c(kCrcStart, packet + sizeof(LinkHeader), kPayload - sizeof(LinkHeader));
  header.crc = ~crc32c(payload, packet, kCrcOffset);
  store(packet, header);
}

// One frame of each kind, in turn.
void make_frames(std::array<Frame, kBatch>& frames, Flow flow, uint32_t neighbour) {
  std::mt19937_64 random(1);
  for (size_t i = 0; i < kBatch; ++i) {
    const size_t kind = i % kKinds;
    flow.source_ip = kind == 2 ? kStranger : neighbour;
    uint8_t* const frame = frames[i].bytes.data();
    fill_packet(frame + kFrameBytes, random, kind == 1 || kind == 2);
    write_headers(frame, flow, kToS[kind], kPayload);
  }
}

int open_socket(const char* interface) {
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("packet socket");
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_ifindex = static_cast<int>(if_nametoindex(interface));
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) fail(interface);
  const int bypass = 1;
  setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &bypass, sizeof(bypass));
  return fd;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) {
    std::fprintf(stderr, "usage: flood INTERFACE MAC IP UDP_PORT NEIGHBOUR_IP PACKETS_PER_SECOND SECONDS\n");
    return 2;
  }
  Flow flow;
  const auto mac = parse_mac(argv[2]);
  const auto ip = parse_ip(argv[3]);
  const auto neighbour = parse_ip(argv[5]);
  if (!mac || !ip || !neighbour) {
    std::fprintf(stderr, "flood: bad address\n");
    return 2;
  }
  flow.source_mac = {0x02, 0, 0, 0, 0, 0x99};
  flow.destination_mac = *mac;
  flow.destination_ip = *ip;
  flow.source_port = flow.destination_port = static_cast<uint16_t>(std::atoi(argv[4]));
  const double rate = std::atof(argv[6]);
  const double seconds = std::atof(argv[7]);

  static std::array<Frame, kBatch> frames;
  make_frames(frames, flow, *neighbour);
  std::array<iovec, kBatch> pieces{};
  std::array<mmsghdr, kBatch> messages{};
  for (size_t i = 0; i < kBatch; ++i) {
    pieces[i] = {frames[i].bytes.data(), frames[i].bytes.size()};
    messages[i].msg_hdr.msg_iov = &pieces[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  const int fd = open_socket(argv[1]);
  const double begin = now();
  double sent = 0;
  double elapsed = 0;
  for (; elapsed < seconds; elapsed = now() - begin) {
    if (sent > rate * elapsed) {
      const timespec moment{.tv_sec = 0, .tv_nsec = 20'000};
      nanosleep(&moment, nullptr);
      continue;
    }
    const int count = sendmmsg(fd, messages.data(), kBatch, 0);
    if (count > 0) {
      sent += count;
    } else if (errno != ENOBUFS && errno != EAGAIN && errno != EINTR) {
      fail("sendmmsg");
    }
  }
  close(fd);
  std::printf("{\"sent\": %.0f, \"seconds\": %.3f}\n", sent, elapsed);
  return 0;
}
