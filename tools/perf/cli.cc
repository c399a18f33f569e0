// cli.cc - the options of `gradlane perf` on the command line
#include "tools/perf/cli.h"

#include "tools/option_group.h"

namespace gradlane {

CLI::App* add_perf(CLI::App& app, PerfOptions& options) {
  CLI::App* perf = app.add_subcommand("perf", "Time and check collectives on a ring, as a trainer");
  const OptionGroup operation(*perf, "Operations");
  operation.add("--op", "NAME", options.ops, "allreduce, reducescatter, allgather, broadcast\n(allreduce)");
  operation.add("--strategy", "NAME", options.strategies,
                "ring, direct, rings:G, aggregator:R[,stream]\n(the first of the daemons)");
  operation.add("--codec", "CODEC", options.codecs,
                "See 'gradlane codecs'; all; of aggregators two:\nthere/back (raw,fixed:10)");
  operation.add("--reduction", "NAME", options.reduction, "sum, min, max (sum)");
  operation.add("--type", "TYPE", options.type, "float32, float64, float16, bfloat16, int32, int64,\nbytes (float32)");
  operation.flag("--feedback", options.feedback, "Codecs keep residuals between operations");
  operation.flag("--encoded", options.encoded, "Encode contributions before; compare with floats");

  const OptionGroup size(*perf, "Sizes and data");
  size.add("-b,--begin", "BYTES", options.begin, "Size of the smallest tensor (64K)");
  size.add("-e,--end", "BYTES", options.end, "Size of the largest tensor (64M)");
  size.add("-f,--factor", "N", options.factor, "Factor from one size to the next (2)");
  size.add("--together", "N", options.together, "Divide each tensor into N operations (1)");
  size.add("--concurrent", "N", options.concurrent, "Tensors in flight at a time, 1 to 64 (1)");
  size.add("--data", "NAME", options.data, "Data as in 'bench codec' (gauss-0.01)");
  size.add("--seed", "N", options.seed, "Seed of the data (1)");

  const OptionGroup measurement(*perf, "Measurement");
  measurement.add("-n,--iterations", "N", options.iterations, "Timed iterations (20; with --percentiles 200)");
  measurement.add("-w,--warmup", "N", options.warmup, "Untimed iterations before them (5)");
  measurement.flag("--check", options.check, "Check all results (the default)");
  perf->add_flag_callback(
          "--no-check", [&options] { options.check = false; }, "Do not check results")
      ->group("Measurement");
  measurement.flag("--percentiles", options.percentiles, "Print p50, p90, p99, p99.9 and the longest time");
  measurement.add("--background-load", "X", options.background, "TCP traffic that makes p99 / p50 = X, 1.1 to 10");
  measurement.add("--interface", "NAME", options.interface, "Interface for that traffic (GLOO_SOCKET_IFNAME; lo)");

  const OptionGroup output(*perf, "Output");
  output.add("--format", "FORMAT", options.format, "table, osu, nccl, json (table)");
  output.flag("--json", options.json, "The same as --format json");
  perf->footer(
      "Runs as a trainer: gradlane run -n 2 -- gradlane perf -b 64K -e 64M\n"
      "time: median over iterations of the slowest rank; busbw: as in nccl-tests;\n"
      "wire ratio: bytes to send without a codec / bytes sent. See docs/measuring.md.\n"
      "Exit status: 0, 1 wrong results or a failed operation, 2 wrong options or no\n"
      "daemon.");
  return perf;
}

}  // namespace gradlane
