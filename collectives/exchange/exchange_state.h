// exchange_state.h - the parts of an Exchange, and the work that involves several of them: packets in, polls
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/time.h"
#include "collectives/exchange/admission.h"
#include "collectives/exchange/algorithm.h"
#include "collectives/exchange/control.h"
#include "collectives/exchange/deferred_packets.h"
#include "collectives/exchange/egress.h"
#include "collectives/exchange/exchange.h"
#include "collectives/exchange/lifecycle.h"
#include "collectives/exchange/membership.h"
#include "collectives/exchange/operation_table.h"
#include "collectives/exchange/peers.h"
#include "collectives/exchange/poll_budget.h"
#include "collectives/exchange/preparation.h"
#include "collectives/exchange/tracer.h"
#include "collectives/exchange_config.h"
#include "collectives/strategy/topology.h"
#include "collectives/wire.h"

namespace gradlane {

class ExchangeState {
 public:
  ExchangeState(const ExchangeConfig& config, PacketIo& io);
  // Gives back all buffers.
  ~ExchangeState();
  ExchangeState(const ExchangeState&) = delete;
  ExchangeState& operator=(const ExchangeState&) = delete;

  // ---- Functions of Exchange that involve several parts. Exchange asks the parts directly for all others.
  Exchange::Submitted submit(const Operation& operation, Nanos now) noexcept;
  void abort(uint64_t id) noexcept;
  void close() noexcept;
  void refuse(const Failure& why) noexcept;
  bool receive(unsigned from, Packet packet, size_t bytes, Nanos now) noexcept;
  void poll(Nanos now) noexcept;
  Nanos deadline() const noexcept;
  RingStatus ring_status() const noexcept;
  LinkStatus link_status(size_t neighbour) const noexcept;

 private:
  friend class Exchange;
  static constexpr size_t kMaxRuns = kMaxMtu / sizeof(RunHeader);

  // ---- arrivals.cc: packets received
  bool receive_data(size_t link, const LinkHeader& header, Packet packet, size_t bytes, uint32_t payload_crc,
                    Nanos now) noexcept;
  std::optional<Counter> check_runs(std::span<const uint8_t> bytes, size_t link) noexcept;
  std::optional<Counter> check_run(Run& run, size_t link) noexcept;
  [[nodiscard]] std::optional<size_t> blocked_link() noexcept;
  void resume_deferred(bool even_blocked, Nanos now) noexcept;
  bool take_runs(size_t link, Packet packet, size_t bytes, uint32_t payload_crc, Nanos now) noexcept;
  bool relay(Packet packet, size_t bytes, uint32_t payload_crc, Nanos now) noexcept;
  void take(const Run& run, size_t link, bool relayed, Nanos now) noexcept;

  // ---- exchange.cc
  void pump(Nanos now) noexcept;
  void trace_waits() noexcept;
  void trace_wait(OperationState& it) noexcept;

  const ExchangeConfig config_;
  PacketIo& io_;
  Counters counters_;
  const Topology topology_;
  const Admission admission_;
  DecodedBlocks decoded_;
  PollBudget budget_;
  Tracer tracer_;
  Peers peers_;
  Egress egress_;
  Membership membership_;
  std::vector<uint8_t> scratch_;
  std::vector<uint8_t> private_copy_;
  const EngineParts parts_;
  OperationTable table_;
  Preparation preparation_;
  Lifecycle lifecycle_;
  Control control_;
  DeferredPackets deferred_;
  Nanos polled_at_ = 0;
  bool was_active_ = false;  // an operation waited or ran at polled_at_

  std::array<Run, kMaxRuns> runs_;  // runs of the packet that is being received
  size_t run_count_ = 0;
};

}  // namespace gradlane
