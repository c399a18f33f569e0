// sim.cc - `gradlane sim`: the time of an exchange on a simulated network, with the real exchange code
#include "tools/sim/sim.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <optional>
#include <string>

#include "base/error.h"
#include "client/gradlane.h"
#include "collectives/strategy/codec_needs.h"
#include "sim/simnet.h"
#include "sim/tensors.h"
#include "tools/perf/data.h"
#include "tools/sim/report.h"
#include "tools/sim/settings.h"

namespace gradlane {
namespace {

// ---- Memory

// Returns the memory that the system can give without swapping, or nothing if the system does not say.
std::optional<size_t> available_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    const std::string_view key = "MemAvailable:";
    if (line.starts_with(key)) return std::stoull(line.substr(key.size())) << 10;
  }
  return std::nullopt;
}

// Returns the bytes that an exchange keeps for operations in flight, by the table in docs/exchange.md, "Memory".
size_t operations_bytes(const SimSettings& plan, unsigned nodes) {
  constexpr size_t kKiB = 1024;
  const bool owners = std::ranges::any_of(plan.strategies, [&](const StrategyId& it) { return has_owners(it, nodes); });
  const size_t rooms = std::min(std::ranges::max(plan.together), plan.operations);
  const size_t places = std::min<size_t>(4 * rooms, 256);
  return rooms * (plan.bytes / 512 + (owners ? 1600 * kKiB : 0)) +
         places * (21 * kKiB + 33 * nodes + (owners ? 32 * kKiB + 161 * nodes : 0));
}

// Returns roughly the bytes that the simulation of that many nodes takes: tensors, operations, packets, and links that
// are not in the ring.
size_t needed_bytes(const SimSettings& plan, unsigned nodes) {
  constexpr size_t kOther = size_t{1} << 20;
  constexpr size_t kLink = size_t{32} << 10;
  const size_t packets = 4 * plan.window * (plan.mtu + 256);
  const auto linked = [](const CodecPair& codec) {
    return strategy_support(codec.there.row()) == StrategySupport::kLinks;
  };
  const bool mesh = std::ranges::any_of(plan.codecs, linked) ||
                    std::ranges::count(plan.strategies, StrategyId::Kind::kDirect, &StrategyId::kind) != 0;
  const size_t tensors = std::ranges::count(plan.ops, OpKind::kAllToAll) != 0 ? 2 : 1;
  return nodes * (tensors * plan.bytes + operations_bytes(plan, nodes) + packets + kOther + (mesh ? nodes * kLink : 0));
}

void require_memory(const SimSettings& plan) {
  const unsigned nodes = std::ranges::max(plan.nodes);
  const size_t needed = needed_bytes(plan, nodes);
  const std::optional<size_t> available = available_bytes();
  if (!available || needed <= *available) return;
  throw SetupError(
      fmt::format("{} nodes with {:.1f} MiB each need about {:.1f} GiB of memory, but {:.1f} GiB are "
                  "available: choose a smaller --size or fewer --nodes (from some MiB on, times are "
                  "proportional to the size)",
                  nodes, static_cast<double>(plan.bytes) / 0x1p20, static_cast<double>(needed) / 0x1p30,
                  static_cast<double>(*available) / 0x1p30));
}

// ---- Progress

// Shows progress on standard error, if that is a terminal.
class Progress {
 public:
  Progress() : shown_(isatty(STDERR_FILENO) != 0) {}

  void show(const SimRow& row, Nanos simulated) {
    if (!shown_ || ++calls_ % kCallsPerLook != 0) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(200)) return;
    last_ = now;
    fmt::print(stderr, "\r{} nodes, {}, {}: {:.2f} ms simulated ", row.nodes, row.strategy, row.codec,
               static_cast<double>(simulated) / kMillisecond);
  }
  void clear() const {
    if (shown_) fmt::print(stderr, "\r{:60}\r", "");
  }

 private:
  static constexpr uint64_t kCallsPerLook = 1024;
  bool shown_;
  uint64_t calls_ = 0;
  std::chrono::steady_clock::time_point last_;
};

