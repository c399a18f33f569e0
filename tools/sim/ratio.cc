// ratio.cc - `gradlane bench ratio`: the bytes of packets that a codec saves, over several exchanges
#include "tools/sim/ratio.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/parse.h"
#include "collectives/exchange_config.h"
#include "sim/simnet.h"
#include "tools/bench/codec_list.h"
#include "tools/bench/settle.h"
#include "tools/sim/gradients.h"

namespace gradlane {
namespace {

// Codecs that are measured if none is named, beside an example of each row of the table.
constexpr const char* kMoreCodecs[] = {"dgc:0.1%", "topk:1%+fixed:10"};
constexpr size_t kOneGo = 8192;  // floats that every codec takes at once

struct RatioSettings {
  std::vector<CodecPair> codecs;
  bool every_codec = false;
  std::vector<Gradients> data;
  std::vector<StrategyId> strategies;
  unsigned nodes = 0;
  size_t floats = 0;
  unsigned warmup = 0;
  unsigned exchanges = 0;
};

struct RatioRow {
  std::string data;
  std::string codec;
  std::string strategy;
  double raw_bytes = 0;  // bytes of data packets in one exchange with codec `raw`
  double bytes = 0;
  double non_zero = 0;  // share of non-zeros in the first contribution of rank 0, when it is encoded and decoded
  std::string failure;

  [[nodiscard]] double ratio() const { return bytes > 0 ? raw_bytes / bytes : 0; }
};

// ---- Options

// Returns an example of each codec in the table, and behind the first of a kind those of kMoreCodecs.
std::vector<CodecPair> ratio_codecs() {
  std::vector<CodecPair> codecs;
  const auto add = [&codecs](const std::string& name) {
    const CodecPair codec = find_codec_pair(name);
    if (std::ranges::find(codecs, codec.name(), &CodecPair::name) == codecs.end()) codecs.push_back(codec);
  };
  for (const CodecRow& row : codec_table()) {
    add(row.example);
    for (const std::string_view name : kMoreCodecs) {
      if (name.substr(0, name.find(':')) == row.word && row.variant == nullptr) add(std::string(name));
    }
  }
  return codecs;
}

template <typename Number>
Number parse_count(const char* option, const std::string& text, uint64_t least, uint64_t most) {
  const auto number = parse_decimal(text, least, most);
  if (number) return static_cast<Number>(*number);
  throw SetupError(fmt::format("{} '{}': must be a whole number from {} to {}", option, text, least, most));
}

std::string chosen_or(const std::string& chosen, const char* fallback) { return chosen.empty() ? fallback : chosen; }

RatioSettings make_ratio_plan(const RatioOptions& options) {
  RatioSettings plan;
  for (const std::string& name : codec_list(options.codecs)) plan.codecs.push_back(find_codec_pair(name));
  plan.every_codec = plan.codecs.empty() || std::ranges::any_of(options.codecs, names_all);
  if (plan.codecs.empty()) plan.codecs = ratio_codecs();
  const std::vector<std::string> data = options.data.empty() ? std::vector<std::string>{"gauss-0.01"} : options.data;
  for (const std::string& name : data) plan.data.emplace_back(name);
  plan.nodes = parse_count<unsigned>("--nodes", chosen_or(options.nodes, "4"), 2, kMaxWorld);
  plan.strategies = find_strategies(chosen_or(options.strategies, "ring,direct"));
  for (const StrategyId& strategy : plan.strategies) {
    if (const std::string fault = strategy_fault(strategy, plan.nodes); !fault.empty()) {
      throw SetupError("--strategy: " + fault);
    }
  }
  const std::string size = chosen_or(options.size, "4M");
  const auto bytes = parse_quantity(size, kShortSizes, 4096, uint64_t{1} << 30);
  if (!bytes) throw SetupError(fmt::format("--size '{}': must be from 4K to 1G bytes, as in 4M", size));
  plan.floats = *bytes / sizeof(float);
  plan.warmup = parse_count<unsigned>("--warmup", chosen_or(options.warmup, "8"), 0, 10000);
  plan.exchanges = parse_count<unsigned>("--exchanges", chosen_or(options.exchanges, "2"), 1, 10000);
  return plan;
}

// ---- Exchanges

// Nodes that keep their states from one exchange to the next.
class Exchanges {
 public:
  Exchanges(const RatioSettings& plan, const Gradients& data, const Codec& codec, const StrategyId& strategy)
      : plan_(plan), data_(data), codec_(codec), strategy_(strategy), net_(network()), tensors_(plan.nodes) {
    for (std::vector<float>& tensor : tensors_) tensor.resize(plan.floats);
    states_.assign(plan.nodes, std::vector<float>(codec.states() * plan.floats));
    const auto whole = [this] {
      for (unsigned i = 0; i < net_.nodes(); ++i) {
        if (!net_.node(i).exchange().ring_status().ready) return false;
      }
      return true;
    };
    (void)net_.run_until(whole, net_.now() + 10 * kSecond);
  }

