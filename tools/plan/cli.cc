// cli.cc - the options of `gradlane plan` on the command line
#include "tools/plan/cli.h"

namespace gradlane {

CLI::App* add_plan(CLI::App& app, PlanOptions& options) {
  CLI::App* plan = app.add_subcommand("plan", "Whether to compress: what a training would gain");
  const auto add = [plan](const char* name, auto& value, const char* text) {
    return plan->add_option(name, value, text)->type_name("");
  };
  add("--model", options.model, "resnet50, bert-base, ..., or a profile: FILE.json");
  add("--nodes", options.nodes, "How many (4, or as calibrated)");
  add("--gbps", options.gbps, "Rate of each link (10, or as calibrated)");
  add("--batch", options.batch, "Samples of a node in a step");
  add("--compute-ms", options.compute_ms, "Forward and backward of a step (as a V100)");
  add("--codecs", options.codecs, "To be held against raw; all");
  add("--strategy", options.strategies, "Of these the fastest (ring,direct)");
  add("--calibration", options.calibration, "FILE; none (the file that --calibrate makes)");
  add("--port", options.port, "Instead: usual figures of udp, packets, card");
  add("--lanes", options.lanes, "Cores that exchange (1)");
  add("--mtu", options.mtu, "")->group("");
  add("--latency-us", options.latency_us, "")->group("");
  add("--what-if", options.what_if, "Ranges: nodes=4..96 gbps=0.1..400 batch=, compute=");
  add("--widths", options.widths, "FILE.npy...: a width for each layer of such gradients");
  plan->add_flag("--paper", options.paper, "")->group("");
  plan->add_flag("--json", options.json, "JSON instead of tables");
  plan->add_flag("--calibrate", options.calibrate, "Measure this host; on all nodes of a ring: links, too");
  add("-o", options.output, "FILE for it, and not where plan finds it");
  add("--socket", options.socket, "")->group("");
  add("--admin", options.admin, "")->group("");
  add("--rank", options.rank, "")->group("");
  plan->add_flag("--alone", options.alone, "")->group("");
  plan->add_flag("--quick", options.quick, "")->group("");
  plan->footer(
      "hidden: exchange beside backward; exposed: what a step is longer for it; limit:\n"
      "what binds. docs/plan.md has more: --mtu, --latency-us, --alone, --paper, ...");
  return plan;
}

}  // namespace gradlane
