// removal.cc - DPDK's events about the removal of a device (control thread, and DPDK's interrupt thread)
#include "dataplane/device/removal.h"

#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <sched.h>

#include <cerrno>

namespace gradlane {
namespace {

void note(void* asked_for) noexcept {
  static_cast<std::atomic<bool>*>(asked_for)->store(true, std::memory_order_release);
}

// Handles an event of vfio-pci: the kernel asks for the card.
void note_event(const char*, rte_dev_event_type event, void* asked_for) {
  if (event == RTE_DEV_EVENT_REMOVE) note(asked_for);
}

// Handles an event of a driver that detects the removal itself.
int note_removal(uint16_t, rte_eth_event_type, void* asked_for, void*) {
  note(asked_for);
  return 0;
}

}  // namespace

RemovalWatch::RemovalWatch(uint16_t id) : id_(id) {
  rte_eth_dev_info info{};
  if (rte_eth_dev_info_get(id, &info) == 0 && info.device != nullptr) device_ = rte_dev_name(info.device);
  if (!device_.empty()) rte_dev_event_callback_register(device_.c_str(), note_event, &asked_for_);
  rte_eth_dev_callback_register(id_, RTE_ETH_EVENT_INTR_RMV, note_removal, &asked_for_);
}

RemovalWatch::~RemovalWatch() {
  // Callbacks cannot be unregistered while they run.
  while (rte_eth_dev_callback_unregister(id_, RTE_ETH_EVENT_INTR_RMV, note_removal, &asked_for_) == -EAGAIN) {
    sched_yield();
  }
  while (!device_.empty() && rte_dev_event_callback_unregister(device_.c_str(), note_event, &asked_for_) == -EAGAIN) {
    sched_yield();
  }
}

}  // namespace gradlane
