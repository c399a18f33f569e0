// ring_watch.h - the reasons why a ring is not ready, as text made from facts, without I/O or clock (control thread
// only)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "collectives/operation.h"

namespace gradlane {

// The facts that a node knows about a neighbour.
struct NeighbourFacts {
  enum class PortState : uint8_t { kUp, kDown, kStarting };
  unsigned node = 0;
  std::string address;
  uint16_t udp_port = 0;  // UDP port where it listens; 0: the same as this node's
  std::string port;
  PortState port_state = PortState::kUp;
  bool local = false;  // whether the port is a link inside this machine, which is up only while the other daemon runs
  // whether the port may send nothing more after a frame that is too long for its link (docs/pitfalls.md)
  bool stalls_on_long_frame = false;
  bool up = false;  // whether all links of the exchange to it are up
  bool mac_known = false;
  uint64_t arp_tries = 0;   // number of ARP requests so far; 0: its address is configured, or was not asked for yet
  uint64_t forged = 0;      // number of packets from its address so far that were refused as not authentic
  uint64_t untagged = 0;    // number of the forged packets that had no tag
  uint64_t tagged = 0;      // number of packets with a tag, while this node has no key
  uint64_t wrong_tos = 0;   // number of packets so far with a ToS byte of no class
  uint8_t last_tos = 0;     // ToS byte of the latest of these
  uint16_t other_port = 0;  // UDP port that it sends to and that is none of ours; 0: it does not
  uint32_t asks_for = 0;    // address that it asks for and that no node has here; 0: it does not
  std::string speaks_from;  // another address than its own, from which its hellos come; "": none
  bool heard = false;       // whether authentic packets of it have come to a rank here in the last 2 s
  size_t path_bytes = 0;    // longest IP packets that get there and back, if that is less than the MTU; otherwise 0
  Nanos waiting_since = 0;  // time since which no packet in flight to it was acknowledged; 0: nothing is in flight
  Failure refused;          // difference for which this node refuses one of its ranks: field, ours, theirs
};

struct RingFacts {
  unsigned node = 0;
  uint16_t udp_port = 0;
  unsigned ranks_per_node = 1;
  size_t mtu = 0;
  bool known = false;  // whether all ranks of this node have published a state of the ring
  bool ready = false;  // whether the ring is ready for all ranks of this node
  // rank that the ring waits for, if any; a rank of this node if its neighbours do not answer
  std::optional<unsigned> missing;
  std::string rival;  // MAC address of another machine that has this node's address; empty: none was seen lately
  std::vector<NeighbourFacts> neighbours;
};

// Returns a problem with packets of a neighbour, which may be up nevertheless; "": there is none.
[[nodiscard]] std::string problem_text(const NeighbourFacts& facts);

// Returns a text that says that the path to a neighbour takes less than `mtu`; "": nothing of the kind is known.
[[nodiscard]] std::string path_text(const NeighbourFacts& facts, size_t mtu);

// One line of the log.
struct RingLine {
  enum class Level : uint8_t { kInfo, kWarning, kError };
  Level level = Level::kInfo;
  std::string text;
  bool operator==(const RingLine&) const = default;
};

// Returns the most specific known problem with a neighbour that has been missing for `missing_for`; "" if it is up.
[[nodiscard]] std::string missing_text(const NeighbourFacts& facts, uint16_t udp_port, Nanos missing_for);

// Returns the lines to log about the ring; call look() repeatedly, with times that never go backwards. There is a line
// for each missing neighbour every 5 s; with more than 8, one line for all others. There is a line when the ring is
// ready. Nothing is logged in the first 5 s, or in the first 500 ms after a ring has ceased to be ready. A node that is
// configured differently is named at once.
class RingWatch {
 public:
  static constexpr Nanos kAgain = 5 * kSecond;
  // A neighbour with another key sends hellos far more often than this. A neighbour with the right key may also send a
  // few packets that do not verify: packets that are sent again while the device still holds them (docs/security.md).
  static constexpr Nanos kForgedPause = 2 * kSecond;
  // time for which a sign of a problem counts; later, the problem may have been fixed
  static constexpr Nanos kLately = 5 * kSecond;
  static constexpr Nanos kAtStart = 5 * kSecond;
  static constexpr Nanos kAfterReady = kSecond / 2;

  [[nodiscard]] std::vector<RingLine> look(const RingFacts& facts, Nanos now);

  // A neighbour as the latest look() found it.
  struct Seen {
    NeighbourFacts facts;
    std::string why;  // reason why it is not up; "": it is up
    std::string trouble;
    Nanos missing_since = 0;
    Nanos tagged_at = 0;      // last time when `tagged` had grown
    Nanos wrong_tos_at = 0;   // last time when `wrong_tos` had grown
    Nanos asked_at = 0;       // latest time at which `asks_for` was not 0
    Nanos other_port_at = 0;  // latest time at which `other_port` was not 0
    // value of `forged` when it was up last, or when `forged` had not grown for kForgedPause
    uint64_t forged_before = 0;
    Nanos forged_at = 0;  // last time when `forged` had grown
  };
  [[nodiscard]] const std::vector<Seen>& neighbours() const noexcept { return seen_; }

 private:
  [[nodiscard]] static NeighbourFacts recent(Seen& seen, const NeighbourFacts& facts, Nanos now);
  void look_at_neighbours(const RingFacts& facts, Nanos now);
  [[nodiscard]] std::vector<RingLine> lines_of(const RingFacts& facts) const;

  std::vector<Seen> seen_;
  bool started_ = false;
  bool ready_ = false;            // whether the log says that the ring is ready
  std::vector<Failure> refused_;  // refusals that are in the log
  std::optional<Nanos> incomplete_since_;
  Nanos line_at_ = 0;
};

}  // namespace gradlane
