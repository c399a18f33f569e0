// superpacket_socket_test.cc - kernel sockets on loopback addresses: many packets in a call, single and refused packets
#include "dataplane/udp/superpacket_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/addresses.h"

namespace gradlane::test::superpacket_socket_test {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<uint8_t>;
using Sent = SuperpacketSocket::Sent;

constexpr size_t kReceiveBytes = 1 << 20;
constexpr uint8_t kTos = 0x28;
constexpr int kLong = 600'000;  // ms; a test that passes never waits that long

// Returns an address of this process. Other processes have other addresses.
Endpoint own(unsigned number) {
  const auto process = static_cast<uint32_t>(getpid());
  return {ip_address(0x7f000000 | (process & 0x3ffff) << 6 | number), 18400};
}

Bytes random_bytes(size_t count) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i * 2654435761U >> 13);
  return bytes;
}

// Returns an iovec for each packet of `each` bytes. The last packet has the rest.
std::vector<iovec> packets_of(Bytes& bytes, size_t each) {
  std::vector<iovec> packets;
  for (size_t at = 0; at < bytes.size(); at += each) {
    packets.push_back({bytes.data() + at, std::min(each, bytes.size() - at)});
  }
  return packets;
}

class Pair : public testing::Test {
 protected:
  SuperpacketSocket::Arrival receive(Bytes& bytes) {
    pollfd event{.fd = to.fd(), .events = POLLIN, .revents = 0};
    if (poll(&event, 1, kLong) != 1) return {};
    bytes.resize(70000);
    iovec room{bytes.data(), bytes.size()};
    const auto arrival = to.receive(&room, 1);
    bytes.resize(arrival.bytes);
    return arrival;
  }

  SuperpacketSocket from{own(1), kReceiveBytes};
  SuperpacketSocket to{own(2), kReceiveBytes};
};

// Superpackets arrive as they were sent. If the kernel does not gather packets, they arrive in pieces of whole packets.
TEST_F(Pair, PacketsComeAsTheyWent) {
  for (const size_t each : {1UL, 100UL, 548UL, 1472UL}) {
    for (const size_t packets : {1UL, 2UL, 7UL, 44UL}) {
      for (const size_t last : {each, each / 2 + 1}) {
        SCOPED_TRACE(testing::Message() << packets << " packets of " << each << ", the last one of " << last);
        Bytes sent = random_bytes((packets - 1) * each + last);
        auto parts = packets_of(sent, each);
        ASSERT_EQ(from.send(own(2), kTos, parts.data(), parts.size(), packets > 1 ? each : 0), Sent::kYes);
        Bytes all;
        while (all.size() < sent.size()) {
          Bytes piece;
          const auto arrival = receive(piece);
          ASSERT_NE(arrival.bytes, 0U);
          EXPECT_EQ(arrival.from, own(1));
          EXPECT_EQ(arrival.tos, kTos);
          EXPECT_FALSE(arrival.cut);
          if (piece.size() > last || packets > 1) {
            EXPECT_EQ(arrival.each, std::min(each, sent.size() - all.size()));
          }
          all.insert(all.end(), piece.begin(), piece.end());
        }
        EXPECT_EQ(all, sent);
      }
    }
  }
}

TEST_F(Pair, NothingIsThere) {
  uint8_t byte = 0;
  iovec room{&byte, 1};
  EXPECT_EQ(to.receive(&room, 1).bytes, 0U);
}

TEST_F(Pair, MoreThanThereIsRoomFor) {
  Bytes sent = random_bytes(1000);
  iovec packet{sent.data(), sent.size()};
  ASSERT_EQ(from.send(own(2), kTos, &packet, 1, 0), Sent::kYes);
  pollfd event{.fd = to.fd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&event, 1, kLong), 1);
  Bytes bytes(100);
  iovec room{bytes.data(), bytes.size()};
  EXPECT_TRUE(to.receive(&room, 1).cut);
}

