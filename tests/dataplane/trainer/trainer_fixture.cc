// trainer_fixture.cc - lanes of a few nodes, with their trainers and control threads, on perfect links in virtual time
#include "tests/dataplane/trainer/trainer_fixture.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "collectives/strategy/codec_needs.h"

namespace gradlane::test {
namespace {

constexpr Nanos kDelay = 3 * kMicrosecond;
constexpr Nanos kBusyStep = kMicrosecond;
constexpr Nanos kIdleStep = 50 * kMicrosecond;
constexpr size_t kPage = 4096;
constexpr Nanos kCommandTime = 20 * kSecond;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "trainer_fixture: %s\n", what);
  std::abort();
}

}  // namespace

// ---- Memory

GuardedPages::GuardedPages(size_t bytes) : bytes_((bytes + kPage - 1) / kPage * kPage) {
  void* const all = mmap(nullptr, bytes_ + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) fail("no memory");
  all_ = static_cast<uint8_t*>(all);
  base_ = all_ + kPage;
  if (bytes_ != 0 && mprotect(base_, bytes_, PROT_READ | PROT_WRITE) != 0) fail("no memory");
}

GuardedPages::~GuardedPages() { munmap(all_, bytes_ + 2 * kPage); }

// ---- A rank on a lane

class TrainerWorld::Place final : public PacketIo {
 public:
  Place(TrainerWorld& world, const ExchangeConfig& config, const TrainerOpsSetup& setup)
      : world_(world),
        lane_(setup.lane),
        rank_(config.rank),
        mtu_(config.mtu),
        exchange(std::make_unique<Exchange>(config, *this)),
        ops(std::make_unique<TrainerOps>(setup, *exchange, channel)) {}
  ~Place() override {
    ops.reset();
    exchange.reset();
    if (held_ != 0) fail("a lane has not given back all packet buffers");
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  Packet allocate() noexcept override {
    ++held_;
    auto* const data = new uint8_t[mtu_];
    return {data, data};
  }
  void release(Packet packet) noexcept override {
    --held_;
    delete[] static_cast<uint8_t*>(packet.handle);
  }
  bool transmit(unsigned rank, Packet packet, size_t bytes) noexcept override {
    world_.flying_.push_back({world_.now_ + kDelay, lane_, rank_, rank, {packet.data, packet.data + bytes}});
    return true;
  }
  void receive(unsigned from, const std::vector<uint8_t>& bytes) {
    const Packet packet = allocate();
    std::memcpy(packet.data, bytes.data(), bytes.size());
    if (!exchange->receive(from, packet, bytes.size(), world_.now_)) release(packet);
  }
  [[nodiscard]] bool poll() {
    bool moved = ops->submit(world_.now_);
    exchange->poll(world_.now_);
    moved |= ops->complete(world_.now_);
    return moved;
  }

 private:
  TrainerWorld& world_;
  const unsigned lane_;
  const unsigned rank_;
  const size_t mtu_;
  size_t held_ = 0;

 public:
  ControlChannel channel;
  std::unique_ptr<Exchange> exchange;
  std::unique_ptr<TrainerOps> ops;
};

// ---- All ranks and lanes

TrainerWorld::TrainerWorld(const TrainerConfig& config) : config_(config) {
  for (unsigned node = 0; node < config.nodes; ++node) looks_.push_back(std::make_unique<ScanBarrier>(config.lanes));
  for (unsigned lane = 0; lane < config.lanes; ++lane) {
    for (unsigned node = 0; node < config.nodes; ++node) {
      ExchangeConfig exchange;
      exchange.world = config.nodes;
      exchange.rank = node;
      exchange.incarnation = node + 1;
      exchange.codec = find_codec(config.codec);
      exchange.strategies = config.strategies;
      exchange.operations = config.operations;
      exchange.max_bytes = config.max_bytes;
      exchange.mtu = config.mtu;
      exchange.operation_timeout = config.operation_timeout;
      TrainerOpsSetup setup;
      setup.lane = lane;
      setup.lanes = config.lanes;
      setup.trainers = config.trainers;
      setup.first_rank = node * config.trainers;
      setup.node = node;
      setup.operation_timeout = config.operation_timeout;
      setup.limits = {.world = config.nodes * config.trainers,
                      .max_bytes = config.max_bytes,
                      .local_reduce = config.trainers > 1,
                      .codec = exchange.codec,
                      .strategies = config.strategies,
                      .ranks = config.nodes,
                      .links = links_all(config.strategies, config.nodes)};
      setup.looks = config.lanes > 1 ? looks_[node].get() : nullptr;
      places_.push_back(std::make_unique<Place>(*this, exchange, setup));
    }
  }
}

TrainerWorld::~TrainerWorld() = default;

ControlChannel& TrainerWorld::channel(unsigned node, unsigned lane) { return place(node, lane).channel; }
TrainerOps& TrainerWorld::ops(unsigned node, unsigned lane) { return *place(node, lane).ops; }
Exchange& TrainerWorld::exchange(unsigned node, unsigned lane) { return *place(node, lane).exchange; }

void TrainerWorld::step() {
  bool moved = !flying_.empty();
  while (!flying_.empty() && flying_.front().due <= now_) {
    const Flying it = std::move(flying_.front());
    flying_.pop_front();
    place(it.to, it.lane).receive(it.from, it.bytes);
  }
  for (const auto& each : places_) moved |= each->poll();
  now_ += moved ? kBusyStep : kIdleStep;
}

void TrainerWorld::run_for(Nanos time) {
  for (const Nanos end = now_ + time; now_ < end;) step();
}

bool TrainerWorld::run_until(const std::function<bool()>& is_so, Nanos time) {
  const Nanos end = now_ + time;
  while (!is_so()) {
    if (now_ >= end) return false;
    step();
  }
  return true;
}

bool TrainerWorld::idle() const {
  return std::ranges::none_of(places_, [](const auto& it) { return it->channel.in_flight.load() != 0; });
}

// ---- The control thread's part

Trainer::Trainer(TrainerHost& world, unsigned node, unsigned number) : world_(world), node_(node), number_(number) {
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, bell_) != 0) fail("no socket pair");
  next_cookie_ = uint64_t{rank()} << 32;
}

