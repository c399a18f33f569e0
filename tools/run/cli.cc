// cli.cc - the options of `gradlane run` on the command line (main thread, once)
#include "tools/run/cli.h"

#include <string_view>

#include "base/error.h"
#include "tools/option_group.h"

namespace gradlane {

void cut_run_command(int& argc, const char* const* argv, RunOptions& options) {
  using std::string_view_literals::operator""sv;
  if (argc < 2 || argv[1] != "run"sv) return;
  for (int i = 2; i < argc; ++i) {
    if (argv[i] != "--"sv) continue;
    options.has_command = true;
    options.command.assign(argv + i + 1, argv + argc);
    argc = i;
  }
}

CLI::App* add_run(CLI::App& app, RunOptions& options) {
  CLI::App* run = app.add_subcommand("run", "Run nodes on this machine, and a command as trainers");
  const OptionGroup ring(*run, "Ring");
  ring.add("-n", "N", options.nodes, "Nodes, each with a daemon of its own (1 to 64)");
  ring.add("--trainers", "N", options.trainers, "Trainers per node; each runs the command (1)");
  ring.flag("--local-reduce", options.local_reduce, "Sum up the trainers of a node before the ring");
  ring.add("--codec", "CODEC", options.codec, "See 'gradlane codecs' (raw; with accelerators fixed:10)")
      ->each([](const std::string& name) {
        if (name.empty()) throw SetupError("--codec '': name one that 'gradlane codecs' lists, or leave it out");
      });
  ring.add("--strategies", "NAMES", options.strategies, "Allowed: ring,direct,rings:2,... (ring,direct)");
  ring.add("--lanes", "N", options.lanes, "Worker threads of each node (1)");
  ring.add("--timeout", "TIME", options.timeout, "Default limit of operations: 90 (s), 30min (60s)");
  ring.add("--idle", "POLICY", options.idle, "How workers wait: spin, yield, adaptive (adaptive)");

  const OptionGroup links(*run, "Links");
  links.add("--link", "LINK", options.link, "vhost, memif, ring, veth, udp, accelerator (vhost)");
  links.add("--mtu", "BYTES", options.mtu, "IP MTU (9000; udp: 16384; with namespaces: 1500)");
  links.add("--rate", "RATE", options.rate, "Rate of links (veth, udp, accelerator): 200mbit, 1gbit");
  links.flag("--ipv6", options.ipv6, "With udp: use IPv6 addresses");
  links.flag("--inside", options.inside, "With veth, udp: run it in the nodes' namespaces");
  links.add("--security", "WORD", options.security,
            "none, authenticated, encrypted, encrypted-128 (none; udp\nwithout namespaces: authenticated)");
  links.add("--accelerator", "KIND", options.accelerator, "With that link: gradlane, or none to compare (gradlane)");
  links.add("--repack", "on|off", options.repack, "Accelerators combine small packets (on)");

  const OptionGroup output(*run, "Output");
  output.add("--log", "LEVEL", options.log, "Log level: trace, debug, info, warn, error (warn)");
  output.flag("--no-prefix", options.no_prefix, "No \"[rank] \" before lines of output");
  output.add("--metrics", "PORT", options.metrics, "For Prometheus: node I listens at 127.0.0.1:(PORT + I)");
  output.add("--keep-configs", "DIR", options.keep_configs, "Copy the daemons' configuration files to DIR");
  run->footer(
      "-- COMMAND [ARGUMENT...]: runs once for each trainer. RANK, WORLD_SIZE,\n"
      "MASTER_ADDR, MASTER_PORT and GRADLANE_SOCKET are in its environment. Without it\n"
      "the nodes run until Ctrl-C.\n"
      "Exit status: the first one of a trainer that is not 0, else 0; 2 wrong options.\n"
      "See docs/run.md.");
  return run;
}

}  // namespace gradlane
