// ring_watch.h - why a ring is not whole, in words: from facts to text, without I/O or clock (control thread only)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "collectives/operation.h"

namespace gradlane {

// What a node knows of a neighbour.
struct NeighbourFacts {
  enum class PortState : uint8_t { kUp, kDown, kStarting };
  unsigned node = 0;
  std::string address;
  uint16_t udp_port = 0;  // where it listens; 0: as this node
  std::string port;
  PortState port_state = PortState::kUp;
  bool local = false;   // the port is a link inside this machine, which is up only while the other daemon runs
  bool sticks = false;  // the port may send nothing more behind a frame that is too long for its link (docs/traps.md)
  bool up = false;      // all links of the exchange to it are
  bool mac_known = false;
  uint64_t arp_tries = 0;   // so far; 0: its address is configured, or has not been asked for yet
  uint64_t forged = 0;      // packets from its address so far that were refused: not authentic
  uint64_t untagged = 0;    // of those: without any tag
  uint64_t tagged = 0;      // packets with a tag, where this node has no key
  uint64_t wrong_tos = 0;   // packets so far with a ToS byte that no class has,
  uint8_t last_tos = 0;     //   the last one with this
  uint16_t other_port = 0;  // UDP port that it sends to, and none of ours is; 0: it does not
  uint32_t asks_for = 0;    // address that it asks for, and no node has here; 0: it does not
  std::string speaks_from;  // another address than its own that hellos of this node come from; "": they do not
  bool heard = false;       // packets of it, authentic ones, have come to a rank here lately
  size_t path_bytes = 0;    // of IP: the longest packets that get there and back, and less than the MTU; else 0
  Nanos waiting_since = 0;  // nothing in flight to it has been acknowledged since then; 0: nothing is in flight
  Failure refused;          // by this node, of one of its ranks: field, ours, theirs
};

struct RingFacts {
  unsigned node = 0;
  uint16_t udp_port = 0;
  unsigned ranks_per_node = 1;
  size_t mtu = 0;
  bool known = false;               // all ranks of this node have looked at the ring
  bool whole = false;               // all of them have found it whole
  std::optional<unsigned> missing;  // the rank that they know nothing of, if there is one
  std::string rival;  // MAC address of another machine that has this node's address; empty: none was seen lately
  std::vector<NeighbourFacts> neighbours;
};

// What is wrong with packets of a neighbour, though it may be up; "": nothing.
[[nodiscard]] std::string trouble_text(const NeighbourFacts& facts);

// The way to a neighbour takes less than `mtu`; "": that is not known.
[[nodiscard]] std::string path_text(const NeighbourFacts& facts, size_t mtu);

// One line of the log.
struct RingLine {
  enum class Level : uint8_t { kInfo, kWarning, kError };
  Level level = Level::kInfo;
  std::string text;
  bool operator==(const RingLine&) const = default;
};

// What is wrong with a neighbour that has been missing for so long, most concrete first; "" if it is up.
[[nodiscard]] std::string missing_text(const NeighbourFacts& facts, uint16_t udp_port, Nanos missing_for);

// Looks at the ring again and again, and says what to log: nothing in the first 5 s and in the first 500 ms after the
// ring was whole, then a line for each missing neighbour every 5 s (of more than 8, one for all others), and one when
// the ring is whole. A node that is configured differently is named at once. Times of look() never go backwards.
class RingWatch {
 public:
  static constexpr Nanos kAgain = 5 * kSecond;
  // Hellos with another key come far more often. A few packets may be a neighbour's own (docs/security.md).
  static constexpr Nanos kForgedPause = 2 * kSecond;
  static constexpr Nanos kLately = 5 * kSecond;  // what is older has been mended, perhaps
  static constexpr Nanos kAtStart = 5 * kSecond;
  static constexpr Nanos kAfterWhole = kSecond / 2;

  [[nodiscard]] std::vector<RingLine> look(const RingFacts& facts, Nanos now);

  // As of the last look.
  struct Seen {
    NeighbourFacts facts;
    std::string why;  // "": it is up
    std::string trouble;
    Nanos missing_since = 0;
    Nanos tagged_at = 0;         // when there were more of these,
    Nanos wrong_tos_at = 0;      //   of these,
    Nanos asked_at = 0;          //   when it asked for such an address,
    Nanos other_port_at = 0;     //   and when it sent to such a port
    uint64_t forged_before = 0;  // when it was up last, or there were no more of them for kForgedPause
    Nanos forged_at = 0;         // when there were more
  };
  [[nodiscard]] const std::vector<Seen>& neighbours() const noexcept { return seen_; }

 private:
  [[nodiscard]] static NeighbourFacts recent(Seen& seen, const NeighbourFacts& facts, Nanos now);
  void look_at_neighbours(const RingFacts& facts, Nanos now);
  [[nodiscard]] std::vector<RingLine> lines_of(const RingFacts& facts) const;

  std::vector<Seen> seen_;
  bool started_ = false;
  bool whole_ = false;            // so the log says
  std::vector<Failure> refused_;  // so the log says
  std::optional<Nanos> incomplete_since_;
  Nanos line_at_ = 0;
};

}  // namespace gradlane
