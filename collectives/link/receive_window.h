// receive_window.h - the sequence numbers that have arrived: the next expected one, and a bitmap of those beyond it
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradlane {

// Sequence numbers wrap; "before" and "after" mean within 2^31.
class ReceiveWindow {
 public:
  enum class Place : uint8_t { kNew, kDuplicate, kTooFar };

  // Accepts `size` sequence numbers (a power of two) from next() on.
  explicit ReceiveWindow(size_t size) : size_(static_cast<uint32_t>(size)), bits_(std::max<size_t>(size / 64, 1)) {}

  void reset() noexcept {
    next_ = 0;
    latest_ = 0;
    std::fill(bits_.begin(), bits_.end(), 0);
  }

  // Returns the next expected number. All packets before it have arrived.
  [[nodiscard]] uint32_t next() const noexcept { return next_; }
  [[nodiscard]] uint32_t size() const noexcept { return size_; }

  [[nodiscard]] Place place(uint32_t sequence) const noexcept {
    const uint32_t ahead = sequence - next_;
    if (ahead >= size_) return ahead >> 31 != 0 ? Place::kDuplicate : Place::kTooFar;
    return (word(sequence) >> (sequence & 63) & 1) != 0 ? Place::kDuplicate : Place::kNew;
  }

  // Notes that a packet arrived again. Perhaps its sender has not received the acknowledgement.
  void repeat(uint32_t sequence) noexcept {
    if (static_cast<int32_t>(sequence - next_) >= 0) latest_ = sequence;
  }

  // Notes the arrival of a new packet.
  void accept(uint32_t sequence) noexcept {
    latest_ = sequence;
    if (sequence != next_) {
      word(sequence) |= uint64_t{1} << (sequence & 63);
      return;
    }
    ++next_;
    while ((word(next_) >> (next_ & 63) & 1) != 0) {
      word(next_) &= ~(uint64_t{1} << (next_ & 63));
      ++next_;
    }
  }

  // A bitmap of 64 sequence numbers after next(). They begin right after next(), unless the latest arrival is further
  // away; then the last of them is the latest arrival. So each arrival is reported many times, however long the window
  // is. Bit i: next() + 1 + from + i has arrived.
  struct Sack {
    uint64_t bits;
    uint16_t from;
  };
  [[nodiscard]] Sack sack() const noexcept {
    const auto ahead = static_cast<int32_t>(latest_ - next_);
    const uint32_t from = ahead > 64 ? static_cast<uint32_t>(ahead) - 64 : 0;
    const uint32_t first = next_ + 1 + from;
    const unsigned shift = first & 63;
    // If the window has 64 sequence numbers or fewer, both words are the same word, and the shifts rotate it. The bit
    // of next() itself, which is the last one then, is 0.
    const uint64_t low = word(first) >> shift;
    return {shift == 0 ? low : low | word(first + 64) << (64 - shift), static_cast<uint16_t>(from)};
  }

 private:
  [[nodiscard]] const uint64_t& word(uint32_t sequence) const noexcept {
    return bits_[sequence / 64 & (bits_.size() - 1)];
  }
  [[nodiscard]] uint64_t& word(uint32_t sequence) noexcept { return bits_[sequence / 64 & (bits_.size() - 1)]; }

  uint32_t next_ = 0;
  uint32_t size_;
  uint32_t latest_ = 0;         // sequence number of the latest arrival
  std::vector<uint64_t> bits_;  // ring buffer: the bit of a sequence number is at its value modulo the length
};

}  // namespace gradlane
