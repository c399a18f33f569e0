// algorithm.h - what moves the elements of an operation between ranks: the interface of each algorithm (packet path)
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

class Egress;
class Peers;
class PollBudget;
class Tracer;
struct Running;

// A run of a packet that has been checked.
struct Run {
  RunHeader header;
  std::span<const uint8_t> payload;
  Running* operation;  // null: over, or control
  Step step;
};

// What algorithms use of the engine.
struct EngineParts {
  const ExchangeConfig& config;
  const Topology& topology;
  Counters& counters;
  PollBudget& budget;
  Tracer& tracer;
  Peers& peers;
  Egress& egress;
  std::span<uint8_t> scratch;  // a block, between encode and decode
  std::span<uint8_t> shelter;  // elements of a run that no trainer can write to; empty where nothing is relayed
};

// One for each place of the table of operations and each way to move elements, made with the exchange: it has what only
// this way knows of the operation that is in its place. `Strategy` says where elements go, an algorithm brings them
// there. All functions are for an operation that runs.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  Algorithm(const Algorithm&) = delete;
  Algorithm& operator=(const Algorithm&) = delete;

  // A stage begins, whose division into blocks is there. Says by News::start who must hear of it.
  virtual void begin() noexcept = 0;
  // The operation is prepared now, and was not when the stage began: elements may move.
  virtual void prepared() noexcept {}
  // The operation is over, well or not.
  virtual void end() noexcept {}

  // ---- Runs that arrive. First all of a packet are checked, `before` being those in front of this one; then each is
  // taken. A run of a packet that went on as it is, in its own buffer, was `relayed`.
  [[nodiscard]] virtual bool accepts(const Run& run, size_t link, std::span<const Run> before) const noexcept = 0;
  virtual void on_run(const Run& run, size_t link, bool relayed, Nanos now) noexcept = 0;
  // Grants, which say how far a neighbour takes elements of a block.
  [[nodiscard]] virtual bool accepts_grant(unsigned, size_t) const noexcept { return false; }
  virtual void on_grant(unsigned, size_t) noexcept {}

  // ---- Runs that leave. A poll calls these, each for all operations before the next one.
  virtual void send_grants(Nanos) noexcept {}
  // What arrived for others and found no room. Returns whether some of it is left.
  virtual bool send_passing(Nanos) noexcept { return false; }
  // This rank's own elements. Returns whether some are left that would go into open packets.
  virtual bool send_own(Nanos now) noexcept = 0;

  // Nothing of the stage is left to receive or to send.
  [[nodiscard]] virtual bool done() const noexcept = 0;

  // ---- For people, and for failures
  // The rank that it waits for.
  [[nodiscard]] virtual unsigned awaited() const noexcept = 0;
  // The rank from which elements are still to come; none: all are here.
  [[nodiscard]] virtual std::optional<unsigned> sender() const noexcept = 0;
  // What could be sent now, if the neighbour and the way there take it.
  [[nodiscard]] virtual std::optional<Step> next_step() noexcept = 0;
  // It has failed: whether those that depend on this rank must hear of it from here. `here`: it began on this rank.
  [[nodiscard]] virtual bool tells_dependents(bool) const noexcept { return true; }

 protected:
  Algorithm(Running& it, const EngineParts& parts) noexcept : it_(it), parts_(parts) {}

  Running& it_;
  const EngineParts& parts_;
};

}  // namespace gradlane
