// exchange.cc - construction, submissions, polls, status
#include "collectives/exchange/exchange.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/error.h"
#include "collectives/descriptor.h"
#include "collectives/exchange/exchange_state.h"
#include "collectives/strategy/codec_needs.h"

namespace gradlane {
namespace {

constexpr size_t kSmall = size_t{64} << 10;  // bytes; tensors up to this size send first

constexpr Nanos kScanAgain = 10 * kMicrosecond;  // time to the next poll while other exchanges scan the same tensor

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

// Throws SetupError if all operations would be refused that name neither codec nor strategy.
void check_codec(const ExchangeConfig& config) {
  const Codec& codec = config.codec;
  if (!fits_packet(codec, config.mtu)) {
    throw SetupError(std::string(packet_fault(codec, config.mtu, config.around).view()));
  }
  if (config.world == 1) return;
  if (needs_owners(codec.row()) && !any_owners(config)) {
    throw SetupError("codec " + codec.name() + " does not add: strategies must include direct or an aggregator");
  }
  if (needs_links(codec.row()) && !links_all(config.strategies, config.world)) {
    throw SetupError("codec " + codec.name() + " needs links between all ranks: strategies must include direct");
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
      throw SetupError("strategies: " + std::string(it.name().view()) + " is given twice");
    }
  }
  return config;
}

}  // namespace

ExchangeState::ExchangeState(const ExchangeConfig& config, PacketIo& io)
    : config_(checked(config)),
      io_(io),
      topology_(config_.strategies, config_.world, config_.rank),
      admission_(config_, topology_),
      tracer_(config_.rank, topology_.neighbours()),
      peers_(topology_.links()),
      egress_(config_, topology_, any_owners(config_), io, counters_, peers_, budget_, tracer_, decoded_),
      membership_(config_, topology_.ring_links(), egress_.links(), counters_),
      scratch_(kMaxPacket),
      private_copy_(config_.world > 1 ? kMaxRunElements * sizeof(uint64_t) : 0),
      parts_{.config = config_,
             .topology = topology_,
             .counters = counters_,
             .budget = budget_,
             .tracer = tracer_,
             .peers = peers_,
             .egress = egress_,
             .owners = any_owners(config_) ? config_.world : 0,
             .scratch = scratch_,
             .private_copy = private_copy_,
             .decoded = decoded_},
      table_(parts_),
      preparation_(parts_, membership_, table_),
      lifecycle_(parts_, admission_.ring(), membership_, table_, preparation_),
      control_(parts_, table_, lifecycle_),
      deferred_(DeferredPackets::capacity_for(config_.window)) {}

ExchangeState::~ExchangeState() {
  while (!deferred_.empty()) io_.release(deferred_.pop().packet);
}

// ---- Operations

Exchange::Submitted ExchangeState::submit(const Operation& operation, Nanos now) noexcept {
  using Refusal = Exchange::Refusal;
  OperationState* const place = table_.next_free_slot();
  if (place == nullptr) return {.id = 0, .refusal = Refusal::kFull};
  if (const auto refusal = admission_.check(operation); refusal != Refusal::kNone) return {.id = 0, .refusal = refusal};
  OperationMemory* const room = table_.memory_for(admission_.memory_bytes(operation), *place);
  if (room == nullptr) return {.id = 0, .refusal = Refusal::kFull};

  OperationState& it = *place;
  table_.claim(it, *room);
  it.world = config_.world;
  it.rank = config_.rank;
  it.outcome = {};
  it.notices = {};
  it.prepared.counted = false;
  it.times = {.submitted = now, .deadline = now + (operation.timeout != 0 ? operation.timeout : config_.start_timeout)};
  it.operation = operation;
  if (operation.kind == OpKind::kBarrier) {
    it.token = 1;
    it.operation = Operation{};
    it.operation.tag = operation.tag;
    it.operation.timeout = operation.timeout;
    it.operation.kind = OpKind::kBarrier;
    it.operation.strategy = operation.strategy;
    it.operation.type = ElementType::kInt32;
    it.operation.count = 1;
    it.operation.data = &it.token;
  }
  it.strategy = admission_.complete(it.operation);
  it.make_coders();
  it.descriptor = describe(it.operation, *it.operation.codec);
  it.digest = digest_of(it.descriptor);
  lifecycle_.note_deadline(it);
  if (tracer_.on()) tracer_.submitted(it, membership_.session(), membership_.missing(), now);
  return {.id = it.id, .refusal = Refusal::kNone};
}

