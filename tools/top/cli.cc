// cli.cc - the options of `gradlane top` on the command line
#include "tools/top/cli.h"

#include "tools/stats/cli.h"

namespace gradlane {

CLI::App* add_top(CLI::App& app, TopOptions& options) {
  CLI::App* top = app.add_subcommand("top", "Live view of a ring: who is slow, who waits for whom");
  add_admin_place(*top, options.place);
  top->add_option("--interval,-i", options.interval, "Time between two views (1)")->type_name("SECONDS");
  top->add_flag("--one", options.one, "Only this node, not its whole ring");
  top->add_flag("--once", options.once, "Print one plain table, as without a terminal");
  top->add_flag("--json", options.json, "Print this as JSON");
  top->footer(
      "q or Ctrl-C ends it. Finds a daemon like 'gradlane stats'. Also shows daemons\n"
      "with sockets in the same folder, and those on other machines, if all nodes set\n"
      "'metrics: node:9400' or similar. docs/monitoring.md explains the columns.\n"
      "Respects NO_COLOR. Exit status: 0, 2 wrong options, 3 no daemon answers.");
  return top;
}

}  // namespace gradlane
