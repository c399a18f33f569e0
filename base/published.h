// published.h - a value that one thread writes and any thread may read (a sequence lock)
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace gradlane {

// One thread writes and never waits. Any thread reads a value exactly as it was written: if a write happens during a
// read, the read starts again. All words are atomic, so there is no data race.
template <class T>
requires std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>
class Published {
 public:
  Published() noexcept { write(T{}); }

  // Only the one thread that writes may call this.
  void write(const T& value) noexcept {
    std::array<uint64_t, kWords> words{};
    std::memcpy(words.data(), &value, sizeof(T));
    const uint32_t before = sequence_.load(std::memory_order_relaxed);
    sequence_.store(before + 1, std::memory_order_relaxed);  // odd: a write is in progress
    // A reader that sees one of these words also sees the odd number.
    for (size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    sequence_.store(before + 2, std::memory_order_release);
  }

  [[nodiscard]] T read() const noexcept {
    std::array<uint64_t, kWords> words;
    uint32_t before = 0;
    do {
      before = sequence_.load(std::memory_order_acquire);
      for (size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
    } while (before % 2 != 0 || sequence_.load(std::memory_order_relaxed) != before);
    T value;
    std::memcpy(static_cast<void*>(&value), words.data(), sizeof(T));
    return value;
  }

 private:
  static constexpr size_t kWords = (sizeof(T) + sizeof(uint64_t) - 1) / sizeof(uint64_t);

  std::atomic<uint32_t> sequence_{0};
  std::array<std::atomic<uint64_t>, kWords> words_{};
};

}  // namespace gradlane
