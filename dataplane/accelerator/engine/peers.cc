// peers.cc - the peers of an accelerator: whether another accelerator there restores compressed packets (worker thread)
#include "dataplane/accelerator/engine/peers.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace gradlane::accel {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr uint32_t kFirstGroupIp = 0xe0000000;  // first of the multicast, reserved and broadcast addresses
constexpr size_t kMacBytes = 6;
constexpr unsigned kSilentAfter = Peers::kQuickAsks + 1;  // questions without an answer after which a peer is silent

template <class T>
void add(std::atomic<T>& counter) noexcept {
  counter.store(counter.load(kRelaxed) + 1, kRelaxed);
}

}  // namespace

void Peers::Free::operator()(evp_cipher_ctx_st* context) const noexcept { EVP_CIPHER_CTX_free(context); }

Peers::Peers(uint64_t seed) : seed_(seed), cipher_(EVP_CIPHER_CTX_new()) {
  const std::array<uint64_t, 2> key = {Random(seed).next(), Random(~seed).next()};
  if (cipher_ && EVP_EncryptInit_ex(cipher_.get(), EVP_aes_128_ecb(), nullptr,
                                    reinterpret_cast<const uint8_t*>(key.data()), nullptr) == 1) {
    return;
  }
  throw SetupError("libcrypto has no AES-128, which is needed to make nonces");
}

bool Peers::holds(const Peer& peer, Nanos now) noexcept {
  const Nanos at = peer.answered_at.load(kRelaxed);
  return at != 0 && now < at + kHolds;
}

Peers::State Peers::state_of(const Peer& peer, Nanos now) noexcept {
  if (now < peer.blocked_until.load(kRelaxed)) return State::kBlocked;
  if (holds(peer, now)) return State::kAnswers;
  return peer.asks.load(kRelaxed) >= kSilentAfter ? State::kSilent : State::kAsked;
}

Peers::Peer* Peers::bucket_of(uint32_t ip) noexcept {
  return peers_.data() + Random(ip ^ seed_).next() % (kMost / kWays) * kWays;
}

Peers::Peer* Peers::find(uint32_t ip) noexcept {
  if (last_ != nullptr && last_->ip.load(kRelaxed) == ip) return last_;
  Peer* const bucket = bucket_of(ip);
  Peer* const end = bucket + kWays;
  Peer* const found = std::find_if(bucket, end, [ip](const Peer& it) { return it.ip.load(kRelaxed) == ip; });
  return found == end ? nullptr : last_ = found;
}

Peers::Peer* Peers::make(uint32_t ip, Nanos now) noexcept {
  Peer* const bucket = bucket_of(ip);
  // Free entries come first, then the address that has only asked us and did so longest ago, then the one that we have
  // used longest ago.
  const auto use_of = [](const Peer& it) { return std::pair(it.used_at.load(kRelaxed), it.asked_us_at); };
  Peer& peer = *std::min_element(bucket, bucket + kWays,
                                 [use_of](const Peer& a, const Peer& b) { return use_of(a) < use_of(b); });
  const Nanos used_at = peer.used_at.load(kRelaxed);
  if (used_at != 0 && now - used_at < kAgain) return nullptr;
  peer.used_at.store(0, kRelaxed);
  peer.ip.store(ip, kRelaxed);
  peer.asks.store(0, kRelaxed);
  peer.answered_at.store(0, kRelaxed);
  peer.blocked_until.store(0, kRelaxed);
  peer.compressed.store(0, kRelaxed);
  peer.uncompressed.store(0, kRelaxed);
  peer.nonce = 0;
  peer.ask_at = kNever;
  peer.asked_us_at = 0;
  return last_ = &peer;
}

