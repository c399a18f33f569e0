// settle.cc - preparation of codecs for an operation, as all ranks do it before they encode, in one process (set-up)
#include "tools/bench/settle.h"

#include <algorithm>

#include "base/random.h"

namespace gradlane {
namespace {

constexpr size_t kSlice = 32768;  // floats per call of look(), as in an exchange

}  // namespace

std::vector<Codec> settled(const Codec& codec, size_t ranks, size_t floats, const Elements& elements, uint64_t seed) {
  std::vector<Codec> codecs(ranks, codec);
  std::vector<Look> looks(codec.passes() > 0 ? ranks : 0);
  std::vector<float> offers;
  for (size_t rank = 0; rank < ranks; ++rank) {
    Codec& own = codecs[rank];
    own.seed(seed, Random::mix(seed, rank));
    if (looks.empty()) continue;
    Look& look = looks[rank];
    while (look.pass < own.passes()) {
      for (size_t first = 0; first < floats;) {
        const std::span<const float> slice = elements(rank, first, std::min(kSlice, floats - first));
        own.look(look, {slice.data(), nullptr, nullptr, slice.size(), first});
        first += slice.size();
      }
      own.pass_over(look);
    }
    offers.push_back(own.offer(look));
  }
  const Agreement agreement = codec.row().agreement;
  const float agreed = agreement == Agreement::kNone ? 0 : agreed_on(agreement, offers);
  for (size_t rank = 0; rank < looks.size(); ++rank) codecs[rank].settle(looks[rank], agreed);
  return codecs;
}

std::vector<Codec> settled(const Codec& codec, const Contributions& ranks, uint64_t seed) {
  const auto elements = [&ranks](size_t rank, size_t first, size_t count) { return ranks[rank].subspan(first, count); };
  return settled(codec, ranks.size(), ranks.empty() ? 0 : ranks.front().size(), elements, seed);
}

}  // namespace gradlane