// ---- One operation

size_t elements_of(OpKind op, size_t bytes, unsigned nodes) {
  const size_t elements = bytes / sizeof(float);
  if (op == OpKind::kBarrier) return 0;
  const bool equal_blocks = has_shares(op);
  if (equal_blocks && elements < nodes) {
    throw SetupError(fmt::format("--size: {} of {} bytes: must have at least 4 bytes per node, and there are {} nodes",
                                 op_name(op), bytes, nodes));
  }
  return equal_blocks ? elements / nodes * nodes : elements;
}

SimConfig network_of(const SimSettings& plan, unsigned nodes, const SimCandidate& candidate, size_t together) {
  SimConfig config;
  config.nodes = nodes;
  config.topology = plan.topology;
  config.seed = plan.seed;
  config.link = plan.link;
  config.faults = plan.faults;
  config.exchange.mtu = plan.mtu;
  config.exchange.window = plan.window;
  config.exchange.codec = candidate.codec.there;
  config.exchange.strategies = allowed_strategies(candidate);
  config.exchange.operations = std::min(together, plan.operations);
  config.exchange.max_bytes = std::max(plan.bytes, size_t{4096});
  // Slow links get enough time: a hundred times what they need, and three years at most.
  const bool one_port = candidate.strategy.kind == StrategyId::Kind::kAggregator;
  const double bits = (one_port ? nodes : 1) * 16 * static_cast<double>(plan.bytes);
  const double patience = std::min(100 * bits / static_cast<double>(plan.link.bits_per_second), 1e8);
  config.exchange.operation_timeout += static_cast<Nanos>(patience * kSecond) + 1000 * nodes * plan.link.delay;
  return config;
}

// The tensors of all ranks, and the output of an all-to-all.
struct Data {
  Data(OpKind op, unsigned nodes, size_t elements)
      : tensors(nodes, elements), out(nodes, op == OpKind::kAllToAll ? elements : 0) {}

  SimTensors tensors;
  SimTensors out;
};

// Returns the element where part `part` begins if the tensor is divided among `together` operations.
size_t part_begin(const Data& data, size_t part, size_t together) {
  const size_t elements = data.tensors.elements();
  return together == 1 ? part * elements : elements * part / together;
}

Operation operation_of(const SimCandidate& candidate, const Data& data, unsigned rank) {
  const SimTensors& tensors = data.tensors;
  Operation operation;
  operation.kind = candidate.op;
  operation.strategy = candidate.strategy;
  operation.back_codec = candidate.codec.back;
  operation.codec = candidate.codec.there;
  operation.count = has_shares(candidate.op) ? tensors.elements() / tensors.ranks() : tensors.elements();
  operation.data = candidate.op == OpKind::kBarrier ? nullptr : tensors.of(rank).data();
  if (candidate.op == OpKind::kAllToAll) operation.out = data.out.of(rank).data();
  return operation;
}

// Returns one of `together` operations, which are all-reduces if there are several.
Operation part_of(const SimCandidate& candidate, const Data& data, unsigned rank, size_t part, size_t together) {
  Operation operation = operation_of(candidate, data, rank);
  if (together == 1) return operation;
  const size_t begin = part_begin(data, part, together);
  operation.count = part_begin(data, part + 1, together) - begin;
  operation.data = data.tensors.of(rank).data() + begin;
  return operation;
}

// Counts wrong elements over all ranks and operations.
uint64_t count_wrong_parts(const SimCandidate& candidate, const SimInputs& inputs, const Data& data, size_t together,
                           uint32_t generation) {
  uint64_t wrong = 0;
  for (size_t part = 0; part < together; ++part) {
    const Operation operation = part_of(candidate, data, 0, part, together);
    const size_t begin = part_begin(data, part, together);
    const SimTensors tensors(data.tensors.ranks(), operation.count);
    for (unsigned i = 0; i < tensors.ranks(); ++i) {
      std::ranges::copy(data.tensors.of(i).subspan(begin, operation.count), tensors.of(i).begin());
    }
    const SimRun run = {.generation = generation, .number = static_cast<uint32_t>(part)};
    wrong += count_wrong(operation, candidate.codec.there, inputs.from(begin), tensors, run);
  }
  return wrong;
}

