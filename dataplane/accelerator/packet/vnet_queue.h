// vnet_queue.h - a packet socket with superpackets (PACKET_VNET_HDR, packet(7)) as bursts of packets (worker thread
// only)
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
  // All frames of that interface of the kernel, but those that the kernel itself sends there. Throws SetupError.
  VnetQueue(unsigned interface, rte_mempool* pool);
  ~VnetQueue();
  VnetQueue(const VnetQueue&) = delete;
  VnetQueue& operator=(const VnetQueue&) = delete;

  // As Port::receive(): what is left of a superpacket comes with the next call.
  [[nodiscard]] uint16_t receive(rte_mbuf** burst, uint16_t count) noexcept;
  // As Port::send(): what follows each other within a burst goes as one.
  [[nodiscard]] uint16_t send(rte_mbuf** burst, uint16_t count) noexcept;

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

  // Any thread: how often things happened so far.
  enum class Event : uint8_t {
    kCut,         // superpackets that came
    kJoined,      // superpackets that were sent
    kUnfit,       // frames that came and were dropped: of a kind of superpacket that cannot be cut
    kTooLong,     // the same: longer than a packet buffer
    kRefused,     // frames that the kernel would not send
    kSeparately,  // superpackets that the kernel would not send, whose packets went one by one
    kCount
  };
  [[nodiscard]] uint64_t times(Event event) const noexcept {
    return events_[static_cast<size_t>(event)].load(std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kFetched = 8;   // frames of one call
  static constexpr size_t kTagBytes = 4;  // room for a VLAN tag in front of each, which comes beside it
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
  size_t opened_ = 0;     // of these, so many have been given to the cutter
  bool drained_ = false;  // nothing more was there in this round
  SuperpacketCutter cutter_;
  SuperpacketJoiner joiner_;
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Event::kCount)> events_{};  // worker writes, others read
};

}  // namespace gradlane
