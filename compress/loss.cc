// loss.cc - what a codec takes away from values (set-up of an operation)
#include "compress/loss.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace gradlane {
namespace {

constexpr size_t kPart = 4 * kGroupFloats;   // floats at a time
constexpr size_t kRoom = 4 * kLongestGroup;  // no codec needs more bytes for so many

void compare(float before, float after, Loss& loss) noexcept {
  if (before == 0 || !std::isfinite(before)) return;
  const auto value = static_cast<double>(before);
  const double lost = std::isfinite(after) ? value - static_cast<double>(after) : value;
  ++loss.values;
  loss.zeroed += after == 0 ? 1 : 0;
  loss.squares += value * value;
  loss.lost_squares += lost * lost;
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
    for (size_t i = 0; i < count; ++i) compare(before[i], after[i], loss);
    in = in.subspan(count);
  }
  return loss;
}

}  // namespace gradlane