  // Returns the mean number of bytes of data packets per exchange, without the warm-up. If an exchange fails, sets
  // `failure`.
  double run(std::string& failure) {
    uint64_t before = 0;
    for (unsigned t = 0; t < plan_.warmup + plan_.exchanges && failure.empty(); ++t) {
      if (t == plan_.warmup) before = net_.count(Counter::kDataBytes);
      failure = exchange(t);
    }
    return static_cast<double>(net_.count(Counter::kDataBytes) - before) / plan_.exchanges;
  }

 private:
  SimConfig network() const {
    SimConfig config;
    config.nodes = plan_.nodes;
    config.topology = SimTopology::kSwitch;
    config.link.bits_per_second = uint64_t{10} * 1000 * 1000 * 1000;
    config.link.delay = 10 * kMicrosecond;
    config.link.queue_bytes = size_t{4} << 20;
    config.exchange.strategies = {strategy_};
    const StrategyId direct = find_strategy("direct");
    if (strategy_ != direct) config.exchange.strategies.push_back(direct);
    config.exchange.max_bytes = plan_.floats * sizeof(float);
    return config;
  }

  std::string exchange(unsigned t) {
    for (unsigned i = 0; i < plan_.nodes; ++i) {
      data_.fill(i, t, tensors_[i]);
      Operation operation;
      operation.strategy = strategy_;
      operation.codec = codec_;
      operation.count = plan_.floats;
      operation.data = tensors_[i].data();
      if (!states_[i].empty()) operation.residual = states_[i].data();
      net_.submit(i, operation);
    }
    if (!net_.run_until_idle(net_.now() + 600 * kSecond)) return "the exchange does not end";
    for (unsigned i = 0; i < plan_.nodes; ++i) {
      const Failure failure = net_.node(i).completions().back().failure;
      if (failure) return fmt::format("on rank {}: {}", i, failure_text(failure));
      const bool same = std::equal(tensors_[i].begin(), tensors_[i].end(), tensors_[0].begin());
      if (!same) return fmt::format("the results of rank {} and rank 0 differ: this is a bug in gradlane", i);
    }
    return "";
  }

  const RatioSettings& plan_;
  const Gradients& data_;
  Codec codec_;
  StrategyId strategy_;
  SimNet net_;
  std::vector<std::vector<float>> tensors_;
  std::vector<std::vector<float>> states_;
};

double non_zero_share(const RatioSettings& plan, const Gradients& data, const Codec& codec) {
  std::vector<std::vector<float>> tensors(plan.nodes, std::vector<float>(plan.floats));
  Contributions ranks;
  for (unsigned i = 0; i < plan.nodes; ++i) {
    data.fill(i, 0, tensors[i]);
    ranks.emplace_back(tensors[i]);
  }
  const Codec own = settled(codec, ranks).front();
  std::vector<uint8_t> block(codec.max_bytes(kOneGo));
  std::vector<float> out(kOneGo);
  size_t count = 0;
  for (size_t first = 0; first < plan.floats;) {
    const EncodeResult done = own.encode({.in = tensors[0].data() + first,
                                          .residual = nullptr,
                                          .floats = std::min(kOneGo, plan.floats - first),
                                          .out = block.data(),
                                          .room = block.size(),
                                          .position = first});
    const std::span<float> floats = std::span(out).first(done.floats);
    if (done.floats == 0 || own.decode({block.data(), done.bytes}, floats) != Status::kOk) return 0;
    count += static_cast<size_t>(std::ranges::count_if(floats, [](float x) { return x != 0; }));
    first += done.floats;
  }
  return static_cast<double>(count) / static_cast<double>(plan.floats);
}

class Table {
 public:
  explicit Table(const RatioSettings& plan) : plan_(plan) {}

