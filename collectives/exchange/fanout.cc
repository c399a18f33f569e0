// fanout.cc - packets of results that go to all other ranks (packet path)
#include "collectives/exchange/fanout.h"

#include <algorithm>
#include <cstring>

namespace gradlane {

Fanout::Fanout(std::span<Link> links, PacketIo& io, Counters& counters, size_t mtu)
    : links_(links),
      io_(io),
      counters_(counters),
      queue_(links.empty() ? 0 : kPackets),
      sent_(links.size()),
      outbox_(*this, io, counters, mtu) {}

void Fanout::reset() noexcept {
  outbox_.reset();
  for (; tail_ != head_; ++tail_) io_.release(queue_[tail_ % queue_.size()].packet);
  std::ranges::fill(sent_, head_);
  starved_ = false;
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
    io_.release(queue_[tail_ % queue_.size()].packet);
  }
  return !empty();
}

bool Fanout::send_next(size_t link, Nanos now) noexcept {
  Waiting& next = queue_[sent_[link] % queue_.size()];
  const Packet copy = io_.allocate();
  if (!copy) {
    starved_ = true;
    counters_.add(Counter::kNoBuffer);
    return false;
  }
  std::memcpy(copy.data + sizeof(LinkHeader), next.packet.data + sizeof(LinkHeader), next.bytes - sizeof(LinkHeader));
  if (next.left != links_.size()) {  // the outbox has counted one
    counters_.add(Counter::kGatherPackets);
    counters_.add(Counter::kGatherBytes, next.bytes);
  }
  links_[link].send(copy, next.bytes, next.payload_crc, now);
  ++sent_[link];
  --next.left;
  return true;
}

}  // namespace gradlane
