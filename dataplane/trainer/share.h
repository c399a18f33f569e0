// share.h - the part of a tensor that a lane works on (pure)
#pragma once

#include <cstddef>

#include "collectives/operation.h"
#include "collectives/wire.h"

namespace gradlane {

// Elements [first, first + count) of a tensor, or of each rank's block for reduce-scatter and all-gather.
struct Share {
  size_t first = 0;
  size_t count = 0;
};

// Tensors with fewer bytes are not divided: the first lane gets all elements.
inline constexpr size_t kLeastShareBytes = size_t{64} << 10;

// Returns a lane's share. It depends on nothing but the arguments, so all ranks divide alike. Shares begin at multiples
// of a granule.
[[nodiscard]] constexpr Share share_of(size_t count, size_t element_bytes, unsigned lane, unsigned lanes) noexcept {
  const size_t granule = kGranuleBytes / element_bytes;
  if (count < kLeastShareBytes / element_bytes) return lane == 0 ? Share{0, count} : Share{count, 0};
  const size_t granules = (count + granule - 1) / granule;
  const auto start = [=](unsigned l) {
    const size_t element = granules / lanes * l * granule + granules % lanes * l / lanes * granule;
    return element < count ? element : count;
  };
  const size_t first = start(lane);
  return {first, (lane + 1 == lanes ? count : start(lane + 1)) - first};
}

}  // namespace gradlane
