// view.h - from what daemons say to what is to be seen: rates, the slowest link, who waits for whom (pure functions)
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gradlane {

// Two looks at one daemon. Documents may lack anything, as they may be another version's.
struct TopLooks {
  std::string path;
  nlohmann::json now;     // the last one that came
  nlohmann::json before;  // null: there is none, or of an earlier life
  double seconds = 0;     // between the two
  double exchanging = 0;  // share of the looks in between that saw operations in flight
  std::string gone;       // why it does not answer now; "": it does
};

// A node of the ring that does not say anything itself.
struct TopOther {
  unsigned node = 0;
  std::string address;
  std::string place;  // where it was asked; "": nowhere
  std::string why;    // there is no answer
};

struct TopNode {
  unsigned node = 0;
  std::string state;       // whole, incomplete, refused, unknown; gone; "not asked": none that answers
  std::string address;     // as its neighbours know it
  double exchanging = 0;   // share of the time
  double in_flight = 0;    // operations, each lane counted
  double attached = 0;     // trainers
  double done = 0;         // operations per second, each lane counted
  double failed = 0;       // since its start
  double out = 0, in = 0;  // bytes per second, by its ports
  double ratio = 0;        // of elements in memory to those sent; 0: none were
  double saved = 0;        // seconds per second that uncompressed elements would have taken longer; an estimate
  double busy = 0;         // share of the time, of the busiest worker
  double up = 0;           // seconds
  // The trainer that the others of this node wait for; none: no one, or there is one trainer.
  std::optional<unsigned> late_rank = std::nullopt;
  std::string waits;     // for whom, or what:
  bool is_slow = false;  //   for something of its own
};

// From one node to another, its lanes and ranks together.
struct TopLink {
  unsigned from = 0;
  unsigned to = 0;
  bool up = true;
  double full = 0;       // share of the time that its window was full, of the fullest lane
  double rate = 0;       // bytes per second
  double full_rate = 0;  // the same while it was full: what it can do; 0: it was not long enough
  double rtt = 0;        // seconds, of the slowest lane
  double window = 0;     // packets,
  double in_flight = 0;  //   likewise
  double packets = 0;    // sent per second, for the first time
  double resent = 0;     // again
  bool carries = false;  // more than what little goes back
  enum class Mark : unsigned char { kNone, kSlow, kSlowest } mark = Mark::kNone;

  [[nodiscard]] double lost() const { return packets + resent > 0 ? resent / (packets + resent) : 0; }
};

struct TopView {
  bool rates = false;  // false: nothing has been seen for long enough yet
  size_t size = 0;     // nodes of the ring
  std::string codec;
  std::string mtu;
  std::vector<TopNode> nodes;      // by number
  std::vector<TopLink> links;      // the fullest first
  std::string verdict;             // one line: what holds the ring up
  bool bad = false;                //   whether it is a fault,
  bool held_up = false;            //   or somebody is late
  std::vector<std::string> notes;  // further lines
};

// `looks`: of daemons of one ring, those with `now`; of each node once.
[[nodiscard]] TopView top_view(std::span<const TopLooks> looks, std::span<const TopOther> others = {});
[[nodiscard]] nlohmann::json top_json(const TopView& view);

}  // namespace gradlane
