// cli.cc - the options of `gradlane perf` on the command line
#include "tools/perf/cli.h"

namespace gradlane {

CLI::App* add_perf(CLI::App& app, PerfOptions& options) {
  CLI::App* perf = app.add_subcommand("perf", "Time and check collectives on a ring, as a trainer");
  const auto add = [perf](const char* group, const char* name, const char* value_name, auto& value, const char* text) {
    return perf->add_option(name, value, text)->type_name(value_name)->group(group);
  };
  const char* const operation = "Operations";
  add(operation, "--op", "NAME", options.ops, "allreduce, reducescatter, allgather, broadcast\n(allreduce)");
  add(operation, "--strategy", "NAME", options.strategies,
      "ring, direct, rings:G, aggregator:R[,stream]\n(the first of the daemons)");
  add(operation, "--codec", "CODEC", options.codecs,
      "See 'gradlane codecs'; all; of aggregators two:\nthere/back (raw,fixed:10)");
  add(operation, "--reduction", "NAME", options.reduction, "sum, min, max (sum)");
  add(operation, "--type", "TYPE", options.type, "float32, float64, int32, int64, bytes (float32)");
  perf->add_flag("--feedback", options.feedback, "Codecs keep residuals between operations")->group(operation);

  const char* const size = "Sizes and data";
  add(size, "-b,--begin", "BYTES", options.begin, "Size of the smallest tensor (64K)");
  add(size, "-e,--end", "BYTES", options.end, "Size of the largest tensor (64M)");
  add(size, "-f,--factor", "N", options.factor, "Factor from one size to the next (2)");
  add(size, "--together", "N", options.together, "Divide each tensor into N operations (1)");
  add(size, "--concurrent", "N", options.concurrent, "Tensors in flight at a time, 1 to 64 (1)");
  add(size, "--data", "NAME", options.data, "Data as in 'bench codec' (gauss-0.01)");
  add(size, "--seed", "N", options.seed, "Seed of the data (1)");

  const char* const measurement = "Measurement";
  add(measurement, "-n,--iterations", "N", options.iterations, "Timed iterations (20; with --percentiles 200)");
  add(measurement, "-w,--warmup", "N", options.warmup, "Untimed iterations before them (5)");
  perf->add_flag("--check", options.check, "Check all results (the default)")->group(measurement);
  perf->add_flag_callback(
          "--no-check", [&options] { options.check = false; }, "Do not check results")
      ->group(measurement);
  perf->add_flag("--percentiles", options.percentiles, "Print p50, p90, p99, p99.9 and the longest time")
      ->group(measurement);
  add(measurement, "--background-load", "X", options.background, "TCP traffic that makes p99 / p50 = X, 1.1 to 10");
  add(measurement, "--interface", "NAME", options.interface, "Interface for that traffic (GLOO_SOCKET_IFNAME; lo)");

  const char* const output = "Output";
  add(output, "--format", "FORMAT", options.format, "table, osu, nccl, json (table)");
  perf->add_flag("--json", options.json, "The same as --format json")->group(output);
  perf->footer(
      "Runs as a trainer: gradlane run -n 2 -- gradlane perf -b 64K -e 64M\n"
      "time: median over iterations of the slowest rank; busbw: as in nccl-tests;\n"
      "wire ratio: bytes to send without a codec / bytes sent. See docs/measuring.md.\n"
      "Exit status: 0, 1 wrong results or a failed operation, 2 wrong options or no\n"
      "daemon.");
  return perf;
}

}  // namespace gradlane
