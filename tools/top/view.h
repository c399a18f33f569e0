// view.h - a view of the ring from daemons' documents: rates, the slowest link, which node waits for which (pure
// functions)
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gradlane {

// Two documents of one daemon. Any field may be missing, as the daemon may have another version.
struct TopLooks {
  std::string path;
  nlohmann::json now;     // latest document
  nlohmann::json before;  // null if there is none, or if the daemon has restarted since
  double seconds = 0;     // time between the two
  double exchanging = 0;  // share of the documents in between that had operations in flight
  std::string gone;       // reason why it does not answer now; "" if it does
};

// A node of the ring that has not sent a document.
struct TopOther {
  unsigned node = 0;
  std::string address;
  std::string place;  // place where it was asked; "" if nowhere
  std::string why;    // reason why there is no answer
};

struct TopNode {
  unsigned node = 0;
  // "whole", "incomplete", "refused", "unknown", "gone", "missing"; "not asked": it has not answered
  std::string state;
  std::string address;     // as its neighbours know it
  double exchanging = 0;   // share of the time with operations in flight
  double in_flight = 0;    // operations in flight; each lane's share counts as one
  double attached = 0;     // trainers
  double done = 0;         // operations that succeeded, per second; each lane's share counts as one
  double failed = 0;       // operations that failed since its start
  double out = 0, in = 0;  // bytes per second at its ports
  double ratio = 0;        // bytes of elements in memory / encoded bytes of them that were sent; 0 if none were sent
  double saved = 0;        // estimate of the time saved by compression, in seconds per second
  double busy = 0;         // share of the time that the busiest worker is busy
  double up = 0;           // seconds since its start
  // The trainer that the other trainers of this node wait for; nullopt if there is none, or only one trainer.
  std::optional<unsigned> late_rank = std::nullopt;
  std::string waits;     // text: the node or part that it waits for, or the reason why it does not answer
  bool is_slow = false;  // it waits for its own trainer, worker or link
};

// The connection from one node to another: all lanes and ranks together.
struct TopLink {
  unsigned from = 0;
  unsigned to = 0;
  bool up = true;
  double full = 0;  // share of the time that its window was full, on the fullest lane
  double rate = 0;  // bytes per second
  // bytes per second while it was full, which is its capacity; 0: it was not full for long enough
  double full_rate = 0;
  double rtt = 0;        // seconds, on the slowest lane
  double window = 0;     // packets
  double in_flight = 0;  // packets
  double packets = 0;    // packets per second that were sent for the first time
  double resent = 0;     // packets per second that were sent again
  bool carries = false;  // false if it has almost no data, like links of a ring that only return acknowledgements
  enum class Mark : unsigned char { kNone, kSlow, kSlowest } mark = Mark::kNone;

  [[nodiscard]] double lost() const { return packets + resent > 0 ? resent / (packets + resent) : 0; }
};

struct TopView {
  bool rates = false;  // false: no daemon has sent two documents yet
  size_t size = 0;     // number of nodes of the ring
  std::string codec;
  std::string mtu;
  std::vector<TopNode> nodes;      // sorted by number
  std::vector<TopLink> links;      // sorted, the fullest first
  std::string verdict;             // one line: the cause that holds the ring up
  bool bad = false;                // a node has gone, or the ring is not ready
  bool held_up = false;            // a trainer is late, or a link is slower than the others
  std::vector<std::string> notes;  // further lines
};

// `looks`: daemons of one ring that have sent a document, each node once. `others`: nodes that have not.
[[nodiscard]] TopView top_view(std::span<const TopLooks> looks, std::span<const TopOther> others = {});
[[nodiscard]] nlohmann::json top_json(const TopView& view);

}  // namespace gradlane
