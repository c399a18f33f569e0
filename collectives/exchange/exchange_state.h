// exchange_state.h - the parts of an Exchange
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/time.h"
#include "collectives/exchange/blocks.h"
#include "collectives/exchange/coder.h"
#include "collectives/exchange/deferred.h"
#include "collectives/exchange/exchange.h"
#include "collectives/exchange/fanout.h"
#include "collectives/exchange/membership.h"
#include "collectives/exchange/outbox.h"
#include "collectives/exchange/running.h"
#include "collectives/exchange/turns.h"
#include "collectives/exchange_config.h"
#include "collectives/link/link.h"
#include "collectives/operation.h"
#include "collectives/strategy/ring.h"
#include "collectives/strategy/strategy.h"
#include "collectives/strategy/topology.h"
#include "collectives/trace_log.h"
#include "collectives/wire.h"

namespace gradlane {

class ExchangeState {
 public:
  ExchangeState(const ExchangeConfig& config, PacketIo& io);
  ~ExchangeState();

  // As in Exchange.
  Exchange::Submitted submit(const Operation& operation, Nanos now) noexcept;
  FailureText packet_fault(const Operation& operation) const noexcept;
  void abort(uint64_t id) noexcept;
  void close() noexcept;
  void refuse(const Failure& why) noexcept;
  bool fresh() const noexcept { return base_ == submitted_; }
  bool awaited() const noexcept;
  bool next_completion(Completion& completion) noexcept;
  bool receive(unsigned from, Packet packet, size_t bytes, Nanos now) noexcept;
  void poll(Nanos now) noexcept;
  Nanos deadline() const noexcept;
  std::span<const unsigned> neighbours() const noexcept { return topology_.neighbours(); }
  const Counters& counters() const noexcept { return counters_; }
  const AllCodecTotals& codec_totals() const noexcept { return codec_totals_; }
  const OperationTimes& operation_times() const noexcept { return operation_times_; }
  RingStatus ring_status() const noexcept;
  LinkStatus link_status(size_t neighbour) const noexcept;
  Membership& membership() noexcept { return membership_; }
  std::unique_ptr<TraceLog> make_trace(size_t words, TraceLog::Clock clock) const;
  bool trace(TraceLog& log, Nanos now) noexcept;

 private:
  // A run of a packet that has been checked.
  struct Run {
    RunHeader header;
    std::span<const uint8_t> payload;
    Running* operation;  // null: over, or control
    Step step;
  };
  static constexpr size_t kMaxRuns = kMaxMtu / sizeof(RunHeader);

  // ---- submissions.cc, lifecycle.cc: the life of operations
  // One of the last 2^31 that have started; its place may be another's by now.
  Running& at(uint32_t number) noexcept {
    const uint32_t back = static_cast<uint32_t>(started_) - number;
    return table_[(base_ + started_ - back) % table_.size()];
  }
  Exchange::Refusal check(const Operation& operation) const noexcept;
  const Strategy* strategy_for(const Operation& operation, StrategyId& id) const noexcept;
  void start_waiting(Nanos now) noexcept;
  void start(Running& it, Nanos now) noexcept;
  void begin_stage(Running& it) noexcept;
  void share_links() noexcept;
  [[nodiscard]] Room* room_for(const Operation& operation, size_t place) noexcept;
  void look_at_loss(Running& it) noexcept;
  void check_deadlines(Nanos now) noexcept;
  void tell_all(Running& it) noexcept;
  void end_if_done(Running& it) noexcept;
  void end(Running& it, const Failure& failure) noexcept;
  void note(const Failure& failure) noexcept;
  void fail_everywhere(Running& it, const Failure& failure, unsigned origin) noexcept;
  unsigned awaited(const Running& it) const noexcept;
  void fail_waiting(const Failure& failure) noexcept;
  void handle(Membership::Event event) noexcept;
  void set_deadline() noexcept;
  void note_deadline(const Running& it) noexcept {
    operations_at_ =
        std::min({operations_at_, it.deadline, it.state == Running::State::kRunning ? it.tell_at : kNever});
  }
  void release_if_read(Running& it) noexcept;

