// probe_board.h - a board with the probes of one neighbour, between the control thread and workers
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/time.h"
#include "dataplane/frame/probe.h"

namespace gradlane {

// A probe to be sent.
struct ProbeOrder {
  uint32_t id = 0;  // `id` modulo ProbeBoard::kSlots is the number of its slot
  uint64_t nonce = 0;
  uint8_t tos = 0;
  size_t bytes = kLeastProbe;  // length of the datagram's payload
  bool awake = true;           // the worker must stay awake for further probes and for the answer
};

// The answer to a probe.
struct ProbeAnswer {
  ProbeIdentity sender{};
  uint8_t there = 0;   // ToS with which the request arrived
  uint8_t back = 0;    // ToS with which the reply arrived
  size_t arrived = 0;  // length of the request's IP packet
  Nanos rtt = 0;
};

// Slots for probes. The control thread posts a probe (post), and the worker that sends takes it (next). Then any worker
// stores the answer (put_answer), and the control thread reads it and frees the slot (answer, clear). `state` says
// which of them may touch the rest of the slot.
class ProbeBoard {
 public:
  static constexpr size_t kSlots = 16;
  static constexpr Nanos kPace = 5 * kMillisecond;  // longest wait of a probe for the answer to the one before it

  // ---- Control thread

  // Posts a probe. The slot must be free.
  void post(size_t slot, const ProbeOrder& order) noexcept {
    Slot& it = slots_[slot];
    it.id.store(order.id, std::memory_order_relaxed);
    it.order = order;
    it.state.store(State::kAsked, std::memory_order_release);
    asked_.store(true, std::memory_order_release);
  }
  [[nodiscard]] bool sent(size_t slot) const noexcept {
    const State state = slots_[slot].state.load(std::memory_order_acquire);
    return state != State::kFree && state != State::kAsked;
  }
  // Returns the answer, which is valid until the slot is cleared; null: none yet.
  [[nodiscard]] const ProbeAnswer* answer(size_t slot) const noexcept {
    const bool there = slots_[slot].state.load(std::memory_order_acquire) == State::kAnswered;
    return there ? &slots_[slot].answer : nullptr;
  }
  // Frees a slot. Returns false if a worker has it just now: try again.
  [[nodiscard]] bool clear(size_t slot) noexcept {
    State state = slots_[slot].state.load(std::memory_order_acquire);
    if (state == State::kTaken) return false;
    return slots_[slot].state.compare_exchange_strong(state, State::kFree, std::memory_order_acq_rel);
  }

  // ---- The worker that sends

  // Takes the next probe. Returns true if `order` must be sent now.
  [[nodiscard]] bool next(Nanos now, ProbeOrder& order) noexcept {
    if (!asked_.load(std::memory_order_relaxed)) return false;
    const bool waits = last_ < kSlots && slots_[last_].state.load(std::memory_order_relaxed) == State::kSent;
    if (waits && now - last_at_ < kPace) return false;
    // This must come before the scan of the slots: a probe that is posted from now on is seen below, or leaves asked_
    // set.
    (void)asked_.exchange(false, std::memory_order_acq_rel);
    for (size_t i = 0; i < kSlots; ++i) {
      State state = State::kAsked;
      Slot& it = slots_[i];
      if (!it.state.compare_exchange_strong(state, State::kTaken, std::memory_order_acq_rel)) continue;
      order = it.order;
      it.sent_at = now;
      last_ = i;
      last_at_ = now;
      it.state.store(State::kSent, std::memory_order_release);
      asked_.store(true, std::memory_order_relaxed);  // there may be more
      return true;
    }
    return false;
  }

  // ---- Any worker

  // Stores a reply of `bytes` bytes that arrived with this ToS. Returns false if nobody has asked for it.
  [[nodiscard]] bool put_answer(const ProbeHeader& reply, uint8_t tos, size_t bytes, Nanos now) noexcept {
    Slot& it = slots_[reply.id % kSlots];
    State state = State::kSent;
    if (it.id.load(std::memory_order_relaxed) != reply.id ||
        !it.state.compare_exchange_strong(state, State::kTaken, std::memory_order_acq_rel)) {
      return false;
    }
    const bool asked = it.order.id == reply.id && it.order.nonce == reply.nonce && it.order.bytes == bytes &&
                       it.order.tos == reply.tos;
    if (asked) it.answer = {reply.sender, reply.arrived_tos, tos, reply.arrived, now - it.sent_at};
    it.state.store(asked ? State::kAnswered : State::kSent, std::memory_order_release);
    return asked;
  }

 private:
  enum class State : uint8_t { kFree, kAsked, kTaken, kSent, kAnswered };
  struct Slot {
    std::atomic<State> state{State::kFree};
    std::atomic<uint32_t> id{0};  // as in `order`, for comparison before the slot is taken
    ProbeOrder order;
    Nanos sent_at = 0;
    ProbeAnswer answer;
  };

  std::array<Slot, kSlots> slots_;
  std::atomic<bool> asked_{false};  // there may be a slot to send; control thread sets, the sending worker clears
  size_t last_ = kSlots;  // slot of the latest probe; this member and all below belong to the worker that sends
  Nanos last_at_ = 0;
};

}  // namespace gradlane
