// mailbox.h - commands from the control thread to lanes, and memory in which lanes report back (control thread and
// workers)
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "client/abi.h"
#include "collectives/trace_log.h"
#include "config/config.h"

namespace gradlane {

// A command of the control thread to one lane. It stays valid until `done`. A lane executes commands in order of
// arrival.
struct Command {
  enum class Kind : uint8_t {
    // A trainer attaches: the lane gets its rings and the file descriptor that wakes it. An earlier trainer may have
    // begun operations in this generation of the ring. Then the lane begins a new generation, so that operation numbers
    // agree on all ranks again.
    kAttach,
    // The lane gets memory that submissions may name from now on.
    kAddSegment,
    // The lane aborts operations that use the segment. The command is done when nothing touches the segment any more.
    kRemoveSegment,
    // The trainer has gone. Its operations in flight fail on all ranks. The command is done when nothing touches its
    // memory any more.
    kDetach,
    // Follows kDetach if some lanes had to end the generation (ended_generation) and others had not. Now every lane
    // ends it. Otherwise the operations that ranks submit next would begin on some lanes and not on others.
    kEndGeneration,
    // The daemon shuts down: everything in flight fails, and the other ranks learn why.
    kClose,
  };
  Kind kind = Kind::kAttach;
  unsigned trainer = 0;       // local number; with kClose, any trainer of the control channel
  const char* why = nullptr;  // kClose: the reason that trainers are told; null: the daemon is shutting down
  // Fields of kAttach. `lane` is this lane's part of the control segment.
  gl_control* control = nullptr;
  gl_lane* lane = nullptr;
  int completion_fd = -1;
  // Fields of kAddSegment and kRemoveSegment.
  unsigned segment = 0;
  uint8_t* base = nullptr;
  size_t bytes = 0;

  bool ended_generation = false;  // kDetach: the lane has ended the generation; it writes this before `done`
  std::atomic<bool> done{false};  // lane writes, control thread reads
};

// A queue with a single producer (the control thread) and a single consumer (the lane's worker).
class Mailbox {
 public:
  // Adds a command. Returns false if the mailbox is full: try again later.
  [[nodiscard]] bool post(Command* command) noexcept {
    const uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == kSlots) return false;
    slots_[tail % kSlots] = command;
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }
  // Takes the oldest command. Returns null if the mailbox is empty.
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

// Errors in the rings of a trainer, which no client library makes. The trainer is disconnected.
enum class TrainerFault : uint32_t {
  kNone,
  kRingCounts,   // more entries than a ring has: a = head, b = tail
  kBadKind,      // no such operation or type: a = kind, b = type
  kBadCodec,     // a = id, b = arguments
  kBadSegment,   // no such segment: a = its number
  kOutOfBounds,  // bytes outside the segment: a = offset, b = bytes needed, c = bytes of the segment
  kTooLarge,     // a = bytes of the tensor, b = bytes allowed
  kBadStrategy,  // strategy that is not allowed, or cannot do such operations: a = code, b = kind
  // codec that cannot be summed while encoded, with a strategy without owning ranks: a = id, b = strategy's code
  kDoesNotAdd,
  kNoLinks,  // codec whose ranks first agree on a number, in a ring where some ranks have no link to each other: a = id
  kBadOperation,  // several reductions, average of integers, minimum where nothing is summed, no such root,
                  // residual without feedback, codec for the results without an aggregator, operation that local_reduce
                  // cannot do, blocks or state arrays that overlap
};

struct FaultReport {
  std::atomic<TrainerFault> fault{TrainerFault::kNone};  // written after a, b and c
  uint64_t a = 0, b = 0, c = 0;
};

// State shared by the control thread and one lane about one rank: its trainer or, with local_reduce, its trainers.
struct ControlChannel {
  Mailbox mailbox;  // control thread writes, lane reads
  // Faults by trainer. The lane writes them; the control thread reads them, and resets them after kDetach.
  std::array<FaultReport, kMaxTrainers> faults;
  std::atomic<uint32_t> in_flight{0};  // operations in flight; lane writes, control thread reads
  // Awaited times by trainer, with local_reduce: the total time in which the node's oldest operation lacked this
  // trainer's submission. The lane writes them, the control thread reads them.
  std::array<std::atomic<uint64_t>, kMaxTrainers> awaited_ns{};
  std::atomic<TraceLog*> trace{};  // the control thread sets it when a trace is first requested; null before
};

}  // namespace gradlane
