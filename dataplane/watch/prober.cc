// prober.cc - rounds of probes, and what follows from their answers (control thread)
#include "dataplane/watch/prober.h"

#include <algorithm>

namespace gradlane {
namespace {

constexpr Nanos kRoundTime = 200 * kMillisecond;   // for the answers to a round
constexpr Nanos kSearchTime = 100 * kMillisecond;  // the same, once it is known how fast answers come
constexpr unsigned kEachClass = 3;                 // small probes of a round, of each class
constexpr unsigned kSmallRounds = 4;               // for classes that are not answered, while others are
constexpr unsigned kFullRounds = 4;
constexpr unsigned kSearchProbes = 3;
constexpr unsigned kSearchRounds = 48;  // thrice the logarithm of any MTU

}  // namespace

// ---- A run

void ProbeRun::begin(Nanos now, Nanos most, uint64_t nonce) {
  result_ = {};
  result_.node = setup_.node;
  result_.address = setup_.address;
  result_.full = setup_.mtu;
  for (size_t i = 0; i < kProbedClasses; ++i) result_.tos[i].sent = setup_.tos[i];
  rtts_.clear();
  nonce_ = nonce;
  end_ = now + most;
  too_long_ = setup_.mtu;
  confirmed_ = false;
  asked_ = 0;
  enter(Stage::kAddress, now);
}

void ProbeRun::step(Nanos now) {
  if (stage_ == Stage::kDone) return;
  if (stage_ == Stage::kAddress && setup_.mac->load(std::memory_order_relaxed) != 0) {
    result_.arp = true;
    enter(Stage::kSmall, now);
  }
  if (stage_ == Stage::kAddress) {
    if (now >= end_) finish();
    return;
  }
  if (!collecting_ && !round_over(now)) return;
  collecting_ = true;
  if (!collect()) return;
  collecting_ = false;
  now >= end_ ? finish() : next_stage(now);
}

void ProbeRun::enter(Stage stage, Nanos now) {
  stage_ = stage;
  rounds_ = 0;
  if (stage == Stage::kDone) {
    finish();
  } else if (stage != Stage::kAddress) {
    start_round(now);
  }
}

// ---- Rounds

void ProbeRun::start_round(Nanos now) {
  ++rounds_;
  ++turn_;
  asked_ = 0;
  answers_ = 0;
  const auto traffic = [](size_t i) { return static_cast<TrafficClass>(i); };
  if (stage_ == Stage::kSmall) {
    for (unsigned i = 0; i < kEachClass * kProbedClasses; ++i) {
      const size_t number = i % kProbedClasses;
      if (rounds_ == 1 || !result_.tos[number].answered) ask(traffic(number), least());
    }
  } else if (stage_ == Stage::kFull) {
    result_.tried = true;
    for (size_t i = 0; i < kProbedClasses; ++i) ask(traffic(i), setup_.mtu);
  } else {
    for (unsigned i = 0; i < kSearchProbes; ++i) ask(TrafficClass::kControl, tried());
  }
  round_end_ = std::min(end_, now + (stage_ == Stage::kSearch ? kSearchTime : kRoundTime));
}

void ProbeRun::ask(TrafficClass traffic, size_t ip_bytes) {
  const size_t slot = asked_++;
  asks_[slot] = {.traffic = traffic, .ip_bytes = ip_bytes};
  board_.post(slot, {.id = static_cast<uint32_t>(turn_ * ProbeBoard::kSlots + slot),
                     .nonce = nonce_,
                     .tos = setup_.tos[static_cast<size_t>(traffic)],
                     .bytes = ip_bytes - setup_.overhead});
}

bool ProbeRun::round_over(Nanos now) const noexcept {
  if (now >= round_end_) return true;
  for (size_t i = 0; i < asked_; ++i) {
    if (board_.answer(i) == nullptr) return false;
  }
  return true;
}

// Takes what the round has brought, and frees its slots. False: some are in use just now.
bool ProbeRun::collect() {
  bool all = true;
  for (size_t i = 0; i < asked_; ++i) {
    if (asks_[i].cleared) continue;
    const ProbeAnswer* const answer = board_.answer(i);
    const std::optional<ProbeAnswer> copy = answer != nullptr ? std::optional(*answer) : std::nullopt;
    const bool sent = board_.sent(i);
    if (!board_.clear(i)) {
      all = false;
      continue;
    }
    asks_[i].cleared = true;
    if (sent) ++result_.sent;
    if (copy) note(i, *copy);
  }
  return all;
}

void ProbeRun::note(size_t slot, const ProbeAnswer& answer) {
  const Asked& asked = asks_[slot];
  ++result_.answered;
  ++answers_;
  result_.theirs = answer.sender;
  result_.largest = std::max(result_.largest, asked.ip_bytes);
  if (asked.ip_bytes == least()) rtts_.push_back(answer.rtt);
  ProbeResult::Tos& tos = result_.tos[static_cast<size_t>(asked.traffic)];
  // One that was changed is worth more than those that were not: there may be several ways.
  const bool right = tos.there == tos.sent && tos.back == tos.sent;
  if (tos.answered && !right) return;
  tos.answered = true;
  tos.there = answer.there;
  tos.back = answer.back;
}

bool ProbeRun::all_classes_answered() const noexcept {
  return std::ranges::all_of(result_.tos, [](const auto& it) { return it.answered; });
}

// ---- What follows

void ProbeRun::next_stage(Nanos now) {
  switch (stage_) {
    case Stage::kSmall:
      // As long as nothing at all comes back, the neighbour may still be starting.
      if (result_.answered == 0) {
        rounds_ = 0;
      } else if (all_classes_answered() || rounds_ >= kSmallRounds) {
        return enter(Stage::kFull, now);
      }
      return start_round(now);
    case Stage::kFull:
      if (answers_ != 0) return enter(Stage::kDone, now);
      if (rounds_ < kFullRounds) return start_round(now);
      return enter(Stage::kSearch, now);
    case Stage::kSearch:
      next_size();
      if (confirmed_ || rounds_ >= kSearchRounds) return enter(Stage::kDone, now);
      return start_round(now);
    case Stage::kAddress:
    case Stage::kDone:
      break;
  }
}

// What a round of the search is about: the middle, and in the end once more the shortest that did not pass, as that may
// have been lost for another reason.
size_t ProbeRun::tried() const noexcept {
  return too_long_ - result_.largest > 1 ? (result_.largest + too_long_) / 2 : too_long_;
}

void ProbeRun::next_size() {
  const size_t last = asks_[0].ip_bytes;
  if (answers_ == 0) {
    confirmed_ = last == too_long_;
    too_long_ = last;
  } else if (last == too_long_) {
    too_long_ = setup_.mtu;
    confirmed_ = last == setup_.mtu;
  }
}

void ProbeRun::finish() {
  stage_ = Stage::kDone;
  if (rtts_.empty()) return;
  std::ranges::sort(rtts_);
  result_.rtt_min = rtts_.front();
  result_.rtt_median = rtts_[rtts_.size() / 2];
}

// ---- All of them

Prober::Prober(const std::vector<ProbeRun::Setup>& setups, const std::vector<ProbeBoard*>& boards) {
  for (size_t i = 0; i < setups.size(); ++i) runs_.push_back(std::make_unique<ProbeRun>(setups[i], *boards[i]));
}

void Prober::begin(Nanos now, Nanos most, uint64_t nonce) {
  if (running()) return;
  for (const auto& run : runs_) run->begin(now, most, nonce);
}

void Prober::step(Nanos now) {
  for (const auto& run : runs_) run->step(now);
}

bool Prober::running() const noexcept {
  return std::ranges::any_of(runs_, [](const auto& run) { return run->running(); });
}

std::vector<ProbeResult> Prober::results() const {
  std::vector<ProbeResult> all;
  for (const auto& run : runs_) all.push_back(run->result());
  return all;
}

}  // namespace gradlane
