// node.h - a node of a simulated network: one Exchange, and the packet buffers and links it sees
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/time.h"
#include "collectives/exchange/exchange.h"
#include "tools/simnet/link.h"
#include "tools/simnet/pool.h"
#include "tools/simnet/schedule.h"

namespace gradlane {

// Who looks at packets; see SimNet. Nodes, not ranks.
using PacketFilter = std::function<bool(unsigned from, unsigned to, std::span<const uint8_t> packet)>;
using PacketTap = std::function<void(unsigned from, unsigned to, std::span<const uint8_t> packet)>;

// What the nodes share. Source i of the schedule is node i's timer; the links come behind the nodes.
struct SimCore {
  SimCore(size_t sources, size_t packet_bytes, Nanos start) : now(start), schedule(sources), pool(packet_bytes) {}

  Nanos now;
  Schedule schedule;
  SimPool pool;
  std::vector<unsigned> ready;  // nodes to poll at `now`
  uint64_t pending = 0;         // operations
  PacketFilter filter;
  PacketTap tap;
};

// A completion, and when it was read.
struct SimCompletion {
  uint64_t id = 0;
  Failure failure;
  Nanos time = 0;
};

class SimNode final : public PacketIo {
 public:
  struct Limits {
    size_t buffers = 0;      // held by the exchange, from which on allocate() fails
    size_t pause_queue = 0;  // packets
  };
  // The link to the neighbour on one side, and its place in the schedule.
  struct Port {
    SimLink* out = nullptr;
    size_t source = 0;
  };

  // `next` and `previous` lead to the neighbours; in a world of two there is only `next`, in a world of one neither.
  SimNode(SimCore& core, unsigned index, Limits limits, Port next, Port previous);
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

  // For the exchange, and for tests that send packets of their own. Abort on a release of what is not held, and on a
  // transmission of that, of more than the MTU, or to a rank that is no neighbour.
  [[nodiscard]] Packet allocate() noexcept override;
  void release(Packet packet) noexcept override;
  [[nodiscard]] bool transmit(unsigned rank, Packet packet, size_t bytes) noexcept override;

 private:
  friend class SimNet;

  // A rank this node takes for its neighbour, and the way there.
  struct Route {
    unsigned rank = 0;
    Port port;
  };

  void start(const ExchangeConfig& config);
  void stop() noexcept;
  void find_routes();
  [[nodiscard]] unsigned rank_of(unsigned node) const noexcept;
  [[nodiscard]] Exchange::Submitted submit(const Operation& operation);
  void wake();
  void timer();
  void arrive(SimBuffer* buffer, unsigned from_node);
  void inject(unsigned from_rank, std::span<const uint8_t> packet);
  void wait(SimBuffer* buffer, unsigned from_rank) noexcept;
  void receive(SimBuffer* buffer, unsigned from_rank) noexcept;
  void poll();
  [[nodiscard]] SimBuffer* checked(Packet packet, const char* complaint) const noexcept;

  // What every packet needs comes first.
  SimCore& core_;
  std::unique_ptr<Exchange> exchange_;
  std::array<Route, 2> routes_;
  size_t route_count_ = 0;
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
  Port next_;
  Port previous_;
  std::vector<SimCompletion> completions_;
  ExchangeConfig config_;
};

}  // namespace gradlane