// The test is the same for IPv6, where the kernel has other options for ToS and fragments.
TEST(OfIpv6, PacketsComeAsTheyWent) {
  const auto port = static_cast<uint16_t>(20000 + getpid() % 20000 * 2);
  const Endpoint one{*parse_address("::1"), port};
  const Endpoint other{one.ip, static_cast<uint16_t>(port + 1)};
  SuperpacketSocket from(one, kReceiveBytes);
  SuperpacketSocket to(other, kReceiveBytes, true);
  EXPECT_EQ(endpoint_text(one), "[::1]:" + std::to_string(port));
  constexpr size_t kEach = 1452;
  Bytes sent = random_bytes(7 * kEach + 100);
  auto parts = packets_of(sent, kEach);
  ASSERT_EQ(from.send(other, kTos, parts.data(), parts.size(), kEach), Sent::kYes);
  Bytes all;
  while (all.size() < sent.size()) {
    pollfd event{.fd = to.fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&event, 1, kLong), 1);
    Bytes bytes(70000);
    iovec room{bytes.data(), bytes.size()};
    const auto arrival = to.receive(&room, 1);
    EXPECT_EQ(arrival.from, one);
    EXPECT_EQ(arrival.tos, kTos);
    EXPECT_EQ(arrival.each, std::min(kEach, sent.size() - all.size()));
    all.insert(all.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(arrival.bytes));
  }
  EXPECT_EQ(all, sent);
  Bytes longer = random_bytes(65536 + 8);
  iovec packet{longer.data(), longer.size()};
  EXPECT_EQ(from.send(other, kTos, &packet, 1, 0), Sent::kTooLong);
  EXPECT_EQ(from.send({ip_address(0x7f000001), port}, kTos, parts.data(), 1, 0), Sent::kLost);
}

// Nobody listens at own(3). Packets get lost, as on any network, and the socket goes on working.
TEST_F(Pair, NobodyThere) {
  uint8_t byte = 1;
  iovec packet{&byte, 1};
  for (unsigned i = 0; i < 3; ++i) EXPECT_EQ(from.send(own(3), kTos, &packet, 1, 0), Sent::kYes);
  EXPECT_EQ(from.send(own(2), kTos, &packet, 1, 0), Sent::kYes);
  Bytes bytes;
  EXPECT_EQ(receive(bytes).bytes, 1U);
}

// Packets are never cut into fragments. A sender of packets that are too long for the path gets an error.
TEST_F(Pair, TooLong) {
  Bytes sent = random_bytes(65600);
  iovec packet{sent.data(), sent.size()};
  EXPECT_EQ(from.send(own(2), kTos, &packet, 1, 0), Sent::kTooLong);
}

TEST_F(Pair, FullQueueAsksForPatience) {
  // Packets that the receiver does not fetch are dropped there. Sending goes on, and never blocks.
  Bytes sent = random_bytes(44 * 1472);
  auto parts = packets_of(sent, 1472);
  for (unsigned i = 0; i < 200; ++i) {
    const Sent result = from.send(own(2), kTos, parts.data(), parts.size(), 1472);
    EXPECT_TRUE(result == Sent::kYes || result == Sent::kLater);
  }
}

std::string refusal(const Endpoint& local) {
  try {
    const SuperpacketSocket socket(local, kReceiveBytes);
  } catch (const SetupError& error) {
    return error.what();
  }
  return "";
}

TEST_F(Pair, AnAddressIsOnesOwn) {
  EXPECT_THAT(refusal(own(1)), HasSubstr("another daemon or job uses this port"));
  // a documentation address (RFC 5737), which no machine has
  EXPECT_THAT(refusal({ip_address(0xc0000201), 18400}), HasSubstr("192.0.2.1:18400: "));
  EXPECT_THAT(refusal({ip_address(0xc0000201), 18400}), HasSubstr("this machine has no such address"));
}

}  // namespace
}  // namespace gradlane::test::superpacket_socket_test
