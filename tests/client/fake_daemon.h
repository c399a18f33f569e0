// fake_daemon.h - a daemon that speaks client/abi.h and behaves as tests say. Its own thread runs it; tests call it.
//
// It is a world of one by default, so that a sum is the data itself.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/abi.h"
#include "client/tuner/auto_name.h"

namespace gradlane {

// The codecs of a fake daemon: raw and fixed. Their ids are not those of real daemons.
inline std::vector<gl_codec_row> fake_codecs() {
  const uint32_t lossy = GL_CODEC_FEEDBACK | GL_CODEC_EXACT_SUMS | GL_CODEC_ADAPTIVE;
  return {{"raw", "raw", "raw", "", 1, 0, 0, 0, GL_CODEC_EXACT, {}, "", "", "exact", ""},
          {"fixed", "fixed:B", "fixed:10", "", 5, 1, 30, 1, lossy, {}, "", "", "error <= 2^-B", "a paper"}};
}

// More codecs for tests that ask for them. Encoded blocks of `bits` cannot be summed. The ranks must agree before
// `signs` encodes. Blocks of `few` can be summed, and it has two state arrays.
inline std::vector<gl_codec_row> fake_codecs_of_papers() {
  std::vector<gl_codec_row> rows = fake_codecs();
  const uint32_t feedback = GL_CODEC_FEEDBACK;
  rows.push_back({"bits", "bits", "bits", "", 9, 0, 0, 2, feedback | GL_CODEC_OWNED, {}, "", "", "", ""});
  rows.push_back({"signs", "signs", "signs", "", 10, 0, 0, 0, GL_CODEC_AGREES, {}, "", "ef", "", ""});
  rows.push_back({"few", "few:R", "few:1%", "", 11, 0, 0, 2, feedback | GL_CODEC_RATE, {}, "", "", "", ""});
  return rows;
}

// The strategies of a fake daemon: the ring first, and an aggregator that can all-reduce only.
inline std::vector<gl_strategy_row> fake_strategies() {
  const uint32_t sums = 1U << GL_ALL_REDUCE | 1U << GL_BARRIER;
  const uint32_t back = GL_STRATEGY_BACK | GL_STRATEGY_OWNERS | GL_STRATEGY_LINKS;
  return {{257, 31, GL_STRATEGY_LINKS, 0, "ring"},
          {258, 511, GL_STRATEGY_OWNERS | GL_STRATEGY_LINKS, 0, "direct"},
          {260, sums, back, 0, "aggregator:1"}};
}

// Candidates for these codecs and strategies: raw and fixed with each of the first two strategies. The daemon predicts
// that fixed with the ring is the fastest.
inline std::vector<gl_way_row> fake_candidates() {
  std::vector<gl_way_row> rows;
  for (const uint32_t strategy : {257U, 258U}) {
    for (const bool exact : {true, false}) {
      gl_way_row& row = rows.emplace_back();
      row.strategy = strategy;
      row.codec = exact ? 1 : 5;
      row.bound = exact ? GL_BOUND_EXACT : GL_BOUND_ABSOLUTE;
      row.bits = exact ? 0 : 10;
      row.scales = exact ? 0 : 1;
      std::strncpy(static_cast<char*>(row.name), exact ? "raw" : "fixed:10", GL_NAME - 1);
      for (double& ns : row.ns) ns = (exact ? 100e3 : 50e3) + strategy;
    }
  }
  return rows;
}

class FakeDaemon {
 public:
  static constexpr std::chrono::minutes kLong{10};  // a passing test never waits this long

  struct Settings {
    uint32_t lanes = 1;
    uint32_t rank = 0;
    uint32_t world = 1;
    uint64_t max_bytes = uint64_t{256} << 20;
    uint16_t flags = 0;
    uint16_t trainers = 0;
    std::string codec = "fixed:10";
    std::vector<gl_codec_row> codecs = fake_codecs();  // the table in shared memory
    std::vector<gl_strategy_row> strategies = fake_strategies();
    std::vector<gl_way_row> ways{};
    std::vector<gl_plan_row> plan{};
    // changes the counts and row sizes in gl_control, for tables that no real daemon writes
    std::function<void(gl_control&)> control{};
    uint32_t first_count = 0;               // first number of the entries of all rings
    uint64_t memory = uint64_t{512} << 20;  // bytes; allocations beyond them are refused
    // Changes the welcome before it is sent, and the file descriptors that go with it.
    std::function<void(gl_welcome&, std::vector<int>&)> welcome{};
    // If this is not empty, it is sent instead of a welcome.
    std::string refusal{};
    uint32_t refused_version = 0;
    uint32_t refused_world = 0;
    size_t refused_bytes = GL_MESSAGE_TEXT;  // bytes of the text in a gl_text
    unsigned hang_ups = 0;                   // connections that are closed without an answer before one gets it
    bool garbage_answers = false;
    // Called with the lane and the submission. If it returns false, the test completes the submission later by
    // complete().
    std::function<bool(unsigned, const gl_submission&)> on_submission{};
    // Returns the time in ns that a lane reports for a submission.
    std::function<uint64_t(const gl_submission&)> worked{};
    uint64_t sent_bytes = 0;  // sent_bytes of each completion
  };

