// cli.cc - the options of `gradlane perf` on the command line
#include "tools/perf/cli.h"

namespace gradlane {

CLI::App* add_perf(CLI::App& app, PerfOptions& options) {
  CLI::App* perf = app.add_subcommand("perf", "Time and check collectives on a ring, as a trainer");
  const auto add = [perf](const char* name, auto& value, const char* text) {
    return perf->add_option(name, value, text)->type_name("");
  };
  add("-b,--begin", options.begin, "Smallest tensor, bytes (64K)");
  add("-e,--end", options.end, "Largest (64M); each in --together operations (1)");
  add("-f,--factor", options.factor, "Factor from one size to the next (2)");
  add("-n,--iterations", options.iterations, "Timed (20); -w: warm-ups (5); --concurrent: at a time (1)");
  add("-w,--warmup", options.warmup, "")->group("");
  add("--together", options.together, "")->group("");
  add("--concurrent", options.concurrent, "")->group("");
  add("--op", options.ops, "allreduce, reducescatter, allgather, broadcast");
  add("--strategy", options.strategies, "ring, direct, rings:G, aggregator:R[,stream]");
  add("--codec", options.codecs, "See 'gradlane codecs'; all; there/back (raw,fixed:10)");
  add("--reduction", options.reduction, "sum, min, max (sum)");
  add("--type", options.type, "float32, float64, int32, int64, bytes");
  add("--data", options.data, "As in 'bench codec' (gauss-0.01), by --seed (1)");
  add("--seed", options.seed, "")->group("");
  perf->add_flag("--feedback", options.feedback, "Codecs keep their states between operations");
  perf->add_flag("--check", options.check, "Check all results (the default); or --no-check");
  perf->add_flag_callback(
          "--no-check", [&options] { options.check = false; }, "")
      ->group("");
  perf->add_flag("--percentiles", options.percentiles, "p50 .. p99.9; --background-load X: TCP for p99/p50 of X");
  add("--background-load", options.background, "")->group("");
  add("--interface", options.interface, "")->group("");
  add("--format", options.format, "table, osu, nccl, json; or --json");
  perf->add_flag("--json", options.json, "")->group("");
  perf->footer(
      "Runs as a trainer: gradlane run -n 2 -- gradlane perf -b 64K -e 64M\n"
      "time: median over iterations of the slowest rank; busbw: as in nccl-tests;\n"
      "wire ratio: bytes to send without a codec / bytes sent. See docs/measuring.md.");
  return perf;
}

}  // namespace gradlane