  // ---- beginnings.cc: before the first element
  void make_coders(Running& it) noexcept;
  void begin(Running& it) noexcept;
  void begin_waiting() noexcept;
  // None that was submitted before it runs. What runs is unread.
  [[nodiscard]] uint64_t first_started() const noexcept {
    return std::max(read_, base_ + started_ - std::min<uint64_t>(started_, table_.size()));
  }
  void look_on(Running& it, size_t& floats) noexcept;
  void note_looked(Running& it) noexcept;
  void go_on(Running& it) noexcept;
  [[nodiscard]] std::optional<float> agreed(const Running& it) const noexcept;
  void settle(Running& it, float agreed) noexcept;
  [[nodiscard]] size_t unheard(const Running& it) const noexcept;

  // ---- arrivals.cc: packets received
  bool receive_data(size_t link, const LinkHeader& header, Packet packet, size_t bytes, uint32_t payload_crc,
                    Nanos now) noexcept;
  std::optional<Counter> check_runs(std::span<const uint8_t> bytes, size_t link) noexcept;
  static bool is_padding(std::span<const uint8_t> bytes) noexcept;
  std::optional<Counter> check_run(Run& run, size_t link) noexcept;
  [[nodiscard]] bool is_awaited(const Run& run, size_t link) const noexcept;
  [[nodiscard]] bool has_room(const Run& run, size_t link) const noexcept;
  bool relay(Packet packet, size_t bytes, uint32_t payload_crc, Nanos now) noexcept;
  void take(const Run& run, size_t link, bool relayed, Nanos now) noexcept;
  void take_sum(const Run& run, Nanos now) noexcept;
  size_t pass_on(const Run& run, Nanos now) noexcept;
  void absorb(const Run& run, size_t done) noexcept;
  void take_result(const Run& run, bool relayed, Nanos now) noexcept;
  void defer_result(const Run& run) noexcept;
  void store_result(Running& it, const Coder& coder, unsigned block, size_t first, std::span<const uint8_t> encoded,
                    size_t count) noexcept;
  void store_with_digests(Running& it, const Coder& coder, unsigned block, size_t first,
                          std::span<const uint8_t> encoded, size_t count) noexcept;
  void add_sum(const Run& run) noexcept;
  bool copy(const Run& run, Nanos now) noexcept;

  // ---- control.cc: runs without elements
  std::optional<Counter> check_control(const Run& run, size_t link) noexcept;
  void take_start(size_t link, const Run& run) noexcept;
  void take_abort(const Run& run) noexcept;
  void compare(Running& it, size_t link, const Descriptor& theirs) noexcept;
  void send_control(Nanos now) noexcept;
  void send_aborts(Running& it, Nanos now) noexcept;

  // ---- departures.cc: packets that this rank starts
  void pump(Nanos now) noexcept;
  template <typename Visit>
  void for_running(Visit visit) noexcept;
  bool send_deferred(Running& it, Phase phase, Nanos now) noexcept;
  bool send_own(Running& it, Nanos now) noexcept;
  uint8_t* read_result(Running& it, unsigned block, size_t first, size_t count) noexcept;
  size_t send(Running& it, const Step& step, unsigned block, size_t first, uint8_t* data, size_t count,
              bool contributes, Nanos now) noexcept;
  bool round_own(Running& it, size_t block_count) noexcept;
  void own_result(Running& it, uint8_t* sums, size_t count) noexcept;
  void flush(size_t link, bool more, Nanos now) noexcept;
  Nanos flush_at(size_t link, Outbox::Channel channel) const noexcept;
  bool peer_started(size_t link, const Running& it) const noexcept {
    return static_cast<int32_t>(peers_[link].started - it.number) > 0;
  }
  // This stage of it.
  bool peer_takes(const Running& it, const Step& step) const noexcept {
    if (it.task.stage + it.lead == 0) return peer_started(step.link, it);
    const auto& announced = announced_by(step.link, it);
    return announced.valid && announced.number == it.number && announced.stage >= it.task.stage + it.lead;
  }

