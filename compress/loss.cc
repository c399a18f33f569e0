// loss.cc - measurement of what a codec loses of given values (set-up of an operation)
#include "compress/loss.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace gradlane {
namespace {

constexpr size_t kPart = 4 * kGroupFloats;   // floats that are encoded and decoded at a time
constexpr size_t kRoom = 4 * kLongestGroup;  // bytes that kPart floats need at most, with any codec

bool finite(float value) noexcept { return (std::bit_cast<uint32_t>(value) & 0x7fffffff) < 0x7f800000; }

// Compares without branches and with several sums, to be fast: this runs for each small operation.
void compare(const float* before, const float* after, size_t count, Loss& loss) noexcept {
  constexpr size_t kLanes = 4;
  std::array<double, kLanes> squares{};
  std::array<double, kLanes> lost_squares{};
  uint32_t values = 0;
  uint32_t zeroed = 0;
  for (size_t i = 0; i < count; ++i) {
    const bool counts = before[i] != 0 && finite(before[i]);
    const double value = counts ? static_cast<double>(before[i]) : 0;
    const double lost = value - (counts && finite(after[i]) ? static_cast<double>(after[i]) : 0);
    values += counts ? 1 : 0;
    zeroed += counts && after[i] == 0 ? 1 : 0;
    squares[i % kLanes] += value * value;
    lost_squares[i % kLanes] += lost * lost;
  }
  loss.values += values;
  loss.zeroed += zeroed;
  loss.squares += (squares[0] + squares[1]) + (squares[2] + squares[3]);
  loss.lost_squares += (lost_squares[0] + lost_squares[1]) + (lost_squares[2] + lost_squares[3]);
}

}  // namespace

void Loss::add(const Loss& other) noexcept {
  values += other.values;
  zeroed += other.zeroed;
  squares += other.squares;
  lost_squares += other.lost_squares;
}

double Loss::lost_share() const noexcept { return squares > 0 ? std::sqrt(lost_squares / squares) : 0; }

Loss measure_loss(const Codec& codec, std::span<const float> in) noexcept {
  Loss loss;
  std::array<float, kPart> before;
  std::array<float, kPart> after;
  std::array<uint8_t, kRoom> block;
  while (!in.empty()) {
    const size_t count = std::min(in.size(), kPart);
    std::memcpy(before.data(), in.data(), count * sizeof(float));
    const EncodeResult encoded = codec.encode(std::span(before).first(count), block);
    if (encoded.floats != count) return loss;
    (void)codec.decode(std::span(block).first(encoded.bytes), std::span(after).first(count));
    compare(before.data(), after.data(), count, loss);
    in = in.subspan(count);
  }
  return loss;
}

}  // namespace gradlane
