// node_figures.h - a node's figures at one moment: what stats, metrics and the log print (plain data)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/counter_set.h"
#include "base/time_histogram.h"
#include "compress/kernels.h"
#include "config/config.h"
#include "dataplane/trainer/plan_reports.h"

namespace gradlane {

class Node;

using CounterValues = std::vector<CounterValue>;

struct PortFigures {
  std::string name;
  std::string device;
  std::string driver;          // DPDK's; "": none, or not started
  const char* link = "";       // starting, up, down
  unsigned speed_mbps = 0;     // 0: not known
  const char* checksums = "";  // of packets that are sent, by: software, device; "": none, or not started
  std::string mac;
  const char* address = "";  // this node's there: waiting, probing, held, taken
  std::string rival;         // who else has it; "": nobody
  std::string steering;
  std::vector<CounterValues> queues;
};

struct PoolFigures {
  uint64_t buffers = 0;
  uint64_t free = 0;
};

struct NeighbourFigures {
  unsigned node = 0;
  std::string ip;
  std::string port;  // ours, to it
  std::string mac;   // "": not known
  bool up = false;
  std::string why;          // not up: what is known of the cause,
  std::string trouble;      //   and what disturbs one that is
  std::string speaks_from;  // another address; "": no
  size_t path_bytes = 0;    // longest packets of IP on the way there, if less than the MTU; 0: no, or not known
  std::string difference;   // in its settings: "workers.lanes: 1 here, 2 there"; "": none is known
  uint64_t arp_tries = 0;
  uint64_t forged = 0;
  uint64_t untagged = 0;
  uint64_t tagged = 0;
  uint64_t wrong_tos = 0;
};

// A node of the ring, as the configuration has it.
struct TableFigures {
  unsigned node = 0;
  std::string address;
  std::string reach;  // address or name where its machine takes TCP; "": nothing says
};

struct LinkFigures {
  unsigned rank = 0;
  bool up = false;
  double rtt_us = 0;
  double window = 0;
  size_t in_flight = 0;
  uint64_t sent = 0;        // data packets, those that were sent again left out:
  uint64_t resent = 0;      //   these
  uint64_t bytes = 0;       // of both
  double full_us = 0;       // how long its window was full
  uint64_t full_bytes = 0;  // of `bytes`, meanwhile
  RttHistogram rtt{};
};

struct CodecFigures {
  CodecId id{};
  std::string word;            // "fixed"; "signsgd,ternary", "fixed:rel" where several have one word
  uint64_t element_bytes = 0;  // of what was sent by it,
  uint64_t run_bytes = 0;      //   and as it was sent
};

struct StrategyFigures {
  const char* word = "";     // "rings" of all rings:G
  OperationHistogram times;  // of operations that succeeded, from their submission on
};

// With local_reduce.
struct TrainerFigures {
  unsigned rank = 0;
  double awaited_us = 0;  // how long operations of this node have waited for it
};

struct WorkerFigures {
  double busy_us = 0;  // of rounds that moved something
};

// One rank on one lane.
struct RankFigures {
  unsigned rank = 0;
  unsigned lane = 0;
  const char* ring = "";            // unknown, whole, incomplete, refused
  std::optional<unsigned> missing;  // incomplete: the first rank, not this one, that nothing is known of
  std::string refused;              // why; "": it is not
  std::string failed;               // the last operation that failed: why; "": none has
  std::vector<LinkFigures> links;
  CounterValues counters;
  std::vector<CodecFigures> codecs;           // those that were used; "raw": what goes through none
  std::vector<StrategyFigures> strategies{};  // likewise
};

struct NodeFigures {
  unsigned node = 0;
  size_t nodes = 0;
  std::string config_digest;
  std::string codec;
  std::vector<std::string> strategies;
  size_t mtu = 0;
  unsigned lanes = 0;
  unsigned trainers = 0;
  unsigned attached = 0;
  uint32_t in_flight = 0;              // operations, each lane counted
  std::optional<double> failed_s_ago;  // the last failed operation
  bool auth = false;
  InjectedFaults faults;
  bool whole = false;  // the ring, as all ranks here see it
  std::vector<PortFigures> ports;
  std::vector<PoolFigures> pools;  // by lane
  std::vector<NeighbourFigures> neighbours;
  std::vector<TableFigures> table;
  std::string metrics;  // ADDRESS:PORT; "": nobody listens
  std::vector<WorkerFigures> workers;
  std::vector<TrainerFigures> awaited;
  std::vector<RankFigures> ranks;
  std::vector<PlanFigures> plan;  // of operations that were left to trainers' libraries
};

// Control thread. Figures of workers are up to 100 ms old.
[[nodiscard]] NodeFigures node_figures(const Node& node, Nanos now);

}  // namespace gradlane
