// worth.h - what compression has brought a job, from a node's figures, and in words (pure functions)
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/plan/calibration.h"
#include "dataplane/status/node_figures.h"

namespace gradlane {

// What was sent of tensors in a job, how long it took, and what it would have taken as it is. Bytes and seconds.
struct Worth {
  double raw_bytes = 0;   // of elements in memory,
  double sent_bytes = 0;  //   and as they were sent, without packets' headers and repeats
  double exchange = 0;    // how long operations were under way, of the lane where that is longest
  double busy = 0;        // how long the busiest worker was
  // Of the link that would take longest for the same elements, uncompressed:
  double full = 0;      // how long its window was full
  double rate = 0;      // bytes per second meanwhile, so what it carries; 0: too short a time to say
  double raw_link = 0;  // how long it would take for them at that rate; exchange and CPU time may take longer than that
  double packets = 0;   // CPU time for packets that were not needed, by the figures of the calibration
  // CPU time of codecs beyond what raw elements take; by the same, or, where it has none of a codec, what workers were
  // busy for beyond packets and raw elements.
  double codec = 0;
  std::vector<std::string> codecs;  // that were used, without raw
  bool chosen = false;              // some of them by the library, which has measured

  // How much longer it would have been, uncompressed, at least; below 0: there would have been fewer bytes, and so much
  // less for the link.
  [[nodiscard]] double longer() const;
};

// Whether some codec was left to the library, and is not exact.
[[nodiscard]] bool lossy_chosen(std::span<const PlanFigures> plan);

// What came after `before`, null: all. `figures`: this host's, or the usual ones.
[[nodiscard]] Worth worth_of(const NodeFigures& now, const NodeFigures* before, const Calibration& figures);

// Of all nodes of a ring: bytes of all, times of the one that was slowest.
[[nodiscard]] Worth worth_of_all(std::span<const Worth> nodes);

// Three lines: bytes, time, and what it would have been; and a warning where compression has cost more than it saved.
// None where nothing was sent. `hidden`: seconds in exchange in which a trainer did something else, where known.
[[nodiscard]] std::vector<std::string> worth_lines(const Worth& worth, std::optional<double> hidden = {});

// As the daemon's documents have it. What is missing is 0.
[[nodiscard]] nlohmann::json worth_json(const Worth& worth);
[[nodiscard]] Worth worth_from(const nlohmann::json& document);

}  // namespace gradlane