bool Peers::restores(const uint8_t* frame, uint32_t ip, Nanos now) noexcept {
  if (ip == 0 || ip >= kFirstGroupIp || (frame[0] & 1) != 0) return false;
  Peer* peer = find(ip);
  if (peer == nullptr) peer = make(ip, now);
  if (peer == nullptr) return false;
  if (std::memcmp(peer->headers.data(), frame, kMacBytes) != 0) {
    // The destination MAC has changed, so another machine is on the path or at its end. Earlier answers say nothing
    // about it.
    peer->answered_at.store(0, kRelaxed);
    peer->nonce = 0;
    peer->ask_at = kNever;
  }
  std::memcpy(peer->headers.data(), frame, kTemplate);
  if (peer->ask_at == kNever) {
    peer->asks.store(0, kRelaxed);
    peer->ask_at = now;
    ask_at_ = std::min(ask_at_, now);
  }
  peer->used_at.store(now, kRelaxed);
  return holds(*peer, now) && now >= peer->blocked_until.load(kRelaxed);
}

void Peers::count(uint32_t ip, bool compressed) noexcept {
  Peer* const peer = find(ip);
  if (peer != nullptr) add(compressed ? peer->compressed : peer->uncompressed);
}

bool Peers::answered(uint32_t ip, uint64_t nonce, Nanos now) noexcept {
  Peer* const peer = find(ip);
  if (peer == nullptr || peer->nonce == 0 || peer->nonce != nonce) return false;
  if (!holds(*peer, now)) peer->answers_since = now;
  peer->nonce = 0;
  peer->asks.store(0, kRelaxed);
  peer->answered_at.store(now, kRelaxed);
  peer->ask_at = now + kAgain;
  ask_at_ = std::min(ask_at_, peer->ask_at);
  return true;
}

Nanos Peers::answers_since(uint32_t ip, Nanos now) noexcept {
  const Peer* const peer = find(ip);
  return peer != nullptr && holds(*peer, now) ? peer->answers_since : now;
}

void Peers::block(uint32_t ip, Nanos now) noexcept {
  Peer* const peer = find(ip);
  if (peer != nullptr) peer->blocked_until.store(now + kBlockedFor, kRelaxed);
}

void Peers::asks(uint32_t ip, Nanos now) noexcept {
  if (ip == 0 || ip >= kFirstGroupIp) return;
  Peer* peer = find(ip);
  if (peer == nullptr) peer = make(ip, now);
  if (peer != nullptr) peer->asked_us_at = now;
}

bool Peers::is_accelerator(uint32_t ip, Nanos now) noexcept {
  const Peer* const peer = find(ip);
  if (peer == nullptr) return false;
  const Nanos heard_at = std::max(peer->asked_us_at, peer->answered_at.load(kRelaxed));
  return heard_at != 0 && now - heard_at < kKept;
}

uint64_t Peers::next_nonce() noexcept {
  const std::array<uint64_t, 2> counter = {++nonces_, 0};
  std::array<uint64_t, 2> nonce = {};
  int bytes = 0;
  (void)EVP_EncryptUpdate(cipher_.get(), reinterpret_cast<uint8_t*>(nonce.data()), &bytes,
                          reinterpret_cast<const uint8_t*>(counter.data()), sizeof(counter));
  return nonce[0] == 0 ? 1 : nonce[0];
}

Peers::Question Peers::next_question(Nanos now) noexcept {
  if (now < ask_at_ || now - asked_at_ < kApart) return {};
  for (; looked_at_ < kMost; ++looked_at_) {
    Peer& peer = peers_[looked_at_];
    if (peer.ip.load(kRelaxed) == 0 || now < peer.ask_at) continue;
    if (now - peer.used_at.load(kRelaxed) > kKept) {
      peer.ask_at = kNever;
      continue;
    }
    const unsigned asks = peer.asks.load(kRelaxed);
    peer.asks.store(asks + 1, kRelaxed);
    peer.ask_at = now + (asks + 1 < kQuickAsks && !holds(peer, now) ? kQuick : kAgain);
    if (peer.nonce == 0 || asks >= kQuickAsks) peer.nonce = next_nonce();
    asked_at_ = now;
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
