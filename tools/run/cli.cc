// cli.cc - the options of `gradlane run` on the command line (main thread, once)
#include "tools/run/cli.h"

#include <string_view>

#include "base/error.h"

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
  const auto add = [run](const char* group, const char* name, const char* value_name, auto& value, const char* text) {
    return run->add_option(name, value, text)->type_name(value_name)->group(group);
  };
  const auto flag = [run](const char* group, const char* name, bool& value, const char* text) {
    run->add_flag(name, value, text)->group(group);
  };
  const char* const ring = "Ring";
  add(ring, "-n", "N", options.nodes, "Nodes, each with a daemon of its own (1 to 64)");
  add(ring, "--trainers", "N", options.trainers, "Trainers per node; each runs the command (1)");
  flag(ring, "--local-reduce", options.local_reduce, "Sum up the trainers of a node before the ring");
  add(ring, "--codec", "CODEC", options.codec, "See 'gradlane codecs' (raw; with accelerators fixed:10)")
      ->each([](const std::string& name) {
        if (name.empty()) throw SetupError("--codec '': name one that 'gradlane codecs' lists, or leave it out");
      });
  add(ring, "--strategies", "NAMES", options.strategies, "Allowed: ring,direct,rings:2,... (ring,direct)");
  add(ring, "--lanes", "N", options.lanes, "Worker threads of each node (1)");
  add(ring, "--timeout", "TIME", options.timeout, "Default limit of operations: 90 (s), 30min (60s)");
  add(ring, "--idle", "POLICY", options.idle, "How workers wait: spin, yield, adaptive (adaptive)");

  const char* const links = "Links";
  add(links, "--link", "LINK", options.link, "vhost, memif, ring, veth, udp, accelerator (vhost)");
  add(links, "--mtu", "BYTES", options.mtu, "IP MTU (9000; veth, accelerator, udp namespaces: 1500)");
  add(links, "--rate", "RATE", options.rate, "Rate of links (veth, udp, accelerator): 200mbit, 1gbit");
  flag(links, "--ipv6", options.ipv6, "With udp: use IPv6 addresses");
  flag(links, "--inside", options.inside, "With veth, udp: run it in the nodes' namespaces");
  add(links, "--accelerator", "KIND", options.accelerator, "With that link: gradlane, or none to compare (gradlane)");
  add(links, "--repack", "on|off", options.repack, "Accelerators combine small packets (on)");

  const char* const output = "Output";
  add(output, "--log", "LEVEL", options.log, "Log level: trace, debug, info, warn, error (warn)");
  flag(output, "--no-prefix", options.no_prefix, "No \"[rank] \" before lines of output");
  add(output, "--metrics", "PORT", options.metrics, "For Prometheus: node I listens at 127.0.0.1:(PORT + I)");
  add(output, "--keep-configs", "DIR", options.keep_configs, "Copy the daemons' configuration files to DIR");
  run->footer(
      "-- COMMAND [ARGUMENT...]: runs once for each trainer. RANK, WORLD_SIZE,\n"
      "MASTER_ADDR, MASTER_PORT and GRADLANE_SOCKET are in its environment. Without it\n"
      "the nodes run until Ctrl-C.\n"
      "Exit status: the first one of a trainer that is not 0, else 0; 2 wrong options.\n"
      "See docs/run.md.");
  return run;
}

}  // namespace gradlane
