// cli.cc - command-line options of `gradlane check` (main thread, once)
#include "tools/check/cli.h"

namespace gradlane {

CLI::App* add_check(CLI::App& app, CheckOptions& options) {
  CLI::App* check = app.add_subcommand("check", "Find out why a ring or an accelerator does not work");
  check->add_option("--config,-c", options.config, "Configuration of the node or accelerator")
      ->type_name("FILE")
      ->required();
  check->add_option("--rank", options.rank, "Rank of this node; overrides the rank in the file")->type_name("N");
  check->add_option("--time", options.time, "Longest wait for answers of neighbours (5s)")->type_name("TIME");
  check->add_flag("--json", options.json, "JSON instead of lines");
  check->footer(
      "Prints a line for each item: ok, note, or FAIL with the reason and what to do.\n"
      "Exit status 0 if nothing fails, 1 if something does, 2 for wrong options. Asks\n"
      "the running daemon of this file. If none runs, starts gradlaned for the check; a\n"
      "missing accelerator is a FAIL. Run it on all nodes at the same time, so that the\n"
      "checks can answer each other. docs/troubleshooting.md has all items.");
  return check;
}

}  // namespace gradlane
