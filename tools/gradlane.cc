// gradlane.cc - the command line: one executable, with one subcommand per task
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "dataplane/accelerator/commands/cli.h"
#include "sim/data.h"
#include "tools/bench/auth.h"
#include "tools/bench/codec.h"
#include "tools/bench/exchange.h"
#include "tools/check/cli.h"
#include "tools/codecs/cli.h"
#include "tools/exit_status.h"
#include "tools/key/cli.h"
#include "tools/loopback/cli.h"
#include "tools/nic/cli.h"
#include "tools/option_group.h"
#include "tools/perf/cli.h"
#include "tools/plan/cli.h"
#include "tools/run/cli.h"
#include "tools/sim/ratio.h"
#include "tools/sim/sim.h"
#include "tools/stats/cli.h"
#include "tools/top/cli.h"
#include "tools/trace/cli.h"
#include "tools/unknown_option.h"
#include "tools/version.h"

namespace {

constexpr size_t kHelpIndent = 23;  // column of the descriptions
constexpr size_t kHelpColumns = 80;

// Returns "first, second, ..." in lines that fit beside an option's name.
std::string wrapped(std::string text, const std::vector<std::string>& names) {
  size_t column = text.size();
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string word = names[i] + (i + 1 < names.size() ? "," : "");
    const bool fits = kHelpIndent + column + 1 + word.size() <= kHelpColumns;
    if (column > 0) text += fits ? " " : "\n";
    column = fits ? column + 1 + word.size() : word.size();
    text += word;
  }
  return text;
}

// The formatter of all helps. It adds "[-- COMMAND]" to the usage of `gradlane run`, which CLI11 does not see because
// cut_run_command() takes it away. It leaves one empty line between groups, where CLI11 leaves two.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = CLI::Formatter::make_usage(app, std::move(name));
    if (app->get_name() == "run") usage.insert(usage.find_last_not_of('\n') + 1, " [-- COMMAND [ARGUMENT...]]");
    return usage;
  }
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return CLI::detail::find_and_replace(CLI::Formatter::make_help(app, std::move(name), mode), "\n\n\n", "\n\n");
  }
};

CLI::App* add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure parts of gradlane on this machine");
  bench->require_subcommand(1);
  return bench;
}

void add_bench_codec(CLI::App& bench, gradlane::CodecBenchOptions& options) {
  CLI::App* codec = bench.add_subcommand("codec", "Speed (compared with memcpy), ratio and error of codecs");
  codec->add_option("--codec", options.codecs, "Codecs to measure, or all; see 'gradlane codecs'");
  codec->add_option("--isa", options.isas, "scalar, avx2, avx512; default: what GRADLANE_ISA names,\nor the best one");
  codec->add_option("--block", options.blocks, "Block sizes in bytes of fp32")->type_name("BYTES");
  std::vector<std::string> data = gradlane::data_names();
  data.emplace_back("or recorded gradients: FILE.npy");
  codec->add_option("--data", options.data, wrapped("Data:", data));
  codec->add_option("--op", options.ops, wrapped("Operations:", gradlane::bench_op_names()));
  codec->add_flag("--quick", options.quick, "All ISAs, short samples: a rough picture");
  codec->add_flag("--full", options.full, "All blocks, data and ISAs: over ten minutes");
  codec->add_flag("--json", options.json, "JSON instead of tables");
  codec->footer(
      "Ratio is fp32 bytes per encoded byte, vNMSE the mean squared error of ranks'\n"
      "mean over its square; GB/s count fp32 bytes. Every speed is the median of\n"
      "samples taken in turn with memcpy of the same blocks.");
}

CLI::App* add_bench_exchange(CLI::App& bench, gradlane::ExchangeBenchOptions& options) {
  CLI::App* exchange = bench.add_subcommand("exchange", "Cost of the hops of a ring, per packet and without I/O");
  exchange->add_option("--codec", options.codecs, "Codecs (raw bf16 fixed:10 inceptionn:10)");
  exchange->add_option("--mtu", options.mtu, "MTU of IP (1500)")->type_name("BYTES");
  exchange->add_option("--burst", options.burst, "Packets between two polls (32)")->type_name("PACKETS");
  exchange->add_flag("--quick", options.quick, "Fewer samples");
  exchange->add_flag("--trace", options.trace, "Measure while a trace is taken, as by 'gradlane trace'");
  exchange->add_flag("--json", options.json, "JSON instead of a table");
  exchange->footer(
      "reduce: add the local elements to a partial sum and send it on; gather: store\n"
      "a result and relay it. Times are medians over bursts, in ns per packet, with\n"
      "packets and elements in L2. codec: validate and hop, or decode, apart from the\n"
      "exchange; CRC: of packets that arrive and that are sent; engine: all the rest;\n"
      "cutting: its part that cuts sums into packets and joins them; fused: share of\n"
      "the runs that were passed on in one pass.");
  return exchange;
}

