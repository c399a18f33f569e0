// cli.cc - command-line options of `gradlane check` (main thread, once)
#include "tools/check/cli.h"

namespace gradlane {

CLI::App* add_check(CLI::App& app, CheckOptions& options) {
  CLI::App* check = app.add_subcommand("check", "Why a ring or an accelerator does not do its work");
  check->add_option("--config,-c", options.config, "Configuration of the node or accelerator")
      ->type_name("FILE")
      ->required();
  check->add_option("--rank", options.rank, "The node that this one is, whatever the file says")->type_name("N");
  check->add_option("--time", options.time, "For neighbours to answer, at most (5s)")->type_name("");
  check->add_flag("--json", options.json, "JSON instead of lines");
  check->footer(
      "One line for each item: ok, note, or FAIL with why and what to do. Exit status 0\n"
      "if nothing fails, 1 if something does, 2 for wrong options. Asks the daemon that\n"
      "runs with this file; without one, starts gradlaned for the while, but not as an\n"
      "accelerator: that none runs is a FAIL then. On all nodes at the same time,\n"
      "checks see each other. docs/check.md has all items.");
  return check;
}

}  // namespace gradlane
