// cli.cc - the options of `gradlane key` on the command line
#include "tools/key/cli.h"

#include "tools/stats/cli.h"

namespace gradlane {

void add_key(CLI::App& app, KeyOptions& options) {
  CLI::App* key = app.add_subcommand("key", "Make keys of nodes, and change them while daemons run");
  key->require_subcommand(1);
  const auto add = [&](const char* name, KeyOptions::Command command, const char* text) {
    CLI::App* const it = key->add_subcommand(name, text);
    it->add_flag("--json", options.json, "JSON instead of text");
    it->callback([&options, command] { options.command = command; });
    return it;
  };
  CLI::App* const make = add("new", KeyOptions::Command::kNew, "Write a new random key to a new file");
  make->add_option("FILE", options.file, "The file, of mode 0600; for auth.key_file or 'rotate'")->required();
  make->footer("Copy the file to all nodes over a secure channel.");

  CLI::App* const rotate = add("rotate", KeyOptions::Command::kRotate, "Give a running daemon a new key");
  rotate->add_option("FILE", options.file, "The new key, the same on all nodes")->required();
  rotate->add_option("--old-for", options.old_for, "Accept the old key for this time (600)")->type_name("SECONDS");
  add_admin_place(*rotate, options.place);
  rotate->footer(
      "Run it on every node within --old-for. A node uses the new key with those that\n"
      "also have it; no operation fails. Then put the file in place of auth.key_file,\n"
      "which daemons read only at their start. Only root and the daemon's user may do this.\n"
      "Exit status: 0, 1 the daemon refused, 2 wrong options or file, 3 no daemon.");

  CLI::App* const show =
      add("show", KeyOptions::Command::kShow, "Ids of a daemon's keys, and nodes without the newest");
  add_admin_place(*show, options.place);
  show->footer("Exit status: 0, 1 the daemon has no key, 2 wrong options, 3 no daemon answers.");
}

}  // namespace gradlane
