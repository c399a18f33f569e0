// cli.cc - the options of `gradlane trace` on the command line
#include "tools/trace/cli.h"

#include "tools/stats/cli.h"

namespace gradlane {

CLI::App* add_trace(CLI::App& app, TraceOptions& options) {
  CLI::App* trace = app.add_subcommand("trace", "Where the time of operations goes, on all nodes of a ring");
  add_admin_place(*trace, options.place);
  trace->add_option("--seconds,-s", options.seconds, "Duration, 0.1 to 600 (5)")->type_name("SECONDS");
  trace->add_option("--output,-o", options.output, "File for Perfetto (gradlane-trace.json)")->type_name("FILE");
  trace->add_option("--spans", options.spans, "Spans of trainers, written by gradlane.torch.Spans")->type_name("FILES");
  trace->add_flag("--summary", options.summary, "Print only the table, write no file");
  trace->add_flag("--one", options.one, "Only this node, not its whole ring on this machine");
  trace->add_flag("--json", options.json, "Print the table as JSON; the file is also written");
  trace->footer(
      "Prints what slows the ring down, and where each node's time went. Open the file\n"
      "in ui.perfetto.dev or chrome://tracing. Finds daemons like 'gradlane top': one,\n"
      "and those with sockets in the same folder. Ctrl-C ends it early.\n"
      "docs/monitoring.md explains it. Exit status: 0, 2 wrong options or no file, 3 no\n"
      "daemon answers or another trace is running, 4 a daemon stopped answering.");
  return trace;
}

}  // namespace gradlane