  // ---- owned.cc: blocks with owners
  void begin_owned(Running& it) noexcept;
  void begin_turns(Running& it) noexcept;
  bool owned_done(const Running& it) const noexcept;
  void send_owned(Running& it, Nanos now) noexcept;
  bool send_contribution(Running& it, unsigned block, Nanos now) noexcept;
  void queue_results(Running& it, Nanos now) noexcept;
  bool queue_result(Running& it, size_t count, Nanos now) noexcept;
  void send_grants(Running& it, Nanos now) noexcept;
  void take_contribution(const Run& run, size_t link) noexcept;
  void take_grant(const Run& run) noexcept;
  void add_own(Running& it, size_t first, size_t count, uint8_t* sums, bool begins) noexcept;
  void flush_results(Nanos now) noexcept;
  Nanos flush_results_at() const noexcept;
  unsigned turn_of(const Running& it, unsigned rank) const noexcept {
    return (rank + config_.world - it.strategy->first_of(it.task, it.own)) % config_.world;
  }
  unsigned owed(const Running& it) const noexcept;

  // ---- delivered.cc: blocks that go from one rank to one other
  void begin_delivery(Running& it) noexcept;
  void take_delivery(const Run& run, size_t link) noexcept;
  size_t copy_own(Running& it, unsigned block, size_t first) noexcept;
  unsigned owed_delivery(const Running& it) const noexcept;

  // ---- tracing.cc: while trace_ is set
  struct Wait {
    TraceCause cause;
    unsigned rank;
  };
  [[nodiscard]] size_t place_of(const Running& it) const noexcept { return static_cast<size_t>(&it - table_.data()); }
  // The time if what begins now is to be timed; else 0.
  [[nodiscard]] Nanos trace_begins() const noexcept { return trace_->times() ? trace_->clock() : 0; }
  void trace_submitted(const Running& it, Nanos now) noexcept;
  void trace_started(const Running& it) noexcept;
  void trace_end(const Running& it, const Failure& failure, uint64_t flags) noexcept;
  void trace_out(const Running& it, Phase phase, unsigned block, size_t link, size_t bytes) noexcept;
  void trace_in(const Run& run, size_t link, Nanos began) noexcept;
  void trace_time(const Running& it, Nanos TraceOperation::*of, Nanos began) noexcept;
  void trace_waits() noexcept;
  [[nodiscard]] Wait wait_of(Running& it) noexcept;
  [[nodiscard]] std::optional<Step> next_to_send(Running& it) noexcept;

  // ---- Elements of an operation.
  static uint8_t* elements(const Running& it, unsigned block, size_t element) noexcept {
    const size_t first = it.base + it.blocks.offset(block) + element;
    return static_cast<uint8_t*>(it.operation.data) + first * it.coder.element_bytes();
  }
  // The digests from an element of a block on. Shares may begin within a granule of the tensor, blocks of a spread
  // tensor do not; their digests must outlive a stage, and the next one divides the tensor differently.
  static uint32_t* digests(const Running& it, unsigned block, size_t element) noexcept {
    const size_t granule = it.coder.granule();
    const size_t place = has_shares(it.operation.kind) ? it.room->result.place(block, element / granule)
                                                       : (it.base + it.blocks.offset(block) + element) / granule;
    return &it.room->digests[place];
  }
  // Of contributions, or of what is added up: the states of the one who adds are the second ones.
  static Origin origin_at(const Running& it, ptrdiff_t place, bool contributes) noexcept;
  static Origin origin(const Running& it, unsigned block, size_t element, bool contributes) noexcept {
    return origin_at(it, static_cast<ptrdiff_t>(it.base + it.blocks.offset(block) + element), contributes);
  }
  // Its sums are what this rank adds its contribution to.
  static bool contributes(const Running& it) noexcept { return reduces(it.task.kind) && it.task.stage == 0; }
  // What is added last in this stage has all contributions.
  static bool sums_end(const Running& it) noexcept {
    return reduces(it.task.kind) && it.task.stage == it.strategy->stages(it.task.kind) / 2;
  }
  static RunHeader run_header(const Running& it, const Coder& coder, Phase phase, unsigned block,
                              size_t element) noexcept;
  static Outbox::Channel channel_of(const Step& step) noexcept {
    if (step.phase == Phase::kReduce) return Outbox::kSums;
    return step.begins ? Outbox::kResults : Outbox::kPassing;
  }
  static bool last_stage(const Running& it) noexcept {
    return it.task.stage + 1 >= it.strategy->stages(it.operation.kind);
  }
  // These results have been sent, or need not be: what is left to do to them.
  static void complete(const Running& it, unsigned block, size_t element, size_t count) noexcept;

