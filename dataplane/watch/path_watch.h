// path_watch.h - the MTU of the way to each neighbour, looked at again and again (control thread; no DPDK, no clock)
//
// A way that takes less than `mtu` lets hellos and acknowledgements through, and drops full packets without a word:
// RFC 8899 calls it a black hole, and says to ask by packets of one's own, since what routers tell gets lost, too. Each
// neighbour is asked when it is up: soon, then every 10 s as long as nothing is in flight to it. While packets of the
// exchange get there they are the proof; where none was acknowledged for a quarter of a second, it is asked at once,
// and a port that may stick behind a frame that is too long asks only then, when it has sent such frames anyway.
// What is found is for people: the length of packets does not change, as all nodes have agreed on it.
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
  static constexpr Nanos kAgain = 2 * kSecond;  // between two runs on a way that stalls, or takes too little
  static constexpr Nanos kMost = 5 * kSecond;   // for a run

  // boards[i] belongs to the neighbour of setups[i], whose `path_bytes` is paths[i]; they outlive this. `random` gives
  // numbers that nobody can guess.
  PathWatch(const std::vector<ProbeRun::Setup>& setups, const std::vector<ProbeBoard*>& boards,
            std::vector<std::atomic<uint32_t>*> paths, std::function<uint64_t()> random);

  // Every 100 ms: neighbours in the order of setups. What to log: a line when a way has become too narrow, or another
  // width, and one when it is wide enough again.
  [[nodiscard]] std::vector<RingLine> look(unsigned node, std::span<const NeighbourFacts> neighbours, Nanos now);

  // Every few ms while it runs. True: there are new probes, which the worker that sends may sleep over.
  bool step(Nanos now);
  [[nodiscard]] bool running() const noexcept;

 private:
  struct Way {
    std::unique_ptr<ProbeRun> run;
    std::atomic<uint32_t>* path = nullptr;
    size_t mtu = 0;
    bool asked = false;  // its answer has not been looked at
    Nanos due = 0;
    Nanos begun = 0;
  };
  [[nodiscard]] bool due(const Way& way, const NeighbourFacts& facts, Nanos now) const noexcept;
  [[nodiscard]] static bool note(Way& way) noexcept;

  std::vector<Way> ways_;
  const std::function<uint64_t()> random_;
};

}  // namespace gradlane
