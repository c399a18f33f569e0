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
  CLI::App* const accelerator =
      app.add_subcommand("accelerator", "Lead a host's network over an accelerator, and back");
  accelerator->require_subcommand(1);
  CLI::App* const up = add(*accelerator, "up", "Make the veth pair, and move addresses and routes to it", options);
  up->footer(
      "Makes the veth pair between the kernel and the host port, switches off what is\n"
      "in the way of packets, moves addresses and routes of the wire's interface to\n"
      "the pair, and has the kernel join both while no accelerator runs: so the\n"
      "network goes on at once, and gradlaned can start, end and crash. Again, it\n"
      "does what is missing. Needs root. It lasts until 'down' or a reboot.");
  CLI::App* const down = add(*accelerator, "down", "Move them back, and remove it", options);
  down->footer(
      "Addresses and routes that the pair has now move to the wire's interface, which\n"
      "is otherwise made as it was before 'up'. Stop gradlaned first. Needs root.");
  up->callback([&options] { options.command = AcceleratorSetupOptions::Command::kUp; });
  down->callback([&options] { options.command = AcceleratorSetupOptions::Command::kDown; });
}

}  // namespace gradlane
