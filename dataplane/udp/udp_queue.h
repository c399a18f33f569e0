// udp_queue.h - the sockets of one queue as bursts of packets, or of frames with headers (worker thread only)
//
// The kernel delivers payloads of UDP, and many of them have one path. So packets come without headers. Where something
// needs headers, such as tags, probes and injected faults, this queue makes frames: it adds headers of Ethernet, IPv4
// and UDP, which have the values of the original packet as far as the kernel reports these.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dataplane/device/packet_pool.h"
#include "dataplane/device/port.h"
#include "dataplane/frame/frame.h"
#include "dataplane/udp/node_table.h"
#include "dataplane/udp/superpacket_socket.h"

namespace gradlane {

class UdpQueue {
 public:
  struct Setup {
    LocalAddress local;
    NodeTable nodes{};
    bool any_address = false;  // whether sockets are bound to all addresses instead of the node's
    size_t payload = 0;        // most bytes of UDP payload: the MTU of IP minus ip_udp_bytes()
    size_t receive_bytes = 0;  // buffer size to ask for, for packets that a socket has not handed over yet
    unsigned group = 44;       // most packets of one call
  };
  // Makes a socket for each of these UDP ports, which are the ports in frames. Throws SetupError.
  UdpQueue(const Setup& setup, std::span<const uint16_t> ports, rte_mempool* pool);
  ~UdpQueue();
  UdpQueue(const UdpQueue&) = delete;
  UdpQueue& operator=(const UdpQueue&) = delete;

  // These work like the functions of Port with the same names.
  [[nodiscard]] uint16_t receive(rte_mbuf** burst, uint16_t count) noexcept;
  [[nodiscard]] uint16_t receive_datagrams(rte_mbuf** burst, uint16_t count, DatagramPath& path) noexcept;
  [[nodiscard]] uint16_t send_datagrams(rte_mbuf** burst, DatagramPath* paths, uint16_t count) noexcept;

  [[nodiscard]] std::vector<int> fds() const;
  [[nodiscard]] size_t receive_bytes() const noexcept;  // size that the kernel has granted
  enum class Problem : uint8_t {
    kSingly,    // superpackets that were refused, while their packets went one by one
    kRefused,   // packets that the kernel refused to send: a filter, no route
    kTooLong,   // packets that were too long for the device
    kUnfit,     // received packets that were longer than the MTU allows, or empty
    kNoBuffer,  // received packets for which there was no buffer
    kCount
  };
  // Any thread may call these. `refusal()` returns the errno of the latest packets that were refused, or 0 if none
  // were. `times()` returns how often a problem has happened so far.
  [[nodiscard]] int refusal() const noexcept { return refusal_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t times(Problem trouble) const noexcept {
    return troubles_[static_cast<size_t>(trouble)].load(std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kPosted = SuperpacketSocket::kMostPackets;
  static constexpr size_t kMostFrames = 128;  // most packets of one superpacket; the rest of it is dropped

  struct Socket {
    std::unique_ptr<SuperpacketSocket> socket;
    uint16_t port = 0;
    size_t expected = 0;   // expected bytes of a packet
    unsigned shorter = 0;  // number of superpackets in a row with shorter packets
  };

  [[nodiscard]] bool post() noexcept;
  [[nodiscard]] bool fetch(Socket& from) noexcept;
  static void expect(Socket& from, const SuperpacketSocket::Arrival& arrival) noexcept;
  void split(const SuperpacketSocket::Arrival& arrival, size_t part) noexcept;
  void copy_out(size_t from, size_t bytes, size_t part, uint8_t* to) const noexcept;
  void add(rte_mbuf* mbuf, size_t bytes) noexcept;
  [[nodiscard]] size_t gather(rte_mbuf** burst, const DatagramPath* paths, size_t count, size_t first, iovec* packets,
                              size_t* places, size_t& each) noexcept;
  [[nodiscard]] SuperpacketSocket::Sent send_group(const DatagramPath& path, iovec* packets, size_t count, size_t each,
                                                   size_t& sent) noexcept;
  void note(SuperpacketSocket::Sent result, size_t packets = 1) noexcept;
  void note(Problem trouble, size_t packets = 1) noexcept;
  void send_singly(uint32_t ip) noexcept;
  [[nodiscard]] bool goes_singly(uint32_t ip) noexcept;
  [[nodiscard]] Socket* socket_of(uint16_t port) noexcept;

  const Setup setup_;
  rte_mempool* const pool_;
  std::vector<Socket> sockets_;
  size_t next_ = 0;  // socket to ask first
  std::array<rte_mbuf*, kPosted> posted_{};
  size_t posted_count_ = 0;
  std::unique_ptr<uint8_t[]> spill_;  // space for received bytes that do not fit into the posted buffers
  // Packets that were fetched and not handed over yet.
  std::array<rte_mbuf*, kMostFrames> ready_{};
  size_t ready_first_ = 0;
  size_t ready_count_ = 0;
  // A neighbour for which the kernel takes no superpackets. The next `left` packets to it are sent one by one.
  struct Singly {
    uint32_t ip = 0;
    unsigned left = 0;
  };
  static constexpr unsigned kSinglyPackets = 10'000;
  std::array<Singly, 8> singly_{};
  size_t next_singly_ = 0;
  DatagramPath path_;  // path of the frames in ready_
  // The queue's worker writes these, others read them.
  std::atomic<int> refusal_{0};
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Problem::kCount)> troubles_{};
};

}  // namespace gradlane
