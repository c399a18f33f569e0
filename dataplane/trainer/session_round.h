// session_round.h - a round: one command to every lane, until all have executed it (control thread)
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/trainer/mailbox.h"

namespace gradlane {

// The control channel and the doorbell of one lane, for commands about one trainer.
struct LaneAddress {
  ControlChannel* channel = nullptr;
  int doorbell = -1;
};

// One command for each lane. Fill in commands, call begin(), then step() until it returns true. The commands belong to
// the lanes until that happens.
class LaneRound {
 public:
  explicit LaneRound(const std::vector<LaneAddress>& lanes) : lanes_(lanes), commands_(lanes.size()) {}

  [[nodiscard]] size_t lanes() const noexcept { return lanes_.size(); }
  [[nodiscard]] Command& command(size_t lane) noexcept { return commands_[lane]; }

  // Returns whether the trainer has gone and some lanes, but not all, have ended the generation.
  [[nodiscard]] bool broken() const noexcept {
    const auto ended_generation = std::ranges::count_if(commands_, &Command::ended_generation);
    return commands_[0].kind == Command::Kind::kDetach && ended_generation != 0 &&
           ended_generation != static_cast<ptrdiff_t>(commands_.size());
  }

  void begin() noexcept {
    for (Command& command : commands_) command.done.store(false, std::memory_order_relaxed);
    posted_ = 0;
    (void)step();
  }

  // Posts commands. Returns true when all lanes have executed them. If a lane's mailbox is full, later calls post the
  // commands of this lane and the following ones.
  [[nodiscard]] bool step() noexcept {
    for (; posted_ < lanes_.size(); ++posted_) {
      if (!lanes_[posted_].channel->mailbox.post(&commands_[posted_])) return false;
      gl_ring(lanes_[posted_].doorbell);
    }
    for (const Command& command : commands_) {
      if (!command.done.load(std::memory_order_acquire)) return false;
    }
    return true;
  }

 private:
  const std::vector<LaneAddress>& lanes_;
  std::vector<Command> commands_;
  size_t posted_ = 0;
};

}  // namespace gradlane
