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
  run->get_help_ptr()->group("");  // a user who reads the help knows --help, and a screen has 24 lines
  const auto add = [run](const char* name, auto& value, const char* text) {
    return run->add_option(name, value, text)->type_name("");
  };
  add("-n", options.nodes, "Nodes, each with a daemon of its own (1 to 64)");
  add("--link", options.link, "vhost, memif, ring, veth, udp, accelerator (vhost)");
  add("--codec", options.codec, "See 'gradlane codecs' (raw; with accelerators fixed:10)")
      ->each([](const std::string& name) {
        if (name.empty()) throw SetupError("--codec '': name one that 'gradlane codecs' lists, or leave it out");
      });
  add("--strategies", options.strategies, "Allowed in operations: ring,direct,rings:2,... (ring)");
  add("--lanes", options.lanes, "Worker threads of each node (1)");
  add("--trainers", options.trainers, "Trainers per node; each runs the command (1)");
  run->add_flag("--local-reduce", options.local_reduce, "Sum up the trainers of a node before the ring");
  run->add_flag("--inside", options.inside, "With veth, udp: run it in the nodes' namespaces, with eth0");
  run->add_flag("--ipv6", options.ipv6, "With udp: use IPv6 addresses");
  add("--mtu", options.mtu, "IP MTU (9000; veth, accelerator, udp namespaces: 1500)");
  add("--rate", options.rate, "Rate of links (veth, udp, accelerator): 1gbit, 200mbit");
  add("--accelerator", options.accelerator, "With that link: gradlane, or none to compare (gradlane)");
  add("--repack", options.repack, "Accelerators combine small packets: on, off (on)");
  add("--timeout", options.timeout, "Default limit of operations: 90 (s), 30min (60s)");
  add("--idle", options.idle, "How workers wait: spin, yield, adaptive (adaptive)");
  add("--log", options.log, "Log level: trace, debug, info, warn, error (warn)");
  add("--metrics", options.metrics, "For Prometheus: node I listens at 127.0.0.1:(PORT + I)")->type_name("PORT");
  add("--keep-configs", options.keep_configs, "Copy the daemons' configuration files to DIR")->type_name("DIR");
  run->add_flag("--no-prefix", options.no_prefix, "No \"[rank] \" before lines of output");
  return run;
}

}  // namespace gradlane
