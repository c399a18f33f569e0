// held_memory.h - memory that the daemon has unmapped, and that trainers may still hold (control thread)
#pragma once

#include <cstddef>
#include <vector>

#include "base/shared_socket.h"
#include "dataplane/trainer/segment.h"

namespace gradlane {

// The memory of a slot that processes still map or have open, after they have freed it or have left. They may go on
// reading it, so it stays as it is, and counts for the slot.
class HeldMemory {
 public:
  // Unmaps a segment. Remembers it if a process still holds it. `pid` is the trainer that it was sent to.
  void add(Segment& segment, int pid);
  // Forgets what nobody holds any more, which frees the memory. Call it repeatedly.
  void look();

  [[nodiscard]] size_t count() const noexcept { return held_.size(); }
  [[nodiscard]] size_t bytes() const noexcept;
  // Returns the latest trainer whose memory is still held, which itself may have ended; 0: there is none.
  [[nodiscard]] int pid() const noexcept { return held_.empty() ? 0 : held_.back().pid; }

 private:
  struct Held {
    SharedFile watch;
    size_t bytes;
    int pid;
  };
  std::vector<Held> held_;
};

}  // namespace gradlane