void ExchangeState::abort(uint64_t id) noexcept {
  if (OperationState* const it = table_.find(id)) lifecycle_.abort(*it, polled_at_);
}

void ExchangeState::close() noexcept {
  lifecycle_.handle(membership_.give_up({.code = FailureCode::kClosed, .rank = static_cast<uint16_t>(config_.rank)}));
}

void ExchangeState::refuse(const Failure& why) noexcept {
  if (const auto link = topology_.link_to(why.rank)) lifecycle_.handle(membership_.refuse(*link, why));
}

// ---- Polls

void ExchangeState::poll(Nanos now) noexcept {
  lifecycle_.set_time(now);
  if (was_active_) counters_.add(Counter::kExchangeNs, now - polled_at_);
  polled_at_ = now;
  lifecycle_.handle(membership_.poll(now));
  for (Link& link : egress_.links()) link.poll(now);
  resume_deferred(egress_.starved(), now);
  if (!deferred_.empty()) egress_.link(deferred_.front().next_link).count_stall();
  lifecycle_.start_waiting(now);
  lifecycle_.check_deadlines(now);
  pump(now);
  if (tracer_.on()) trace_waits();
  for (Link& link : egress_.links()) link.flush(now);
  was_active_ = table_.any_active();
}

// Lets all operations send. Runs for other ranks that could not be sent when they arrived go before this rank's own
// elements.
void ExchangeState::pump(Nanos now) noexcept {
  budget_.begin();
  egress_.begin_poll();
  if (!table_.any_started()) return;
  preparation_.poll();
  const auto for_ready = [this](auto visit) {
    table_.for_running([&](OperationState& it) {
      if (it.prepared.ready) visit(it, *it.algorithm);
    });
  };
  for_ready([&](OperationState&, Algorithm& algorithm) { algorithm.send_credits(now); });
  control_.send(now);
  bool more = false;  // elements are left to send
  for_ready([&](OperationState& it, Algorithm& algorithm) {
    more |= algorithm.send_passing(now);
    lifecycle_.fail_if_found(it);
  });
  // Barriers and scalars must not wait until a large tensor has been sent.
  for (const bool small : {true, false}) {
    for_ready([&](OperationState& it, Algorithm& algorithm) {
      if (small != (it.blocks.elements() * it.coder.element_bytes() <= kSmall)) return;
      more |= algorithm.send_own(now);
      lifecycle_.end_if_done(it);
    });
  }
  egress_.end_poll(more, now);
}

Nanos ExchangeState::deadline() const noexcept {
  const bool startable = membership_.ready() && table_.any_waiting();
  if (budget_.more() || startable) return polled_at_;
  Nanos next = std::min({membership_.deadline(), lifecycle_.deadline(), egress_.deadline(polled_at_)});
  if (preparation_.waits_for_others()) next = std::min(next, polled_at_ + kScanAgain);
  return next;
}

// ---- Status

RingStatus ExchangeState::ring_status() const noexcept {
  return {membership_.ready(), membership_.session(), membership_.missing(),     membership_.refused(),
          membership_.cause(), lifecycle_.failed(),   lifecycle_.past_failures()};
}

