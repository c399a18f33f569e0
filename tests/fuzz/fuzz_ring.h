// fuzz_ring.h - a ring of exchanges in virtual time, on links with one delay. It does only what a fuzz target needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include <span>
#include <vector>

#include "base/random.h"
#include "base/time.h"
#include "collectives/exchange/exchange.h"

namespace gradlane::test {

// Each packet lies in a heap block of its exact size, for AddressSanitizer. All packets take the same time. SimNet does
// more, but its start takes longer than a whole run here.
class FuzzRing {
 public:
  // A function that gets every packet just before a node receives it, except injected ones.
  using Tap = std::function<void(unsigned from, unsigned to, std::span<const uint8_t> packet)>;

  // All nodes use `config`, each with its own rank and incarnation.
  FuzzRing(const ExchangeConfig& config, unsigned loss_percent, Tap tap);
  ~FuzzRing();
  FuzzRing(const FuzzRing&) = delete;
  FuzzRing& operator=(const FuzzRing&) = delete;

  [[nodiscard]] unsigned world() const { return static_cast<unsigned>(nodes_.size()); }
  [[nodiscard]] Nanos now() const { return now_; }
  [[nodiscard]] Exchange& exchange(unsigned rank);
  [[nodiscard]] std::span<const Completion> completions(unsigned rank) const;

  void submit(unsigned rank, const Operation& operation);
  [[nodiscard]] bool idle() const { return pending_ == 0; }
  // Makes a node receive these bytes, and polls it.
  void inject(unsigned to, unsigned from, std::span<const uint8_t> packet);

  // Advances to the next instant at which something happens. If that is later than `limit`, sets the time to `limit`
  // and returns false.
  bool step(Nanos limit);
  void run_until(Nanos limit) {
    while (step(limit)) {
    }
  }
  [[nodiscard]] bool run_until_idle(Nanos limit);

 private:
  class Node;
  struct Flying {
    Nanos due;
    unsigned from;
    unsigned to;
    std::vector<uint8_t> bytes;
  };

  void put(unsigned from, unsigned to, std::span<const uint8_t> bytes);

  Nanos now_ = kMicrosecond;
  uint64_t pending_ = 0;
  unsigned loss_percent_;
  Random random_{1};
  Tap tap_;
  std::deque<Flying> flying_;  // packets in flight, in the order of their arrival
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace gradlane::test
