// cli.cc - the options of `gradlane top` on the command line
#include "tools/top/cli.h"

#include "tools/stats/cli.h"

namespace gradlane {

CLI::App* add_top(CLI::App& app, TopOptions& options) {
  CLI::App* top = app.add_subcommand("top", "Live view of a ring: who is slow, who waits for whom");
  add_admin_place(*top, options.place);
  top->add_option("--interval,-i", options.interval, "Between two views (1)")->type_name("SECONDS");
  top->add_flag("--one", options.one, "This node alone, not all of its ring");
  top->add_flag("--once", options.once, "One plain table; so, too, without a terminal");
  top->add_flag("--json", options.json, "The same as JSON");
  top->footer(
      "q or Ctrl-C ends it. A daemon is found as by 'gradlane stats'; with it are shown\n"
      "those beside it in its folder, and those on other machines, where all nodes have\n"
      "'metrics: node:9400' or the like. docs/top.md explains that, and the columns.\n"
      "NO_COLOR is heeded. Exit status: 0, 2 wrong options, 3 no daemon answers.");
  return top;
}

}  // namespace gradlane
