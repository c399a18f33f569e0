// prober.cc - rounds of probes, and decisions from their answers (control thread)
#include "dataplane/watch/prober.h"

#include <algorithm>

namespace gradlane {
namespace {

constexpr Nanos kRoundTime = 200 * kMillisecond;  // time for the answers to a round
// time for the answers to a later round, when it is known that answers arrive; twice the longest round trip is added
constexpr Nanos kSearchTime = 100 * kMillisecond;
constexpr unsigned kEachClass = 3;    // small probes of each class in a round
constexpr unsigned kSmallRounds = 4;  // rounds for classes without an answer, while others are answered
constexpr unsigned kFullRounds = 4;
constexpr unsigned kShortRounds = 3;    // rounds of full length, in a run with length_only
constexpr unsigned kSureProbes = 3;     // probes of a length without an answer, to be sure
constexpr size_t kLengths = 8;          // lengths in a round
constexpr unsigned kSearchRounds = 24;  // more than three times as many as any MTU needs
constexpr size_t kBase = 576;           // bytes of an IP packet that any link takes (RFC 791)

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
  asked_ = 0;
  enter(Stage::kAddress, now);
}

bool ProbeRun::step(Nanos now) {
  posted_ = false;
  if (stage_ == Stage::kDone) return false;
  if (stage_ == Stage::kAddress && setup_.mac->load(std::memory_order_relaxed) != 0) {
    result_.arp = true;
    enter(Stage::kSmall, now);
  }
  if (stage_ == Stage::kAddress) {
    if (now >= end_) finish();
    return false;
  }
  if (!collecting_ && !round_over(now)) return posted_;
  collecting_ = true;
  if (!collect()) return false;
  collecting_ = false;
  now >= end_ ? finish() : next_stage(now);
  return posted_;
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
  small_answered_ = false;
  const bool first = stage_ == Stage::kSmall || (stage_ == Stage::kFull && !setup_.length_only);
  const Nanos slowest = rtts_.empty() ? 0 : *std::ranges::max_element(rtts_);
  round_end_ = std::min(end_, now + (first ? kRoundTime : kSearchTime + 2 * slowest));
  if (stage_ == Stage::kSmall) return ask_small();
  stage_ == Stage::kFull ? ask_full() : ask_lengths();
}

void ProbeRun::ask_small() {
  if (setup_.length_only) return ask(TrafficClass::kControl, small());
  for (unsigned i = 0; i < kEachClass * kProbedClasses; ++i) {
    const size_t number = i % kProbedClasses;
    if (rounds_ == 1 || !result_.tos[number].answered) ask(static_cast<TrafficClass>(number), small());
  }
}

void ProbeRun::ask_full() {
  result_.tried = true;
  if (setup_.length_only) return ask(TrafficClass::kControl, setup_.mtu);
  for (size_t i = 0; i < kProbedClasses; ++i) ask(static_cast<TrafficClass>(i), setup_.mtu);
}

// Probes a few lengths that divide the interval. When the interval is empty, probes the shortest length without an
// answer again, because these probes may have been lost for another reason. A small probe is sent with them. If it is
// answered and they are not, the length is the reason.
void ProbeRun::ask_lengths() {
  const size_t gap = too_long_ - result_.largest;
  if (gap <= 1) {
    for (unsigned i = 0; i < kSureProbes; ++i) ask(TrafficClass::kControl, too_long_);
    return ask(TrafficClass::kControl, small());
  }
  const size_t count = std::min(kLengths, gap - 1);
  for (size_t i = 1; i <= count; ++i) ask(TrafficClass::kControl, result_.largest + gap * i / (count + 1));
}

void ProbeRun::ask(TrafficClass traffic, size_t ip_bytes) {
  posted_ = true;
  const size_t slot = asked_++;
  asks_[slot] = {.traffic = traffic, .ip_bytes = ip_bytes};
  board_.post(slot, {.id = static_cast<uint32_t>(turn_ * ProbeBoard::kSlots + slot),
                     .nonce = nonce_,
                     .tos = setup_.tos[static_cast<size_t>(traffic)],
                     .bytes = ip_bytes - setup_.overhead,
                     .awake = !setup_.length_only || stage_ == Stage::kSearch});
}

bool ProbeRun::round_over(Nanos now) const noexcept {
  if (now >= round_end_) return true;
  for (size_t i = 0; i < asked_; ++i) {
    if (board_.answer(i) == nullptr) return false;
  }
  return true;
}

// Takes the answers of the round and frees its slots. Returns false if a worker is using some of them now.
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
  result_.theirs = answer.sender;
  result_.largest = std::max(result_.largest, asked.ip_bytes);
  if (asked.ip_bytes == small()) {
    small_answered_ = true;
    if (stage_ == Stage::kSmall) rtts_.push_back(answer.rtt);
  } else {
    ++answers_;
  }
  ProbeResult::Tos& tos = result_.tos[static_cast<size_t>(asked.traffic)];
  // A changed ToS is kept, even if others arrive unchanged: there may be several paths.
  const bool right = tos.there == tos.sent && tos.back == tos.sent;
  if (tos.answered && !right) return;
  tos.answered = true;
  tos.there = answer.there;
  tos.back = answer.back;
}

