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
  CLI::App* run = app.add_subcommand("run", "Nodes on this machine, and a command as their trainers");
  run->get_help_ptr()->group("");  // a user who reads the help knows --help, and a screen has 24 lines
  const auto add = [run](const char* name, auto& value, const char* text) {
    return run->add_option(name, value, text)->type_name("");
  };
  add("-n", options.nodes, "Nodes, each with a daemon of its own (1 to 64)");
  add("--link", options.link, "vhost, memif, ring, veth, udp, accelerator (vhost)");
  add("--codec", options.codec, "Of fp32: 'gradlane codecs' (raw; accelerators fixed:10)")
      ->each([](const std::string& name) {
        if (name.empty()) throw SetupError("--codec '': name one that 'gradlane codecs' lists, or leave it out");
      });
  add("--strategies", options.strategies, "That operations may name: ring,direct,rings:2,... (ring)");
  add("--lanes", options.lanes, "Worker threads of each node (1)");
  add("--trainers", options.trainers, "Per node: the command runs this often for each (1)");
  run->add_flag("--local-reduce", options.local_reduce, "A node's trainers are summed up before the ring");
  run->add_flag("--inside", options.inside, "With veth, udp: in the nodes' namespaces, with eth0");
  run->add_flag("--ipv6", options.ipv6, "With udp: addresses of IPv6");
  add("--mtu", options.mtu, "Of IP (9000; veth, accelerator, namespaces of udp: 1500)");
  add("--rate", options.rate, "Of links of veth, udp, accelerator: 1gbit, 200mbit");
  add("--accelerator", options.accelerator, "Of that link: gradlane, or none to compare (gradlane)");
  add("--repack", options.repack, "Accelerators put packets together: on, off (on)");
  add("--timeout", options.timeout, "Of operations, if they name none: 90 (s), 30min (60s)");
  add("--idle", options.idle, "Of workers: spin, yield, adaptive (adaptive)");
  add("--log", options.log, "Of daemons: trace, debug, info, warn, error (warn)");
  add("--metrics", options.metrics, "Of node I for Prometheus, at 127.0.0.1, TCP port PORT + I")->type_name("PORT");
  add("--keep-configs", options.keep_configs, "Copy the daemons' configuration files to DIR")->type_name("DIR");
  run->add_flag("--no-prefix", options.no_prefix, "No \"[rank] \" before lines of output");
  return run;
}

}  // namespace gradlane
