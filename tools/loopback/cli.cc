// cli.cc - command-line options of `gradlane loopback`
#include "tools/loopback/cli.h"

#include "base/error.h"

namespace gradlane {

CLI::App* add_loopback(CLI::App& app, LoopbackOptions& options) {
  CLI::App* loopback = app.add_subcommand("loopback", "Packets in circles through two DPDK ports, like testpmd");
  const auto add = [loopback](const char* name, const char* value_name, auto& value, const char* text) {
    return loopback->add_option(name, value, text)->type_name(value_name);
  };
  add("--mode", "MODE", options.mode, "io, classify, codec, ring (io)");
  add("--device", "DEVICE", options.devices,
      "DPDK devargs of a port, or a PCI address; given\ntwice (net_ring0, net_ring1)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add("--burst", "N", options.burst, "Packets per burst, 1 to 512 (32)");
  add("--packets", "N", options.packets, "Packets on each port at the start (one burst)");
  add("--size", "BYTES", options.size, "Bytes of a frame (64; codec, ring: 1514)");
  add("--seconds", "S", options.seconds, "Duration; 0: until Ctrl-C (5)");
  add("--core", "N", options.core, "CPU core to run on (the last one)");
  add("--codec", "CODEC", options.codec, "Codec of modes codec and ring (fixed:10)")->each([](const std::string& name) {
    if (name.empty()) throw SetupError("--codec '': name one that 'gradlane codecs' lists, or leave it out");
  });
  add("--bytes", "BYTES", options.bytes, "Bytes of a tensor in mode ring (1M)");
  add("--data", "NAME", options.data, "Data as in 'bench codec' (laplace-1e-3)");
  add("--seed", "N", options.seed, "Seed of the data (1)");
  loopback->add_flag("--stats", options.stats, "Print a line per second, also without a terminal");
  loopback->add_flag("--json", options.json, "JSON instead of a table");
  loopback->footer(
      "io: forward as is; classify: parse every frame, count by ToS class, drop broken\n"
      "ones; codec: also decode and encode payloads of class compressed; ring:\n"
      "all-reduces between two ranks, one on each port. See docs/measuring.md.");
  return loopback;
}

}  // namespace gradlane
