// cli.cc - the options of `gradlane accelerator` on the command line (main thread, once)
#include "dataplane/accelerator/commands/cli.h"

namespace gradlane {
namespace {

CLI::App* add(CLI::App& app, const char* name, const char* what, AcceleratorSetupOptions& options) {
  CLI::App* const command = app.add_subcommand(name, what);
  command->add_option("--config,-c", options.config, "Configuration of the accelerator")->type_name("FILE")->required();
  return command;
}

}  // namespace

void add_accelerator(CLI::App& app, AcceleratorSetupOptions& options) {
  CLI::App* const accelerator = app.add_subcommand("accelerator", "Move a host's network to an accelerator, and back");
  accelerator->require_subcommand(1);
  CLI::App* const up = add(*accelerator, "up", "Make the veth pair, and move addresses and routes to it", options);
  up->footer(
      "Makes the veth pair between the kernel and the host port, switches off offloads\n"
      "that change packets, moves addresses and routes of the wire's interface to the\n"
      "pair, and makes the kernel forward packets while no accelerator runs. So the\n"
      "network works at once, and also while gradlaned is stopped. A second call does\n"
      "only what is missing. Needs root. The set-up lasts until 'down' or a reboot.");
  CLI::App* const down = add(*accelerator, "down", "Move addresses and routes back, and remove the pair", options);
  down->footer(
      "Moves the pair's addresses and routes to the wire's interface, and restores the\n"
      "other settings that it had before 'up'. Stop gradlaned first. Needs root.");
  up->callback([&options] { options.command = AcceleratorSetupOptions::Command::kUp; });
  down->callback([&options] { options.command = AcceleratorSetupOptions::Command::kDown; });
}

}  // namespace gradlane
