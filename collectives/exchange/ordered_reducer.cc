// ordered_reducer.cc - adding the contributions of all ranks to a block in one order (packet path)
#include "collectives/exchange/ordered_reducer.h"

#include <bit>

namespace gradlane {
namespace {

constexpr size_t kKeptBytes = size_t{1} << 20;  // bytes of kept elements of all ranks together
constexpr size_t kMostWindow = size_t{256} << 10;
constexpr size_t kLeastWindow = size_t{4} << 10;

constexpr size_t words_for(size_t bytes) { return (bytes / kGranuleBytes + 63) / 64; }

static_assert(OrderedReducer::kSumBytes % kMostWindow == 0 && kLeastWindow % kGranuleBytes == 0);

}  // namespace

size_t OrderedReducer::window(unsigned world) noexcept {
  if (world < 2) return kLeastWindow;
  return std::clamp(std::bit_floor(kKeptBytes / (world - 1)), kLeastWindow, kMostWindow);
}

OrderedReducer::OrderedReducer(unsigned world, bool small)
    : turns_(world < 2 ? 0 : world),
      window_bytes_(window(world)),
      sums_(turns_ == 0 ? 0 : (small ? kSmallBytes : kSumBytes)),
      kept_(small ? (turns_ == 0 ? 0 : kSmallBytes + turns_ * kGranuleBytes) : turns_ * window_bytes_),
      marks_(turns_ * words_for(small ? kSmallBytes : window_bytes_)),
      merged_(turns_),
      told_(turns_),
      heard_(turns_),
      coder_(ElementType::kFloat32, find_codec("raw")),
      plain_(coder_) {}

void OrderedReducer::begin(size_t elements, unsigned own, const Coder& coder, const Coder& plain) noexcept {
  coder_ = coder;
  plain_ = plain;
  own_ = own;
  elements_ = elements;
  done_ = 0;
  granule_ = coder.granule();
  element_bytes_ = coder.element_bytes();
  window_ = window_bytes_ / element_bytes_;
  sum_elements_ = kSumBytes / element_bytes_;
  const size_t block = (elements * element_bytes_ + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
  place_bytes_ = std::min(window_bytes_, block);
  mark_words_ = words_for(place_bytes_);
  moved_ = false;
  std::fill_n(marks_.begin(), turns_ * mark_words_, 0);
  std::ranges::fill(merged_, 0);
  std::ranges::fill(told_, std::min(window_, elements_));
  std::ranges::fill(heard_, uint8_t{0});
}

unsigned OrderedReducer::last() const noexcept {
  unsigned last = own_ == 0 && turns_ > 1 ? 1 : 0;
  for (unsigned turn = 0; turn < turns_; ++turn) {
    if (turn != own_ && merged_[turn] < merged_[last]) last = turn;
  }
  return last;
}

bool OrderedReducer::has_place(unsigned turn, size_t first, size_t count) const noexcept {
  if (first < merged_[turn] || first + count > told_[turn] || count != piece(first, first + count)) return false;
  for (size_t at = first; at < first + count; at += granule_) {
    if (marked(turn, mark_of(at))) return false;
  }
  return true;
}

void OrderedReducer::keep(unsigned turn, size_t first, size_t count, std::span<const uint8_t> block) noexcept {
  uint8_t* const place = kept_.data() + turn * place_bytes_ + first % window_ * element_bytes_;
  (void)coder_.decode(block, place, count);
  for (size_t at = first; at < first + count; at += granule_) {
    const size_t mark = mark_of(at);
    marks_[turn * mark_words_ + mark / 64] |= uint64_t{1} << (mark % 64);
  }
}

// Adds kept runs of a turn to the sums, as far as the turn before allows. Returns false if nothing was added.
bool OrderedReducer::add_kept(unsigned turn) noexcept {
  const size_t before = merged_[turn];
  const size_t end = open_to(turn);
  while (merged_[turn] < end && marked(turn, mark_of(merged_[turn]))) {
    const size_t first = merged_[turn];
    const size_t most = piece(first, end);
    size_t count = 0;
    for (; count < most && marked(turn, mark_of(first + count)); count += granule_) {
      const size_t mark = mark_of(first + count);
      marks_[turn * mark_words_ + mark / 64] &= ~(uint64_t{1} << (mark % 64));
    }
    count = std::min(count, most);
    const std::span elements(kept_.data() + turn * place_bytes_ + first % window_ * element_bytes_,
                             count * element_bytes_);
    (void)(turn == 0 ? plain_.decode(elements, sums_at(first), count) : plain_.add(elements, sums_at(first), count));
    merged_[turn] += count;
  }
  return merged_[turn] != before;
}

size_t OrderedReducer::credit(unsigned turn) const noexcept {
  if (turn == own_ || heard_[turn] == 0) return 0;
  const size_t most = gathers() ? done_ + window_ : std::min(done_ + sum_elements_, merged_[turn] + window_);
  const size_t limit = std::min(most, elements_);
  const bool worth_it = limit >= told_[turn] + window_ / 2 || (limit == elements_ && told_[turn] != elements_);
  return worth_it ? limit : 0;
}

}  // namespace gradlane
