// session_slots.h - slots for a node's trainers: free, taken, or leaving (control thread)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/wire.h"
#include "config/config.h"
#include "dataplane/trainer/held_memory.h"
#include "dataplane/trainer/session_round.h"

namespace gradlane {

// Sizes in an IP packet: `mtu` bytes from the link header on, and `around` bytes for IP and UDP headers and the tag.
struct PacketRoom {
  size_t mtu = kMaxMtu;
  size_t around = 0;
};

// A node has a slot for each of its trainers. A slot is taken when its trainer's HELLO is accepted, and is free again
// when no lane touches the trainer's memory any more. It has no trainer while processes hold GL_MAX_SEGMENTS segments
// of its memory.
class Slots {
 public:
  struct Slot {
    bool taken = false;
    bool leaving = false;  // its trainer has gone, but lanes may still touch its memory
    int pid = 0;           // process ID of its trainer
    HeldMemory held;
    std::vector<LaneAddress> lanes;
  };

  struct Answer {
    enum class Kind : uint8_t { kYours, kSoon, kRefused };
    Kind kind = Kind::kRefused;
    unsigned slot = 0;   // kYours: free slot, not taken yet
    std::string reason;  // kSoon: what the trainer waits for; kRefused: reason
    uint32_t world = 0;  // number of ranks if kRefused because the rank is on another node, else 0
  };

  // `channels` has the channel of each lane and trainer at [lane * trainers + trainer]. `doorbells` has one entry per
  // lane.
  Slots(const NodeConfig& config, const std::vector<ControlChannel*>& channels, const std::vector<int>& doorbells);

  // Returns the slot for a trainer that wants to be `rank`, or any rank if that is -1.
  [[nodiscard]] Answer ask(int rank) const;

  // Frees memory that nobody holds any more. Call it repeatedly.
  void look() {
    for (Slot& slot : slots_) slot.held.look();
  }

  [[nodiscard]] Slot& operator[](unsigned slot) noexcept { return slots_[slot]; }
  [[nodiscard]] unsigned rank_of(unsigned slot) const noexcept { return first_rank_ + slot; }

 private:
  [[nodiscard]] std::string ranks() const;
  [[nodiscard]] Answer answer_for(unsigned slot) const;

  unsigned node_;
  unsigned first_rank_;
  size_t world_;  // number of ranks of all nodes
  std::vector<Slot> slots_;
};

}  // namespace gradlane
