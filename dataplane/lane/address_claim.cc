// address_claim.cc - probing for an address, and defending it (worker thread)
#include "dataplane/lane/address_claim.h"

namespace gradlane {

AddressClaim::Step AddressClaim::poll(bool link_up, Nanos now) noexcept {
  const uint64_t conflicts = this->conflicts();
  const bool conflict = conflicts != seen_;
  seen_ = conflicts;
  switch (state()) {
    case State::kHeld:
      return defend(conflict, now);
    case State::kWaiting:
      if (!link_up) return Step::kNone;
      become(State::kProbing);
      probes_ = 0;
      return probe(now);
    case State::kProbing:
      if (conflict) {
        become(State::kTaken);
        next_ = now + kAgain;
        return Step::kNone;
      }
      return now < next_ ? Step::kNone : probe(now);
    case State::kTaken:
      if (now >= next_) become(State::kWaiting);
      return Step::kNone;
  }
  return Step::kNone;
}

AddressClaim::Step AddressClaim::probe(Nanos now) noexcept {
  next_ = now + kInterval;
  if (probes_++ < kProbes) return Step::kProbe;
  become(State::kHeld);
  return Step::kAnnounce;
}

AddressClaim::Step AddressClaim::defend(bool conflict, Nanos now) noexcept {
  if (!conflict || (defended_at_ != 0 && now - defended_at_ < kDefend)) return Step::kNone;
  defended_at_ = now;
  return Step::kAnnounce;
}

}  // namespace gradlane