uint64_t retransmits(const SimNet& net) {
  return net.count(Counter::kRetransmitTimeout) + net.count(Counter::kRetransmitSack);
}

// Returns the first failure of all ranks, in words. It is empty if there is none.
std::string failure_of(const SimNet& net) {
  for (unsigned i = 0; i < net.nodes(); ++i) {
    if (net.node(i).completions().empty()) return fmt::format("the operation of rank {} did not end", i);
    for (const SimCompletion& each : net.node(i).completions()) {
      if (each.failure) return fmt::format("on rank {}: {}", i, failure_text(each.failure));
    }
  }
  return "";
}

// Lets the operation run, and fills in its time and counters.
void simulate(SimNet& net, const SimCandidate& candidate, const Data& data, SimRow& row, Progress& progress) {
  const ExchangeConfig& config = net.node(0).config();
  const auto whole = [&net] {
    for (unsigned i = 0; i < net.nodes(); ++i) {
      if (!net.node(i).exchange().ring_status().ready) return false;
    }
    return true;
  };
  // Waits until the ring is ready, so that the set-up is not part of the measured time. If the ring does not become
  // ready, the operation fails.
  (void)net.run_until(whole, net.now() + config.start_timeout);
  const Nanos start = net.now();
  const LinkStats before = net.stats();
  std::vector<size_t> submitted(net.nodes());
  const auto submit = [&] {
    bool all = true;
    for (unsigned i = 0; i < net.nodes(); ++i) {
      // If the exchange has no free slot, an operation waits until another one has ended.
      while (submitted[i] < row.together) {
        const auto is = net.try_submit(i, part_of(candidate, data, i, submitted[i], row.together));
        if (is.refusal == Exchange::Refusal::kFull) break;
        if (is.refusal != Exchange::Refusal::kNone) throw SetupError("the exchange refused an operation");
        ++submitted[i];
      }
      all = all && submitted[i] == row.together;
    }
    return all;
  };
  bool all = false;
  const auto done = [&] {
    progress.show(row, net.now() - start);
    all = all || submit();
    return all && net.idle();
  };
  (void)net.run_until(done, start + config.start_timeout + config.operation_timeout + config.peer_timeout);

  const LinkStats after = net.stats();
  row.failure = failure_of(net);
  row.seconds = static_cast<double>(net.now() - start) / kSecond;
  row.wire_bytes = after.wire_bytes - before.wire_bytes;
  row.packets = after.packets - before.packets;
  row.queue_drops = after.queue_drops - before.queue_drops;
  row.retransmits = retransmits(net);
}

void set_speeds(SimRow& row) {
  const double least = least_bytes(row.op, row.nodes, row.bytes);
  // Computing takes no time here, and a single node sends nothing, so it has no speed.
  if (least <= 0) return;
  row.goodput_gbps = 8e-9 * static_cast<double>(row.bytes) / row.seconds;
  row.busbw_gbps = row.goodput_gbps * bus_factor(row.op, row.nodes);
  row.ratio = least / static_cast<double>(row.wire_bytes);
}

