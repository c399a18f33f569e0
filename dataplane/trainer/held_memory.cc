// held_memory.cc - memory that the daemon has unmapped, and that trainers may still hold (control thread)
#include "dataplane/trainer/held_memory.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

namespace gradlane {
namespace {

// The kernel grants a lease for reading only if nobody has the file open for writing; a mapping counts as well. Closing
// the descriptor ends the lease.
bool is_held(const SharedFile& watch) noexcept {
  return fcntl(watch.get(), F_SETLEASE, F_RDLCK) != 0 && errno == EAGAIN;
}

}  // namespace

void HeldMemory::add(Segment& segment, int pid) {
  if (!segment) return;
  Held held{segment.take_watch(), segment.bytes(), pid};
  segment = {};
  if (is_held(held.watch)) held_.push_back(std::move(held));
}

void HeldMemory::look() {
  std::erase_if(held_, [](const Held& it) { return !is_held(it.watch); });
}

size_t HeldMemory::bytes() const noexcept {
  size_t sum = 0;
  for (const Held& it : held_) sum += it.bytes;
  return sum;
}

}  // namespace gradlane
