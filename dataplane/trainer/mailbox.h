// mailbox.h - what the control thread asks of lanes, and how it gets there
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "client/abi.h"
#include "collectives/trace_log.h"
#include "config/config.h"

namespace gradlane {

// Made by the control thread, one per lane; stays valid until `done`. The lane does what it says, in order of arrival.
struct Command {
  enum class Kind : uint8_t {
    // A trainer has come: its rings, and what wakes it up. If operations of an earlier trainer were begun in this
    // generation of the ring, the lane begins a new generation, so that numbers agree again.
    kAttach,
    // Bytes that submissions may name from now on.
    kAddSegment,
    // Operations that use the segment are aborted; done when nothing touches it any more.
    kRemoveSegment,
    // The trainer is gone. What it has in flight fails on all ranks; done when nothing touches its memory any more.
    kDetach,
    // After that, if other lanes had to end the generation (broke_off): this one does so as well. Else they would run
    // apart, as what ranks have submitted since does not begin on all lanes.
    kBreakOff,
    // Shutdown: fail everything in flight and tell the other ranks why.
    kClose,
  };
  Kind kind = Kind::kAttach;
  unsigned trainer = 0;       // local number; with kClose any of the desk's
  const char* why = nullptr;  // kClose: what trainers are told; null: that it is shut down
  // kAttach; `lane` is this lane's part of the control segment.
  gl_control* control = nullptr;
  gl_lane* lane = nullptr;
  int completion_fd = -1;
  // kAddSegment, kRemoveSegment
  unsigned segment = 0;
  uint8_t* base = nullptr;
  size_t bytes = 0;

  bool broke_off = false;         // kDetach: the lane has ended the generation; it writes that before `done`
  std::atomic<bool> done{false};  // lane writes, control thread reads
};

// Single producer (control thread), single consumer (the lane's worker).
class Mailbox {
 public:
  // False: full, try again later.
  [[nodiscard]] bool post(Command* command) noexcept {
    const uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == kSlots) return false;
    slots_[tail % kSlots] = command;
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }
  // Null: empty.
  [[nodiscard]] Command* take() noexcept {
    const uint32_t head = head_.load(std::memory_order_relaxed);
    if (head == tail_.load(std::memory_order_acquire)) return nullptr;
    Command* const command = slots_[head % kSlots];
    head_.store(head + 1, std::memory_order_release);
    return command;
  }

 private:
  static constexpr uint32_t kSlots = 256;
  alignas(64) std::atomic<uint32_t> tail_{0};  // producer writes
  alignas(64) std::atomic<uint32_t> head_{0};  // consumer writes
  std::array<Command*, kSlots> slots_{};
};

// What a trainer's rings contained that no client library writes: it is cut off.
enum class TrainerFault : uint32_t {
  kNone,
  kRingCounts,    // more entries than a ring has: a = head, b = tail
  kBadKind,       // no such operation or type: a = kind, b = type
  kBadCodec,      // a = id, b = arguments
  kBadSegment,    // no such segment: a = its number
  kOutOfBounds,   // bytes outside the segment: a = offset, b = bytes needed, c = bytes of the segment
  kTooLarge,      // a = bytes of the tensor, b = allowed
  kBadStrategy,   // none that is allowed, or it cannot do such operations: a = code, b = kind
  kDoesNotAdd,    // a codec that needs owners of blocks by a strategy without: a = id, b = strategy's code
  kNoLinks,       // a codec that ranks agree about where not all have links to all: a = id
  kBadOperation,  // average of integers, minimum of what is not summed, no such root, residual where there is no
                  // feedback, codec for the way back without an aggregator, not with local_reduce, blocks or state
                  // arrays that overlap
};

struct FaultReport {
  std::atomic<TrainerFault> fault{TrainerFault::kNone};  // written last
  uint64_t a = 0, b = 0, c = 0;
};

// Between the control thread and one lane, about one rank of it: its trainer, or its trainers with local_reduce.
struct LaneDesk {
  Mailbox mailbox;  // control thread writes, lane reads
  // By trainer: lane writes, control thread reads and resets after kDetach.
  std::array<FaultReport, kMaxTrainers> faults;
  std::atomic<uint32_t> in_flight{0};  // operations: lane writes, control thread reads
  // By trainer, with local_reduce: the total time in which the node's oldest operation lacked this trainer's
  // submission. Lane writes, control thread reads.
  std::array<std::atomic<uint64_t>, kMaxTrainers> awaited_ns{};
  std::atomic<TraceLog*> trace{};  // control thread sets it, once; null: no trace was asked for yet
};

}  // namespace gradlane