  explicit FakeDaemon(Settings settings);
  ~FakeDaemon();
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  // Any thread may call all of these functions while the daemon's thread runs.
  void complete(unsigned lane, uint64_t cookie, int32_t code = 0, const std::string& text = "",
                bool residual_cleared = false);
  void goodbye(const std::string& text);  // says goodbye and closes the connection
  void hang_up();                         // closes the connection without a goodbye
  void pause(bool paused);                // true: the daemon ignores submissions until pause(false)
  // Returns what the lane has received so far, cancels included.
  [[nodiscard]] std::vector<gl_submission> seen(unsigned lane);
  // Waits until the lane has received `count` submissions. Returns false if that takes longer than 10 minutes.
  [[nodiscard]] bool await_seen(unsigned lane, size_t count);
  [[nodiscard]] size_t segments() {
    const std::lock_guard lock(mutex_);
    return segments_.size();
  }
  // Waits until the client has gone. Returns false if that takes longer than 10 minutes.
  [[nodiscard]] bool await_gone() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLong, [&] { return client_ < 0; });
  }
  [[nodiscard]] unsigned codec_questions() const noexcept { return codec_questions_; }
  // Returns the reports of the client. The three functions after this one overwrite fields that only daemons write,
  // with any values.
  [[nodiscard]] std::vector<gl_report_row> reports();
  void set_complete_tail(unsigned lane, uint32_t value);
  void set_submit_head(unsigned lane, uint32_t value);
  void set_ends(unsigned lane, uint32_t value) {
    const std::lock_guard lock(mutex_);
    __atomic_store_n(&lanes_[lane].shared->ends, value, __ATOMIC_RELAXED);
  }
  // Counts a beat on all lanes, as a running daemon does several times a second.
  void beat() {
    const std::lock_guard lock(mutex_);
    for (const Lane& lane : lanes_) __atomic_fetch_add(&lane.shared->beats, 1, __ATOMIC_RELAXED);
  }
  void put_completion(unsigned lane, const gl_completion& completion);
  void set_figures(unsigned lane, uint64_t bytes, uint64_t packets, uint64_t retransmitted);
  void send_raw(uint32_t type);  // sends a message that the client does not expect
  [[nodiscard]] uint32_t waiting() {
    const std::lock_guard lock(mutex_);
    return __atomic_load_n(&control_->waiting, __ATOMIC_SEQ_CST);
  }
  [[nodiscard]] uint8_t* bytes(uint32_t segment) {
    const std::lock_guard lock(mutex_);
    return segments_.at(segment).base;
  }

 private:
  struct Segment {
    int fd = -1;
    uint8_t* base = nullptr;
    size_t bytes = 0;
  };
  struct Lane {
    gl_lane* shared = nullptr;
    int doorbell = -1;
    uint32_t submit_head = 0;
    uint32_t complete_tail = 0;
    std::vector<gl_submission> seen;
    uint64_t clock = 1;
  };

  void run();
  void accept_client();
  void serve_message();
  void serve_newcomer();
  void greet();
  [[nodiscard]] size_t table_bytes() const;
  void write_tables(uint8_t* base);
  void allocate(const gl_allocate& request);
  void free_segment(const gl_segment& request);
  void find_codec(gl_codec_name request);
  void refuse(int fd, const std::string& text, uint32_t version = 0, bool no_codec = false);
  bool serve_lanes();
  bool serve_lane(unsigned number);
  void put(unsigned lane, const gl_completion& completion);
  void set_asleep(uint32_t asleep);
  void drop_client();

  Settings settings_;
  std::string folder_;
  std::string path_;
  int listener_ = -1;
  std::pair<int, int> wake_{-1, -1};
  std::atomic<bool> stop_{false};
  std::atomic<unsigned> codec_questions_{0};

  std::mutex mutex_;  // guards everything below; the thread releases it while it sleeps
  std::condition_variable changed_;
  int newcomer_ = -1;  // a connection that has not sent a hello yet
  int client_ = -1;    // the client's connection; it stays until another client is accepted
  int completion_fd_ = -1;
  gl_control* control_ = nullptr;
  size_t control_bytes_ = 0;
  std::vector<Lane> lanes_;
  std::map<uint32_t, Segment> segments_;
  bool paused_ = false;

  std::thread thread_;
};

}  // namespace gradlane
