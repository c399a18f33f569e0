// membership.h - agreement of all ranks on one session, and on being configured alike
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "base/time.h"
#include "collectives/counters.h"
#include "collectives/exchange_config.h"
#include "collectives/link/link.h"
#include "collectives/operation.h"
#include "collectives/wire.h"

namespace gradlane {

// Neighbours send each other hellos until the ring is whole, without any leader.
//
// Session. A number; the greatest wins: a node that receives a greater one enters that session, tells its neighbours,
// and resets its links. Its high half is the *generation*. A node that starts proposes one of generation 1 with a
// random low half; these merge into the greatest before anything runs. A node that finds its neighbour dead or
// restarted *raises*: it proposes one of the next generation, which carries the cause. Entering a later generation ends
// all operations, if this node was in a session of its root.
//
// Root. Bits 16 to 31 of a session. A raised session keeps the root of the generation-1 session that it descends from.
// A node that has just started may hear of a generation that ended before it started. It has been in no session of that
// root, so the operations of its trainers continue. A node whose ring is whole and that hears of a greater session of
// another root raises above it with its own root, so that all ranks of its root get the failure. Exception: if the
// sender's reach is the world size, an earlier life of this node was in that session, and the node keeps its root.
//
// Reach. How many ranks, counting back from this one, are known to be in this session without a gap, and to have met
// all that they have links to: 1 + the predecessor's reach. When it is the world size, all have entered the session
// (and nobody goes back to an older one), so operations may start, if both neighbours have met this life of this node
// (and did not count an earlier one). When the ring does not come up, rank - reach is the first one that is missing.
//
// Lives. A node has a random incarnation. One with an unknown incarnation is believed only if its hello echoes the
// challenge that this node made for this session: late hellos of an earlier life or session cannot do that.
class Membership {
 public:
  enum class Event : uint8_t {
    kNone,
    kMerged,  // another session: nothing had started in the last one
    kEnded,   // another generation: everything in flight has failed, because of cause()
  };

  // The first `ring_links` of the links are those of the ring: to the successor, and to the predecessor.
  Membership(const ExchangeConfig& config, size_t ring_links, std::span<Link> links, Counters& counters);

  // A hello that is undamaged. `bytes` is what stands behind the link header.
  [[nodiscard]] Event receive(size_t link, const LinkHeader& header, std::span<const uint8_t> bytes,
                              Nanos now) noexcept;
  // A damage-free packet of another protocol version.
  void refuse_version(size_t link, uint8_t version) noexcept;
  // The owner finds that a neighbour must not take part, and keeps its packets back. Until the next session: to be said
  // again and again.
  [[nodiscard]] Event refuse(size_t link, const Failure& why) noexcept;
  // The neighbour has met this life of this node in this session: its packets are for us.
  [[nodiscard]] bool knows_us(size_t link) const noexcept { return peers_[link].knows_us; }

  // Packets of this neighbour come with a ToS byte that no class has: it is told, and it is the cause if it is given
  // up.
  void complain(size_t link, uint8_t tos, Nanos now) noexcept;

  // Ends this generation for a reason found elsewhere; always kEnded.
  [[nodiscard]] Event give_up(const Failure& cause) noexcept;

  // Gives up silent neighbours, sends hellos.
  [[nodiscard]] Event poll(Nanos now) noexcept;
  [[nodiscard]] Nanos deadline() const noexcept { return due_; }

  [[nodiscard]] uint64_t session() const noexcept { return session_; }
  [[nodiscard]] bool whole() const noexcept { return whole_; }
  // Not whole: the first one, counting back from this one, that nothing is known of, or that has not met all it has
  // links to; where there are links beside the ring's, one that has not met this rank comes before that.
  [[nodiscard]] unsigned missing() const noexcept;
  [[nodiscard]] const Failure& cause() const noexcept { return cause_; }
  // Why the ring is not whole: whom nothing is known of, and what a neighbour's packets, or ours there, suffer from.
  [[nodiscard]] Failure no_ring() const noexcept;
  // A neighbour that is configured differently, if there is one.
  [[nodiscard]] const Failure& refused() const noexcept;
  // This one, if it is.
  [[nodiscard]] const Failure& refused(size_t link) const noexcept { return peers_[link].refused; }

