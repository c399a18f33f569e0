// control_tables.cc - the tables in a trainer's control segment (control thread)
#include "dataplane/trainer/control_tables.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "collectives/strategy/codec_needs.h"
#include "compress/codec.h"
#include "dataplane/trainer/candidate_predictor.h"
#include "dataplane/trainer/session_messages.h"

namespace gradlane {
namespace {

// Returns the row of a codec, as trainers read it.
gl_codec_row told(const CodecRow& codec) noexcept {
  gl_codec_row row{};
  copy_text(row.word, codec.word);
  copy_text(row.usage, codec.usage);
  copy_text(row.example, codec.example);
  if (codec.option != nullptr) copy_text(row.option, codec.option);
  row.id = static_cast<uint8_t>(codec.id);
  row.least = static_cast<uint8_t>(codec.min_bits);
  row.most = static_cast<uint8_t>(codec.max_bits);
  row.states = static_cast<uint8_t>(codec.feedback ? codec.states : 0);
  row.flags = capabilities(codec);
  copy_text(row.prefix, codec.prefix);
  if (codec.variant != nullptr) copy_text(row.variant, codec.variant);
  copy_text(row.promise, codec.promise);
  copy_text(row.source, codec.source);
  return row;
}

// Returns the row of a strategy that operations may name, as trainers read it.
gl_strategy_row told(const StrategyId& strategy, unsigned ranks, bool links) noexcept {
  gl_strategy_row row{};
  row.code = strategy.code();
  for (unsigned kind = 0; kind <= GL_ALL_TO_ALL; ++kind) {
    if (supports(strategy, static_cast<OpKind>(kind))) row.kinds |= 1U << kind;
  }
  row.flags = (strategy.kind == StrategyId::Kind::kAggregator ? GL_STRATEGY_BACK : 0) |
              (has_owners(strategy, ranks) ? GL_STRATEGY_OWNERS : 0) | (links ? GL_STRATEGY_LINKS : 0);
  copy_text(row.name, strategy.name().view());
  return row;
}

// Returns the strategies of the configuration, and the ring, which always works.
std::vector<StrategyId> strategies_of(const NodeConfig& config) {
  std::vector<StrategyId> list = config.strategies;
  if (std::ranges::find(list, StrategyId{}) == list.end()) list.emplace_back();
  return list;
}

template <class Row>
void put(uint8_t* at, const std::vector<Row>& rows) {
  if (!rows.empty()) std::memcpy(at, rows.data(), rows.size() * sizeof(Row));
}

}  // namespace

ControlTables::ControlTables(const NodeConfig& config, uint32_t lanes, std::vector<gl_way_row> ways)
    : lanes_(lanes), ways_(std::move(ways)), plan_(plan_rows_of(config)) {
  for (const CodecRow& each : codec_table()) codecs_.push_back(told(each));
  const std::vector<StrategyId> strategies = strategies_of(config);
  const bool links = links_all(strategies, world_of(config));
  for (const StrategyId& each : strategies) strategies_.push_back(told(each, world_of(config), links));
  codecs_at_ = gl_control_bytes(lanes);
  strategies_at_ = codecs_at_ + codecs_.size() * sizeof(gl_codec_row);
  candidates_at_ = strategies_at_ + strategies_.size() * sizeof(gl_strategy_row);
  plan_at_ = candidates_at_ + ways_.size() * sizeof(gl_way_row);
  reports_at_ = plan_at_ + plan_.size() * sizeof(gl_plan_row);
}

void ControlTables::write(uint8_t* base) const {
  auto* const control = new (base) gl_control{};
  control->magic = GL_MAGIC;
  control->version = GL_ABI_VERSION;
  control->lanes = lanes_;
  control->codecs = static_cast<uint32_t>(codecs_.size());
  control->codec_row_bytes = sizeof(gl_codec_row);
  control->strategies = static_cast<uint32_t>(strategies_.size());
  control->strategy_row_bytes = sizeof(gl_strategy_row);
  control->ways = static_cast<uint32_t>(ways_.size());
  control->way_row_bytes = sizeof(gl_way_row);
  control->plan_rows = static_cast<uint32_t>(plan_.size());
  control->plan_row_bytes = sizeof(gl_plan_row);
  control->reports = GL_MAX_REPORTS;
  control->report_row_bytes = sizeof(gl_report_row);
  put(base + codecs_at_, codecs_);
  put(base + strategies_at_, strategies_);
  put(base + candidates_at_, ways_);
  put(base + plan_at_, plan_);
}

// The reports are at the end of the segment. Their position does not depend on what the trainer has written before
// them.
std::vector<gl_report_row> reports_of(const uint8_t* base, size_t bytes) {
  constexpr size_t kBytes = GL_MAX_REPORTS * sizeof(gl_report_row);
  std::vector<gl_report_row> rows;
  if (base == nullptr || bytes < kBytes) return rows;
  for (size_t i = 0; i < GL_MAX_REPORTS; ++i) {
    gl_report_row row;
    std::memcpy(&row, base + bytes - kBytes + i * sizeof(row), sizeof(row));
    if (row.version != 0) rows.push_back(row);
  }
  return rows;
}

}  // namespace gradlane
