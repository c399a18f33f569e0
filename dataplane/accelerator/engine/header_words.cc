// header_words.cc - the header words that may differ between packets of a bundle (worker thread; pure functions)
#include "dataplane/accelerator/engine/bundle.h"
#include "dataplane/frame/frame.h"

namespace gradlane::accel {
namespace {

using namespace internet;

// Offsets from the start of the frame, for kTcp and kUdp, which have no IP options.
constexpr size_t kTcpAt = kEthernetBytes + kIpv4Bytes;
constexpr size_t word_at(size_t i) noexcept {
  if (i == kIpWord) return kEthernetBytes + kIpId;
  return i < kOptionWord ? kTcpAt + kTcpSequence + (i - kSeqWord) * 4 : kTcpAt + kTcpBytes + (i - kOptionWord) * 4;
}
static_assert(word_at(kAckWord) == kTcpAt + kTcpAck);
static_assert(word_at(kControlWord) == kTcpAt + kTcpOffset);

}  // namespace

HeaderWords::HeaderWords(const uint8_t* frame, const PacketView& view) noexcept {
  count_ = view.layer == Layer::kTcp
               ? kOptionWord + static_cast<unsigned>((view.payload - view.l4 - kTcpBytes) / sizeof(uint32_t))
               : 1;
  for (size_t i = 0; i < count_; ++i) words_[i] = load<uint32_t>(frame + word_at(i));
}

uint16_t HeaderWords::differences(const HeaderWords& other) const noexcept {
  unsigned mask = 0;
  for (size_t i = 0; i < count_; ++i) mask |= (words_[i] != other.words_[i] ? 1U : 0U) << i;
  return static_cast<uint16_t>(mask);
}

bool HeaderWords::may_be(size_t i, uint32_t value) const noexcept {
  const uint32_t host = __builtin_bswap32(value);
  if (i == kIpWord) return (host & (kReservedFlag | kFragmentBits)) == 0;
  if (i != kControlWord) return true;
  const uint32_t before = __builtin_bswap32(words_[i]);
  return host >> 28 == before >> 28 && (host >> 16 & kNeverCompressed) == 0;
}

void HeaderWords::advance(size_t payload_bytes) noexcept {
  // The id is the upper half of the word. So when it overflows, it becomes 0 and the lower half stays.
  words_[kIpWord] = __builtin_bswap32(__builtin_bswap32(words_[kIpWord]) + 0x10000);
  if (count_ > 1) {
    words_[kSeqWord] = __builtin_bswap32(__builtin_bswap32(words_[kSeqWord]) + static_cast<uint32_t>(payload_bytes));
  }
}

void HeaderWords::write(uint8_t* frame) const noexcept {
  for (size_t i = 0; i < count_; ++i) store(frame + word_at(i), words_[i]);
}

}  // namespace gradlane::accel
