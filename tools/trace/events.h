// events.h - a trace as trace events, which Perfetto and chrome://tracing read (no I/O)
#pragma once

#include <span>
#include <string>

#include "tools/trace/recording.h"
#include "tools/trace/spans.h"

namespace gradlane {

// Returns the trace of nodes on one clock (see unite()) in the JSON object form of the Chromium project's "Trace Event
// Format". Processes are nodes, and threads are rows of spans. A rank and lane has rows for its operations, for data to
// and from each neighbour, and for sampled packets. Spans in one row are nested or do not overlap. Spans that overlap
// otherwise get more rows. Rows of trainers come last. `otherData` has the errors of the clocks, and what is missing.
[[nodiscard]] std::string trace_events(std::span<const NodeRecording> nodes, std::span<const TrainerSpan> spans,
                                       const std::string& version);

}  // namespace gradlane
