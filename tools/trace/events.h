// events.h - a trace as trace events, which Perfetto and chrome://tracing read (no I/O)
#pragma once

#include <span>
#include <string>

#include "tools/trace/recording.h"
#include "tools/trace/spans.h"

namespace gradlane {

// Of nodes on one clock: see unite(). The format is "Trace Event Format" of the Chromium project, in its JSON object
// form. Processes are nodes. Threads are rows: of the operations of a rank and lane, of what goes to each neighbour and
// comes from it, and of packets on their way; as many of each as it takes that spans in one row are one inside the
// other or apart. Those of trainers are behind these. "gradlane" in `otherData` has what clocks are worth, and what is
// missing.
[[nodiscard]] std::string trace_events(std::span<const NodeRecording> nodes, std::span<const TrainerSpan> spans,
                                       const std::string& version);

}  // namespace gradlane
