// path_watch.h - repeated checks of the MTU of the path to each neighbour (control thread; no DPDK, no clock)
//
// A path with an MTU of less than `mtu` lets hellos and acknowledgements through, and silently drops full packets. RFC
// 8899 calls this a black hole. It says to send probes, because the error messages of routers get lost, too.
//
// A neighbour is probed soon after it is up, and then every 10 s while nothing is in flight to it. Acknowledged packets
// of the exchange prove that the path works. If none was acknowledged for a quarter of a second, the path is probed at
// once. Some ports may send nothing more after a frame that is too long. A path through such a port is probed only
// after such a stall, as the exchange has sent frames of this length anyway.
//
// The result is for people. It does not change the length of packets, on which all nodes have agreed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/time.h"
#include "dataplane/watch/prober.h"
#include "dataplane/watch/ring_watch.h"

namespace gradlane {

class PathWatch {
 public:
  static constexpr Nanos kEvery = 10 * kSecond;
  static constexpr Nanos kStalled = 250 * kMillisecond;
  static constexpr Nanos kAgain = 2 * kSecond;  // time between two runs on a path that stalls or has too small an MTU
  static constexpr Nanos kMost = 5 * kSecond;   // longest time of a run

  // boards[i] and paths[i] are for the neighbour of setups[i]; paths[i] is its `path_bytes`. They must outlive this
  // object. `random` returns numbers that nobody can guess.
  PathWatch(const std::vector<ProbeRun::Setup>& setups, const std::vector<ProbeBoard*>& boards,
            std::vector<std::atomic<uint32_t>*> paths, std::function<uint64_t()> random);

  // Starts runs that are due; call it every 100 ms, with the neighbours in the order of setups. Returns the lines to
  // log. There is one when the MTU of a path has become too small or has changed, and one when it is large enough
  // again.
  [[nodiscard]] std::vector<RingLine> look(unsigned node, std::span<const NeighbourFacts> neighbours, Nanos now);

  // Continues the runs; call it every few ms while running(). Returns true if there are new probes. Then the worker
  // that sends may be asleep and must be woken.
  bool step(Nanos now);
  [[nodiscard]] bool running() const noexcept;

 private:
  struct Probing {
    std::unique_ptr<ProbeRun> run;
    std::atomic<uint32_t>* path = nullptr;
    size_t mtu = 0;
    bool asked = false;  // whether a run was started whose result was not stored yet
    Nanos due = 0;
    Nanos begun = 0;
  };
  [[nodiscard]] bool due(const Probing& probing, const NeighbourFacts& facts, Nanos now) const noexcept;
  [[nodiscard]] static bool note(Probing& probing) noexcept;

  std::vector<Probing> probings_;
  const std::function<uint64_t()> random_;
};

}  // namespace gradlane
