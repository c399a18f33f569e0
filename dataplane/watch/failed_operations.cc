// failed_operations.cc - failed operations in the log (control thread only)
#include "dataplane/watch/failed_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace gradlane {
namespace {

RingLine::Level level_of(const Failure& failure) {
  // Trainers and people cause these failures on purpose.
  const bool cancelled = failure.code == FailureCode::kAborted && failure.field == Field::kNone;
  const bool wanted = cancelled || failure.code == FailureCode::kClosed;
  return wanted ? RingLine::Level::kWarning : RingLine::Level::kError;
}

// Returns advice, if the text of the failure has none.
const char* advice_for(const Failure& failure) {
  const bool way = failure.code == FailureCode::kSilent || failure.code == FailureCode::kNoRing;
  return way && failure.field == Field::kNone ? "; gradlane check tests the path to it" : "";
}

}  // namespace

void FailureLog::count(const Failure& failure, uint64_t operations) {
  const auto it = std::ranges::find(causes_, failure, &Cause::failure);
  Cause& cause = it != causes_.end() ? *it : causes_.emplace_back(Cause{.failure = failure});
  cause.unlogged += operations;
}

// Counts the failures after the first `seen` for their causes, oldest first. Failures that are older than all known
// causes count for the oldest known one.
void FailureLog::count(const FailedOperations& all, uint64_t seen) {
  std::vector<PastFailure> causes = {{.failure = all.last, .until = all.count}};
  for (const PastFailure& past : all.before) {
    if (!past.failure || past.until <= seen) break;
    if (past.until < causes.back().until) {
      causes.push_back(past);
    } else {
      // the causes are newer than the count; the next look() counts their failures
      causes.back().failure = past.failure;
    }
  }
  for (auto it = causes.rbegin(); it != causes.rend(); ++it) {
    count(it->failure, it->until - seen);
    seen = it->until;
  }
}

std::vector<RingLine> FailureLog::look(unsigned node, std::span<const FailedOperations> all, Nanos now) {
  seen_.resize(all.size());
  const auto news = [&](size_t i) { return all[i].count - seen_[i]; };
  std::map<unsigned, size_t> lanes;  // by rank: the lane with most new failures
  for (size_t i = 0; i < all.size(); ++i) {
    size_t& lane = lanes.try_emplace(all[i].rank, i).first->second;
    if (news(i) > news(lane)) lane = i;
  }
  for (const auto& [rank, lane] : lanes) {
    if (news(lane) == 0) continue;
    failed_at_ = now;
    count(all[lane], seen_[lane]);
  }
  std::ranges::transform(all, seen_.begin(), &FailedOperations::count);
  std::vector<RingLine> lines;
  for (Cause& cause : causes_) {
    if (cause.unlogged == 0 || (cause.logged_at != 0 && now - cause.logged_at < kAgain)) continue;
    lines.push_back(
        {level_of(cause.failure), fmt::format("node {}: {} {}operation{} failed: {}{}", node, cause.unlogged,
                                              cause.logged_at != 0 ? "more " : "", cause.unlogged == 1 ? "" : "s",
                                              failure_text(cause.failure), advice_for(cause.failure))});
    cause.unlogged = 0;
    cause.logged_at = now;
  }
  std::erase_if(causes_, [now](const Cause& it) { return it.unlogged == 0 && now - it.logged_at >= kAgain; });
  return lines;
}

}  // namespace gradlane
