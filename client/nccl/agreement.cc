// agreement.cc - what the nodes of a communicator tell each other before its first all-reduce (no thread)
#include "client/nccl/agreement.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "client/gradlane.h"

namespace gradlane::nccl {
namespace {

Offer read(const void* handle) {
  Offer offer;
  std::memcpy(&offer, handle, sizeof(offer));
  offer.text[sizeof(offer.text) - 1] = '\0';
  return offer;
}

Verdict refuse(const char* format, ...) __attribute__((format(printf, 1, 2)));
Verdict refuse(const char* format, ...) {
  Verdict verdict{};
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(verdict.refusal, sizeof(verdict.refusal), format, arguments);
  va_end(arguments);
  return verdict;
}

}  // namespace

Verdict decide(const void* const* offers, int ranks) {
  Verdict verdict{};
  const Offer first = read(offers[0]);
  for (int i = 0; i < ranks; ++i) {
    const Offer offer = read(offers[i]);
    if (offer.magic != kOfferMagic) return refuse("node %d of %d has another version of this plug-in", i, ranks);
    if (offer.world == 0) return refuse("node %d of %d cannot use its daemon: %s", i, ranks, offer.text);
  }
  for (int i = 0; i < ranks; ++i) {
    const Offer offer = read(offers[i]);
    if (offer.world != ranks) {
      return refuse("the communicator has %d nodes, but the daemon of node %d belongs to a ring of %d ranks", ranks, i,
                    offer.world);
    }
    if (std::strcmp(offer.text, first.text) != 0) {
      return refuse("GRADLANE_NCCL_CODEC is %s on node 0, but %s on node %d", first.text, offer.text, i);
    }
    for (int j = 0; j < i; ++j) {
      if (read(offers[j]).rank == offer.rank) {
        return refuse("the daemons of nodes %d and %d are both rank %d: they belong to two rings", j, i, offer.rank);
      }
    }
  }
  for (int i = 0; i < ranks; ++i) {
    const Offer offer = read(offers[i]);
    const uint64_t parts[2] = {verdict.tag, offer.nonce};
    verdict.tag = gradlane_hash(parts, sizeof(parts));
  }
  return verdict;
}

}  // namespace gradlane::nccl
