// worker.cc - the poll loop of an accelerator (worker thread), its start and stop (control thread)
#include "dataplane/accelerator/worker.h"

#include <pthread.h>
#include <rte_mbuf.h>
#include <rte_prefetch.h>
#include <sched.h>
#include <time.h>

#include <algorithm>

#include "dataplane/device/eal.h"
#include "dataplane/poll/poll_thread.h"

namespace gradlane {
namespace {

// Interval of settle() while the other direction keeps the worker busy.
constexpr Nanos kSettleEvery = 100 * kMicrosecond;
constexpr Nanos kLively = kMillisecond;  // for this time after a frame, sleeps are short, because more may follow
constexpr Nanos kFlushTime = 100 * kMillisecond;  // time limit at the end for devices to take the frames that wait

accel::Frame frame_of(rte_mbuf* mbuf) noexcept {
  return {rte_pktmbuf_mtod(mbuf, uint8_t*), mbuf->data_len, size_t{mbuf->buf_len} - mbuf->data_off, mbuf};
}

// Returns the buffer of a frame. Sets its start and length to the frame's, and clears the flags of the port that
// received it.
rte_mbuf* buffer_of(const accel::Frame& frame) noexcept {
  rte_mbuf* const mbuf = static_cast<rte_mbuf*>(frame.owner);
  mbuf->data_off = static_cast<uint16_t>(frame.data - static_cast<uint8_t*>(mbuf->buf_addr));
  mbuf->data_len = static_cast<uint16_t>(frame.bytes);
  mbuf->pkt_len = static_cast<uint32_t>(frame.bytes);
  mbuf->ol_flags = 0;
  mbuf->tx_offload = 0;
  return mbuf;
}

}  // namespace

AcceleratorWorker::AcceleratorWorker(const Setup& setup, Port& host, Port& wire, PacketPool& pool)
    : pool_(pool),
      host_(host),
      wire_(wire),
      engine_(std::make_unique<accel::Accelerator>(setup.engine, static_cast<accel::FrameIo&>(*this))),
      idle_(setup.idle, setup.patience) {
  if (setup.faults.any()) injector_ = std::make_unique<FaultInjector>(setup.faults, 0);
}

AcceleratorWorker::~AcceleratorWorker() { stop(); }

// ---- Frames of the engine

accel::Frame AcceleratorWorker::allocate() noexcept {
  rte_mbuf* const mbuf = pool_.allocate();
  return mbuf == nullptr ? accel::Frame{} : frame_of(mbuf);
}

void AcceleratorWorker::release(const accel::Frame& frame) noexcept {
  rte_pktmbuf_free(static_cast<rte_mbuf*>(frame.owner));
}

void AcceleratorWorker::to_wire(const accel::Frame& frame) noexcept { wire_.send(buffer_of(frame)); }
void AcceleratorWorker::to_host(const accel::Frame& frame) noexcept { host_.send(buffer_of(frame)); }

// ---- A round

bool AcceleratorWorker::poll() noexcept {
  bool moved = pass_from_host();
  // Packets from the wire may take long to handle, so bundles that are due are sent before.
  const Nanos middle = clock_now();
  engine_->poll(middle);
  wire_.flush(middle);
  moved |= pass_from_wire();
  const Nanos now = clock_now();
  if (moved) received_at_ = now;
  engine_->poll(now);
  const bool settle = !moved || now >= settle_at_;
  if (settle) settle_at_ = now + kSettleEvery;
  for (AcceleratorQueue* const queue : {&wire_, &host_}) {
    queue->flush(now);
    if (settle) queue->settle(now);
    queue->maintain(now);
  }
  return moved;
}

// If the other side is clogged, frames stay in the device that received them.
bool AcceleratorWorker::pass_from_host() noexcept {
  AcceleratorQueue::Burst burst;
  const size_t count = wire_.clogged() ? 0 : host_.receive(burst);
  if (count == 0) return false;
  const Nanos now = clock_now();
  for (size_t i = 0; i < count; ++i) rte_prefetch0(rte_pktmbuf_mtod(burst[i], void*));
  for (size_t i = 0; i < count; ++i) engine_->from_host(frame_of(burst[i]), now);
  wire_.flush(now);
  return true;
}

bool AcceleratorWorker::pass_from_wire() noexcept {
  AcceleratorQueue::Burst burst;
  const size_t count = host_.clogged() ? 0 : wire_.receive(burst);
  if (count == 0 && !injector_) return false;
  const Nanos now = clock_now();
  for (size_t i = 0; i < count; ++i) rte_prefetch0(rte_pktmbuf_mtod(burst[i], void*));
  for (size_t i = 0; i < count; ++i) {
    if (injector_) {
      inject(burst[i], now);
    } else {
      engine_->from_wire(frame_of(burst[i]), now);
    }
  }
  const bool late = handle_held(now);
  host_.flush(now);
  return count != 0 || late;
}

// ---- Faults made on purpose

void AcceleratorWorker::inject(rte_mbuf* mbuf, Nanos now) noexcept {
  const FaultInjector::Fate fate = injector_->decide(mbuf->data_len);
  if (fate.drop) {
    wire_.count(SideCounter::kInjectedDrop);
    rte_pktmbuf_free(mbuf);
  } else {
    if (fate.corrupt) {
      rte_pktmbuf_mtod(mbuf, uint8_t*)[fate.bit / 8] ^= static_cast<uint8_t>(1U << fate.bit % 8);
      wire_.count(SideCounter::kInjectedCorrupt);
    }
    rte_mbuf* const copy = fate.duplicate ? rte_pktmbuf_copy(mbuf, pool_.mempool(), 0, UINT32_MAX) : nullptr;
    if (copy != nullptr) {
      wire_.count(SideCounter::kInjectedDuplicate);
      engine_->from_wire(frame_of(copy), now);
    }
    if (injector_->hold(mbuf, fate, now)) {
      wire_.count(fate.delay ? SideCounter::kInjectedDelay : SideCounter::kInjectedReorder);
    } else {
      engine_->from_wire(frame_of(mbuf), now);
    }
  }
  (void)handle_held(now);
}

bool AcceleratorWorker::handle_held(Nanos now) noexcept {
  if (!injector_) return false;
  bool any = false;
  while (void* const held = injector_->take(now)) {
    engine_->from_wire(frame_of(static_cast<rte_mbuf*>(held)), now);
    any = true;
  }
  return any;
}

// ---- The thread

void AcceleratorWorker::start(int core) {
  check_core(core, "worker.core");
  thread_ = std::thread([this, core] { run(core); });
  pthread_setname_np(thread_.native_handle(), "gl-accelerator");
}

void AcceleratorWorker::stop() noexcept {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_relaxed);
  thread_.join();
}

