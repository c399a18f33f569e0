// ring_news.h - why a ring is not whole, in words: from facts to text, without I/O or clock (control thread only)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/operation.h"
#include "collectives/packet.h"

namespace gradlane {

// What a node knows of a neighbour.
struct NeighbourFacts {
  enum class PortState : uint8_t { kUp, kDown, kStarting };
  unsigned node = 0;
  uint32_t ip = 0;
  std::string port;
  PortState port_state = PortState::kUp;
  bool local = false;  // the port is a link inside this machine, which is up only while the other daemon runs
  bool up = false;     // all links of the exchange to it are
  bool mac_known = false;
  uint64_t arp_tries = 0;  // so far; 0: its address is configured, or has not been asked for yet
  uint64_t forged = 0;     // packets from its address so far that were refused: not authentic
  bool heard = false;      // packets of it, authentic ones, have come to a rank here lately
  Failure refused;         // by this node, of one of its ranks: field, ours, theirs
};

struct RingFacts {
  unsigned node = 0;
  uint16_t udp_port = 0;
  bool auth = false;  // packets of this node have tags
  unsigned ranks_per_node = 1;
  bool known = false;               // all ranks of this node have looked at the ring
  bool whole = false;               // all of them have found it whole
  std::optional<unsigned> missing;  // the rank that they know nothing of, if there is one
  std::string rival;  // MAC address of another machine that has this node's address; empty: none was seen lately
  std::vector<NeighbourFacts> neighbours;
};

// One line of the log.
struct RingLine {
  enum class Level : uint8_t { kInfo, kWarning, kError };
  Level level = Level::kInfo;
  std::string text;
  bool operator==(const RingLine&) const = default;
};

// What is wrong with a neighbour that has been missing for so long, most concrete first; "" if it is up.
// Packets of a node with a key are damaged to one without: that one hears it, and knows no more.
[[nodiscard]] std::string missing_text(const NeighbourFacts& facts, uint16_t udp_port, bool auth, Nanos missing_for);

// Looks at the ring again and again, and says what to log: nothing in the first 5 s and in the first 500 ms after the
// ring was whole, then a line for each missing neighbour every 5 s, and one when the ring is whole. A node that is
// configured differently is named at once. Times of look() never go backwards.
class RingWatch {
 public:
  static constexpr Nanos kAgain = 5 * kSecond;
  // Hellos with another key come far more often. A few packets may be a neighbour's own (docs/security.md).
  static constexpr Nanos kForgedPause = 2 * kSecond;
  static constexpr Nanos kAtStart = 5 * kSecond;
  static constexpr Nanos kAfterWhole = kSecond / 2;

  [[nodiscard]] std::vector<RingLine> look(const RingFacts& facts, Nanos now);

  // As of the last look.
  struct Seen {
    NeighbourFacts facts;
    std::string why;  // "": it is up
    Nanos missing_since = 0;
    uint64_t forged_before = 0;  // when it was up last, or there were no more of them for kForgedPause
    Nanos forged_at = 0;         // when there were more
  };
  [[nodiscard]] const std::vector<Seen>& neighbours() const noexcept { return seen_; }

 private:
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
