// exchange.cc - construction, polls, status
#include "collectives/exchange/exchange.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/error.h"
#include "collectives/exchange/exchange_state.h"
#include "collectives/strategy/codec_ways.h"
#include "collectives/strategy/owners.h"
#include "collectives/strategy/rings.h"

namespace gradlane {
namespace {

using Kind = StrategyId::Kind;

constexpr size_t kSmallTogether = 4;  // times as many operations as `operations`, where tensors are small

constexpr Nanos kRetry = 10 * kMicrosecond;  // after the owner had no buffer

void check_range(const char* what, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return;
  throw SetupError(std::string(what) + " is " + std::to_string(value) + ", allowed: " + std::to_string(least) + " to " +
                   std::to_string(most));
}

template <class T>
void check_range(const char* what, T value, const SettingRange<T>& range) {
  check_range(what, static_cast<uint64_t>(value), static_cast<uint64_t>(range.least),
              static_cast<uint64_t>(range.most));
}

bool any_owners(const ExchangeConfig& config) {
  const auto has = [&](const StrategyId& it) { return has_owners(it, config.world); };
  return config.world > 1 && std::ranges::any_of(config.strategies, has);
}

// Where operations that name nothing would all be refused.
void check_codec(const ExchangeConfig& config) {
  const Codec& codec = config.codec;
  if (!fits_packet(codec, config.mtu)) {
    throw SetupError(std::string(packet_fault(codec, config.mtu, config.around).view()));
  }
  if (config.world == 1) return;
  if (needs_owners(codec.row()) && !any_owners(config)) {
    throw SetupError("codec " + codec.name() + " does not add: strategies need direct or an aggregator for it");
  }
  if (needs_links(codec.row()) && !links_all(config.strategies, config.world)) {
    throw SetupError("codec " + codec.name() + " needs links between all ranks: strategies must have direct for it");
  }
}

ExchangeConfig checked(const ExchangeConfig& config) {
  check_range("world", config.world, 1, kMaxWorld);
  check_range("rank", config.rank, 0, config.world - 1);
  if (config.world > 1) check_range("incarnation", config.incarnation, 1, ~uint64_t{0});
  check_range("mtu", config.mtu, kMinPacket, kMaxMtu);
  check_codec(config);
  check_range("window", config.window, settings::kWindow);
  if (!std::has_single_bit(config.window)) {
    throw SetupError("window is " + std::to_string(config.window) + ", allowed: powers of two");
  }
  check_range("operations", config.operations, settings::kOperations);
  check_range("max_bytes", config.max_bytes, settings::kMaxTensor);
  check_range("peer_timeout in ns", config.peer_timeout, settings::kPeerTimeout);
  check_range("start_timeout in ns", config.start_timeout, settings::kStartTimeout);
  check_range("operation_timeout in ns", config.operation_timeout, settings::kOperationTimeout);
  check_range("min_rto in ns", config.min_rto, settings::kMinRto);
  check_range("queue_target", config.queue_target, settings::kQueueTarget);
  check_range("max_hold in ns", config.max_hold, 0, kSecond);
  check_range("strategies", config.strategies.size(), 1, kMaxStrategies);
  for (const StrategyId& it : config.strategies) {
    if (const std::string fault = strategy_fault(it, config.world); !fault.empty()) throw SetupError(fault);
    if (std::ranges::count(config.strategies, it) != 1) {
      throw SetupError("strategies: " + std::string(it.name().view()) + " is there twice");
    }
  }
  return config;
}

// What is the same as the ring is the ring.
bool is_ring(const StrategyId& id, unsigned world) {
  return id.kind == Kind::kRing || world == 1 || (id.kind == Kind::kRings && (id.group() == 1 || id.group() == world));
}

}  // namespace

ExchangeState::ExchangeState(const ExchangeConfig& config, PacketIo& io)
    : config_(checked(config)),
      io_(io),
      topology_(config_.strategies, config_.world, config_.rank),
      all_linked_(links_all(config_.strategies, config_.world)),
      ring_(Team::of(topology_, config_.rank, config_.world, 0, 1)),
      links_([&] {
        std::vector<Link> links;
        const size_t extra = extra_window(config_.window, topology_.extra_links());
        for (const unsigned rank : topology_.neighbours()) {
          const size_t window = links.size() < topology_.ring_links() ? config_.window : extra;
          links.emplace_back(config_, window, rank, io_, counters_);
        }
        return links;
      }()),
      // Only who is linked to all can own blocks.
      fanout_(any_owners(config_) && links_.size() + 1 == config_.world ? std::span(links_) : std::span<Link>{}, io_,
              counters_, config_.mtu, config_.pad),
      membership_(config_, topology_.ring_links(), links_, counters_),
      peers_(links_.size()),
      unsent_(links_.size()),
      scratch_(kMaxPacket),
      private_(config_.world > 2 ? kMaxRunElements * sizeof(uint64_t) : 0) {
  for (Link& link : links_) outboxes_.emplace_back(link, io_, counters_, config_.mtu, config_.pad);
  for (const StrategyId& id : config_.strategies) {
    std::unique_ptr<const Strategy> made;
    if (is_ring(id, config_.world)) {
      made = std::make_unique<Ring>(ring_);
    } else if (id.kind == Kind::kRings) {
      made = std::make_unique<Rings>(topology_, config_.world, config_.rank, id.group());
    } else {
      made = std::make_unique<Owners>(topology_, id, config_.world, config_.rank);
    }
    allowed_.push_back({id, std::move(made)});
  }
  for (PeerState& peer : peers_) peer.announced.resize(kMaxOperations);
  // Each rank's block may end within a granule.
  const size_t granules = config_.max_bytes / kGranuleBytes + 2 * size_t{config_.world};
  const size_t small = Turns::kSmallBytes / kGranuleBytes + 2 * size_t{config_.world};
  const auto relayed = [&](size_t all) { return private_.empty() ? 0 : all; };
  const unsigned owners = any_owners(config_) ? config_.world : 0;
  const size_t places = std::min(kMaxOperations, config_.operations * kSmallTogether);
  rooms_.reserve(places + config_.operations);
  table_.reserve(places);
  for (size_t i = 0; i < places; ++i) {
    rooms_.emplace_back(small, relayed(small), owners, true);
    table_.emplace_back(config_.codec, &rooms_.back(), owners);
  }
  for (size_t i = 0; i < config_.operations; ++i) rooms_.emplace_back(granules, relayed(granules), owners, false);
}

ExchangeState::~ExchangeState() {
  fanout_.reset();
  for (Outbox& outbox : outboxes_) outbox.reset();
  for (Link& link : links_) link.reset(0);
}

void ExchangeState::poll(Nanos now) noexcept {
  seen_at_ = now;
  if (was_active_) counters_.add(Counter::kExchangeNs, now - polled_at_);
  polled_at_ = now;
  handle(membership_.poll(now));
  for (Link& link : links_) link.poll(now);
  start_waiting(now);
  check_deadlines(now);
  pump(now);
  if (trace_ != nullptr) trace_waits();
  for (Link& link : links_) link.flush(now);
  was_active_ = active_ != 0;
}

Nanos ExchangeState::deadline() const noexcept {
  const bool startable = membership_.whole() && base_ + started_ != submitted_;
  if (more_ || startable) return polled_at_;
  Nanos next = std::min(membership_.deadline(), operations_at_);
  for (size_t i = 0; i < links_.size(); ++i) {
    next = std::min(next, links_[i].deadline());
    if (outboxes_[i].starved()) next = std::min(next, polled_at_ + kRetry);
    if (!outboxes_[i].idle() && links_[i].can_pass()) {
      for (const auto channel : Outbox::kData) next = std::min(next, flush_at(i, channel));
    }
  }
  if (fanout_.starved() || others_look_) next = std::min(next, polled_at_ + kRetry);
  return std::min(next, flush_results_at());
}

RingStatus ExchangeState::ring_status() const noexcept {
  return {membership_.whole(),   membership_.session(), membership_.missing(),
          membership_.refused(), membership_.cause(),   failed_,
          past_failures_};
}

LinkStatus ExchangeState::link_status(size_t neighbour) const noexcept {
  const Link& link = links_[neighbour];
  return {link.peer(),
          link.up(),
          link.in_flight(),
          link.congestion_window(),
          link.rtt().smoothed(),
          link.rtt().known() ? link.rtt().least() : 0,
          membership_.refused(neighbour),
          link.waiting_since(),
          link.totals()};
}

bool ExchangeState::awaited() const noexcept {
  const auto next = static_cast<uint32_t>(submitted_ - base_);
  return std::ranges::any_of(peers_,
                             [next](const PeerState& peer) { return static_cast<int32_t>(peer.started - next) > 0; });
}

RunHeader ExchangeState::run_header(const Running& it, const Coder& coder, Phase phase, unsigned block,
                                    size_t element) noexcept {
  return {.operation = it.number,
          .digest = it.digest,
          .first = static_cast<uint32_t>(element / coder.granule()),
          .count = 0,
          .bytes = 0,
          .block = static_cast<uint8_t>(block),
          .phase = phase,
          .codec = static_cast<uint8_t>(coder.codec_id()),
          .param = coder.codec_param()};
}

// `place`: from the tensor's first element on.
Origin ExchangeState::origin_at(const Running& it, ptrdiff_t place, bool contributes) noexcept {
  const Operation& op = it.operation;
  Origin origin{.position = op.offset + static_cast<uint64_t>(place)};
  if (op.residual == nullptr) return origin;
  float* const second = op.codec->states() > 1 ? op.residual + op.state_pitch + place : nullptr;
  const bool adds = op.codec->row().adds;
  if (contributes) {
    origin.residual = op.residual + place;
    origin.second = adds ? second : nullptr;
  } else if (!adds) {
    origin.residual = second;
  }
  return origin;
}

void ExchangeState::complete(const Running& it, unsigned block, size_t element, size_t count) noexcept {
  if (it.operation.reduction == Reduction::kAverage && last_stage(it))
    it.coder.divide(elements(it, block, element), count, it.world);
}

// ---- Exchange.

size_t Exchange::buffers(const ExchangeConfig& config) {
  const Topology topology(config.strategies, config.world, config.rank);
  constexpr size_t kOpen = Outbox::kChannels + 1;  // and one for acknowledgements
  const size_t extra = extra_window(config.window, topology.extra_links());
  const size_t links = topology.ring_links() * (config.window + kOpen) + topology.extra_links() * (extra + kOpen);
  return links + (any_owners(config) ? Fanout::kPackets + 2 : 0) + 1;
}

Exchange::Exchange(const ExchangeConfig& config, PacketIo& io) : state_(std::make_unique<ExchangeState>(config, io)) {}
Exchange::~Exchange() = default;

Exchange::Submitted Exchange::submit(const Operation& operation, Nanos now) noexcept {
  return state_->submit(operation, now);
}
FailureText Exchange::packet_fault(const Operation& operation) const noexcept {
  return state_->packet_fault(operation);
}
void Exchange::abort(uint64_t id) noexcept { state_->abort(id); }
void Exchange::close() noexcept { state_->close(); }
void Exchange::refuse(const Failure& why) noexcept { state_->refuse(why); }
bool Exchange::fresh() const noexcept { return state_->fresh(); }
bool Exchange::awaited() const noexcept { return state_->awaited(); }
void Exchange::complain(unsigned from, uint8_t tos, Nanos now) noexcept {
  const auto ranks = state_->neighbours();
  const auto place = std::ranges::find(ranks, from);
  if (place != ranks.end()) state_->membership().complain(static_cast<size_t>(place - ranks.begin()), tos, now);
}
void Exchange::seek(uint32_t since) noexcept { state_->membership().seek(since); }
uint32_t Exchange::sought() const noexcept { return state_->membership().sought(); }
uint32_t Exchange::generation() const noexcept { return state_->membership().generation(); }
uint32_t Exchange::first_generation() const noexcept { return state_->membership().first_generation(); }
bool Exchange::next_completion(Completion& completion) noexcept { return state_->next_completion(completion); }
bool Exchange::receive(unsigned from, Packet packet, size_t bytes, Nanos now) noexcept {
  return state_->receive(from, packet, bytes, now);
}
void Exchange::poll(Nanos now) noexcept { state_->poll(now); }
std::unique_ptr<TraceLog> Exchange::make_trace(size_t words, TraceLog::Clock clock) const {
  return state_->make_trace(words, clock);
}
bool Exchange::trace(TraceLog& log, Nanos now) noexcept { return state_->trace(log, now); }
Nanos Exchange::deadline() const noexcept { return state_->deadline(); }
std::span<const unsigned> Exchange::neighbours() const noexcept { return state_->neighbours(); }
const Counters& Exchange::counters() const noexcept { return state_->counters(); }
const AllCodecTotals& Exchange::codec_totals() const noexcept { return state_->codec_totals(); }
const OperationTimes& Exchange::operation_times() const noexcept { return state_->operation_times(); }
RingStatus Exchange::ring_status() const noexcept { return state_->ring_status(); }
LinkStatus Exchange::link_status(size_t neighbour) const noexcept { return state_->link_status(neighbour); }

}  // namespace gradlane
