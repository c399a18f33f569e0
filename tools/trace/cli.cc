// cli.cc - the options of `gradlane trace` on the command line
#include "tools/trace/cli.h"

#include "tools/stats/cli.h"

namespace gradlane {

CLI::App* add_trace(CLI::App& app, TraceOptions& options) {
  CLI::App* trace = app.add_subcommand("trace", "Where the time of operations goes, on all nodes of a ring");
  add_admin_place(*trace, options.place);
  trace->add_option("--seconds,-s", options.seconds, "How long, 0.1 to 600 (5)")->type_name("SECONDS");
  trace->add_option("--output,-o", options.output, "For Perfetto (gradlane-trace.json)")->type_name("FILE");
  trace->add_option("--spans", options.spans, "Of trainers: gradlane.torch.Spans wrote them")->type_name("FILES");
  trace->add_flag("--summary", options.summary, "The table only, no file");
  trace->add_flag("--one", options.one, "This node alone, not all of its ring here");
  trace->add_flag("--json", options.json, "The table as JSON; the file is written all the same");
  trace->footer(
      "Prints who holds the ring up, and where each node's time went; the file opens in\n"
      "ui.perfetto.dev and chrome://tracing. Daemons are found as by 'gradlane top':\n"
      "a first one, and those beside it in its folder. Ctrl-C ends it early.\n"
      "docs/trace.md explains it. Exit status: 0, 2 wrong options or no file, 3 no\n"
      "daemon answers, or somebody else takes a trace, 4 a daemon broke off.");
  return trace;
}

}  // namespace gradlane
