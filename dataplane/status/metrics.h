// metrics.h - a node's figures for Prometheus (pure functions)
#pragma once

#include <string>

#include "dataplane/status/metrics_text.h"
#include "dataplane/status/node_figures.h"
#include "dataplane/status/process_figures.h"
#include "dataplane/status/worth.h"

namespace gradlane {

// Of a node with more links than this, all ranks and lanes counted, histograms of round trips are left out: a document
// would have megabytes.
inline constexpr size_t kMostRttHistograms = 512;

// The document that a scrape gets. docs/metrics.md lists what is in it. `worth`: since the start of the daemon.
[[nodiscard]] std::string metrics_document(const NodeFigures& node, const ProcessFigures& process, const Worth& worth,
                                           MetricsFormat format);

}  // namespace gradlane
