// candidate_predictor.cc - the candidates of `auto` on this node: strategies and codecs, and predictions (control
// thread)
#include "dataplane/trainer/candidate_predictor.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "collectives/cost/cost.h"
#include "collectives/strategy/codec_needs.h"
#include "config/calibration_file.h"
#include "config/choices.h"
#include "dataplane/trainer/session_messages.h"

namespace gradlane {
namespace {

// Bytes per second of a link whose rate is not known.
constexpr double kUsualLink = 10e9 / 8;
constexpr unsigned kMostBits = 30;
// Values of B with predictions of their own. Another B uses the next larger one, or the largest.
constexpr unsigned kAbsolute[] = {5, 8, 10, 13, 17};
constexpr unsigned kRelative[] = {4, 7, 10, 14};
// Bytes per element that one more bit of accuracy costs.
constexpr double kBytesPerBit = 1.0 / 8;
constexpr double kLeastBytes = 0.14;  // least bytes per element: tags only
// Bits by which the largest of many gradient elements exceeds most of them. A relative bound needs this many more bits.
constexpr unsigned kAboveMost = 4;
constexpr const char* kExact[] = {"raw", "pack"};
// fp16 is not in the list, because it keeps no bound for values beyond or below its range.
constexpr const char* kOthers[] = {"bf16", "int8"};

PlanPort kind_of(const NodeConfig& config) {
  if (of_sockets(config)) return PlanPort::kUdp;
  const bool packets = std::ranges::any_of(config.ports, [](const PortConfig& it) {
    return it.kind == PortConfig::Kind::kDevice &&
           (it.device.starts_with("net_af_packet") || it.device.starts_with("net_tap") ||
            it.device.starts_with("net_pcap"));
  });
  return packets ? PlanPort::kPackets : PlanPort::kCard;
}

class CandidateTable {
 public:
  CandidateTable(const NodeConfig& config, const Calibration& figures)
      : config_(config), figures_(figures), links_(links_all(config.strategies, world_of(config))) {
    strategies_ = config.strategies;
    if (std::ranges::find(strategies_, StrategyId{}) == strategies_.end()) strategies_.emplace_back();
  }

  std::vector<gl_way_row> rows() {
    for (const StrategyId& strategy : strategies_) {
      for (const char* const name : kExact) {
        if (const CodecCost* const cost = figures_.find(name)) add(strategy, *cost, find_codec(name), false);
      }
      for (const unsigned bits : kAbsolute) add_lattice(strategy, "fixed:", bits, 0);
      for (const unsigned bits : kRelative) add_lattice(strategy, "fixed:rel=", bits, kAboveMost);
      for (const char* const name : kOthers) {
        if (const CodecCost* const cost = figures_.find(name)) add(strategy, *cost, find_codec(name), false);
      }
    }
    return rows_;
  }

 private:
  void add_lattice(const StrategyId& strategy, const std::string& word, unsigned bits, unsigned more) {
    const Codec codec = find_codec(word + std::to_string(bits));
    if (const auto cost = lattice_cost(bits + more)) add(strategy, *cost, codec, true);
  }

  // Returns the cost of a width, computed from that of the nearest width that was measured.
  [[nodiscard]] std::optional<CodecCost> lattice_cost(unsigned bits) const {
    std::optional<CodecCost> nearest;
    unsigned away = kMostBits;
    for (const CodecCost& each : figures_.codecs) {
      for (unsigned b = 1; b <= kMostBits; ++b) {
        const unsigned far = b > bits ? b - bits : bits - b;
        if (each.name != "fixed:" + std::to_string(b) || (nearest && far >= away)) continue;
        nearest = each;
        nearest->bytes = std::max(each.bytes + kBytesPerBit * (static_cast<double>(bits) - b), kLeastBytes);
        away = far;
      }
    }
    return nearest;
  }

  void add(const StrategyId& strategy, const CodecCost& cost, const Codec& codec, bool scales) {
    if (rows_.size() == GL_MAX_WAYS) return;
    if (!carries(strategy, codec.row(), world_of(config_)) || (needs_links(codec.row()) && !links_)) return;
    const gl_auto bound = error_bound(codec);
    if (bound.bound != GL_BOUND_EXACT && bound.bits == 0) return;
    gl_way_row row{};
    row.strategy = strategy.code();
    row.codec = static_cast<uint8_t>(codec.id());
    row.bound = static_cast<uint8_t>(bound.bound);
    row.bits = static_cast<uint8_t>(bound.bits);
    row.scales = scales ? 1 : 0;
    copy_text(row.name, codec.name());
    for (unsigned i = 0; i < GL_SIZES; ++i) {
      const double elements = std::ldexp(0.25, static_cast<int>(GL_LEAST_SIZE + i));
      const double s = all_reduce_time(figures_, cost, {elements, world_of(config_), strategy}).seconds;
      row.ns[i] = std::isfinite(s) ? 1e9 * s : 1e18;
    }
    rows_.push_back(row);
  }

  const NodeConfig& config_;
  const Calibration& figures_;
  const bool links_;
  std::vector<StrategyId> strategies_;
  std::vector<gl_way_row> rows_;
};

}  // namespace

Calibration figures_of(const NodeConfig& config) {
  if (!config.calibration.empty()) return load_calibration(config.calibration);
  Calibration usual = usual_calibration(kind_of(config));
  usual.packets.set_mtu(static_cast<double>(config.mtu));
  usual.lanes = config.threads;
  return usual;
}

std::vector<gl_way_row> candidates_of(const NodeConfig& config, const Calibration& figures, unsigned mbps) {
  Calibration here = figures;
  if (here.link.bandwidth <= 0) here.link.bandwidth = mbps > 0 ? mbps * 1e6 / 8 : kUsualLink;
  return CandidateTable(config, here).rows();
}

CandidatePredictor::CandidatePredictor(const NodeConfig& config, std::function<unsigned()> mbps)
    : config_(config), figures_(figures_of(config)), mbps_(std::move(mbps)) {}

std::vector<gl_way_row> CandidatePredictor::ways() const {
  return candidates_of(config_, figures_, mbps_ ? mbps_() : 0);
}

std::vector<gl_plan_row> plan_rows_of(const NodeConfig& config) {
  std::vector<gl_plan_row> rows;
  for (const PlanChoice& each : config.plan) {
    const gl_auto bound = error_bound(each.codec);
    gl_plan_row row{};
    row.from = each.from;
    row.to = each.to;
    row.strategy = each.strategy.code();
    row.bound = static_cast<uint8_t>(bound.bound);
    row.bits = static_cast<uint8_t>(bound.bits);
    copy_text(row.codec, each.codec.name());
    rows.push_back(row);
  }
  return rows;
}

}  // namespace gradlane
