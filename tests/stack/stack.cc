// stack.cc - complete nodes with their daemons' housekeeping, a network, and trainers with the real library, in virtual
// time
#include "tests/stack/stack.h"

#include <poll.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <regex>

#include "base/error.h"
#include "collectives/strategy/topology.h"
#include "config/strategies.h"
#include "tests/dataplane/counted.h"
#include "tests/dataplane/test_eal.h"

namespace gradlane::test {
namespace {

constexpr Nanos kTick = kMicrosecond;
constexpr Nanos kScan = 5 * kMillisecond;      // longest time between two rounds of a worker
constexpr Nanos kControl = 20 * kMicrosecond;  // time from a readable file descriptor to the control thread's round
constexpr Nanos kClaim = 2 * kSecond;          // time to find out whether addresses are free, like kClaim of daemon.cc
constexpr Nanos kLongest = 24 * 3600 * kSecond;  // virtual time of a test

Stack* the_stack = nullptr;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "stack: %s\n", what);
  std::abort();
}

// Daemons on one machine claim their addresses, and tests may run at the same time. So no two processes use the same
// addresses.
uint32_t address_of(unsigned node) { return 0x40000000U | static_cast<uint32_t>(getpid()) << 4 | (node + 1); }

}  // namespace

// Writes lines to the log of the daemon that runs now.
class Stack::LogSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  std::vector<std::string>* log = nullptr;

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const auto level = spdlog::level::to_string_view(message.level);
    std::string line(level.data(), level.size());
    line.append(" ").append(message.payload.data(), message.payload.size());
    if (log != nullptr) log->push_back(line);
    if (getenv("STACK_LOG") != nullptr)
      std::fprintf(stderr, "%.6f %s\n", static_cast<double>(the_stack->now()) / 1e9, line.c_str());
  }
  void flush_() override {}
};

Stack* Stack::current() { return the_stack; }

NodeConfig Stack::config_of(unsigned node) const {
  NodeConfig config;
  config.rank = node;
  for (unsigned i = 0; i < given_.nodes; ++i) config.nodes.push_back({.rank = i, .ip = address_of(i), .mac = {}});
  config.strategies = find_strategies(given_.strategies);
  PortConfig port;
  port.name = "e0";
  port.kind = PortConfig::Kind::kDevice;
  port.mac = MacAddress{0x02, 0, 0, 0, 0, static_cast<uint8_t>(0x0a + node)};
  config.ports.push_back(port);
  config.max_tensor = size_t{4} << 20;
  config.socket = folder_ / ("node" + std::to_string(node) + ".sock");
  config.admin = folder_ / ("node" + std::to_string(node) + ".admin");
  if (given_.change) given_.change(config);
  return config;
}

Stack::Stack(const StackConfig& config)
    : given_(config),
      folder_(new_folder("stack")),
      network_(config.nodes + config.spare, NodeConfig{}.udp_port, config.seed),
      sink_(std::make_shared<LogSink>()) {
  if (the_stack != nullptr) fail("there is one already");
  the_stack = this;
  start_eal_once();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("stack", sink_));
  daemons_.resize(config.nodes + config.spare);
  for (unsigned i = 0; i < nodes(); ++i) daemons_[i].config = config_of(i);
  for (unsigned i = 0; i < nodes(); ++i) start(i);
}