  const ExchangeConfig config_;
  PacketIo& io_;
  Counters counters_;
  AllCodecTotals codec_totals_{};
  OperationTimes operation_times_{};
  const Topology topology_;
  const bool all_linked_;  // all ranks, not just this one, have links to all others
  const Ring ring_;        // of all ranks
  struct Allowed {
    StrategyId id;
    std::unique_ptr<const Strategy> strategy;
  };
  std::vector<Allowed> allowed_;
  std::vector<Link> links_;
  std::vector<Outbox> outboxes_;
  Fanout fanout_;
  Membership membership_;
  TraceLog* trace_ = nullptr;  // of the trace that is taken; null: none is

  // Elements of a block have gone into runs of so many bytes; link: links_.size(): to all.
  void count_sent(Running& it, Phase phase, unsigned block, size_t link, size_t bytes, size_t elements) noexcept {
    if (trace_ != nullptr) [[unlikely]]
      trace_out(it, phase, block, link, bytes);
    it.sent_bytes += bytes;
    counters_.add(Counter::kRunBytes, bytes);
    counters_.add(Counter::kElementBytes, elements * it.coder.element_bytes());
    CodecTotals& totals = codec_totals_[static_cast<size_t>(it.coder.codec_id())];
    totals.add(bytes, elements * it.coder.element_bytes());
  }

  // What a neighbour has told of its operations.
  struct PeerState {
    uint32_t started = 0;  // so many
    struct Announced {
      uint32_t number = 0;
      bool valid = false;
      uint8_t stage = 0;
      std::optional<float> offer;
      Descriptor descriptor{};
    };
    std::vector<Announced> announced;  // the latest; by number modulo their count
  };
  const PeerState::Announced& announced_by(size_t link, const Running& it) const noexcept {
    return peers_[link].announced[it.number % peers_[link].announced.size()];
  }
  std::vector<PeerState> peers_;
  // Of each place of the table one for small tensors, and behind those the ones for others.
  std::vector<Room> rooms_;
  std::vector<Running> table_;
  size_t active_ = 0;       // operations that wait or run,
  size_t sharing_ = 0;      //   that run, and have several ranks send to one at a time,
  size_t unread_ = 0;       //   that are over, and their completions have not been read
  uint64_t submitted_ = 0;  // ids from 0
  uint64_t read_ = 0;       // completions are given in the order of ids where they are there
  uint64_t base_ = 0;       // id of the operation with number 0
  uint64_t started_ = 0;    // numbers before this one have started
  // Elements that running operations will still receive and write to an open packet.
  std::array<size_t, Outbox::kChannels> coming_{};
  std::vector<uint8_t> unsent_;   // by link: it could take no more of the elements for an owner, in the last pump()
  unsigned blocks_ = 1;           // of one of them, at most
  unsigned senders_ = 1;          // to one rank at a time, in operations that are running
  Nanos operations_at_ = kNever;  // the earliest time at which check_deadlines() has something to do
  Nanos polled_at_ = 0;
  Nanos seen_at_ = 0;         // the latest time of a call that may end operations
  bool was_active_ = false;   // at polled_at_
  size_t elements_left_ = 0;  // that pump() may still encode
  bool more_ = false;         // poll() stopped early
  bool others_look_ = false;  // at what is divided among exchanges
  Failure failed_;            // the last operation that did
  PastFailures past_failures_;

  std::array<Run, kMaxRuns> runs_;  // of the packet at hand
  size_t run_count_ = 0;
  std::vector<uint8_t> scratch_;  // a block, between encode and decode
  std::vector<uint8_t> private_;  // elements of a run that no trainer can write to; none where nothing is relayed
};

}  // namespace gradlane
