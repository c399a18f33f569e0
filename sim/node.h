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

// A completion, and the time at which it was read.
struct SimCompletion {
  uint64_t id = 0;
  Failure failure;
  Nanos time = 0;
  uint64_t sent_bytes = 0;
};

class SimNode final : public PacketIo, public SimHost {
 public:
  struct Limits {
    size_t buffers = 0;      // number of buffers held by the exchange at which allocate() fails
    size_t pause_queue = 0;  // packets that may wait for a paused node
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

  // Return the number of operations that SimNet submitted to the present exchange, and their completions in the order
  // in which they were read.
  [[nodiscard]] uint64_t submitted() const noexcept { return submitted_; }
  [[nodiscard]] std::span<const SimCompletion> completions() const noexcept { return completions_; }

  [[nodiscard]] size_t buffers_held() const noexcept { return held_; }  // buffers that the exchange holds
  [[nodiscard]] size_t buffers_peak() const noexcept { return peak_; }
  // Returns the number of packets that were lost because the queue of the paused node was full.
  [[nodiscard]] uint64_t pause_drops() const noexcept { return pause_drops_; }
  [[nodiscard]] uint64_t polls() const noexcept { return polls_; }

  // Sets a log that this node's exchange has made; null: none. The log must outlive the exchange, or be removed before.
  void trace(TraceLog* log) noexcept { trace_ = log; }

  // Called by the exchange, and by tests that send packets of their own. These functions abort the process if the
  // caller releases or transmits a buffer that the node does not hold. They also abort if it transmits more than the
  // MTU, or to a rank that is no neighbour.
  [[nodiscard]] Packet allocate() noexcept override;
  void release(Packet packet) noexcept override;
  [[nodiscard]] bool transmit(unsigned rank, Packet packet, size_t bytes) noexcept override;

  void arrive(SimBuffer* buffer) override;

 private:
  friend class SimNet;

  static constexpr uint16_t kNoNeighbour = 0xfffe;

  // Throws SetupError if the exchange has more than two neighbours and the links of a ring do not join it to all of
  // them.
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

  // Members that every packet needs come first.
  SimCore& core_;
  std::unique_ptr<Exchange> exchange_;
  TraceLog* trace_ = nullptr;
  SimNetwork& network_;
  // by rank: node to which packets for it are sent; kNoNeighbour for ranks that are no neighbours; or kNobody
  std::array<uint16_t, kMaxWorld> node_of_;
  // by node: the rank that packets from that node come from, as this node sees it
  std::array<uint16_t, kMaxWorld> rank_of_;
  unsigned index_;
  bool paused_ = false;
  bool ready_ = false;  // whether core_.ready has this node
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