Trainer::~Trainer() {
  if (memory_ != nullptr && commands_.empty()) detach();
  if (!commands_.empty()) finish();
  ::close(bell_[0]);
  ::close(bell_[1]);
}

void Trainer::post(Command::Kind kind, unsigned segment) {
  if (!commands_.empty()) fail("a command is not done yet");
  const auto memory = segments_.find(segment);
  for (unsigned i = 0; i < world_.lanes(); ++i) {
    auto& command = *commands_.emplace_back(std::make_unique<Command>());
    command.kind = kind;
    command.trainer = number_;
    command.control = &control();
    command.lane = &lane(i);
    command.completion_fd = bell_[0];
    command.segment = segment;
    if (memory != segments_.end()) {
      command.base = memory->second->base();
      command.bytes = memory->second->bytes();
    }
    if (!world_.desk_of(node_, number_, i).mailbox.post(&command)) fail("a mailbox is full");
  }
}

bool Trainer::done() {
  if (!std::ranges::all_of(commands_, [](const auto& it) { return it->done.load(); })) return false;
  if (commands_.empty()) return true;
  if (commands_[0]->kind == Command::Kind::kRemoveSegment) segments_.erase(commands_[0]->segment);
  const auto ended_generation = std::ranges::count_if(commands_, [](const auto& it) { return it->ended_generation; });
  if (ended_generation != 0 && ended_generation != static_cast<ptrdiff_t>(commands_.size())) {
    for (size_t i = 0; i < commands_.size(); ++i) {
      commands_[i]->kind = Command::Kind::kEndGeneration;
      commands_[i]->ended_generation = false;
      commands_[i]->done = false;
      if (!world_.desk_of(node_, number_, static_cast<unsigned>(i)).mailbox.post(commands_[i].get()))
        fail("a mailbox is full");
    }
    return false;
  }
  if (commands_[0]->kind == Command::Kind::kDetach || commands_[0]->kind == Command::Kind::kEndGeneration) {
    segments_.clear();
    memory_.reset();
  }
  commands_.clear();
  return true;
}

void Trainer::finish() {
  if (!world_.run_until([this] { return done(); }, kCommandTime)) fail("a command is not done for too long");
}

void Trainer::attach() {
  const unsigned lanes = world_.lanes();
  memory_ = std::make_unique<GuardedPages>(gl_control_bytes(lanes));
  heads_.assign(lanes, 0);
  ends_seen_.assign(lanes, 0);
  outcomes_.clear();
  post(Command::Kind::kAttach);
  finish();
}