CLI::App* add_bench_auth(CLI::App& bench, gradlane::AuthBenchOptions& options) {
  CLI::App* auth = bench.add_subcommand("auth", "Cost of security and checksums of packets, and of memcpy");
  auth->add_flag("--quick", options.quick, "Fewer samples");
  auth->add_flag("--json", options.json, "JSON instead of a table");
  auth->footer(
      "authenticate, check: a packet that is sent, and one that arrives, with\n"
      "`security: authenticated`. UDP checksums are for packets that leave the\n"
      "machine, if the device does not make them. Medians, in L2.");
  return auth;
}

CLI::App* add_bench_ratio(CLI::App& bench, gradlane::RatioOptions& options) {
  CLI::App* ratio = bench.add_subcommand("ratio", "Bytes of packets that codecs save, simulated");
  const auto add = [ratio](const char* name, const char* value_name, auto& value, const char* text) {
    return ratio->add_option(name, value, text)->type_name(value_name);
  };
  add("--codec", "CODEC", options.codecs, "Codecs (one of each kind); all");
  add("--data", "NAME", options.data, "Data as in 'bench codec', also recordings (gauss-0.01)");
  add("--strategy", "NAME", options.strategies, "The first of these that supports the codec (ring,direct)");
  add("--nodes", "N", options.nodes, "Number of nodes (4)");
  add("--size", "BYTES", options.size, "fp32 tensor of each rank, bytes (4M)");
  add("--warmup", "N", options.warmup, "Exchanges before the counted ones (8)");
  add("--exchanges", "N", options.exchanges, "Exchanges that are counted (2)");
  ratio->add_flag("--json", options.json, "JSON instead of a table");
  ratio->footer(
      "ratio: bytes of raw's data packets / bytes of the codec's, by the same strategy,\n"
      "headers included. States are kept from one exchange to the next, and gradients\n"
      "change. non-zero: share of the decoded values of a contribution without states.");
  return ratio;
}

CLI::App* add_sim(CLI::App& app, gradlane::SimOptions& options) {
  CLI::App* sim = app.add_subcommand("sim", "Time and traffic of an exchange on a simulated network");
  sim->add_flag("--json", options.json, "JSON instead of tables");

  const gradlane::OptionGroup operation(*sim, "Operations");
  operation.add("--op", "NAME", options.ops,
                "all-reduce, reduce-scatter, all-gather, broadcast,\nbarrier (all-reduce)");
  operation.add("--codec", "CODEC", options.codecs, "Codec, or all (fixed:10); with aggregators: there/back");
  operation.add("--strategy", "NAME", options.strategies, "ring, direct, rings:G, aggregator:R[,stream] (ring)");
  operation.add("--play", "FLOWS", options.plays, "* aggregators:G, rings-aggregator:G, doubling, halving");
  operation.add("--size", "BYTES", options.size, "Bytes of a rank (16M)");
  operation.add("--together", "N", options.together, "Divide the tensor into N operations (1)")->delimiter(',');
  operation.add("--operations", "N", options.operations, "Operations of a rank in flight (16)");
  operation.add("--data", "NAME", options.data, "Data as in 'bench codec' (laplace-1e-3)");
  operation.add("--seed", "N", options.seed, "Seed of data and faults (1)");
  operation.flag("--hash", options.hash, "Column with a hash of the result (all-reduce)");
  operation.add("--gamma", "TIME", options.gamma, "Time for each byte that an aggregator adds (0)");

  const gradlane::OptionGroup network(*sim, "Network");
  network.add("--nodes", "N", options.nodes, "Numbers of nodes (2,4,8,16)")->delimiter(',');
  network.flag("--switch", options.around_switch, "A switch in place of cables; implied except for ring");
  network.add("--gbps", "GBPS", options.gbps, "Rate of each cable or port, each way (10)");
  network.add("--rtt", "TIME", options.rtt, "Round-trip time between two nodes (50us)");
  network.add("--queue", "BYTES", options.queue, "Queue in front of each cable or port (512K)");
  network.add("--mtu", "BYTES", options.mtu, "MTU of IP (1500)");
  network.add("--window", "PACKETS", options.window, "Packets in flight to a neighbour (256)");

  const gradlane::OptionGroup faults(*sim, "Faults");
  faults.add("--loss", "SHARE", options.loss, "Share of packets that are lost (0)");
  faults.add("--dup", "SHARE", options.duplicate, "Share of packets that arrive twice (0)");
  faults.add("--reorder", "SHARE", options.reorder, "Share of packets that arrive after later ones (0)");
  faults.add("--corrupt", "SHARE", options.corrupt, "Share of packets with a changed bit (0)");
  sim->footer(
      "goodput: size / time in Gb/s; busbw: nccl-tests'; WA: INCEPTIONN's aggregator,\n"
      "(p + log p) n beta, --gamma per byte added; star: 2(p-1) n beta, with headers.\n"
      "* Flows without an exchange: groups of G as in its Figure 1; doubling, halving.");
  return sim;
}

