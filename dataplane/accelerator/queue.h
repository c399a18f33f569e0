// queue.h - the queue pair of an accelerator's port: bursts in, a bounded queue out (worker thread only)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/snapshot.h"
#include "base/time.h"
#include "dataplane/device/port.h"

struct rte_mbuf;

namespace gradlane {

#define GRADLANE_SIDE_COUNTERS(X)                                                                   \
  X(Received, "received", "frames received")                                                        \
  X(ReceivedBytes, "received_bytes", "bytes of frames received")                                    \
  X(Sent, "sent", "frames sent")                                                                    \
  X(SentBytes, "sent_bytes", "bytes of frames sent")                                                \
  X(Segmented, "dropped_segmented", "received frames dropped: in more than one buffer")             \
  X(Full, "dropped_full", "frames not sent: as many as there is place for wait already")            \
  X(Stalled, "dropped_stalled", "frames not sent: the device has taken none for a second")          \
  X(InjectedDrop, "injected_drop", "received frames thrown away on purpose (faults)")               \
  X(InjectedDuplicate, "injected_duplicate", "received frames doubled on purpose")                  \
  X(InjectedReorder, "injected_reorder", "received frames held back on purpose, behind later ones") \
  X(InjectedCorrupt, "injected_corrupt", "received frames changed on purpose, one bit each")        \
  X(InjectedDelay, "injected_delay", "received frames held back on purpose, for some time")

enum class SideCounter : uint8_t {
#define GRADLANE_SIDE_ENUM(symbol, name, help) k##symbol,
  GRADLANE_SIDE_COUNTERS(GRADLANE_SIDE_ENUM)
#undef GRADLANE_SIDE_ENUM
      kCount
};
[[nodiscard]] const char* side_counter_name(SideCounter counter) noexcept;

class AcceleratorQueue {
 public:
  static constexpr size_t kBurst = 32;
  static constexpr size_t kQueued = 1024;
  static constexpr size_t kSendBurst = 128;                // handed to the device at once, without waiting for more
  static constexpr Nanos kPatience = kSecond;              // with a device that takes nothing
  static constexpr Nanos kLookAgain = 100 * kMicrosecond;  // at a ring that is not empty
  using Burst = std::array<rte_mbuf*, kBurst>;

  explicit AcceleratorQueue(Port& port) noexcept : port_(port) {}
  AcceleratorQueue(const AcceleratorQueue&) = delete;
  AcceleratorQueue& operator=(const AcceleratorQueue&) = delete;

  // So many frames, each in one buffer.
  [[nodiscard]] size_t receive(Burst& burst) noexcept;

  // Takes the frame, as it is in the buffer.
  void send(rte_mbuf* mbuf) noexcept;
  // Hands what is queued to the device.
  void flush(Nanos now) noexcept;
  // The device took less than it was given: whoever has more for it had better wait.
  [[nodiscard]] bool clogged() const noexcept { return clogged_; }
  // After each round: gives up on what a device does not take, and publishes figures.
  void tend(Nanos now) noexcept;
  // In a round in which nothing came: sees to it that the device sends what it has taken.
  void settle(Nanos now) noexcept { (void)settled(now); }
  // When settle() has something to do; kNever: all is sent.
  [[nodiscard]] Nanos deadline() const noexcept { return unsettled_ == 0 ? kNever : look_at_; }
  void drop_queued() noexcept;

  void count(SideCounter counter, uint64_t n = 1) noexcept { counters_[static_cast<size_t>(counter)] += n; }
  void publish() noexcept;
  // Any thread: visit(name, value) for all counters, as of some 100 ms ago.
  template <class Visit>
  void for_each_published(Visit visit) const {
    for (size_t i = 0; i < kCounters; ++i) visit(side_counter_name(static_cast<SideCounter>(i)), published_[i]);
  }

 private:
  static constexpr size_t kCounters = static_cast<size_t>(SideCounter::kCount);
  // AF_PACKET does not say that frames are left in its ring, which has place for 512, and waits when that is full.
  static constexpr size_t kMostUnsettled = 256;
  [[nodiscard]] size_t queued() const noexcept { return tail_ - head_; }
  [[nodiscard]] bool settled(Nanos now) noexcept;

  Port& port_;
  // A ring: frames head_ to tail_ wait, each at its number modulo kQueued.
  std::array<rte_mbuf*, kQueued> frames_{};
  std::array<uint32_t, kQueued> lengths_{};  // the device has the buffers when they are counted
  size_t head_ = 0;
  size_t tail_ = 0;
  size_t unsettled_ = 0;  // frames handed to AF_PACKET since its ring was seen empty
  Nanos look_at_ = 0;     // when to look at that again
  Nanos now_ = 0;         // of the last flush
  bool clogged_ = false;
  Nanos clogged_at_ = 0;     // 0: it is not
  size_t clogged_head_ = 0;  // head_ then
  std::array<uint64_t, kCounters> counters_{};
  Snapshot<kCounters> published_;
};

}  // namespace gradlane