void Trainer::detach() {
  begin_detach();
  finish();
}

uint8_t* Trainer::add_segment(unsigned segment, size_t bytes) {
  auto& memory = segments_[segment] = std::make_unique<GuardedPages>(bytes);
  post(Command::Kind::kAddSegment, segment);
  finish();
  return memory->base();
}

void Trainer::remove_segment(unsigned segment) {
  begin_remove_segment(segment);
  finish();
}

void Trainer::close() {
  post(Command::Kind::kClose);
  finish();
}

const FaultReport& Trainer::fault(unsigned lane) const { return world_.desk_of(node_, number_, lane).faults[number_]; }

void Trainer::forget_faults() {
  for (unsigned i = 0; i < world_.lanes(); ++i) {
    world_.desk_of(node_, number_, i).faults[number_].fault.store(TrainerFault::kNone);
  }
}

// ---- The trainer's part

gl_lane& Trainer::lane(unsigned lane) { return reinterpret_cast<gl_lane*>(memory_->base() + sizeof(gl_control))[lane]; }

void Trainer::put(unsigned number, const gl_submission& submission) {
  gl_lane& it = lane(number);
  it.submissions[it.submit_tail % GL_SLOTS] = submission;
  it.submissions[it.submit_tail % GL_SLOTS].ends_seen = ends_seen_[number];
  __atomic_store_n(&it.submit_tail, it.submit_tail + 1, __ATOMIC_SEQ_CST);
}

uint64_t Trainer::submit(gl_submission submission) {
  submission.cookie = ++next_cookie_;
  submission.slot = static_cast<uint8_t>(next_cookie_ % GL_SLOTS);
  for (unsigned i = 0; i < world_.lanes(); ++i) put(i, submission);
  return submission.cookie;
}

void Trainer::cancel(uint64_t cookie) {
  gl_submission submission{};
  submission.kind = GL_CANCEL;
  submission.cookie = cookie;
  for (unsigned i = 0; i < world_.lanes(); ++i) put(i, submission);
}

void Trainer::resume() {
  gl_submission submission{};
  submission.kind = GL_RESUME;
  for (unsigned i = 0; i < world_.lanes(); ++i) put(i, submission);
}

void Trainer::read() {
  if (memory_ == nullptr) return;
  for (unsigned i = 0; i < world_.lanes(); ++i) {
    gl_lane& it = lane(i);
    for (unsigned n = 0; n < GL_SLOTS && heads_[i] != __atomic_load_n(&it.complete_tail, __ATOMIC_ACQUIRE); ++n) {
      const gl_completion& entry = it.completions[heads_[i] % GL_SLOTS];
      Outcome& outcome = outcomes_[entry.cookie];
      ++outcome.lanes;
      ++completions_;
      outcome.residual_cleared |= entry.residual_cleared != 0;
      outcome.tells_end |= entry.tells_end != 0;
      outcome.sent_bytes += entry.sent_bytes;
      if (entry.code != GRADLANE_OK) {
        ++outcome.failed;
        outcome.ends[i] = __atomic_load_n(&it.ends, __ATOMIC_RELAXED);
        outcome.text = entry.text;
      }
      __atomic_store_n(&it.complete_head, ++heads_[i], __ATOMIC_RELEASE);
    }
  }
}

std::optional<Outcome> Trainer::over(uint64_t cookie) {
  read();
  const auto it = outcomes_.find(cookie);
  if (it == outcomes_.end() || it->second.lanes < world_.lanes()) return std::nullopt;
  if (it->second.lanes > world_.lanes()) fail("an operation was completed twice");
  for (unsigned i = 0; i < world_.lanes() && it->second.failed != 0; ++i) {
    const auto at = it->second.ends.find(i);
    ends_seen_[i] = std::max(ends_seen_[i], at != it->second.ends.end() ? at->second : lane(i).ends);
  }
  return it->second;
}

gl_submission submission_of(OpKind kind, ElementType type, size_t count, size_t offset) {
  gl_submission it{};
  it.kind = static_cast<uint8_t>(kind);
  it.type = static_cast<uint8_t>(type);
  it.count = count;
  it.offset = offset;
  return it;
}

}  // namespace gradlane::test
