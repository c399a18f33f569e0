// savings.h - the benefit of compression for a job, from a node's figures, and in words (pure functions)
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/cost/calibration.h"
#include "dataplane/status/node_figures.h"

namespace gradlane {

// The bytes of tensors that a job sent, the time that this took, and estimates for uncompressed elements. Units are
// bytes and seconds.
struct Savings {
  double raw_bytes = 0;   // size of the elements in memory
  double sent_bytes = 0;  // size of the elements as they were sent, without packet headers and retransmits
  double exchange = 0;    // time in which operations were under way, on the lane where it is longest
  double busy = 0;        // busy time of the busiest worker
  // The next three fields are about the link that would take longest for the same elements, uncompressed.
  double full = 0;      // time in which its window was full
  double rate = 0;      // bytes per second that it carries, measured in that time; 0: the time is too short
  double raw_link = 0;  // time for the raw elements at that rate; exchange and CPU time may take longer
  double packets = 0;   // CPU time for packets that compression has saved, by the figures of the calibration
  // CPU time of codecs beyond that of raw elements, by the figures of the calibration. If these lack a codec, its time
  // is the busy time of workers that packets and raw elements do not explain.
  double codec = 0;
  std::vector<std::string> codecs;  // codecs that were used, without raw
  bool chosen = false;              // the library has chosen some of them, by measuring

  // Returns how many seconds longer, at least, the exchange would have been without compression. The value is negative
  // if compression has increased the number of bytes. Its absolute value is then the time that the link would have
  // saved.
  [[nodiscard]] double longer() const;
};

// Returns whether the library was free to choose a codec and uses one that compresses.
[[nodiscard]] bool codec_chosen(std::span<const PlanFigures> plan);

// Returns the savings since `before`, or since the start if it is null. `figures` are those of this host, or the usual
// ones.
[[nodiscard]] Savings savings_of(const NodeFigures& now, const NodeFigures* before, const Calibration& figures);

// Combines all nodes of a ring: the bytes of all, and the times of the slowest node.
[[nodiscard]] Savings savings_of_all(std::span<const Savings> nodes);

// Returns three lines: bytes, time, and the estimate for uncompressed elements. There is a fourth line, a warning, if
// compression has cost more than it saved. There are no lines if nothing was sent. `hidden`: seconds in exchange in
// which a trainer did something else, if known.
[[nodiscard]] std::vector<std::string> savings_lines(const Savings& savings, std::optional<double> hidden = {});

// These two convert to and from the daemon's documents. Missing fields become 0.
[[nodiscard]] nlohmann::json savings_json(const Savings& savings);
[[nodiscard]] Savings savings_from(const nlohmann::json& document);

}  // namespace gradlane