// Returns the fault in the command line, the allowed words, and where to read more. `app` is the program's top-level
// command.
std::string fault_text(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* last = &app;  // the innermost subcommand that was named
  std::string path = app.get_name();
  while (!last->get_subcommands().empty()) {
    last = last->get_subcommands().front();
    path += " " + last->get_name();
  }
  const std::vector<std::string> extras = app.remaining(true);
  std::string allowed;
  for (const CLI::App* sub : last->get_subcommands([](const CLI::App*) { return true; })) {
    allowed += (allowed.empty() ? "" : ", ") + sub->get_name();
  }

  std::string text = error.what();
  if (!extras.empty() && extras.front().starts_with('-')) {
    text = gradlane::unknown_option(*last, extras.front());
  } else if (!allowed.empty()) {
    text = extras.empty() ? "a subcommand is missing" : "unknown subcommand '" + extras.front() + "'";
    text += "; allowed: " + allowed;
  } else if (!extras.empty()) {
    text = "unexpected argument '" + extras.front() + "'";
    if (last->get_name() == "run") text += "; put the command to run after '--'";
  }
  return text + "\nsee '" + path + " --help'";
}

int run(int argc, char** argv) {
  CLI::App app{"gradlane: gradient exchange with compression in the packet path", "gradlane"};
  app.set_version_flag("--version", std::string("gradlane ") + GRADLANE_RELEASE);
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());
  app.get_formatter()->column_width(kHelpIndent);

  CLI::App* bench = add_bench(app);
  gradlane::CodecBenchOptions bench_options;
  add_bench_codec(*bench, bench_options);
  gradlane::ExchangeBenchOptions exchange_options;
  const CLI::App* exchange = add_bench_exchange(*bench, exchange_options);
  gradlane::AuthBenchOptions auth_options;
  const CLI::App* auth = add_bench_auth(*bench, auth_options);
  gradlane::RatioOptions ratio_options;
  const CLI::App* ratio = add_bench_ratio(*bench, ratio_options);
  gradlane::SimOptions sim_options;
  const CLI::App* sim = add_sim(app, sim_options);
  gradlane::RunOptions run_options;
  gradlane::cut_run_command(argc, argv, run_options);
  const CLI::App* run = gradlane::add_run(app, run_options);
  gradlane::PerfOptions perf_options;
  const CLI::App* perf = gradlane::add_perf(app, perf_options);
  gradlane::LoopbackOptions loopback_options;
  const CLI::App* loopback = gradlane::add_loopback(app, loopback_options);
  gradlane::StatsOptions stats_options;
  const CLI::App* stats = gradlane::add_stats(app, stats_options);
  gradlane::TopOptions top_options;
  const CLI::App* top = gradlane::add_top(app, top_options);
  gradlane::TraceOptions trace_options;
  const CLI::App* trace = gradlane::add_trace(app, trace_options);
  gradlane::CheckOptions check_options;
  const CLI::App* check = gradlane::add_check(app, check_options);
  gradlane::NicOptions nic_options;
  gradlane::add_nic(app, nic_options);
  gradlane::AcceleratorSetupOptions accelerator_options;
  gradlane::add_accelerator(app, accelerator_options);
  gradlane::KeyOptions key_options;
  gradlane::add_key(app, key_options);
  gradlane::CodecsOptions codecs_options;
  const CLI::App* codecs = gradlane::add_codecs(app, codecs_options);
  gradlane::PlanOptions plan_options;
  const CLI::App* plan = gradlane::add_plan(app, plan_options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    throw gradlane::SetupError(fault_text(app, error));
  }

  if (codecs->parsed()) {
    gradlane::run_codecs(codecs_options);
    return 0;
  }
  if (plan->parsed()) return gradlane::run_plan(plan_options);
  if (run->parsed()) return gradlane::run_nodes(run_options);
  if (loopback->parsed()) return gradlane::run_loopback(loopback_options);
  if (perf->parsed()) return gradlane::run_perf(perf_options);
  if (check->parsed()) return gradlane::run_check(check_options);
  if (stats->parsed()) return gradlane::run_stats(stats_options);
  if (top->parsed()) return gradlane::run_top(top_options);
  if (trace->parsed()) return gradlane::run_trace(trace_options);
  if (nic_options.command != gradlane::NicOptions::Command::kNone) return gradlane::run_nic(nic_options);
  if (key_options.command != gradlane::KeyOptions::Command::kNone) return gradlane::run_key(key_options);
  if (accelerator_options.command != gradlane::AcceleratorSetupOptions::Command::kNone) {
    return gradlane::run_accelerator_setup(accelerator_options);
  }
  if (sim->parsed()) return gradlane::run_sim(sim_options);
  if (ratio->parsed()) return gradlane::run_ratio(ratio_options);
  if (exchange->parsed()) {
    gradlane::run_exchange_bench(exchange_options);
    return 0;
  }
  if (auth->parsed()) {
    gradlane::run_auth_bench(auth_options);
    return 0;
  }
  gradlane::run_codec_bench(bench_options);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int status = run(argc, argv);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
    std::fprintf(stderr, "gradlane: standard output cannot be written: %s\n", std::strerror(errno));
    return status != 0 ? status : gradlane::kExitBadInput;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gradlane: %s\n", error.what());
    return gradlane::kExitBadInput;
  }
}
