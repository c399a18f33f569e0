// trainer_fixture.h - lanes of a few nodes, with their trainers and control threads, on perfect links in virtual time
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "collectives/exchange/exchange.h"
#include "dataplane/trainer/trainer_ops.h"

namespace gradlane::test {

struct TrainerConfig {
  unsigned nodes = 2;
  unsigned lanes = 1;
  unsigned trainers = 1;  // number of trainers on each node; if more than one, they reduce locally
  std::string codec = "fixed:10";
  std::vector<StrategyId> strategies = {StrategyId{}};
  size_t operations = 16;
  size_t max_bytes = size_t{1} << 20;
  size_t mtu = 1472;
  Nanos operation_timeout = 200 * kMillisecond;
};

// Pages between two guard pages, which nobody may touch. The memory ends where its last page ends.
class GuardedPages {
 public:
  explicit GuardedPages(size_t bytes);
  ~GuardedPages();
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;
  [[nodiscard]] uint8_t* base() const { return base_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  uint8_t* all_ = nullptr;
  uint8_t* base_ = nullptr;
  size_t bytes_;
};

// Lanes to which trainers can attach. The test steps them.
class TrainerHost {
 public:
  virtual ~TrainerHost() = default;
  [[nodiscard]] virtual unsigned lanes() const = 0;     // lanes of a node
  [[nodiscard]] virtual unsigned trainers() const = 0;  // trainers of a node
  // Returns the channel for commands about this trainer.
  [[nodiscard]] virtual ControlChannel& desk_of(unsigned node, unsigned trainer, unsigned lane) = 0;
  // Runs until the condition holds. Returns false if it does not hold within `time`.
  [[nodiscard]] virtual bool run_until(const std::function<bool()>& is_so, Nanos time) = 0;
};

// All lanes of all nodes, in one thread.
class TrainerWorld final : public TrainerHost {
 public:
  explicit TrainerWorld(const TrainerConfig& config);
  ~TrainerWorld() override;
  TrainerWorld(const TrainerWorld&) = delete;
  TrainerWorld& operator=(const TrainerWorld&) = delete;

  [[nodiscard]] const TrainerConfig& config() const { return config_; }
  [[nodiscard]] unsigned ranks() const { return config_.nodes * config_.trainers; }
  [[nodiscard]] Nanos now() const { return now_; }
  [[nodiscard]] unsigned lanes() const override { return config_.lanes; }
  [[nodiscard]] unsigned trainers() const override { return config_.trainers; }
  [[nodiscard]] ControlChannel& channel(unsigned node, unsigned lane);
  [[nodiscard]] ControlChannel& desk_of(unsigned node, unsigned, unsigned lane) override { return channel(node, lane); }
  [[nodiscard]] TrainerOps& ops(unsigned node, unsigned lane);
  [[nodiscard]] Exchange& exchange(unsigned node, unsigned lane);

  // Delivers the packets that have arrived, and polls every lane once. Time advances a little, or more if nothing
  // moved.
  void step();
  void run_for(Nanos time);
  [[nodiscard]] bool run_until(const std::function<bool()>& is_so, Nanos time = kSecond) override;
  [[nodiscard]] bool idle() const;  // no lane has an operation in flight

 private:
  class Place;
  struct Flying {
    Nanos due;
    unsigned lane;
    unsigned from;
    unsigned to;
    std::vector<uint8_t> bytes;
  };
  [[nodiscard]] Place& place(unsigned node, unsigned lane) { return *places_[lane * config_.nodes + node]; }

  const TrainerConfig config_;
  Nanos now_ = kMicrosecond;
  std::deque<Flying> flying_;
  std::vector<std::unique_ptr<ScanBarrier>> looks_;  // by node
  std::vector<std::unique_ptr<Place>> places_;       // by lane, then node
};

// The end of an operation, from the lanes that have reported it until now.
struct Outcome {
  unsigned lanes = 0;  // number of lanes that have completed it
  unsigned failed = 0;
  std::map<unsigned, uint32_t> ends{};  // gl_lane::ends of each lane that failed, read with the failure
  bool residual_cleared = false;
  bool tells_end = false;
  uint64_t sent_bytes = 0;
  std::string text;  // text of the latest lane that failed
};

// A trainer, and the control thread's part for it. The trainer may write anything into the memory of its rings.
class Trainer {
 public:
  Trainer(TrainerHost& world, unsigned node, unsigned number = 0);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // ---- Control thread. Each function posts a command to all lanes. All but begin_...() then run the world until the
  // command is done, and free the memory that the command was about. Only one command may be in progress.
  void attach();
  void detach();
  void begin_detach() { post(Command::Kind::kDetach); }
  uint8_t* add_segment(unsigned segment, size_t bytes);
  void remove_segment(unsigned segment);
  void begin_remove_segment(unsigned segment) { post(Command::Kind::kRemoveSegment, segment); }
  void close();
  // Returns whether the command is done. If so, frees the memory that the command was about.
  [[nodiscard]] bool done();
  [[nodiscard]] const FaultReport& fault(unsigned lane) const;
  void forget_faults();

  // ---- Trainer
  [[nodiscard]] unsigned rank() const { return node_ * world_.trainers() + number_; }
  [[nodiscard]] gl_control& control() { return *reinterpret_cast<gl_control*>(memory_->base()); }
  [[nodiscard]] gl_lane& lane(unsigned lane);
  [[nodiscard]] uint8_t* segment(unsigned segment) { return segments_[segment]->base(); }
  // Submits to all lanes. Chooses the cookie and returns it.
  uint64_t submit(gl_submission submission);
  void put(unsigned lane, const gl_submission& submission);
  void cancel(uint64_t cookie);
  void resume();
  // Returns the end of an operation; std::nullopt if not all lanes have reported it. Reads completions, and notes
  // failures as the client library does.
  [[nodiscard]] std::optional<Outcome> over(uint64_t cookie);
  void read();
  // number of completions read until now, of all lanes
  [[nodiscard]] size_t completions() const { return completions_; }
  [[nodiscard]] int bell() const { return bell_[1]; }  // the trainer's end; lanes ring it

 private:
  void post(Command::Kind kind, unsigned segment = 0);
  void finish();

  TrainerHost& world_;
  const unsigned node_;
  const unsigned number_;
  int bell_[2];
  std::unique_ptr<GuardedPages> memory_;
  std::map<unsigned, std::unique_ptr<GuardedPages>> segments_;
  std::vector<std::unique_ptr<Command>> commands_;
  std::vector<uint32_t> heads_;
  std::vector<uint32_t> ends_seen_;
  uint64_t next_cookie_;
  std::map<uint64_t, Outcome> outcomes_;
  size_t completions_ = 0;
};

// Returns a submission as the client library makes it, for memory at an offset in segment 0.
[[nodiscard]] gl_submission submission_of(OpKind kind, ElementType type, size_t count, size_t offset = 0);

}  // namespace gradlane::test
