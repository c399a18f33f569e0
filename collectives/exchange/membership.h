// membership.h - agreement of all ranks on one session, and on equal configurations
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

// Neighbours send each other hellos until the ring is ready, without any leader.
//
// Session. A session is a number, and the greatest one wins. A node that receives a greater one enters that session,
// informs its neighbours, and resets its links. The high half of the number is the *generation*. A node that starts
// proposes a session of generation 1 with a random low half. These proposals merge into the greatest before anything
// runs. A node that finds its neighbour dead or restarted proposes a session of the next generation, and gives the
// cause. Entering a later generation ends all operations, if this node was in a session of the same root.
//
// Root. Bits 16 to 31 of a session are its root. A session of a later generation keeps the root of the generation-1
// session that it descends from. A node that has just started may learn of a generation that ended before it started.
// It has been in no session of that root, so the operations of its trainers continue. A node whose ring is ready may
// learn of a greater session of another root. It then proposes a generation above that session, with its own root, so
// that all ranks of its root get the failure. Exception: if the sender's live prefix is the world size, an earlier life
// of this node was in the sender's session. Then the node proposes a generation with the root of that session.
//
// Live prefix ("reach" in docs/exchange.md). It counts the ranks, back from this one, that are known to be in this
// session without a gap. A rank counts only when all neighbours that it has outside the ring have met it. The live
// prefix is 1 + that of the predecessor. When it is the world size, all ranks have entered the session, and none goes
// back to an older one. Operations start when, in addition, all neighbours have met this life of this node, and not an
// earlier one. If the ring does not become ready, rank - live prefix is the first rank that is missing.
//
// Lives. A life is the time from a node's start to its end, and has a random incarnation number. A node with an unknown
// incarnation is believed only if its hello echoes the challenge that this node made for this session. A late hello of
// an earlier life or session cannot do that.
class Membership {
 public:
  enum class Event : uint8_t {
    kNone,
    kMerged,  // another session was entered; nothing had started in the previous one
    kEnded,   // another generation was entered: everything in flight has failed, because of cause()
  };

  // The first `ring_links` of the links are those of the ring: to the successor, and to the predecessor.
  Membership(const ExchangeConfig& config, size_t ring_links, std::span<Link> links, Counters& counters);

  // Handles an undamaged hello. `bytes` is the part after the link header.
  [[nodiscard]] Event receive(size_t link, const LinkHeader& header, std::span<const uint8_t> bytes,
                              Nanos now) noexcept;
  // Handles an undamaged packet of another protocol version.
  void refuse_version(size_t link, uint8_t version) noexcept;
  // Excludes a neighbour for a reason that only the owner of this object knows. While the neighbour is excluded, the
  // owner must withhold all its packets, because its next hello would end the exclusion. A new session ends it, too:
  // the owner must then call this again.
  [[nodiscard]] Event refuse(size_t link, const Failure& why) noexcept;
  // Returns whether the neighbour has met this life of this node in this session. Then its packets are for this life.
  [[nodiscard]] bool knows_us(size_t link) const noexcept { return peers_[link].knows_us; }

  // Notes that packets of this neighbour arrive with a ToS byte that no class has. The neighbour is informed. If it is
  // given up, this is the cause.
  void note_wrong_tos(size_t link, uint8_t tos, Nanos now) noexcept;

  // Ends this generation for a reason found elsewhere. Always returns kEnded.
  [[nodiscard]] Event give_up(const Failure& cause) noexcept;

  // Gives up silent neighbours, and sends hellos.
  [[nodiscard]] Event poll(Nanos now) noexcept;
  [[nodiscard]] Nanos deadline() const noexcept { return due_; }

  [[nodiscard]] uint64_t session() const noexcept { return session_; }
  [[nodiscard]] bool ready() const noexcept { return ready_; }
  // Returns the rank that the ring waits for, if it is not ready. If there are links outside the ring, and a neighbour
  // has not met this rank, it is that neighbour. Otherwise it is the first rank, counted back from this one, of which
  // nothing is known, or which its neighbours outside the ring have not all met.
  [[nodiscard]] unsigned missing() const noexcept;
  [[nodiscard]] const Failure& cause() const noexcept { return cause_; }
  // Returns why the ring is not ready: the missing rank, and the ToS byte if packets from or to a neighbour arrive with
  // a wrong one.
  [[nodiscard]] Failure no_ring() const noexcept;
  // Returns the refusal of a neighbour, for example because it is configured differently; kNone if none is refused.
  [[nodiscard]] const Failure& refused() const noexcept;
  // Returns the refusal of this neighbour; kNone if it is not refused.
  [[nodiscard]] const Failure& refused(size_t link) const noexcept { return peers_[link].refused; }