// Returns the length of small probes. Timed ones have the least length. A worker that answers a longer probe does not
// stay awake for more.
size_t ProbeRun::small() const noexcept {
  const size_t least = setup_.overhead + kLeastProbe;
  return setup_.length_only ? std::clamp(kBase, least, std::max(least, setup_.mtu - 1)) : least;
}

bool ProbeRun::all_classes_answered() const noexcept {
  if (setup_.length_only) return result_.answered != 0;
  return std::ranges::all_of(result_.tos, [](const auto& it) { return it.answered; });
}

// ---- The next stage

void ProbeRun::next_stage(Nanos now) {
  switch (stage_) {
    case Stage::kSmall:
      // If no probe at all was answered, the neighbour may still be starting.
      if (result_.answered == 0) {
        rounds_ = 0;
      } else if (all_classes_answered() || rounds_ >= kSmallRounds) {
        return enter(Stage::kFull, now);
      }
      return start_round(now);
    case Stage::kFull:
      if (answers_ != 0) return enter(Stage::kDone, now);
      if (rounds_ < (setup_.length_only ? kShortRounds : kFullRounds)) return start_round(now);
      return enter(Stage::kSearch, now);
    case Stage::kSearch:
      narrow();
      if (result_.sure || rounds_ >= kSearchRounds) return enter(Stage::kDone, now);
      return start_round(now);
    case Stage::kAddress:
    case Stage::kDone:
      break;
  }
}

// Narrows the interval of the search by the answers of a round.
void ProbeRun::narrow() {
  const size_t first = asks_[0].ip_bytes;
  if (first != too_long_) {
    for (size_t i = asked_; i-- != 0;) {
      if (asks_[i].ip_bytes > result_.largest) too_long_ = asks_[i].ip_bytes;
    }
  } else if (answers_ != 0) {
    too_long_ = setup_.mtu;
    result_.sure = result_.largest == setup_.mtu;
  } else {
    result_.sure = small_answered_;
  }
}

void ProbeRun::finish() {
  stage_ = Stage::kDone;
  result_.sure |= result_.largest == setup_.mtu;
  if (rtts_.empty()) return;
  std::ranges::sort(rtts_);
  result_.rtt_min = rtts_.front();
  result_.rtt_median = rtts_[rtts_.size() / 2];
}

// ---- All neighbours

Prober::Prober(const std::vector<ProbeRun::Setup>& setups, const std::vector<ProbeBoard*>& boards) {
  for (size_t i = 0; i < setups.size(); ++i) runs_.push_back(std::make_unique<ProbeRun>(setups[i], *boards[i]));
}

void Prober::begin(Nanos now, Nanos most, uint64_t nonce) {
  if (running()) return;
  for (const auto& run : runs_) run->begin(now, most, nonce);
}

bool Prober::step(Nanos now) {
  bool posted = false;
  for (const auto& run : runs_) posted |= run->step(now);
  return posted;
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
