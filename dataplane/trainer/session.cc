// session.cc - one trainer, from its connection until no lane touches its memory any more (control thread)
#include "dataplane/trainer/session.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "dataplane/trainer/control_tables.h"

namespace gradlane {

Session::Session(const NodeConfig& config, Slots& slots, const CandidatePredictor& planning, const PacketRoom& packets,
                 LogLimiter& log, SharedSocket socket, Nanos now)
    : config_(config),
      slots_(slots),
      planning_(planning),
      packets_(packets),
      log_(log),
      socket_(std::move(socket)),
      deadline_(now + kHelloTime) {
  // The mode of the socket file decides who may connect. The credentials are for log lines and error texts.
  socklen_t bytes = sizeof(peer_);
  if (getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer_, &bytes) != 0) {
    cut_off(std::string("no credentials: ") + std::strerror(errno));
    return;
  }
  spdlog::debug("{} has connected", who());
}

void Session::step(Nanos now, size_t fill_bytes) {
  if (slot_ && socket_) look_for_faults();
  switch (state_) {
    case State::kNew:
      if (now >= deadline_) cut_off("no HELLO within " + std::to_string(kHelloTime / kSecond) + " s");
      break;
    case State::kHello:
      place(now);
      break;
    case State::kFilling:
      fill(fill_bytes);
      break;
    case State::kAttaching:
    case State::kAdding:
    case State::kRemoving:
    case State::kDetaching:
      if (round_->step()) finish_round();
      break;
    case State::kReady:
    case State::kGone:
      break;
  }
}

// ---- A slot

void Session::place(Nanos now) {
  using Kind = Slots::Answer::Kind;
  const Slots::Answer found = slots_.ask(wanted_);
  if (found.kind == Kind::kSoon && now < deadline_) return;
  state_ = State::kNew;
  deadline_ = now + kHelloTime;
  if (found.kind != Kind::kYours) return refuse(found.reason, found.world);
  try {
    attach(found.slot);
  } catch (const SetupError& error) {
    control_ = {};
    refuse(error.what());
  }
}

void Session::attach(unsigned slot) {
  const auto lanes = static_cast<uint32_t>(slots_[slot].lanes.size());
  const ControlTables tables(config_, lanes, planning_.ways());
  control_ = Segment("gradlane-control", tables.bytes());
  while (!control_.filled()) control_.fill(control_.bytes());
  int bell[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, bell) != 0) {
    throw SetupError(std::string("cannot make a socket pair: ") + std::strerror(errno));
  }
  completion_ = SharedSocket(bell[0]);
  trainers_bell_ = SharedFile(bell[1]);
  tables.write(control_.base());

  slots_[slot].taken = true;
  slots_[slot].pid = peer_.pid;
  slot_ = slot;
  round_.emplace(slots_[slot].lanes);
  begin(State::kAttaching, Command::Kind::kAttach);
}

void Session::welcome() {
  gl_welcome message{};
  message.type = GL_MSG_WELCOME;
  message.rank = slots_.rank_of(*slot_);
  message.world = static_cast<uint32_t>(config_.nodes.size()) * config_.trainers;
  message.lanes = static_cast<uint32_t>(round_->lanes());
  message.control_bytes = control_.bytes();
  message.max_bytes = config_.max_tensor;
  message.pid = static_cast<uint32_t>(getpid());
  message.trainers = static_cast<uint16_t>(config_.trainers);
  uint32_t flags =
      (config_.local_reduce ? GL_WELCOME_LOCAL_REDUCE : 0) | (config_.auto_strategy ? GL_WELCOME_AUTO_STRATEGY : 0);
  if (config_.local_reduce && config_.nodes.size() == 1) flags |= GL_WELCOME_ALONE;
  if (config_.verify) flags |= GL_WELCOME_VERIFY;
  message.flags = static_cast<uint16_t>(flags);
  copy_text(message.codec, config_.auto_codec.empty() ? config_.codec.name() : config_.auto_codec);
  std::vector<int> fds = {control_.fd(), trainers_bell_.get()};
  for (const LaneAddress& lane : slots_[*slot_].lanes) fds.push_back(lane.doorbell);
  welcome_ = true;
  log_.log(spdlog::level::info, who() + " has joined");
  answer(message, fds);
  control_.close_fd();
  trainers_bell_ = {};
}

// ---- Rounds

