// metrics.h - a node's figures for Prometheus (pure functions)
#pragma once

#include <string>

#include "dataplane/status/metrics_text.h"
#include "dataplane/status/node_figures.h"
#include "dataplane/status/process_figures.h"
#include "dataplane/status/savings.h"

namespace gradlane {

// Largest number of links, all ranks and lanes counted, for which histograms of round trips are written. A document
// with more of them would have megabytes.
inline constexpr size_t kMostRttHistograms = 512;

// Returns the document that a scrape gets. docs/counters.md lists its contents. `savings` must count from the start
// of the daemon.
[[nodiscard]] std::string metrics_document(const NodeFigures& node, const ProcessFigures& process,
                                           const Savings& savings, MetricsFormat format);

}  // namespace gradlane
