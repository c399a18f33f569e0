// queue.h - the queue pair of an accelerator's port: bursts in, a bounded queue out (worker thread only)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/counter_set.h"
#include "base/time.h"
#include "dataplane/device/port.h"

struct rte_mbuf;

namespace gradlane {

enum class SideCounter : uint8_t {
  kReceived,
  kReceivedBytes,
  kSent,
  kSentBytes,
  kSegmented,
  kFull,
  kStalled,
  kInjectedDrop,
  kInjectedDuplicate,
  kInjectedReorder,
  kInjectedCorrupt,
  kInjectedDelay,
  kCount
};
inline constexpr CounterRow<SideCounter> kSideCounterRows[] = {
    {SideCounter::kReceived, "received", "frames received"},
    {SideCounter::kReceivedBytes, "received_bytes", "bytes of frames received"},
    {SideCounter::kSent, "sent", "frames sent"},
    {SideCounter::kSentBytes, "sent_bytes", "bytes of frames sent"},
    {SideCounter::kSegmented, "dropped_segmented", "received frames dropped: in more than one buffer"},
    {SideCounter::kFull, "dropped_full", "frames not sent: as many as there is place for wait already"},
    {SideCounter::kStalled, "dropped_stalled", "frames not sent: the device has taken none for a second"},
    {SideCounter::kInjectedDrop, "injected_drop", "received frames thrown away on purpose (faults)"},
    {SideCounter::kInjectedDuplicate, "injected_duplicate", "received frames doubled on purpose"},
    {SideCounter::kInjectedReorder, "injected_reorder", "received frames held back on purpose, behind later ones"},
    {SideCounter::kInjectedCorrupt, "injected_corrupt", "received frames changed on purpose, one bit each"},
    {SideCounter::kInjectedDelay, "injected_delay", "received frames held back on purpose, for some time"},
};
static_assert(is_complete(kSideCounterRows));
constexpr const auto& counter_rows(SideCounter) noexcept { return kSideCounterRows; }

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

  void count(SideCounter counter, uint64_t n = 1) noexcept { counters_.add(counter, n); }
  void publish() noexcept { published_.publish(counters_); }
  // Any thread: as of some 100 ms ago.
  [[nodiscard]] const CounterSnapshot<SideCounter>& published() const noexcept { return published_; }

 private:
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
  CounterSet<SideCounter> counters_;
  CounterSnapshot<SideCounter> published_;
};

}  // namespace gradlane