void Session::begin(State state, Command::Kind kind, unsigned segment) {
  state_ = state;
  auto* const control = reinterpret_cast<gl_control*>(control_.base());
  auto* const lanes = reinterpret_cast<gl_lane*>(control_.base() + sizeof(gl_control));
  for (size_t lane = 0; lane < round_->lanes(); ++lane) {
    Command& command = round_->command(lane);
    command.kind = kind;
    command.trainer = *slot_;
    command.control = control;
    command.lane = lanes + lane;
    command.completion_fd = completion_.get();
    command.segment = segment;
    command.base = segments_[segment].base();
    command.bytes = segments_[segment].bytes();
  }
  round_->begin();
}

void Session::finish_round() {
  const State was = state_;
  if (was == State::kDetaching) return round_->broken() ? begin(was, Command::Kind::kEndGeneration) : release();
  state_ = State::kReady;
  if (was == State::kRemoving) {
    used_ -= segments_[current_].bytes();
    slots_[*slot_].held.add(segments_[current_], peer_.pid);
  }
  if (!socket_) return detach();
  Segment& segment = segments_[current_];
  switch (was) {
    case State::kAttaching:
      return welcome();
    case State::kAdding: {
      const int fds[] = {segment.fd()};
      answer(gl_segment{GL_MSG_SEGMENT, current_, segment.bytes()}, fds);
      return segment.close_fd();
    }
    default:
      return answer(gl_segment{GL_MSG_FREED, current_, 0});
  }
}

void Session::fill(size_t at_most) {
  Segment& segment = segments_[current_];
  try {
    segment.fill(at_most);
  } catch (const SetupError& error) {
    used_ -= segment.bytes();
    segment = {};
    state_ = State::kReady;
    return refuse(error.what());
  }
  if (segment.filled()) begin(State::kAdding, Command::Kind::kAddSegment, current_);
}

// ---- The end

// Disconnects the trainer if a lane has found something in its rings that no client library writes.
void Session::look_for_faults() {
  const std::vector<LaneAddress>& lanes = slots_[*slot_].lanes;
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    const FaultReport& report = lanes[lane].channel->faults[*slot_];
    const TrainerFault fault = report.fault.load(std::memory_order_acquire);
    if (fault != TrainerFault::kNone) return cut_off(fault_text(report, fault, static_cast<unsigned>(lane)));
  }
}

void Session::cut_off(const std::string& why) {
  if (!socket_) return;
  log_.log(spdlog::level::warn, who() + " was disconnected" + unfinished() + ": " + why);
  (void)send_text(socket_.get(), GL_MSG_GOODBYE, why);
  disconnect();
}

void Session::send_away(const std::string& why) {
  if (!socket_) return;
  spdlog::log(slot_ ? spdlog::level::info : spdlog::level::debug, "{}: connection closed{}: {}", who(), unfinished(),
              why);
  (void)send_text(socket_.get(), GL_MSG_GOODBYE, why);
  disconnect();
}

// Closes the socket at once. The trainer is detached when no round is under way.
void Session::disconnect() {
  socket_.reset();
  if (slot_) slots_[*slot_].leaving = true;
  if (waiting_for_hello()) {
    state_ = State::kGone;
  } else if (state_ == State::kReady || state_ == State::kFilling) {
    detach();
  }
}

void Session::detach() { begin(State::kDetaching, Command::Kind::kDetach); }

void Session::release() {
  for (const LaneAddress& lane : slots_[*slot_].lanes) {
    FaultReport& report = lane.channel->faults[*slot_];
    report.a = report.b = report.c = 0;
    report.fault.store(TrainerFault::kNone, std::memory_order_release);
  }
  for (Segment& segment : segments_) slots_[*slot_].held.add(segment, peer_.pid);
  slots_[*slot_].held.add(control_, peer_.pid);
  completion_.reset();
  slots_[*slot_].taken = slots_[*slot_].leaving = false;
  state_ = State::kGone;
}

SessionReports Session::reports() const {
  if (!attached()) return {};
  return {slots_.rank_of(*slot_), reports_of(control_.base(), control_.bytes())};
}

std::string Session::who() const {
  const std::string process = "pid " + std::to_string(peer_.pid) + ", uid " + std::to_string(peer_.uid);
  if (!slot_) return "trainer (" + process + ")";
  return "trainer of rank " + std::to_string(slots_.rank_of(*slot_)) + " (" + process + ")";
}

std::string Session::unfinished() const {
  if (!slot_) return {};
  uint32_t most = 0;  // each operation is in flight on several lanes
  for (const LaneAddress& lane : slots_[*slot_].lanes) {
    most = std::max(most, lane.channel->in_flight.load(std::memory_order_relaxed));
  }
  if (most == 0) return {};
  return " with " + std::to_string(most) + (most == 1 ? " operation in flight" : " operations in flight");
}

}  // namespace gradlane
