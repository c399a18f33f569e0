// port_queue_faults.cc - faults injected on purpose into what a queue receives (worker thread only)
#include <rte_mbuf.h>

#include <cstring>

#include "dataplane/lane/port_queue.h"

namespace gradlane {

void PortQueue::inject(rte_mbuf* mbuf, Nanos now) noexcept {
  const FaultInjector::Fate fate = injector_->decide(mbuf->data_len);
  if (fate.drop) {
    counters_.add(QueueCounter::kInjectedDrop);
    rte_pktmbuf_free(mbuf);
    handle_held(now);
    return;
  }
  if (fate.corrupt) {
    rte_pktmbuf_mtod(mbuf, uint8_t*)[fate.bit / 8] ^= static_cast<uint8_t>(1U << fate.bit % 8);
    counters_.add(QueueCounter::kInjectedCorrupt);
  }
  if (fate.duplicate) duplicate(*mbuf, now);
  if (injector_->hold(mbuf, fate, now)) {
    counters_.add(fate.delay ? QueueCounter::kInjectedDelay : QueueCounter::kInjectedReorder);
  } else {
    handle(mbuf, now);
  }
  handle_held(now);
}

void PortQueue::duplicate(const rte_mbuf& mbuf, Nanos now) noexcept {
  rte_mbuf* const copy = pool_.allocate();
  if (copy == nullptr) return;
  uint8_t* const to = reinterpret_cast<uint8_t*>(rte_pktmbuf_append(copy, mbuf.data_len));
  if (to == nullptr) {
    rte_pktmbuf_free(copy);
    return;
  }
  std::memcpy(to, rte_pktmbuf_mtod(&mbuf, const uint8_t*), mbuf.data_len);
  counters_.add(QueueCounter::kInjectedDuplicate);
  handle(copy, now);
}

bool PortQueue::handle_held(Nanos now) noexcept {
  if (!injector_) return false;
  bool any = false;
  while (void* const frame = injector_->take(now)) {
    handle(static_cast<rte_mbuf*>(frame), now);
    any = true;
  }
  return any;
}

void PortQueue::drop_held() noexcept {
  if (!injector_) return;
  while (void* const frame = injector_->take_any()) rte_pktmbuf_free(static_cast<rte_mbuf*>(frame));
}

}  // namespace gradlane
