// algorithm.h - the interface of algorithms, which move the elements of an operation between ranks (packet path)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/time.h"
#include "collectives/counters.h"
#include "collectives/exchange_config.h"
#include "collectives/strategy/strategy.h"
#include "collectives/strategy/topology.h"
#include "collectives/wire.h"

namespace gradlane {

class DecodedBlocks;
class Egress;
class Peers;
class PollBudget;
class Tracer;
struct OperationState;

// A checked run of a received packet.
struct Run {
  RunHeader header;
  std::span<const uint8_t> payload;
  OperationState* operation;  // null if the operation is over, or for a control run
  Step step;
};

// The parts of the engine that algorithms use.
struct EngineParts {
  const ExchangeConfig& config;
  const Topology& topology;
  Counters& counters;
  PollBudget& budget;
  Tracer& tracer;
  Peers& peers;
  Egress& egress;
  unsigned owners;                  // number of ranks if blocks may have owners, else 0
  std::span<uint8_t> scratch;       // buffer for an encoded block that is decoded at once
  std::span<uint8_t> private_copy;  // buffer for decoded elements that no trainer can write to; empty if alone
  DecodedBlocks& decoded;           // for OperationState::contribution()
};

// Moves the elements of one operation; `Strategy` says where they go. The exchange makes one object for each slot of
// the table of operations and each row of algorithms.cc. The object has the state that only this algorithm needs. All
// functions expect a running operation. To fail it, a function sets Outcome::failure: the engine fails the operation on
// all ranks when the call returns.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  Algorithm(const Algorithm&) = delete;
  Algorithm& operator=(const Algorithm&) = delete;

  // Begins a stage; OperationState::blocks already has its division. Adds to Notices::start the links to inform of the
  // start.
  virtual void begin() noexcept = 0;
  // Called when an operation becomes ready after its stage has begun: from now on elements may move.
  virtual void on_scan_agreed() noexcept {}
  // Called when the operation is over, whether it succeeded or failed.
  virtual void end() noexcept {}

  // ---- Runs that arrive. First all runs of a packet are checked: `before` has the runs before this one in the packet.
  // Then each run is taken. `relayed`: the packet was sent on unchanged, in its own buffer.
  [[nodiscard]] virtual bool accepts(const Run& run, size_t link, std::span<const Run> before) const noexcept = 0;
  virtual void on_run(const Run& run, size_t link, bool relayed, Nanos now) noexcept = 0;
  // Returns whether a credit (Phase::kCredit) is valid. It says how many elements of a block its owner accepts from
  // this rank.
  [[nodiscard]] virtual bool accepts_credit([[maybe_unused]] unsigned block,
                                            [[maybe_unused]] size_t link) const noexcept {
    return false;
  }
  virtual void on_credit([[maybe_unused]] unsigned block, [[maybe_unused]] size_t elements) noexcept {}

  // ---- Runs that leave. A poll calls each of these functions for all operations before it calls the next function.
  virtual void send_credits([[maybe_unused]] Nanos now) noexcept {}
  // Sends runs for other ranks that could not be sent when they arrived, and this rank's own elements as far as other
  // ranks have sent theirs. Returns whether runs for other ranks are left.
  virtual bool send_passing([[maybe_unused]] Nanos now) noexcept { return false; }
  // Sends this rank's own elements. Returns whether some are left that would go into open packets.
  virtual bool send_own(Nanos now) noexcept = 0;

  // Returns whether nothing of the stage is left to receive or to send.
  [[nodiscard]] virtual bool done() const noexcept = 0;

  // ---- For status displays, traces and failures
  //
  // Returns the rank that the operation waits for.
  [[nodiscard]] virtual unsigned awaited() const noexcept = 0;
  // Returns the rank from which elements are still missing; none if all have arrived.
  [[nodiscard]] virtual std::optional<unsigned> missing_from() const noexcept = 0;
  // Returns a step that could be sent now if the neighbour and the link to it take it.
  [[nodiscard]] virtual std::optional<Step> next_step() noexcept = 0;
  // Returns whether this rank must send aborts to its dependents (Strategy::dependents()). `on_this_rank`: the failure
  // began on this rank.
  [[nodiscard]] virtual bool tells_dependents([[maybe_unused]] bool on_this_rank) const noexcept { return true; }

 protected:
  Algorithm(OperationState& it, const EngineParts& parts) noexcept : it_(it), parts_(parts) {}

  // Returns whether this run and the earlier runs of its phase in the packet have at most `left` elements together.
  [[nodiscard]] bool fits(const Run& run, std::span<const Run> before, size_t left) const noexcept {
    for (const Run& other : before) {
      if (other.operation == &it_ && other.header.phase == run.header.phase) left -= other.header.count;
    }
    return run.header.count <= left;
  }

  OperationState& it_;
  const EngineParts& parts_;
};

}  // namespace gradlane
