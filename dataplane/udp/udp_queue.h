// udp_queue.h - the sockets of one queue as bursts of packets, or of frames with headers (worker thread only)
//
// The kernel delivers payloads of UDP, and many of them have one path. So packets come without headers. Where something
// needs headers, such as tags, probes and injected faults, this queue makes frames: it adds headers of Ethernet, IPv4
// and UDP, which have the values of the original packet as far as the kernel reports these.
//
// A packet that is longer than a datagram goes in segments (segments.h), which usually arrive in order. So the kernel
// is given buffers in such an order that it writes each segment to its place in the packet. Unexpected datagrams are
// copied.
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
#include "dataplane/udp/segments.h"
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
    unsigned group = 44;       // most datagrams of one call, unless one packet has more
    SegmentSizes segments{};   // how packets longer than `payload` are split
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
  [[nodiscard]] Nanos report_overdue(Nanos now) noexcept;

  [[nodiscard]] std::vector<int> fds() const;
  [[nodiscard]] size_t receive_bytes() const noexcept;  // size that the kernel has granted
  enum class Problem : uint8_t {
    kSingly,    // superpackets that were refused, while their packets went one by one
    kRefused,   // packets, or datagrams that went one by one, that the kernel refused to send: a filter, no route
    kTooLong,   // the same, because they were too long for the device
    kUnfit,     // received datagrams that were too long or empty, and segments of a wrong length or index
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
  static constexpr Nanos kSoon = 0;
  static constexpr size_t kMostFrames = 128;  // most packets of one superpacket; the rest of it is dropped

  struct Socket {
    std::unique_ptr<SuperpacketSocket> socket;
    uint16_t port = 0;
    size_t expected = 0;      // expected bytes of a datagram that is no segment
    unsigned mismatches = 0;  // superpackets in a row of shorter packets, or of no segments where these are expected
    // With segments:
    std::unique_ptr<PartialPackets> partial;
    bool expects_segments = false;
    PartialPacket* current = nullptr;  // incomplete packet that the next datagram probably continues; null: none
    size_t next_index = 0;             // of the next segment of `current`
    bool empty = false;                // nothing was left at the latest call
    Nanos look_at = kNever;            // time of the next look for overdue packets; kSoon: it is not set yet
  };
  // The memory that the kernel writes to, in this order.
  struct ReceiveBuffers {
    std::array<iovec, 2 * kPosted + 1> iovecs;
    size_t count = 0;
    void add(void* to, size_t bytes) noexcept { iovecs[count++] = {to, bytes}; }
  };
  // Datagrams of one path that may go in one call.
  struct Group {
    std::array<iovec, 2 * kPosted> iovecs;
    std::array<uint64_t, kPosted> heads;  // headers of segments
    size_t datagrams = 0;
    size_t iovecs_each = 1;  // iovecs of a datagram
    size_t each = 0;         // bytes of a datagram; 0: there is only one
    bool singly = false;
    // The packets in it: their indices in the burst, and how many datagrams there are up to the end of each.
    std::array<size_t, kPosted> indices;
    std::array<size_t, kPosted> ends;
    size_t packets = 0;
  };

  [[nodiscard]] bool post() noexcept;
  [[nodiscard]] bool fetch(Socket& from) noexcept;
  void lay_out(Socket& from, ReceiveBuffers& buffers) noexcept;
  static void expect(Socket& from, const SuperpacketSocket::Arrival& arrival) noexcept;
  void split(Socket& from, const SuperpacketSocket::Arrival& arrival, const ReceiveBuffers& buffers) noexcept;
  void reassemble(Socket& from, const SuperpacketSocket::Arrival& arrival, const ReceiveBuffers& buffers) noexcept;
  [[nodiscard]] size_t copy_rest(const SuperpacketSocket::Arrival& arrival, const ReceiveBuffers& buffers,
                                 size_t at) noexcept;
  void take_copies(Socket& from, const SuperpacketSocket::Arrival& arrival, size_t bytes) noexcept;
  void take_segment(Socket& from, const uint8_t* datagram, size_t bytes) noexcept;
  [[nodiscard]] PartialPacket started(const SegmentHeader& name, rte_mbuf* mbuf) const noexcept;
  static PartialPacket& begin(Socket& from, const PartialPacket& packet) noexcept;
  static void look_soon(Socket& from) noexcept;
  void report_before(Socket& from, const SegmentHeader& name) noexcept;
  void hand_over(const uint8_t* datagram, size_t bytes) noexcept;
  void report(Socket& from, PartialPacket& packet, bool overdue) noexcept;
  void remove_posted(size_t count) noexcept;
  [[nodiscard]] uint64_t sender() const noexcept;
  void add(rte_mbuf* mbuf, size_t bytes) noexcept;
  void gather(rte_mbuf** burst, const DatagramPath* paths, size_t count, size_t first, Group& group) noexcept;
  size_t add_segments(rte_mbuf* mbuf, const DatagramPath& path, size_t bytes, Group& group) noexcept;
  [[nodiscard]] SuperpacketSocket::Sent send_group(const DatagramPath& path, Group& group, size_t& sent) noexcept;
  [[nodiscard]] SuperpacketSocket::Sent send_each(Socket& from, const Endpoint& to, uint8_t tos, Group& group,
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
  std::array<uint64_t, kPosted> heads_{};  // headers of the next segments
  std::unique_ptr<uint8_t[]> spill_;       // space for received bytes that do not fit into the posted buffers
  std::unique_ptr<uint8_t[]> unexpected_;  // copies of unexpected datagrams
  SegmentReports reports_;
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
