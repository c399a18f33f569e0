// open_bundles.cc - compressed packets that wait for more packets of their flow, to share a frame (worker thread only)
#include "dataplane/accelerator/engine/open_bundles.h"

#include <algorithm>

#include "dataplane/frame/frame.h"

namespace gradlane::accel {

OpenBundles::Slot* OpenBundles::find(const FlowKey& key) noexcept {
  for (size_t i = 0; i < open_; ++i) {
    if (slots_[i].writer.key() == key) return &slots_[i];
  }
  return nullptr;
}

void OpenBundles::send(Slot& slot) noexcept {
  slot.frame.bytes = slot.writer.finish(setup_.tos_wire);
  counters_.add(Counter::kWireFrames);
  io_.to_wire(slot.frame);
}

void OpenBundles::remove(size_t place) noexcept {
  std::move(slots_.data() + place + 1, slots_.data() + open_, slots_.data() + place);
  --open_;
}

void OpenBundles::close_found(const FlowKey& key) noexcept {
  Slot* const slot = find(key);
  if (slot == nullptr) return;
  send(*slot);
  remove(static_cast<size_t>(slot - slots_.data()));
}

void OpenBundles::add(const Frame& frame, const PacketView& view, std::span<const uint8_t> record, Nanos now) noexcept {
  if (Slot* const slot = open_ == 0 ? nullptr : find(view.key); slot != nullptr) {
    if (slot->writer.add(frame.data, view, record)) {
      io_.release(frame);
      return;
    }
    send(*slot);
    remove(static_cast<size_t>(slot - slots_.data()));
  }
  if (open_ == kSlots) {
    send(slots_[0]);
    remove(0);
  }
  Slot& slot = slots_[open_];
  slot.frame = frame;
  slot.due = now + setup_.hold;
  // The bundle must not be longer than the host's packet. The host knows the MTU of the whole path, and we do not.
  slot.writer.begin(frame.data, view, std::min(view.length, frame.room - kEthernetBytes), setup_.codec, record);
  if (setup_.hold == 0) {
    send(slot);
  } else {
    ++open_;
  }
}

void OpenBundles::close_due(Nanos now) noexcept {
  size_t done = 0;
  while (done < open_ && slots_[done].due <= now) send(slots_[done++]);
  if (done == 0) return;
  std::move(slots_.data() + done, slots_.data() + open_, slots_.data());
  open_ -= done;
}

void OpenBundles::close_all() noexcept { close_due(kNever); }

Nanos OpenBundles::deadline() const noexcept { return open_ == 0 ? kNever : slots_[0].due; }

}  // namespace gradlane::accel
