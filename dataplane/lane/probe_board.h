// probe_board.h - probes of one neighbour on their way between the control thread and workers
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/time.h"
#include "dataplane/frame/probe.h"

namespace gradlane {

// What is to be sent.
struct ProbeOrder {
  uint32_t id = 0;  // of slot i: i modulo ProbeBoard::kSlots
  uint64_t nonce = 0;
  uint8_t tos = 0;
  size_t bytes = kLeastProbe;  // of the datagram's payload
  bool awake = true;           // the worker is to stay awake for more of them, and for the answer
};

// What came back.
struct ProbeAnswer {
  ProbeIdentity sender{};
  uint8_t there = 0;   // ToS with which the request arrived,
  uint8_t back = 0;    //   and with which the reply did
  size_t arrived = 0;  // length of the request's IP packet
  Nanos rtt = 0;
};

// Slots, each of which goes from the control thread (post) to the worker that sends (next), to any worker that gets the
// answer (put_answer), and back to the control thread (state, clear). `state` says whose the rest of a slot is.
class ProbeBoard {
 public:
  static constexpr size_t kSlots = 16;
  static constexpr Nanos kPace = 5 * kMillisecond;  // a probe waits so long for the answer to the one before it

  // ---- Control thread

  // The slot must be free.
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
  // Null: none yet. Valid until the slot is cleared.
  [[nodiscard]] const ProbeAnswer* answer(size_t slot) const noexcept {
    const bool there = slots_[slot].state.load(std::memory_order_acquire) == State::kAnswered;
    return there ? &slots_[slot].answer : nullptr;
  }
  // False: a worker has it just now; try again.
  [[nodiscard]] bool clear(size_t slot) noexcept {
    State state = slots_[slot].state.load(std::memory_order_acquire);
    if (state == State::kTaken) return false;
    return slots_[slot].state.compare_exchange_strong(state, State::kFree, std::memory_order_acq_rel);
  }

  // ---- The worker that sends

  // True: `order` is to be sent now.
  [[nodiscard]] bool next(Nanos now, ProbeOrder& order) noexcept {
    if (!asked_.load(std::memory_order_relaxed)) return false;
    const bool waits = last_ < kSlots && slots_[last_].state.load(std::memory_order_relaxed) == State::kSent;
    if (waits && now - last_at_ < kPace) return false;
    // Before the look at the slots: what is posted from now on is seen here, or leaves asked_ set.
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

  // A reply of `bytes` bytes that arrived with this ToS. False: nobody has asked for it.
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
    std::atomic<uint32_t> id{0};  // as in `order`, to be compared before the slot is taken
    ProbeOrder order;
    Nanos sent_at = 0;
    ProbeAnswer answer;
  };

  std::array<Slot, kSlots> slots_;
  std::atomic<bool> asked_{false};  // there may be a slot to send; control thread sets, the sending worker clears
  size_t last_ = kSlots;            // worker that sends, as all below: slot of its last probe, and when that was
  Nanos last_at_ = 0;
};

}  // namespace gradlane