SimRow run_row(const SimSettings& plan, const SimCandidate& candidate, size_t together, const SimInputs& inputs,
               const Data& data, Progress& progress) {
  const OpKind op = candidate.op;
  const SimTensors& tensors = data.tensors;
  SimRow row;
  row.op = op;
  row.nodes = tensors.ranks();
  row.strategy = std::string(candidate.strategy.name().view());
  row.codec = candidate.codec.name();
  row.bytes = tensors.elements() * sizeof(float);
  row.together = together;
  for (unsigned i = 0; i < row.nodes; ++i) inputs.fill(i, tensors.of(i));
  uint32_t generation = 0;
  {
    SimNet net(network_of(plan, row.nodes, candidate, together));
    simulate(net, candidate, data, row, progress);
    generation = net.node(0).exchange().generation();
  }
  if (row.failure.empty() && together != 1) {
    row.wrong = count_wrong_parts(candidate, inputs, data, together, generation);
    set_speeds(row);
  } else if (row.failure.empty()) {
    const SimTensors& outcome = op == OpKind::kAllToAll ? data.out : tensors;
    row.wrong = count_wrong(operation_of(candidate, data, 0), candidate.codec.there, inputs, outcome,
                            {.generation = generation});
    set_speeds(row);
  } else {
    row.wrong = row.nodes * tensors.elements();
  }
  if (op == OpKind::kAllReduce) {
    if (row.failure.empty()) row.hash = gradlane_hash(tensors.of(0).data(), row.bytes);
    row.wa_seconds = aggregator_seconds(plan, row.nodes);
    if (candidate.strategy.kind == StrategyId::Kind::kAggregator) {
      row.star_seconds = star_seconds(plan, row.nodes, candidate.strategy.stream);
    }
  }
  return row;
}

SimRow play_row(const SimSettings& plan, const FlowModel& play, unsigned nodes, size_t bytes) {
  const PlayResult result = run_flow_model(play, nodes, bytes, plan.link, plan.mtu);
  SimRow row;
  row.nodes = nodes;
  row.strategy = play.name();
  row.codec = "raw";
  row.bytes = bytes;
  row.played = true;
  row.seconds = static_cast<double>(result.time) / kSecond;
  row.wire_bytes = result.stats.wire_bytes;
  row.packets = result.stats.packets;
  row.queue_drops = result.stats.queue_drops;
  set_speeds(row);
  row.wa_seconds = aggregator_seconds(plan, nodes);
  return row;
}

// Returns whether the row is right. If not, prints why to standard error.
bool report_faults(const SimRow& row) {
  const std::string what = fmt::format("{}, {} nodes, {}, {}", op_name(row.op), row.nodes, row.strategy, row.codec);
  if (!row.failure.empty()) {
    fmt::print(stderr, "gradlane: {}: {}\n", what, row.failure);
  } else if (row.wrong != 0) {
    fmt::print(stderr, "gradlane: {}: {} elements are wrong: this is a bug in gradlane\n", what, row.wrong);
  }
  return row.failure.empty() && row.wrong == 0;
}

}  // namespace

int run_sim(const SimOptions& options) {
  const SimSettings plan = make_plan(options);
  for (const OpKind op : plan.ops) {
    for (const unsigned nodes : plan.nodes) (void)elements_of(op, plan.bytes, nodes);
  }
  require_memory(plan);
  const SimInputs inputs(plan.data, plan.seed);
  Progress progress;
  std::vector<SimRow> rows;
  std::vector<std::string> skipped;
  bool good = true;
  for (const OpKind op : plan.ops) {
    const SimCandidates candidates = sim_candidates(plan, op);
    if (!options.json) print_sim_head(plan, op);
    for (const unsigned nodes : plan.nodes) {
      const Data data(op, nodes, elements_of(op, plan.bytes, nodes));
      for (const SimCandidate& candidate : candidates.candidates) {
        for (const size_t together : plan.together) {
          rows.push_back(run_row(plan, candidate, together, inputs, data, progress));
          progress.clear();
          if (!options.json) print_sim_row(plan, rows.back());
          good = report_faults(rows.back()) && good;
        }
      }
      for (const FlowModel& play : plan.plays) {
        rows.push_back(play_row(plan, play, nodes, data.tensors.elements() * sizeof(float)));
        if (!options.json) print_sim_row(plan, rows.back());
      }
    }
    for (const std::string& each : candidates.skipped) {
      if (!options.json) fmt::print("left out: {}\n", each);
      skipped.push_back(each);
    }
  }
  if (options.json) fmt::print("{}\n", to_json(plan, rows, skipped));
  return good ? 0 : 1;
}

}  // namespace gradlane
