// cli.cc - the options of `gradlane plan` on the command line
#include "tools/plan/cli.h"

#include "tools/option_group.h"

namespace gradlane {

CLI::App* add_plan(CLI::App& app, PlanOptions& options) {
  CLI::App* plan = app.add_subcommand("plan", "Whether to compress: what a training would gain");
  plan->add_flag("--json", options.json, "JSON instead of tables");

  const OptionGroup training(*plan, "The training");
  training.add("--model", "MODEL", options.model, "resnet50, bert-base, ..., or a profile: FILE.json");
  training.add("--batch", "N", options.batch, "Samples of a node in a step");
  training.add("--compute-ms", "MS", options.compute_ms, "Forward and backward of a step (as a V100)");
  training.add("--cores", "N", options.cores, "Cores of a node (as calibrated; else a GPU computes)");
  training.add("--kind", "KIND", options.kind,
               "Kind of the model: mlp, conv, gpt (by its name); it\nsays what is known of accuracy");

  const OptionGroup network(*plan, "The network");
  network.add("--nodes", "N", options.nodes, "Number of nodes (4, or as calibrated)");
  network.add("--gbps", "GBPS", options.gbps, "Rate of each link (10, or as calibrated)");
  network.add("--latency-us", "US", options.latency_us, "Latency of each link, one way (as calibrated)");
  network.add("--mtu", "BYTES", options.mtu, "MTU of IP (1500, or as calibrated)");
  network.add("--lanes", "N", options.lanes, "Lanes of a node: cores that only exchange (1)");
  network.add("--calibration", "FILE", options.calibration,
              "Costs of this host, or none (the file that\n--calibrate writes)");
  network.add("--port", "PORT", options.port,
              "Without a calibration: usual costs of a port of kind\nudp, packets or card");

  const OptionGroup compared(*plan, "What is compared");
  compared.add("--codecs", "CODEC", options.codecs, "Codecs to compare with raw; all");
  compared.add("--strategy", "NAME", options.strategies, "The fastest of these is used (ring,direct)");
  compared.add("--what-if", "RANGE", options.what_if, "Ranges: nodes=4..96 gbps=0.1..400 batch=, compute=");
  compared.add("--widths", "FILE", options.widths, "Recorded gradients: gain by a codec for each layer");
  compared.flag("--paper", options.paper, "What the model of the paper of MLSys 2022 predicts");

  const OptionGroup calibration(*plan, "Calibration");
  calibration.flag(
      "--calibrate", options.calibrate,
      "Measure this host; on all nodes of a ring: links, too.\nWith --nodes HOST,...: start a daemon for it");
  calibration.add("-o", "FILE", options.output, "File for the calibration, instead of its usual place");
  calibration.flag("--quick", options.quick, "Shorter samples, for tests");
  calibration.flag("--alone", options.alone, "Only this host: do not look for a daemon");
  calibration.add(
      "--python", "PROGRAM", options.python,
      "Python with PyTorch and gradlane, to measure all-reduces\nof Gloo and gradlane; none (GRADLANE_PYTHON; "
      "python3)");
  calibration.add("--socket", "PATH", options.socket, "Trainers' socket of the daemon (GRADLANE_SOCKET)");
  calibration.add("--admin", "PATH", options.admin, "Its admin socket (beside the trainers' socket)");
  calibration.add("--rank", "N", options.rank, "Rank to take; with --nodes: the node (RANK)");
  plan->footer(
      "hidden: exchange during backward; exposed: what the exchange adds to a step;\n"
      "limit: the slowest part. See docs/plan.md.");
  return plan;
}

}  // namespace gradlane
