// node.cc - a node of a simulated network: one Exchange, and the packet buffers and neighbours it sees
#include "sim/node.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/error.h"

namespace gradlane {
namespace {

// Least virtual time between two polls of a node. A thread that polls all the time needs about this long for a poll.
// The gap also keeps virtual time advancing if an exchange asks forever to be polled at once.
constexpr Nanos kLeastPollGap = 100;

}  // namespace

SimNode::SimNode(SimCore& core, SimNetwork& network, unsigned index, Limits limits)
    : core_(core), network_(network), index_(index), limits_(limits) {}

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

// Maps the ranks of neighbours to nodes. Rank r is node r, even if the exchange is configured with another place in the
// ring. If node r is not joined to this node, packets for rank r go to the next or the previous node of the ring. The
// exchange's configuration decides which of the two.
void SimNode::find_routes() {
  node_of_.fill(kNoNeighbour);
  std::iota(rank_of_.begin(), rank_of_.end(), uint16_t{0});
  const std::span<const unsigned> neighbours = exchange_->neighbours();
  for (const unsigned rank : neighbours) {
    const bool joined = network_.joined(index_, rank);
    const unsigned node = joined ? rank : network_.beside(index_, rank == (config_.rank + 1) % config_.world);
    if (!joined && node != SimNetwork::kNobody && neighbours.size() > 2) {
      throw SetupError("simulated network: no cable joins node " + std::to_string(index_) + " to its neighbour " +
                       std::to_string(rank) + ": that takes a switch");
    }
    node_of_.at(rank) = static_cast<uint16_t>(node);
  }
  for (const unsigned rank : neighbours) {
    const uint16_t node = node_of_[rank];
    if (node == SimNetwork::kNobody || node_of_[node] != kNoNeighbour || rank_of_[node] != node) continue;
    rank_of_[node] = static_cast<uint16_t>(rank);
  }
}

Exchange::Submitted SimNode::submit(const Operation& operation) {
  if (trace_ != nullptr) trace_->set_now(core_.now);
  const Exchange::Submitted submitted = exchange_->submit(operation, core_.now);
  if (submitted.refusal != Exchange::Refusal::kNone) return submitted;
  ++submitted_;
  ++core_.pending;
  wake();
  return submitted;
}

// ---- Events

// Requests a poll at the present time.
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

void SimNode::arrive(SimBuffer* buffer) {
  const unsigned rank = rank_of_[buffer->from];
  if (paused_) return wait(buffer, rank);
  if (core_.tap) core_.tap(buffer->from, index_, {buffer->data(), buffer->bytes});
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
  if (trace_ != nullptr) trace_->set_now(core_.now);
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
  if (trace_ != nullptr) exchange_->trace(*trace_, core_.now);
  exchange_->poll(core_.now);
  ++polls_;
  for (Completion completion; exchange_->next_completion(completion);) {
    completions_.push_back({completion.id, completion.failure, core_.now, completion.sent_bytes});
    --core_.pending;
  }
  // A timer that is too early is set again when it fires, which costs less than moving it each time.
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
  const unsigned node = rank < node_of_.size() ? node_of_[rank] : kNoNeighbour;
  if (node == kNoNeighbour) simnet_abort(index_, "transmitted to a rank that is no neighbour");
  if (node == SimNetwork::kNobody) return true;  // the exchange is configured with neighbours that do not exist
  return network_.transmit(index_, node, {packet.data, bytes});
}

}  // namespace gradlane