LinkStatus ExchangeState::link_status(size_t neighbour) const noexcept {
  const Link& link = egress_.links()[neighbour];
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

void ExchangeState::trace_waits() noexcept {
  for (OperationState& it : table_.all()) {
    const bool waits = it.state == OperationState::State::kWaiting || it.state == OperationState::State::kRunning;
    if (waits && tracer_.records(it)) trace_wait(it);
  }
}

// Records what an operation waits for, and the rank that it concerns.
void ExchangeState::trace_wait(OperationState& it) noexcept {
  const auto waits = [&](TraceCause cause, unsigned rank) { tracer_.waits(it, cause, rank); };
  if (it.state == OperationState::State::kWaiting) return waits(TraceCause::kRing, membership_.missing());
  if (!it.prepared.ready) {
    const size_t link = it.prepared.local_offer ? peers_.unheard(it) : topology_.links();
    if (link == topology_.links()) return waits(TraceCause::kScan, config_.rank);
    return waits(TraceCause::kStart, topology_.rank_at(link));
  }
  if (topology_.links() == 0) return waits(TraceCause::kWork, config_.rank);
  if (const auto step = it.algorithm->next_step()) {
    if (!peers_.takes(it, *step)) return waits(TraceCause::kStart, topology_.rank_at(step->link));
    if (!egress_.link(step->link).can_send()) return waits(TraceCause::kLink, topology_.rank_at(step->link));
    return waits(TraceCause::kWork, config_.rank);
  }
  if (!deferred_.empty()) return waits(TraceCause::kLink, topology_.rank_at(deferred_.front().next_link));
  if (const auto sender = it.algorithm->missing_from()) return waits(TraceCause::kPackets, *sender);
  // Nothing is left to send or receive. Lifecycle::end_if_done() waits for the successor's start.
  waits(TraceCause::kStart, it.algorithm->awaited());
}

// ---- Exchange.

size_t Exchange::buffers(const ExchangeConfig& config) {
  const Topology topology(config.strategies, config.world, config.rank);
  const size_t deferred = config.world > 1 ? DeferredPackets::capacity_for(config.window) : 0;
  return Egress::buffers(config, topology, any_owners(config)) + deferred;
}

Exchange::Exchange(const ExchangeConfig& config, PacketIo& io) : state_(std::make_unique<ExchangeState>(config, io)) {}
Exchange::~Exchange() = default;

Exchange::Submitted Exchange::submit(const Operation& operation, Nanos now) noexcept {
  return state_->submit(operation, now);
}
FailureText Exchange::packet_fault(const Operation& operation) const noexcept {
  return state_->admission_.packet_fault(operation);
}
void Exchange::abort(uint64_t id) noexcept { state_->abort(id); }
void Exchange::close() noexcept { state_->close(); }
void Exchange::refuse(const Failure& why) noexcept { state_->refuse(why); }
bool Exchange::none_submitted() const noexcept { return state_->table_.none_submitted(); }
bool Exchange::awaited() const noexcept { return state_->peers_.any_started(state_->table_.next_number()); }
void Exchange::note_wrong_tos(unsigned from, uint8_t tos, Nanos now) noexcept {
  const auto ranks = state_->topology_.neighbours();
  const auto place = std::ranges::find(ranks, from);
  if (place != ranks.end()) state_->membership_.note_wrong_tos(static_cast<size_t>(place - ranks.begin()), tos, now);
}
void Exchange::announce_since(uint32_t since) noexcept { state_->membership_.announce_since(since); }
uint32_t Exchange::announced_since() const noexcept { return state_->membership_.announced_since(); }
uint32_t Exchange::generation() const noexcept { return state_->membership_.generation(); }
uint32_t Exchange::first_generation() const noexcept { return state_->membership_.first_generation(); }
bool Exchange::next_completion(Completion& completion) noexcept { return state_->table_.next_completion(completion); }
bool Exchange::receive(unsigned from, Packet packet, size_t bytes, Nanos now) noexcept {
  return state_->receive(from, packet, bytes, now);
}
void Exchange::poll(Nanos now) noexcept { state_->poll(now); }
std::unique_ptr<TraceLog> Exchange::make_trace(size_t words, TraceLog::Clock clock) const {
  return std::make_unique<TraceLog>(state_->table_.all().size(), state_->config_.world, words, clock);
}
bool Exchange::trace(TraceLog& log, Nanos now) noexcept {
  return state_->tracer_.follow(log, state_->table_.all(), state_->membership_.session(), now);
}
Nanos Exchange::deadline() const noexcept { return state_->deadline(); }
std::span<const unsigned> Exchange::neighbours() const noexcept { return state_->topology_.neighbours(); }
const Counters& Exchange::counters() const noexcept { return state_->counters_; }
const AllCodecTotals& Exchange::codec_totals() const noexcept { return state_->egress_.codec_totals(); }
const OperationTimes& Exchange::operation_times() const noexcept { return state_->lifecycle_.operation_times(); }
RingStatus Exchange::ring_status() const noexcept { return state_->ring_status(); }
LinkStatus Exchange::link_status(size_t neighbour) const noexcept { return state_->link_status(neighbour); }

}  // namespace gradlane