Stack::~Stack() {
  for (unsigned i = 0; i < daemons_.size(); ++i) {
    if (is_running(i)) kill(i);
  }
  the_stack = nullptr;
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

// ---- Daemons

void Stack::start(unsigned node) {
  Daemon& it = daemons_[node];
  if (is_running(node)) fail("it runs already");
  sink_->log = &it.log;
  it.why.clear();
  it.open = it.stopped = false;
  ++it.starts;
  NodeConfig config = it.config;
  it.hosts.clear();
  for (PortConfig& port : config.ports) {
    it.hosts.push_back(port.device.empty() ? node : static_cast<unsigned>(std::stoul(port.device)));
    port.device = network_.plug(it.hosts.back(), config.lanes, ranks_per_node(config));
  }
  try {
    it.nodes.push_back(std::make_unique<Node>(config, no_links_, next_index()));
  } catch (const SetupError& error) {
    it.why = error.what();
    for (const unsigned host : it.hosts) network_.unplug(host);
    return;
  }
  for (const unsigned host : it.hosts) network_.apply_link_state(host);
  it.jobs.push_back(std::make_unique<JobWatch>(*it.nodes.front()));
  it.housekeeping = std::make_unique<Housekeeping>(it.nodes, it.jobs);
  it.settled_by = now_ + kClaim;
  it.round_at = it.control_at = now_;
}

void Stack::kill(unsigned node) {
  Daemon& it = daemons_[node];
  if (!is_running(node)) fail("it does not run");
  sink_->log = &it.log;
  it.shutdown.reset();
  it.housekeeping.reset();
  it.jobs.clear();
  it.nodes.front()->say_goodbye();  // gives back buffers; devices here send no goodbye
  it.nodes.clear();
  for (const unsigned host : it.hosts) network_.unplug(host);
}

void Stack::end(unsigned node) {
  Daemon& it = daemons_[node];
  it.shutdown = std::make_unique<Shutdown>(it.nodes, nullptr, now_);
  it.control_at = now_;
}

void Stack::stop(unsigned node, bool stopped) {
  daemons_[node].stopped = stopped;
  daemons_[node].round_at = daemons_[node].control_at = now_;
}

// Checks the node's addresses and opens it, as a daemon does before it accepts trainers. A daemon whose address is in
// use ends.
void Stack::settle(unsigned node) {
  Daemon& it = daemons_[node];
  Node& own = *it.nodes.front();
  if (!own.addresses_settled() && now_ < it.settled_by) return;
  try {
    own.check_addresses();
  } catch (const SetupError& error) {
    const std::string why = error.what();
    kill(node);
    it.why = why;
    return;
  }
  own.open();
  it.open = true;
}

void Stack::control_round(unsigned node) {
  Daemon& it = daemons_[node];
  sink_->log = &it.log;
  if (!it.open) {
    settle(node);
    it.control_at = now_ + Housekeeping::kBusyStep;
    return;
  }
  it.housekeeping->step(now_);
  if (it.shutdown != nullptr) {
    if (it.shutdown->step(now_)) return kill(node);
  } else {
    (void)it.housekeeping->maintain(now_);
  }
  pollfd fd{it.nodes.front()->server().fd(), POLLIN, 0};
  const bool more = ::poll(&fd, 1, 0) > 0;
  const bool busy = it.housekeeping->busy() || it.shutdown != nullptr;
  it.control_at = now_ + (more ? kControl : busy ? Housekeeping::kBusyStep : Housekeeping::kStep);
  if (busy) it.round_at = now_;
}

bool Stack::has_frames(const Daemon& daemon) const {
  return std::ranges::any_of(daemon.hosts, [this](unsigned host) { return network_.has_frames(host); });
}

bool Stack::worker_round(Daemon& daemon) {
  bool moved = false;
  sink_->log = &daemon.log;
  for (const auto& worker : daemon.nodes.front()->workers()) {
    moved |= worker->receive(now_);
    moved |= worker->poll(now_);
  }
  return moved;
}

Nanos Stack::next_deadline(const Daemon& daemon) const {
  Nanos at = now_ + kScan;
  const Node& node = *daemon.nodes.front();
  node.for_each_lane([&at](const Lane& lane, unsigned) { at = std::min(at, lane.deadline()); });
  node.for_each_queue([&at](const PortQueue& queue, unsigned) { at = std::min(at, queue.deadline()); });
  return at;
}

size_t Stack::log_count(unsigned node, const std::string& pattern) const {
  const std::regex regex(pattern);
  return static_cast<size_t>(std::ranges::count_if(
      daemons_[node].log, [&regex](const std::string& line) { return std::regex_search(line, regex); }));
}

bool Stack::is_complete() const {
  bool all = true;
  for (unsigned i = 0; i < nodes(); ++i) {
    for (const auto& node : daemons_[i].nodes) {
      all &= daemons_[i].open;
      node->for_each_lane([&all](const Lane& lane, unsigned) { all &= lane.exchange().ring_status().ready; });
    }
  }
  return all;
}

uint64_t Stack::counter_sum(unsigned node, const std::string& name) const {
  const Node& own = *daemons_[node].nodes.front();
  std::optional<uint64_t> sum;
  const auto add = [&sum](std::optional<uint64_t> value) {
    if (value) sum = sum.value_or(0) + *value;
  };
  own.for_each_queue([&](const PortQueue& queue, unsigned) { add(find_counter(queue, name)); });
  own.for_each_lane([&](const Lane& lane, unsigned) { add(find_counter(lane.exchange().counters(), name)); });
  if (!sum) fail("there is no such counter");
  return *sum;
}

// ---- Time

void Stack::wake_all() {
  for (Daemon& it : daemons_) it.round_at = it.control_at = now_;
}

void Stack::step(Nanos limit) {
  if (now_ > kLongest) fail("the test has run for a day of virtual time: an operation or a condition hangs");
  ++steps_;
  if (background_) background_();
  for (unsigned i = 0; i < daemons_.size(); ++i) {
    Daemon& it = daemons_[i];
    if (!is_running(i) || it.stopped) continue;
    if (it.round_at <= now_ || has_frames(it)) it.round_at = worker_round(it) ? now_ + kTick : next_deadline(it);
    if (it.control_at <= now_) control_round(i);
  }
  // Trainers have timers of their own, so a step is at most kScan.
  Nanos next = network_.step(now_) ? now_ : std::min({limit, network_.next(), now_ + kScan});
  for (unsigned i = 0; i < daemons_.size(); ++i) {
    const Daemon& it = daemons_[i];
    if (!is_running(i) || it.stopped) continue;
    next = has_frames(it) ? now_ : std::min({next, it.round_at, it.control_at});
  }
  now_ = std::max(now_ + kTick, next);
}

void Stack::run_for(Nanos time) {
  wake_all();
  for (const Nanos end = now_ + time; now_ < end;) step(end);
}

bool Stack::poll_until(const std::function<bool()>& is_so, Nanos time) {
  for (const Nanos end = now_ + time; !is_so(); run_for(20 * kMillisecond)) {
    if (now_ >= end) return false;
  }
  return true;
}

bool Stack::run_until(const std::function<bool()>& is_so, Nanos time) {
  wake_all();
  const Nanos end = now_ + time;
  while (!is_so()) {
    if (now_ >= end) return false;
    step(end);
  }
  return true;
}

}  // namespace gradlane::test

// ---- The library's clock and its waits, in place of client/library/clock.c and waits.c

extern "C" {
#include "client/library/clock.h"
#include "client/library/waits.h"
}

using gradlane::test::Stack;

int64_t gl_now_us() { return static_cast<int64_t>(Stack::current()->now() / gradlane::kMicrosecond); }

int gl_poll(pollfd* fds, unsigned count, int timeout_ms) {
  Stack& stack = *Stack::current();
  const gradlane::Nanos end = timeout_ms < 0
                                  ? gradlane::kNever
                                  : stack.now() + static_cast<gradlane::Nanos>(timeout_ms) * gradlane::kMillisecond;
  if (timeout_ms != 0) stack.wake_all();
  for (;;) {
    const int ready = poll(fds, count, 0);
    if (ready != 0 || stack.now() >= end) return ready;
    stack.step(end);
  }
}

void gl_sleep_ms(int ms) { Stack::current()->run_for(static_cast<gradlane::Nanos>(ms) * gradlane::kMillisecond); }

void gl_yield() {
  Stack& stack = *Stack::current();
  stack.wake_all();
  stack.step(stack.now() + gradlane::kMicrosecond);
}
