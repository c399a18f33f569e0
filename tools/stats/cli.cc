// cli.cc - the options of `gradlane stats` on the command line
#include "tools/stats/cli.h"

namespace gradlane {

void add_admin_place(CLI::App& app, AdminPlace& place) {
  app.add_option("--socket", place.socket, "Trainers' socket of the node (GRADLANE_SOCKET)")->type_name("PATH");
  app.add_option("--admin", place.admin, "Its admin socket (node0.admin of its folder)")->type_name("PATH");
  app.add_option("--config,-c", place.config, "Its configuration file, which names the socket")->type_name("FILE");
  app.add_option("--rank", place.rank, "With --config: the node, in place of the file's `rank`")->type_name("N");
}

CLI::App* add_stats(CLI::App& app, StatsOptions& options) {
  CLI::App* stats = app.add_subcommand("stats", "Links, neighbours or peers, counters of a running daemon");
  add_admin_place(*stats, options.place);
  CLI::Option* const watch = stats->add_option("--watch,-w", options.interval, "Repeat every SECONDS (1)");
  watch->type_name("[SECONDS]")->expected(0, 1);
  stats->parse_complete_callback([watch, &options] { options.watch = watch->count() != 0; });
  CLI::Option* const json =
      stats->add_flag("--json", options.json, "The daemon's JSON document; with --watch one per line");
  stats->add_flag("--all", options.all, "All neighbours, and counters that are not 0, explained");
  CLI::Option* const plan =
      stats->add_flag("--plan", options.plan, "Codecs and strategies chosen for operations, and why");
  stats->add_flag("--freeze", options.freeze, "The same as a file for the key `plan` of configurations")
      ->excludes(plan)
      ->excludes(json)
      ->excludes(watch);
  stats->footer(
      "Ctrl-C ends --watch. docs/monitoring.md explains the columns, and the document.\n"
      "'gradlane check' finds out why a ring does not become ready.\n"
      "Exit status: 0 all is well, 2 wrong options, 3 no daemon answers, 4 the ring\n"
      "is not ready, 5 operations have failed in the last minute, 6 the kernel also\n"
      "takes an accelerator's packets; with --watch 0, or 3 at the beginning; with\n"
      "--plan 0 or 3; with --freeze 7 if nothing is settled yet.");
  return stats;
}

}  // namespace gradlane
