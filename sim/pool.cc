// pool.cc - packet buffers of a simulated network, and the queues in which they wait
#include "sim/pool.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <new>

namespace gradlane {
namespace {

constexpr size_t kChunkBytes = size_t{2} << 20;  // a huge page, because packets are scattered in memory

}  // namespace

void simnet_abort(unsigned node, const char* what) noexcept {
  std::fprintf(stderr, "simnet: node %u %s\n", node, what);
  std::abort();
}

SimPool::SimPool(size_t capacity) : capacity_(capacity), stride_((SimBuffer::kDataOffset + capacity + 63) / 64 * 64) {}

SimBuffer* SimPool::take() {
  if (free_ == nullptr) grow();
  SimBuffer* const buffer = free_;
  free_ = buffer->next;
  ++taken_;
  open(buffer, capacity_);
  return buffer;
}

void SimPool::give(SimBuffer* buffer) noexcept {
  buffer->state = SimBuffer::State::kFree;
  buffer->next = free_;
  free_ = buffer;
  --taken_;
  open(buffer, 0);
}

void SimPool::open(SimBuffer* buffer, size_t bytes) noexcept {
  ASAN_UNPOISON_MEMORY_REGION(buffer->data(), bytes);
  ASAN_POISON_MEMORY_REGION(buffer->data() + bytes, stride_ - SimBuffer::kDataOffset - bytes);
}

void SimPool::Unmap::operator()(uint8_t* chunk) const noexcept {
  ASAN_UNPOISON_MEMORY_REGION(chunk, kChunkBytes);
  std::free(chunk);
}

void SimPool::grow() {
  auto* const chunk = static_cast<uint8_t*>(std::aligned_alloc(kChunkBytes, kChunkBytes));
  if (chunk == nullptr) throw std::bad_alloc();
  chunks_.emplace_back(chunk);
  (void)madvise(chunk, kChunkBytes, MADV_HUGEPAGE);  // only for speed, so it may fail
  for (size_t at = 0; at + stride_ <= kChunkBytes; at += stride_) {
    free_ = new (chunk + at) SimBuffer{nullptr, free_, 0, 0, 0, 0, 0, SimBuffer::State::kFree};
    open(free_, 0);
  }
}

void SimQueue::put(SimBuffer* buffer) noexcept {
  SimBuffer* before = last_;
  while (before != nullptr && before->due > buffer->due) before = before == first_ ? nullptr : before->previous;
  SimBuffer* const after = before == nullptr ? first_ : before->next;
  buffer->previous = before;
  buffer->next = after;
  (before == nullptr ? first_ : before->next) = buffer;
  (after == nullptr ? last_ : after->previous) = buffer;
  ++size_;
}

SimBuffer* SimQueue::take() noexcept {
  SimBuffer* const buffer = first_;
  first_ = buffer->next;
  --size_;
  if (first_ == nullptr) {
    last_ = nullptr;
  } else {
    // Many nodes run before the next take(). By then the cache no longer has the next packet, so prefetch it.
    __builtin_prefetch(first_->data());
    __builtin_prefetch(first_->next);
  }
  return buffer;
}

}  // namespace gradlane