  // ---- Survivors
  //
  // An operation that begins in a new generation may need a rank whose trainer left during the previous one. Only that
  // rank knows whether it has a new trainer, and all others only wait for it. So ranks announce in which generation
  // their trainers took part before, in hellos that travel both ways around the ring. If a rank had a trainer in that
  // generation and has none now, it ends the operations that the others have begun. Trainers that began later are not
  // announced: at the start of a job every rank waits for every other. announce_since() adds a generation to the
  // announcement.
  void announce_since(uint32_t since) noexcept;
  [[nodiscard]] uint32_t announced_since() const noexcept { return since_; }  // earliest generation announced; 0: none
  [[nodiscard]] uint32_t generation() const noexcept { return static_cast<uint32_t>(session_ >> 32); }
  // Returns the generation in which this node saw the ring ready for the first time; 0: not yet.
  [[nodiscard]] uint32_t first_generation() const noexcept { return first_generation_; }

 private:
  static constexpr size_t kRoots = size_t{1} << 16;
  struct Peer {
    bool known = false;  // its incarnation is known
    uint64_t incarnation = 0;
    uint64_t previous = 0;       // previous incarnation; 0: none
    uint64_t challenge = 0;      // challenge to echo; 0: none received yet
    uint16_t live_prefix = 0;    // its live prefix in this session
    bool met = false;            // its incarnation has been confirmed in this session
    bool knows_us = false;       // it has met this life of this node in this session
    bool lacks_since = false;    // its hellos are too short to have `since`
    uint32_t since = 0;          // its earliest announced generation in this session; 0 if none
    uint8_t arrived_tos = 0;     // ToS byte of its packets that no class has
    Nanos arrived_at = 0;        // arrival time of the latest such packet; 0: none
    uint8_t complained_tos = 0;  // ToS byte of our packets that no class has, as the neighbour reports it
    Nanos complained_at = 0;
    Failure refused;
    Nanos hello_at = 0;  // time to send the next hello
    Nanos interval = 0;  // time from `hello_at` to the hello after it
    Nanos sent_at = 0;
  };

  void compare(Peer& peer, unsigned peer_rank, const Hello& hello) const noexcept;
  [[nodiscard]] Failure diagnosis(size_t link, bool heard, Nanos now) const noexcept;
  [[nodiscard]] Event meet(size_t link, const LinkHeader& header, const Hello& hello, Nanos now) noexcept;
  [[nodiscard]] Event propose_generation(uint64_t above, const Failure& cause) noexcept;
  [[nodiscard]] Event propose_generation(uint64_t above, const Failure& cause, uint64_t from) noexcept;
  [[nodiscard]] Event enter(uint64_t session, const Failure& cause) noexcept;
  void learn_since(uint32_t since) noexcept;
  void update_live_prefix() noexcept;
  [[nodiscard]] bool lately(Nanos at, Nanos now) const noexcept;
  void tell(Peer& peer, Nanos now) noexcept;
  void tell(Nanos at, size_t links) noexcept;
  [[nodiscard]] bool settled(size_t link) const noexcept;
  bool send_hello(size_t link, Nanos now) noexcept;

  const unsigned world_;
  const unsigned rank_;
  const size_t around_;
  const size_t datagram_;
  const Nanos silence_;       // time without a sign of life until a neighbour is given up
  Nanos polled_at_ = 0;       // time of the latest poll; 0: none yet
  Nanos due_ = 0;             // time by which poll() must check all links again
  const Nanos max_interval_;  // longest interval of hellos
  Hello self_{};              // fields that all hellos have in common
  const size_t ring_links_;
  std::span<Link> links_;  // successor, predecessor (one link for both in a world of two), then others
  Counters& counters_;
  std::vector<Peer> peers_;  // indexed like links_
  Random random_;
  uint64_t session_ = 0;
  uint64_t challenge_ = 0;
  unsigned live_prefix_ = 1;
  // all neighbours outside the ring have met this rank; until then its hellos have a live prefix of 0
  bool complete_ = false;
  bool ready_ = false;
  std::bitset<kRoots> roots_;  // roots of all sessions that this life of the node has entered
  uint32_t since_ = 0;         // earliest generation announced by all ranks in this session; 0: none
  uint32_t own_since_ = 0;     // earliest generation announced by this rank in this generation; 0: none
  uint32_t first_generation_ = 0;
  Failure cause_;  // cause that ended the previous generation
};

}  // namespace gradlane
