// cli.cc - the options of `gradlane plan` on the command line
#include "tools/plan/cli.h"

namespace gradlane {

CLI::App* add_plan(CLI::App& app, PlanOptions& options) {
  CLI::App* plan = app.add_subcommand("plan", "Whether to compress: what a training would gain");
  const auto add = [plan](const char* name, auto& value, const char* text) {
    return plan->add_option(name, value, text)->type_name("");
  };
  add("--model", options.model, "resnet50, bert-base, ..., or a profile: FILE.json");
  add("--nodes", options.nodes, "Number (4, or as calibrated); --calibrate: HOST,HOST...");
  add("--gbps", options.gbps, "Rate of each link (10, or as calibrated)");
  add("--batch", options.batch, "Samples of a node in a step");
  add("--compute-ms", options.compute_ms, "Forward and backward of a step (as a V100)");
  add("--codecs", options.codecs, "Codecs to compare with raw; all");
  add("--strategy", options.strategies, "The fastest of these is used (ring,direct)");
  add("--calibration", options.calibration, "FILE; none (the file that --calibrate writes)");
  add("--port", options.port, "Instead: usual figures of port udp, packets or card");
  add("--lanes", options.lanes, "")->group("");
  add("--cores", options.cores, "Cores of a node (as calibrated; else a GPU computes)");
  add("--kind", options.kind, "Of the model: mlp, conv, gpt (by its name): accuracy");
  add("--mtu", options.mtu, "")->group("");
  add("--latency-us", options.latency_us, "")->group("");
  add("--what-if", options.what_if, "Ranges: nodes=4..96 gbps=0.1..400 batch=, compute=");
  add("--widths", options.widths, "")->group("");
  plan->add_flag("--paper", options.paper, "")->group("");
  plan->add_flag("--json", options.json, "JSON instead of tables");
  plan->add_flag("--calibrate", options.calibrate, "Measure this host; on all nodes of a ring: links, too");
  add("-o", options.output, "FILE for the calibration, instead of its usual place");
  add("--python", options.python, "")->group("");
  add("--socket", options.socket, "")->group("");
  add("--admin", options.admin, "")->group("");
  add("--rank", options.rank, "")->group("");
  plan->add_flag("--alone", options.alone, "")->group("");
  plan->add_flag("--quick", options.quick, "")->group("");
  plan->footer(
      "hidden: exchange during backward; exposed: what the exchange adds to a step;\n"
      "limit: the slowest part. docs/plan.md: --lanes, --mtu, --widths...");
  return plan;
}

}  // namespace gradlane
