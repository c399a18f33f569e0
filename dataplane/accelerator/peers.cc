// peers.cc - behind which addresses accelerators restore what this one compresses (worker thread)
#include "dataplane/accelerator/peers.h"

#include <algorithm>
#include <cstring>

namespace gradlane::accel {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr uint32_t kFirstGroupIp = 0xe0000000;  // from here on: multicast, reserved, broadcast
constexpr unsigned kSilentAfter = 3;            // questions

uint64_t mix(uint64_t value) noexcept {  // splitmix64
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

template <class T>
void add(std::atomic<T>& counter) noexcept {
  counter.store(counter.load(kRelaxed) + 1, kRelaxed);
}

}  // namespace

bool Peers::holds(const Peer& peer, Nanos now) noexcept {
  const Nanos at = peer.answered_at.load(kRelaxed);
  return at != 0 && now < at + kHolds;
}

Peers::State Peers::state_of(const Peer& peer, Nanos now) noexcept {
  if (holds(peer, now)) return State::kAnswers;
  return peer.asks.load(kRelaxed) >= kSilentAfter ? State::kSilent : State::kAsked;
}

Peers::Peer* Peers::bucket_of(uint32_t ip) noexcept {
  return peers_.data() + mix(ip ^ seed_) % (kMost / kWays) * kWays;
}

Peers::Peer* Peers::find(uint32_t ip) noexcept {
  if (last_ != nullptr && last_->ip.load(kRelaxed) == ip) return last_;
  Peer* const bucket = bucket_of(ip);
  Peer* const end = bucket + kWays;
  Peer* const found = std::find_if(bucket, end, [ip](const Peer& it) { return it.ip.load(kRelaxed) == ip; });
  return found == end ? nullptr : last_ = found;
}

Peers::Peer& Peers::make(const uint8_t* frame, uint32_t ip, Nanos now) noexcept {
  Peer* const bucket = bucket_of(ip);
  Peer& peer = *std::min_element(bucket, bucket + kWays, [](const Peer& a, const Peer& b) {
    return a.used_at.load(kRelaxed) < b.used_at.load(kRelaxed);
  });
  peer.ip.store(ip, kRelaxed);
  peer.asks.store(0, kRelaxed);
  peer.answered_at.store(0, kRelaxed);
  peer.compressed.store(0, kRelaxed);
  peer.uncompressed.store(0, kRelaxed);
  peer.nonce = 0;
  peer.ask_at = now;
  ask_at_ = std::min(ask_at_, now);
  std::memcpy(peer.headers.data(), frame, kTemplate);
  return *(last_ = &peer);
}

bool Peers::restores(const uint8_t* frame, uint32_t ip, Nanos now) noexcept {
  if (ip == 0 || ip >= kFirstGroupIp || (frame[0] & 1) != 0) return false;
  Peer* peer = find(ip);
  if (peer == nullptr) peer = &make(frame, ip, now);
  if (now - peer->used_at.load(kRelaxed) > kAgain) {
    // The way there may be another one by now.
    std::memcpy(peer->headers.data(), frame, kTemplate);
    if (peer->ask_at == kNever) peer->asks.store(0, kRelaxed);
    peer->ask_at = std::min(peer->ask_at, now);
    ask_at_ = std::min(ask_at_, peer->ask_at);
  }
  peer->used_at.store(now, kRelaxed);
  return holds(*peer, now);
}

void Peers::count(uint32_t ip, bool compressed) noexcept {
  Peer* const peer = find(ip);
  if (peer != nullptr) add(compressed ? peer->compressed : peer->uncompressed);
}

bool Peers::answered(uint32_t ip, uint64_t nonce, Nanos now) noexcept {
  Peer* const peer = find(ip);
  if (peer == nullptr || peer->nonce == 0 || peer->nonce != nonce) return false;
  peer->nonce = 0;
  peer->asks.store(0, kRelaxed);
  peer->answered_at.store(now, kRelaxed);
  peer->ask_at = now + kAgain;
  ask_at_ = std::min(ask_at_, peer->ask_at);
  return true;
}

uint64_t Peers::next_nonce() noexcept {
  const uint64_t nonce = mix(nonce_state_++);
  return nonce == 0 ? 1 : nonce;
}

Peers::Question Peers::next_question(Nanos now) noexcept {
  if (now < ask_at_) return {};
  for (; looked_at_ < kMost; ++looked_at_) {
    Peer& peer = peers_[looked_at_];
    if (peer.ip.load(kRelaxed) == 0 || now < peer.ask_at) continue;
    if (now - peer.used_at.load(kRelaxed) > kKept) {
      peer.ask_at = kNever;
      continue;
    }
    const unsigned asks = peer.asks.load(kRelaxed);
    peer.asks.store(asks + 1, kRelaxed);
    peer.ask_at = now + (asks < kQuickAsks && !holds(peer, now) ? kQuick : kAgain);
    peer.nonce = next_nonce();
    return {peer.headers.data(), peer.nonce};
  }
  looked_at_ = 0;
  ask_at_ = kNever;
  for (const Peer& peer : peers_) {
    if (peer.ip.load(kRelaxed) != 0) ask_at_ = std::min(ask_at_, peer.ask_at);
  }
  return {};
}

}  // namespace gradlane::accel
