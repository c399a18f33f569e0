// node.cc - a node of a simulated network: one Exchange, and the packet buffers and links it sees
#include "tools/simnet/node.h"

#include <algorithm>

namespace gradlane {
namespace {

// A thread that polls all the time gets round about this often. It also keeps virtual time going should an exchange ask
// to be polled at once for ever.
constexpr Nanos kLeastPollGap = 100;

}  // namespace

SimNode::SimNode(SimCore& core, unsigned index, Limits limits, Port next, Port previous)
    : core_(core), index_(index), limits_(limits), next_(next), previous_(previous) {}

SimNode::~SimNode() { stop(); }

// ---- The life of its exchange

void SimNode::start(const ExchangeConfig& config) {
  config_ = config;
  exchange_ = std::make_unique<Exchange>(config, *this);
  find_routes();
  wake();
}

void SimNode::stop() noexcept {
  exchange_.reset();
  if (held_ != 0) simnet_abort(index_, "was stopped, and its exchange had not released all packet buffers");
  while (!waiting_.empty()) core_.pool.give(waiting_.take());
  core_.pending -= submitted_ - completions_.size();
  submitted_ = 0;
  completions_.clear();
}

// Ranks are addresses: a neighbour is reached by its rank even where the exchange is configured to have another place
// in the ring. What it takes for neighbours beyond that is where it thinks it is, before or behind it.
void SimNode::find_routes() {
  route_count_ = 0;
  for (const unsigned rank : exchange_->neighbours()) {
    Port port = rank == (config_.rank + 1) % config_.world || previous_.out == nullptr ? next_ : previous_;
    for (const Port& direct : {next_, previous_}) {
      if (direct.out != nullptr && direct.out->to() == rank) port = direct;
    }
    routes_.at(route_count_++) = {rank, port};
  }
}

unsigned SimNode::rank_of(unsigned node) const noexcept {
  const std::span<const Route> routes(routes_.data(), route_count_);
  for (const Route& route : routes) {
    if (route.rank == node) return node;
  }
  for (const Route& route : routes) {
    if (route.port.out != nullptr && route.port.out->to() == node) return route.rank;
  }
  return node;
}

Exchange::Submitted SimNode::submit(const Operation& operation) {
  const Exchange::Submitted submitted = exchange_->submit(operation, core_.now);
  if (submitted.refusal == Exchange::Refusal::kNone) {
    ++submitted_;
    ++core_.pending;
  }
  wake();
  return submitted;
}

// ---- Events

// Has it polled at the present time.
void SimNode::wake() {
  if (!ready_) core_.ready.push_back(index_);
  ready_ = true;
}

void SimNode::timer() {
  // The deadline may have moved on since the timer was set.
  const Nanos due = paused_ ? kNever : exchange_->deadline();
  const bool now = due <= core_.now;
  core_.schedule.set(index_, now ? kNever : due);
  if (now) wake();
}

void SimNode::arrive(SimBuffer* buffer, unsigned from_node) {
  const unsigned rank = rank_of(from_node);
  if (paused_) return wait(buffer, rank);
  if (core_.tap) core_.tap(from_node, index_, {buffer->data(), buffer->bytes});
  receive(buffer, rank);
  wake();
}

void SimNode::inject(unsigned from_rank, std::span<const uint8_t> packet) {
  SimBuffer* const buffer = core_.pool.take();
  buffer->state = SimBuffer::State::kInFlight;
  buffer->bytes = static_cast<uint32_t>(packet.size());
  std::ranges::copy(packet, buffer->data());
  wait(buffer, from_rank);
  wake();
}

void SimNode::wait(SimBuffer* buffer, unsigned from_rank) noexcept {
  if (waiting_.size() >= limits_.pause_queue) {
    ++pause_drops_;
    core_.pool.give(buffer);
    return;
  }
  buffer->due = core_.now;
  buffer->from = from_rank;
  waiting_.put(buffer);
}

void SimNode::receive(SimBuffer* buffer, unsigned from_rank) noexcept {
  using State = SimBuffer::State;
  buffer->state = State::kDelivering;
  buffer->holder = index_;
  core_.pool.open(buffer, std::max<size_t>(config_.mtu, buffer->bytes));
  const bool kept = exchange_->receive(from_rank, {buffer->data(), buffer}, buffer->bytes, core_.now);
  if (kept && buffer->state == State::kDelivering) {
    buffer->state = State::kHeld;
    peak_ = std::max(peak_, ++held_);
    return;
  }
  if (!kept && buffer->state == State::kReturned) simnet_abort(index_, "released a packet that it did not keep");
  core_.pool.give(buffer);
}

void SimNode::poll() {
  ready_ = false;
  if (paused_) return;
  while (!waiting_.empty()) {
    SimBuffer* const buffer = waiting_.take();
    if (core_.tap) core_.tap(buffer->from, index_, {buffer->data(), buffer->bytes});
    receive(buffer, buffer->from);
  }
  exchange_->poll(core_.now);
  ++polls_;
  for (Completion completion; exchange_->next_completion(completion);) {
    completions_.push_back({completion.id, completion.failure, core_.now});
    --core_.pending;
  }
  // A timer that is too early looks again when it fires: that costs less than to move it each time.
  const Nanos due = std::max(exchange_->deadline(), core_.now + kLeastPollGap);
  if (due < core_.schedule.time_of(index_)) core_.schedule.set(index_, due);
}

// ---- PacketIo

Packet SimNode::allocate() noexcept {
  if (held_ >= limits_.buffers) return {};
  SimBuffer* const buffer = core_.pool.take();
  buffer->state = SimBuffer::State::kHeld;
  buffer->holder = index_;
  core_.pool.open(buffer, config_.mtu);
  peak_ = std::max(peak_, ++held_);
  return {buffer->data(), buffer};
}

SimBuffer* SimNode::checked(Packet packet, const char* complaint) const noexcept {
  using State = SimBuffer::State;
  auto* const buffer = static_cast<SimBuffer*>(packet.handle);
  const bool mine = buffer != nullptr && buffer->data() == packet.data && buffer->holder == index_ &&
                    (buffer->state == State::kHeld || buffer->state == State::kDelivering);
  if (!mine) simnet_abort(index_, complaint);
  return buffer;
}

void SimNode::release(Packet packet) noexcept {
  SimBuffer* const buffer = checked(packet, "released a packet buffer that it does not hold");
  if (buffer->state == SimBuffer::State::kDelivering) {
    buffer->state = SimBuffer::State::kReturned;
    return;
  }
  --held_;
  core_.pool.give(buffer);
}

bool SimNode::transmit(unsigned rank, Packet packet, size_t bytes) noexcept {
  (void)checked(packet, "transmitted a packet buffer that it does not hold");
  if (bytes > config_.mtu) simnet_abort(index_, "transmitted a packet beyond its MTU");
  const Route* const route = std::find_if(routes_.data(), routes_.data() + route_count_,
                                          [rank](const Route& candidate) { return candidate.rank == rank; });
  if (route == routes_.data() + route_count_) simnet_abort(index_, "transmitted to a rank that is no neighbour");
  if (route->port.out == nullptr) return true;  // a world of one that believes to be more: nobody is there

  SimLink& link = *route->port.out;
  if (link.refuses()) return false;
  const std::span<const uint8_t> bytes_sent(packet.data, bytes);
  if (core_.filter && !core_.filter(index_, link.to(), bytes_sent)) {
    link.count_filtered();
    return true;
  }
  link.send(bytes_sent, core_.now, core_.pool);
  if (link.due() < core_.schedule.time_of(route->port.source)) core_.schedule.set(route->port.source, link.due());
  return true;
}

}  // namespace gradlane