  // ---- Survivors. What begins in a new generation may need a rank whose trainer went with the last one. Only that
  // rank knows whether another one has come, and all the others only wait for it. So they say, in hellos that go both
  // ways round the ring, since when they have been there: in which generation their trainers took part. A rank whose
  // trainer was there then and is not now ends what they have begun. Those that came later are not heard of: at the
  // start of a job everybody waits for everybody.
  void seek(uint32_t since) noexcept;
  [[nodiscard]] uint32_t sought() const noexcept { return since_; }  // the least of them; 0: none
  [[nodiscard]] uint32_t generation() const noexcept { return static_cast<uint32_t>(session_ >> 32); }
  // The one in which this node saw the ring whole for the first time; 0: not yet.
  [[nodiscard]] uint32_t first_generation() const noexcept { return first_generation_; }

 private:
  static constexpr size_t kRoots = size_t{1} << 16;
  struct Peer {
    bool known = false;  // its incarnation is
    uint64_t incarnation = 0;
    uint64_t previous = 0;       // the incarnation before that; 0: none
    uint64_t challenge = 0;      // what to echo; 0: none heard yet
    uint16_t reach = 0;          // in this session
    bool met = false;            // its incarnation was heard of in this session
    bool knows_us = false;       // it has met this life of this node in this session
    bool brief = false;          // its hellos end before `since`
    uint32_t since = 0;          // in this session
    uint8_t arrived_tos = 0;     // of its packets that no class has,
    Nanos arrived_at = 0;        //   and when such a one came last; 0: none
    uint8_t complained_tos = 0;  // the same of ours, as it says
    Nanos complained_at = 0;
    Failure refused;
    Nanos hello_at = 0;  // when to send the next hello
    Nanos interval = 0;  // and how much later the one after it
    Nanos sent_at = 0;
  };

  void compare(Peer& peer, unsigned peer_rank, const Hello& hello) const noexcept;
  [[nodiscard]] Failure diagnosis(size_t link, bool heard, Nanos now) const noexcept;
  [[nodiscard]] Event meet(size_t link, const LinkHeader& header, const Hello& hello, Nanos now) noexcept;
  [[nodiscard]] Event raise(uint64_t above, const Failure& cause) noexcept;
  [[nodiscard]] Event raise(uint64_t above, const Failure& cause, uint64_t from) noexcept;
  [[nodiscard]] Event enter(uint64_t session, const Failure& cause) noexcept;
  void learn_since(uint32_t since) noexcept;
  void update_reach() noexcept;
  [[nodiscard]] bool lately(Nanos at, Nanos now) const noexcept;
  void tell(Peer& peer, Nanos now) noexcept;
  void tell(Nanos at, size_t links) noexcept;
  [[nodiscard]] bool settled(size_t link) const noexcept;
  bool send_hello(size_t link, Nanos now) noexcept;

  const unsigned world_;
  const unsigned rank_;
  const size_t around_;
  const Nanos silence_;       // without a sign of life until a neighbour is given up
  Nanos polled_at_ = 0;       // 0: never yet
  Nanos due_ = 0;             // when poll() has to look at all links; not later
  const Nanos max_interval_;  // of hellos
  Hello self_{};              // what all hellos have in common
  const size_t ring_links_;
  std::span<Link> links_;  // successor, then predecessor, one for both in a world of two; then others
  Counters& counters_;
  std::vector<Peer> peers_;  // as links_
  Random random_;
  uint64_t session_ = 0;
  uint64_t challenge_ = 0;
  unsigned reach_ = 1;
  bool complete_ = false;  // all that this rank has links to beside the ring have met it: else it does not count
  bool whole_ = false;
  std::bitset<kRoots> roots_;  // of all sessions so far
  uint32_t since_ = 0;         // of all ranks in this session
  uint32_t own_since_ = 0;     // of this one in this generation
  uint32_t first_generation_ = 0;
  Failure cause_;  // of the end of the last generation
};

}  // namespace gradlane
