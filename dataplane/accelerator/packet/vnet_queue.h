// vnet_queue.h - a packet socket with superpackets (PACKET_VNET_HDR, packet(7)), used by bursts of packets (worker
// thread only)
#pragma once

#include <linux/if_packet.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/file_descriptor.h"
#include "dataplane/accelerator/packet/superpacket.h"

struct rte_mbuf;
struct rte_mempool;

namespace gradlane {

class VnetQueue {
 public:
  // Receives all frames of that kernel interface, except those that the kernel itself sends there. Throws SetupError.
  VnetQueue(unsigned interface, rte_mempool* pool);
  ~VnetQueue();
  VnetQueue(const VnetQueue&) = delete;
  VnetQueue& operator=(const VnetQueue&) = delete;

  // Receives like Port::receive(). If the burst ends within a superpacket, the next call returns the rest of it.
  [[nodiscard]] uint16_t receive(rte_mbuf** burst, uint16_t count) noexcept;
  // Sends like Port::send(). Packets of a burst that follow each other in a flow are sent as one superpacket.
  [[nodiscard]] uint16_t send(rte_mbuf** burst, uint16_t count) noexcept;

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

  // Events that are counted. Any thread may read the counts.
  enum class Event : uint8_t {
    kCut,         // superpackets that were received
    kJoined,      // superpackets that were sent
    kUnfit,       // received frames that were dropped: superpackets of a kind that cannot be cut
    kTooLong,     // received frames that were dropped: longer than a packet buffer
    kRefused,     // frames that the kernel would not send
    kSeparately,  // superpackets that the kernel would not send; their packets were sent one by one
    kCount
  };
  [[nodiscard]] uint64_t times(Event event) const noexcept {
    return events_[static_cast<size_t>(event)].load(std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kFetched = 8;  // frames fetched by one call
  // Bytes before each frame for its VLAN tag, which the kernel passes separately.
  static constexpr size_t kTagBytes = 4;
  static constexpr size_t kSlotBytes = kTagBytes + SuperpacketCutter::kMostBytes;

  struct Slot {
    VnetHeader header;
    std::array<iovec, 2> parts{};
    alignas(cmsghdr) std::array<uint8_t, CMSG_SPACE(sizeof(tpacket_auxdata))> beside{};
  };
  enum class Sent : uint8_t { kYes, kLater, kNo };

  void prepare(unsigned interface);
  [[nodiscard]] bool fetch() noexcept;
  [[nodiscard]] bool open_next() noexcept;
  [[nodiscard]] std::span<uint8_t> frame_of(size_t slot) noexcept;
  [[nodiscard]] rte_mbuf* cut() noexcept;
  [[nodiscard]] Sent send_joined() noexcept;
  [[nodiscard]] Sent send_alone(const rte_mbuf* mbuf) noexcept;
  [[nodiscard]] Sent hand_over(iovec* parts, size_t count) noexcept;
  void note(Event event) noexcept;

  FileDescriptor socket_;
  rte_mempool* const pool_;
  std::unique_ptr<uint8_t[]> memory_;  // kSlotBytes for each slot
  std::array<Slot, kFetched> slots_{};
  std::array<mmsghdr, kFetched> messages_{};
  size_t fetched_ = 0;    // slots that have a frame
  size_t opened_ = 0;     // number of these slots whose frames the cutter has received
  bool drained_ = false;  // the latest fetch() in this receive() emptied the socket
  SuperpacketCutter cutter_;
  SuperpacketJoiner joiner_;
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Event::kCount)> events_{};  // worker writes, others read
};

}  // namespace gradlane
