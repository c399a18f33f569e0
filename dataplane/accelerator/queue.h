// queue.h - the queue pair of an accelerator's port: it receives bursts, and sends through a bounded queue (worker
// thread only)
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
    {SideCounter::kFull, "dropped_full", "frames not sent: the queue for sending was full"},
    {SideCounter::kStalled, "dropped_stalled", "frames not sent: the device took none for a second"},
    {SideCounter::kInjectedDrop, "injected_drop", "received frames dropped on purpose (`faults`)"},
    {SideCounter::kInjectedDuplicate, "injected_duplicate", "received frames duplicated on purpose"},
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
  static constexpr size_t kSendBurst = 128;  // number of queued frames that are handed to the device at once
  // queued frames are dropped if the device takes none of them for this time
  static constexpr Nanos kPatience = kSecond;
  static constexpr Nanos kLookAgain = 100 * kMicrosecond;  // interval of checks whether AF_PACKET's ring is empty
  using Burst = std::array<rte_mbuf*, kBurst>;

  explicit AcceleratorQueue(Port& port) noexcept : port_(port) {}
  AcceleratorQueue(const AcceleratorQueue&) = delete;
  AcceleratorQueue& operator=(const AcceleratorQueue&) = delete;

  // Receives a burst. Returns the number of its frames, each in one buffer.
  [[nodiscard]] size_t receive(Burst& burst) noexcept;

  // Takes ownership of the buffer and queues its frame. Drops the frame if the queue is full.
  void send(rte_mbuf* mbuf) noexcept;
  // Hands queued frames to the device.
  void flush(Nanos now) noexcept;
  // Returns whether the device did not take all frames in the latest flush(). Then callers should send it no more
  // frames for now.
  [[nodiscard]] bool clogged() const noexcept { return clogged_; }
  // Drops queued frames that the device does not take for kPatience, and publishes figures. Call it after each round.
  void maintain(Nanos now) noexcept;
  // Makes AF_PACKET send the frames in its ring. Call it in each round in which no frame arrived, and now and then in
  // other rounds.
  void settle(Nanos now) noexcept { (void)settled(now); }
  // Returns the time at which settle() must be called again. kNever if the device has sent everything.
  [[nodiscard]] Nanos deadline() const noexcept { return unsettled_ == 0 ? kNever : look_at_; }
  void drop_queued() noexcept;

  void count(SideCounter counter, uint64_t n = 1) noexcept { counters_.add(counter, n); }
  void publish() noexcept { published_.publish(counters_); }
  // Any thread: figures that are about 100 ms old.
  [[nodiscard]] const CounterSnapshot<SideCounter>& published() const noexcept { return published_; }

 private:
  // Limit of frames that AF_PACKET has taken and may not have sent yet. AF_PACKET does not report that frames are left
  // in its ring. The ring holds 512 frames, and a full ring blocks.
  static constexpr size_t kMostUnsettled = 256;
  [[nodiscard]] size_t queued() const noexcept { return tail_ - head_; }
  [[nodiscard]] bool settled(Nanos now) noexcept;

  Port& port_;
  // A ring buffer: frames head_ to tail_ wait, each at its number modulo kQueued.
  std::array<rte_mbuf*, kQueued> frames_{};
  // lengths of frames_, kept here because the device has the buffers when bytes are counted
  std::array<uint32_t, kQueued> lengths_{};
  size_t head_ = 0;
  size_t tail_ = 0;
  size_t unsettled_ = 0;  // frames handed to AF_PACKET since its ring was last seen empty
  Nanos look_at_ = 0;     // time of the next check of that ring
  Nanos now_ = 0;         // time of the latest flush
  bool clogged_ = false;
  Nanos clogged_at_ = 0;     // time at which maintain() first saw the present head_; 0: nothing is queued
  size_t clogged_head_ = 0;  // head_ at that time
  CounterSet<SideCounter> counters_;
  CounterSnapshot<SideCounter> published_;
};

}  // namespace gradlane