  // Returns nothing if the codec was left out.
  std::optional<RatioRow> measure(const Gradients& data, const CodecPair& codec) {
    std::string why;
    for (const StrategyId& strategy : plan_.strategies) {
      std::vector<StrategyId> allowed = plan_.strategies;
      allowed.push_back(find_strategy("direct"));
      const std::string fault = strategy_fault(codec, strategy, allowed);
      if (why.empty()) why = fault;
      if (fault.empty()) return measure(data, codec, strategy);
    }
    if (!plan_.every_codec) throw SetupError(fmt::format("--codec '{}': {}", codec.name(), why));
    return std::nullopt;
  }

 private:
  RatioRow measure(const Gradients& data, const CodecPair& codec, const StrategyId& strategy) {
    RatioRow row{
        .data = data.name(), .codec = codec.name(), .strategy = std::string(strategy.name().view()), .failure = {}};
    row.raw_bytes = raw_bytes(data, strategy, row.failure);
    if (row.failure.empty()) row.bytes = Exchanges(plan_, data, codec.there, strategy).run(row.failure);
    row.non_zero = non_zero_share(plan_, data, codec.there);
    return row;
  }

  // Returns the bytes of `raw`, which are the same for all codecs of a strategy.
  double raw_bytes(const Gradients& data, const StrategyId& strategy, std::string& failure) {
    const auto [found, fresh] = raw_.try_emplace(strategy.code(), 0);
    if (fresh) {
      RatioSettings once = plan_;
      once.warmup = 0;
      once.exchanges = 1;
      found->second = Exchanges(once, data, find_codec("raw"), strategy).run(failure);
    }
    return found->second;
  }

  const RatioSettings& plan_;
  std::map<uint32_t, double> raw_;
};

// ---- Output

std::string ratio_text(double value) {
  return value < 99.95 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
}

std::string head_text(const RatioSettings& plan) {
  return fmt::format("{} nodes, {} floats each, MTU 1500, exchanges: {} after {}", plan.nodes, plan.floats,
                     plan.exchanges, plan.warmup);
}

void print_row(const RatioRow& row, size_t width) {
  fmt::print("{:<14} {:<{}} {:<8} {:>11.0f} {:>7} {:>8.2f}%{}\n", row.data, row.codec, width, row.strategy, row.bytes,
             ratio_text(row.ratio()), 100 * row.non_zero, row.failure.empty() ? "" : "  FAILED");
  std::fflush(stdout);
}

std::string to_json(const RatioSettings& plan, std::span<const RatioRow> rows) {
  nlohmann::json result = {{"nodes", plan.nodes},
                           {"floats", plan.floats},
                           {"warmup", plan.warmup},
                           {"exchanges", plan.exchanges},
                           {"rows", nlohmann::json::array()}};
  for (const RatioRow& row : rows) {
    result["rows"].push_back({{"data", row.data},
                              {"codec", row.codec},
                              {"strategy", row.strategy},
                              {"raw_bytes", row.raw_bytes},
                              {"bytes", row.bytes},
                              {"ratio", row.ratio()},
                              {"non_zero", row.non_zero},
                              {"failure", row.failure}});
  }
  return result.dump(1);
}

}  // namespace

int run_ratio(const RatioOptions& options) {
  const RatioSettings plan = make_ratio_plan(options);
  size_t width = 5;
  for (const CodecPair& codec : plan.codecs) width = std::max(width, codec.name().size());
  if (!options.json) {
    fmt::print("{}\n{:<14} {:<{}} {:<8} {:>11} {:>7} {:>9}\n", head_text(plan), "data", "codec", width, "strategy",
               "bytes", "ratio", "non-zero");
  }
  Table table(plan);
  std::vector<RatioRow> rows;
  int status = 0;
  for (const Gradients& data : plan.data) {
    for (const CodecPair& codec : plan.codecs) {
      const std::optional<RatioRow> row = table.measure(data, codec);
      if (!row) continue;
      rows.push_back(*row);
      if (!options.json) print_row(*row, width);
      if (row->failure.empty()) continue;
      fmt::print(stderr, "gradlane: {}, {}: {}\n", row->data, row->codec, row->failure);
      status = 1;
    }
  }
  if (options.json) fmt::print("{}\n", to_json(plan, rows));
  return status;
}

}  // namespace gradlane
