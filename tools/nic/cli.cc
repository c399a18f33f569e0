// cli.cc - command-line options of `gradlane nic` (main thread, once)
#include "tools/nic/cli.h"

namespace gradlane {
namespace {

CLI::App* add(CLI::App& nic, const char* name, const char* what, NicOptions& options, NicOptions::Command command) {
  CLI::App* const added = nic.add_subcommand(name, what);
  added->add_option("--root", options.root, "Folder that stands for /, for tests")->type_name("DIR");
  added->callback([&options, command] { options.command = command; });
  return added;
}

void add_addresses(CLI::App& command, NicOptions& options) {
  command.add_option("PCI", options.nics, "Address in 'gradlane nic list'; several for one node")
      ->required()
      ->type_name("");
  command.add_flag("--dry-run", options.dry_run, "Print what would be done, change nothing");
}

}  // namespace

void add_nic(CLI::App& app, NicOptions& options) {
  using Command = NicOptions::Command;
  CLI::App* const nic = app.add_subcommand("nic", "Give NICs to DPDK, and back to the kernel");
  nic->require_subcommand(1);

  CLI::App* const list = add(*nic, "list", "NICs, their drivers and interfaces", options, Command::kList);
  list->add_flag("--json", options.json, "JSON instead of a table");

  CLI::App* const setup =
      add(*nic, "setup", "Give a NIC to gradlaned, now and after reboots", options, Command::kSetup);
  add_addresses(*setup, options);
  setup->add_option("--instance", options.instance, "Its service is gradlaned@NAME (node)")->type_name("NAME");
  setup->add_option("--user", options.user, "User who may open the NIC (gradlane)")->type_name("NAME");
  setup->add_option("--hugepages", options.hugepages, "2 MiB pages to add (what gradlaned needs)")->type_name("N");
  setup->add_flag("--no-iommu", options.no_iommu, "Unsafe: the NIC can write to all memory");
  setup->add_flag("--force", options.force, "Also take a NIC that the machine needs");
  setup->footer(
      "Checks the IOMMU, loads vfio-pci, adds hugepages, binds the NIC, and writes\n"
      "files of systemd and udev that repeat this at each boot and let the service use\n"
      "the NIC. Prints each step, and lines for the configuration file. If a step\n"
      "fails, undoes those before it. A second call does only what is missing. Needs\n"
      "root. docs/nic.md explains the steps.");

  CLI::App* const undo = add(*nic, "undo", "Give a NIC back to the kernel", options, Command::kUndo);
  add_addresses(*undo, options);
  undo->footer(
      "Binds the NIC to its kernel driver, removes the files of 'setup', and takes its\n"
      "hugepages back. Stop gradlaned first. Needs root.");
}

}  // namespace gradlane
