// session_slots.h - which of a node's trainers is there (control thread)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/wire.h"
#include "config/config.h"
#include "dataplane/trainer/session_round.h"

namespace gradlane {

// Bytes of a packet from the link header on, and of what is around it.
struct PacketRoom {
  size_t mtu = kMaxMtu;
  size_t around = 0;
};

// A node has a slot for each of its trainers. A slot is taken from a HELLO until no lane touches the trainer's memory
// any more.
class Slots {
 public:
  struct Slot {
    bool taken = false;
    bool leaving = false;  // whoever took it has gone; the lanes are not yet through
    int pid = 0;           // of whoever took it
    std::vector<LaneAddress> lanes;
  };

  struct Answer {
    enum class Kind : uint8_t { kYours, kSoon, kRefused };
    Kind kind = Kind::kRefused;
    unsigned slot = 0;   // kYours; not taken yet
    std::string reason;  // kSoon: what it waits for; kRefused: why not
    uint32_t world = 0;  // kRefused, as the rank is another node's: ranks of the ring
  };

  // desks[lane * trainers + trainer], doorbells[lane].
  Slots(const NodeConfig& config, const std::vector<LaneDesk*>& desks, const std::vector<int>& doorbells);

  // Which slot a trainer gets that wants to be this rank; -1: any.
  [[nodiscard]] Answer ask(int rank) const;

  [[nodiscard]] Slot& operator[](unsigned slot) noexcept { return slots_[slot]; }
  [[nodiscard]] unsigned rank_of(unsigned slot) const noexcept { return first_rank_ + slot; }

 private:
  [[nodiscard]] std::string ranks() const;

  unsigned node_;
  unsigned first_rank_;
  size_t world_;  // ranks of all nodes
  std::vector<Slot> slots_;
};

}  // namespace gradlane
