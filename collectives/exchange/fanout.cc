// fanout.cc - packets of results that go to all other ranks (packet path)
#include "collectives/exchange/fanout.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gradlane {

Fanout::Fanout(std::span<Link> links, PacketIo& io, Counters& counters, const ExchangeConfig& config)
    : links_(links),
      io_(io),
      counters_(counters),
      queue_(links.empty() ? 0 : kPackets),
      sent_(links.size()),
      outbox_(*this, io, counters, config) {}

void Fanout::reset() noexcept {
  outbox_.reset();
  for (; tail_ != head_; ++tail_) {
    const Packet packet = queue_[tail_ % queue_.size()].packet;
    if (packet) io_.release(packet);
  }
  if (spare_) io_.release(spare_);
  spare_ = {};
  std::ranges::fill(sent_, head_);
  starved_ = false;
}

bool Fanout::takes(bool) const noexcept { return spare_ && head_ - tail_ < queue_.size(); }

void Fanout::prepare() noexcept {
  if (!spare_) spare_ = io_.allocate();
  if (!spare_) counters_.add(Counter::kNoBuffer);
}

void Fanout::take(Packet packet, size_t bytes, uint32_t payload_crc, Nanos) noexcept {
  queue_[head_++ % queue_.size()] = {packet, bytes, payload_crc, links_.size()};
}

bool Fanout::pump(Nanos now) noexcept {
  starved_ = false;
  if (empty()) return false;
  for (size_t link = 0; link < links_.size(); ++link) {
    while (sent_[link] != head_ && links_[link].can_pass() && send_next(link, now)) {
    }
  }
  for (; tail_ != head_ && queue_[tail_ % queue_.size()].left == 0; ++tail_) {
  }
  if (empty() && !outbox_.holds(Outbox::kResults)) {
    if (spare_) io_.release(spare_);
    spare_ = {};
  }
  return !empty();
}

bool Fanout::send_next(size_t link, Nanos now) noexcept {
  Waiting& next = queue_[sent_[link] % queue_.size()];
  Packet packet = next.packet;  // the last link gets the packet itself
  if (next.left != 1) {
    packet = io_.allocate();
    if (!packet) packet = std::exchange(spare_, {});
    if (!packet) {
      starved_ = true;
      counters_.add(Counter::kNoBuffer);
      return false;
    }
    std::memcpy(packet.data + sizeof(LinkHeader), next.packet.data + sizeof(LinkHeader),
                next.bytes - sizeof(LinkHeader));
  } else {
    next.packet = {};
  }
  if (next.left != links_.size()) {  // the outbox has counted the first copy
    counters_.add(Counter::kGatherPackets);
    counters_.add(Counter::kGatherBytes, next.bytes);
  }
  links_[link].send(packet, next.bytes, next.payload_crc, now);
  ++sent_[link];
  --next.left;
  return true;
}

}  // namespace gradlane
