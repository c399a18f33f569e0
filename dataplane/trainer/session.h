// session.h - one trainer, from its connection until no lane touches its memory any more (control thread)
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/shared_socket.h"
#include "base/time.h"
#include "client/abi.h"
#include "config/config.h"
#include "dataplane/trainer/candidate_predictor.h"
#include "dataplane/trainer/control_tables.h"
#include "dataplane/trainer/log_limiter.h"
#include "dataplane/trainer/segment.h"
#include "dataplane/trainer/session_messages.h"
#include "dataplane/trainer/session_round.h"
#include "dataplane/trainer/session_slots.h"

namespace gradlane {

// Time limit for a connection to send HELLO, and for a HELLO to wait until its rank becomes free.
inline constexpr Nanos kHelloTime = 5 * kSecond;

// The session of one trainer. It serves one request at a time:
//
//   new --HELLO--> hello --slot--> attaching --> ready --ALLOCATE--> filling --> adding --> ready
//                                                ready --FREE--> removing --> ready
//   anything --connection ends--> (the round under way ends) --> detaching --> gone
//
// Attaching, adding, removing and detaching are rounds: each sends a command to every lane. There is one round at a
// time. A trainer that disconnects during a round is detached after it. Memory is unmapped only in `ready` or after
// `detaching`, when no lane uses it any more.
class Session {
 public:
  Session(const NodeConfig& config, Slots& slots, const CandidatePredictor& planning, const PacketRoom& packets,
          LogLimiter& log, SharedSocket socket, Nanos now);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }  // -1: the connection has ended
  // Adds the connection to an epoll instance, as SharedSocket does.
  [[nodiscard]] bool add_to(int epoll, epoll_event event) noexcept { return socket_.add_to(epoll, event); }

  // Reads some messages. Call it when the socket is readable.
  void receive(Nanos now);
  // Does everything that needs no message: checks faults and time limits, and advances the request under way. It
  // allocates at most `fill` bytes of memory.
  void step(Nanos now, size_t fill);

  // Ends the connection, with a reason for the trainer.
  void send_away(const std::string& why);

  [[nodiscard]] bool waiting_for_hello() const noexcept { return state_ == State::kNew || state_ == State::kHello; }
  [[nodiscard]] bool filling() const noexcept { return state_ == State::kFilling; }
  [[nodiscard]] bool attached() const noexcept { return socket_ && welcome_; }
  [[nodiscard]] bool gone() const noexcept { return state_ == State::kGone; }
  // Returns the reports of the trainer's library on the choices of `auto`.
  [[nodiscard]] SessionReports reports() const;
  // Returns whether a request is under way, so that step() has something to do without a message.
  [[nodiscard]] bool busy() const noexcept { return state_ != State::kNew && state_ != State::kReady; }

 private:
  enum class State : uint8_t {
    kNew,
    kHello,
    kAttaching,
    kReady,
    kFilling,
    kAdding,
    kRemoving,
    kDetaching,
    kGone,
  };

  // Messages
  void handle(const Incoming& message, Nanos now);
  void hello(const gl_hello& message, Nanos now);
  void allocate(const gl_allocate& message);
  void free(const gl_segment& message);
  void find(const gl_codec_name& message);
  template <typename T>
  void answer(const T& message, std::span<const int> fds = {}) {
    if (!send_message(socket_.get(), message, fds)) cut_off(kDoesNotRead);
  }
  void refuse(const std::string& why, uint32_t world = 0, bool no_codec = false);  // arguments as in gl_text

  // Steps
  void place(Nanos now);
  void attach(unsigned slot);
  void fill(size_t at_most);
  void begin(State state, Command::Kind kind, unsigned segment = 0);
  void finish_round();
  void welcome();
  void look_for_faults();

  // The end
  void cut_off(const std::string& why);
  void disconnect();
  void detach();
  void release();
  [[nodiscard]] std::string who() const;
  [[nodiscard]] std::string unfinished() const;

  // The reason given when an answer cannot be sent. The socket's buffer has space for hundreds of answers.
  static constexpr const char* kDoesNotRead = "it does not read the answers to its messages";

  const NodeConfig& config_;
  Slots& slots_;
  const CandidatePredictor& planning_;
  const PacketRoom packets_;
  LogLimiter& log_;
  SharedSocket socket_;
  ucred peer_{};
  State state_ = State::kNew;
  Nanos deadline_;   // in kNew and kHello
  int wanted_ = -1;  // rank that the trainer wants, in kHello

  // The following fields are set when the trainer has got a slot.
  std::optional<unsigned> slot_;
  std::optional<LaneRound> round_;
  Segment control_;
  SharedSocket completion_;   // daemon's end of the bell that wakes the trainer
  SharedFile trainers_bell_;  // trainer's end of that bell, until it has been sent
  bool welcome_ = false;

  std::array<Segment, GL_MAX_SEGMENTS> segments_;
  unsigned current_ = 0;  // index of the segment in kFilling, kAdding and kRemoving
  size_t used_ = 0;       // bytes of all segments
};

}  // namespace gradlane