void AcceleratorWorker::run(int core) noexcept {
  const PollThread thread(core);
  while (!stop_.load(std::memory_order_relaxed)) {
    rounds_.store(rounds() + 1, std::memory_order_relaxed);
    rest(poll());
  }
  finish();
}

void AcceleratorWorker::rest(bool moved) noexcept {
  // A bundle waits for only microseconds. A CPU that is given up may not come back in that time.
  if (engine_->deadline() != kNever) return;
  const Nanos now = clock_now();
  const Nanos held = injector_ ? injector_->deadline() : kNever;
  const Nanos deadline = std::min({held, wire_.deadline(), host_.deadline()});
  const Idle::Advice advice = idle_.after(moved, now - received_at_ < kLively, now, deadline);
  if (advice.yield) sched_yield();
  if (advice.sleep == 0) return;
  const timespec time{.tv_sec = 0, .tv_nsec = static_cast<long>(std::min(advice.sleep, kSecond - 1))};
  nanosleep(&time, nullptr);
}

void AcceleratorWorker::finish() noexcept {
  while (void* const held = injector_ ? injector_->take_any() : nullptr) {
    rte_pktmbuf_free(static_cast<rte_mbuf*>(held));
  }
  engine_->flush();
  const Nanos begin = clock_now();
  for (Nanos now = begin; now - begin < kFlushTime; now = clock_now()) {
    wire_.flush(now);
    host_.flush(now);
    wire_.settle(now);
    host_.settle(now);
    if (wire_.deadline() == kNever && host_.deadline() == kNever) break;
  }
  for (AcceleratorQueue* const queue : {&wire_, &host_}) {
    queue->drop_queued();
    queue->publish();
  }
}

}  // namespace gradlane
