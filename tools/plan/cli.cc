// cli.cc - the options of `gradlane plan` on the command line
#include "tools/plan/cli.h"

namespace gradlane {

CLI::App* add_plan(CLI::App& app, PlanOptions& options) {
  CLI::App* plan = app.add_subcommand("plan", "Whether to compress: what a training would gain");
  const auto add = [plan](const char* group, const char* name, const char* value_name, auto& value, const char* text) {
    return plan->add_option(name, value, text)->type_name(value_name)->group(group);
  };
  const auto flag = [plan](const char* group, const char* name, bool& value, const char* text) {
    plan->add_flag(name, value, text)->group(group);
  };
  plan->add_flag("--json", options.json, "JSON instead of tables");

  const char* const training = "The training";
  add(training, "--model", "MODEL", options.model, "resnet50, bert-base, ..., or a profile: FILE.json");
  add(training, "--batch", "N", options.batch, "Samples of a node in a step");
  add(training, "--compute-ms", "MS", options.compute_ms, "Forward and backward of a step (as a V100)");
  add(training, "--cores", "N", options.cores, "Cores of a node (as calibrated; else a GPU computes)");
  add(training, "--kind", "KIND", options.kind,
      "Kind of the model: mlp, conv, gpt (by its name); it\nsays what is known of accuracy");

  const char* const network = "The network";
  add(network, "--nodes", "N", options.nodes, "Number of nodes (4, or as calibrated)");
  add(network, "--gbps", "GBPS", options.gbps, "Rate of each link (10, or as calibrated)");
  add(network, "--latency-us", "US", options.latency_us, "Latency of each link, one way (as calibrated)");
  add(network, "--mtu", "BYTES", options.mtu, "MTU of IP (1500, or as calibrated)");
  add(network, "--lanes", "N", options.lanes, "Lanes of a node: cores that only exchange (1)");
  add(network, "--calibration", "FILE", options.calibration,
      "Costs of this host, or none (the file that\n--calibrate writes)");
  add(network, "--port", "PORT", options.port,
      "Without a calibration: usual costs of a port of kind\nudp, packets or card");

  const char* const compared = "What is compared";
  add(compared, "--codecs", "CODEC", options.codecs, "Codecs to compare with raw; all");
  add(compared, "--strategy", "NAME", options.strategies, "The fastest of these is used (ring,direct)");
  add(compared, "--what-if", "RANGE", options.what_if, "Ranges: nodes=4..96 gbps=0.1..400 batch=, compute=");
  add(compared, "--widths", "FILE", options.widths, "Recorded gradients: gain by a codec for each layer");
  flag(compared, "--paper", options.paper, "What the model of the paper of MLSys 2022 predicts");

  const char* const calibration = "Calibration";
  flag(calibration, "--calibrate", options.calibrate,
       "Measure this host; on all nodes of a ring: links, too.\nWith --nodes HOST,...: start a daemon for it");
  add(calibration, "-o", "FILE", options.output, "File for the calibration, instead of its usual place");
  flag(calibration, "--quick", options.quick, "Shorter samples, for tests");
  flag(calibration, "--alone", options.alone, "Only this host: do not look for a daemon");
  add(calibration, "--python", "PROGRAM", options.python,
      "Python with PyTorch and gradlane, to measure all-reduces\nof Gloo and gradlane; none (GRADLANE_PYTHON; "
      "python3)");
  add(calibration, "--socket", "PATH", options.socket, "Trainers' socket of the daemon (GRADLANE_SOCKET)");
  add(calibration, "--admin", "PATH", options.admin, "Its admin socket (beside the trainers' socket)");
  add(calibration, "--rank", "N", options.rank, "Rank to take; with --nodes: the node (RANK)");
  plan->footer(
      "hidden: exchange during backward; exposed: what the exchange adds to a step;\n"
      "limit: the slowest part. See docs/plan.md.");
  return plan;
}

}  // namespace gradlane
