// settle.cc - preparation of codecs for an operation, as all ranks do it before they encode, in one process (set-up)
#include "tools/bench/settle.h"

#include <algorithm>

#include "base/random.h"

namespace gradlane {
namespace {

constexpr size_t kSlice = 32768;  // floats per call of scan(), as in an exchange

}  // namespace

std::vector<Codec> settled(const Codec& codec, size_t ranks, size_t floats, const Elements& elements, uint64_t seed) {
  std::vector<Codec> codecs(ranks, codec);
  std::vector<TensorScan> looks(codec.passes() > 0 ? ranks : 0);
  std::vector<float> offers;
  for (size_t rank = 0; rank < ranks; ++rank) {
    Codec& own = codecs[rank];
    own.seed(seed, Random::mix(seed, rank));
    if (looks.empty()) continue;
    TensorScan& scan = looks[rank];
    while (scan.pass < own.passes()) {
      for (size_t first = 0; first < floats;) {
        const std::span<const float> slice = elements(rank, first, std::min(kSlice, floats - first));
        own.scan(scan, {slice.data(), nullptr, nullptr, slice.size(), first});
        first += slice.size();
      }
      own.end_pass(scan);
    }
    offers.push_back(own.offer(scan));
  }
  const Agreement agreement = codec.row().agreement;
  const float agreed = agreement == Agreement::kNone ? 0 : agreed_on(agreement, offers);
  for (size_t rank = 0; rank < looks.size(); ++rank) codecs[rank].finish_scan(looks[rank], agreed);
  return codecs;
}

std::vector<Codec> settled(const Codec& codec, const Contributions& ranks, uint64_t seed) {
  const auto elements = [&ranks](size_t rank, size_t first, size_t count) { return ranks[rank].subspan(first, count); };
  return settled(codec, ranks.size(), ranks.empty() ? 0 : ranks.front().size(), elements, seed);
}

}  // namespace gradlane
