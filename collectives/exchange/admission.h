// admission.h - the rules for which operations an exchange takes, and their strategy and codecs (lane's thread)
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/exchange/exchange.h"
#include "collectives/exchange_config.h"
#include "collectives/operation.h"
#include "collectives/strategy/ring.h"
#include "collectives/strategy/strategy.h"
#include "collectives/strategy/topology.h"

namespace gradlane {

class Admission {
 public:
  Admission(const ExchangeConfig& config, const Topology& topology);

  [[nodiscard]] Exchange::Refusal check(const Operation& operation) const noexcept;
  // Returns the text for a refusal with kPacket: what is wrong, and what to do.
  [[nodiscard]] FailureText packet_fault(const Operation& operation) const noexcept;

  // Fills in what an accepted operation leaves open: root, codecs, the strategy's name, pitch of the states. Returns
  // its strategy.
  const Strategy* complete(Operation& operation) const noexcept;
  // Returns the bytes that the operation needs in an OperationMemory.
  [[nodiscard]] size_t memory_bytes(const Operation& operation) const noexcept;

  [[nodiscard]] const Ring& ring() const noexcept { return ring_; }  // the ring of all ranks

 private:
  [[nodiscard]] const Strategy* strategy_for(const Operation& operation, StrategyId& id) const noexcept;

  struct Allowed {
    StrategyId id;
    std::unique_ptr<const Strategy> strategy;
  };

  const ExchangeConfig& config_;
  const bool all_linked_;  // all ranks, not just this one, have links to all others
  const Ring ring_;
  std::vector<Allowed> allowed_;
};

}  // namespace gradlane
