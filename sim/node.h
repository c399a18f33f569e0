// node.h - a node of a simulated network: one Exchange, and the packet buffers and neighbours it sees
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/time.h"
#include "collectives/exchange/exchange.h"
#include "sim/core.h"
#include "sim/network.h"
#include "sim/pool.h"

namespace gradlane {

// A completion, and when it was read.
struct SimCompletion {
  uint64_t id = 0;
  Failure failure;
  Nanos time = 0;
  uint64_t sent_bytes = 0;
};

class SimNode final : public PacketIo, public SimHost {
 public:
  struct Limits {
    size_t buffers = 0;      // held by the exchange, from which on allocate() fails
    size_t pause_queue = 0;  // packets
  };
  SimNode(SimCore& core, SimNetwork& network, unsigned index, Limits limits);
  ~SimNode() override;
  SimNode(const SimNode&) = delete;
  SimNode& operator=(const SimNode&) = delete;

  [[nodiscard]] unsigned index() const noexcept { return index_; }
  [[nodiscard]] Exchange& exchange() noexcept { return *exchange_; }
  [[nodiscard]] const Exchange& exchange() const noexcept { return *exchange_; }
  [[nodiscard]] const ExchangeConfig& config() const noexcept { return config_; }
  [[nodiscard]] bool paused() const noexcept { return paused_; }

  // Of the present exchange: what was submitted through SimNet, and how it ended, in that order.
  [[nodiscard]] uint64_t submitted() const noexcept { return submitted_; }
  [[nodiscard]] std::span<const SimCompletion> completions() const noexcept { return completions_; }

  [[nodiscard]] size_t buffers_held() const noexcept { return held_; }  // by the exchange
  [[nodiscard]] size_t buffers_peak() const noexcept { return peak_; }
  [[nodiscard]] uint64_t pause_drops() const noexcept { return pause_drops_; }  // the queue of the paused node was full
  [[nodiscard]] uint64_t polls() const noexcept { return polls_; }

  // A log made by this exchange; null: none. It outlives the exchange, or is taken away before.
  void trace(TraceLog* log) noexcept { trace_ = log; }

  // For the exchange, and for tests that send packets of their own. Abort on a release of what is not held, and on a
  // transmission of that, of more than the MTU, or to a rank that is no neighbour.
  [[nodiscard]] Packet allocate() noexcept override;
  void release(Packet packet) noexcept override;
  [[nodiscard]] bool transmit(unsigned rank, Packet packet, size_t bytes) noexcept override;

  void arrive(SimBuffer* buffer) override;

 private:
  friend class SimNet;

  static constexpr uint16_t kNoNeighbour = 0xfffe;

  // Throws SetupError if the exchange has neighbours that the network does not join it to.
  void start(const ExchangeConfig& config);
  void stop() noexcept;
  void find_routes();
  [[nodiscard]] Exchange::Submitted submit(const Operation& operation);
  void wake();
  void timer();
  void inject(unsigned from_rank, std::span<const uint8_t> packet);
  void wait(SimBuffer* buffer, unsigned from_rank) noexcept;
  void receive(SimBuffer* buffer, unsigned from_rank) noexcept;
  void poll();
  [[nodiscard]] SimBuffer* checked(Packet packet, const char* complaint) const noexcept;

  // What every packet needs comes first.
  SimCore& core_;
  std::unique_ptr<Exchange> exchange_;
  TraceLog* trace_ = nullptr;
  SimNetwork& network_;
  std::array<uint16_t, kMaxWorld> node_of_;  // by rank: where packets for it go; or kNobody, or kNoNeighbour
  std::array<uint16_t, kMaxWorld> rank_of_;  // by node: as this node sees it
  unsigned index_;
  bool paused_ = false;
  bool ready_ = false;  // is in core_.ready
  SimQueue waiting_;    // packets for a paused node, and injected ones
  size_t held_ = 0;
  size_t peak_ = 0;
  Limits limits_;
  uint64_t polls_ = 0;
  uint64_t submitted_ = 0;
  uint64_t pause_drops_ = 0;
  std::vector<SimCompletion> completions_;
  ExchangeConfig config_;
};

}  // namespace gradlane
