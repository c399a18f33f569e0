// node_figures.h - a node's figures at one moment, for stats, metrics and the log (plain data)
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
#include "dataplane/trainer/choice_reports.h"

namespace gradlane {

class Node;

using CounterValues = std::vector<CounterValue>;

struct PortFigures {
  std::string name;
  std::string device;
  std::string driver;       // DPDK driver; "": none, or not started
  const char* link = "";    // starting, up, down
  unsigned speed_mbps = 0;  // 0: not known
  // what computes UDP checksums of sent packets: software, device; "": link in this machine, sockets, or not started
  const char* checksums = "";
  std::string mac;
  const char* address = "";  // state of this node's address on this port: waiting, probing, held, taken
  std::string rival;         // another host that has the address; "": none
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
  std::string port;  // our port to it
  std::string mac;   // "": not known
  bool up = false;
  std::string why;          // known cause, if it is not up
  std::string trouble;      // known problem, if it is up
  std::string speaks_from;  // another address that it sends from; "": none
  size_t path_bytes = 0;    // longest IP packets on the path to it, if less than the MTU; 0: not less, or not known
  std::string difference;   // difference in its settings: "workers.lanes: 1 here, 2 there"; "": none is known
  uint64_t arp_tries = 0;
  uint64_t forged = 0;
  uint64_t untagged = 0;
  uint64_t tagged = 0;
  uint64_t wrong_tos = 0;
};

// A node of the ring, as it is configured.
struct TableFigures {
  unsigned node = 0;
  std::string address;
  std::string reach;  // address or name of its machine for TCP; "": not known
};

struct LinkFigures {
  unsigned rank = 0;
  bool up = false;
  double rtt_us = 0;
  double window = 0;
  size_t in_flight = 0;
  uint64_t sent = 0;        // data packets, without retransmits
  uint64_t resent = 0;      // retransmits of data packets
  uint64_t bytes = 0;       // bytes of both
  double full_us = 0;       // time in which the window was full
  uint64_t full_bytes = 0;  // part of `bytes` that was sent in that time
  RttHistogram rtt{};
};

struct CodecFigures {
  CodecId id{};
  std::string word;            // "fixed"; "signsgd,ternary" or "fixed:rel" if several codecs have one word
  uint64_t element_bytes = 0;  // size in memory of the elements that were sent
  uint64_t run_bytes = 0;      // size of these elements as they were sent
};

struct StrategyFigures {
  const char* word = "";     // strategy; "rings" stands for all rings:G
  OperationHistogram times;  // times of operations that succeeded, from their submission on
};

// A trainer of a node with local_reduce.
struct TrainerFigures {
  unsigned rank = 0;
  double awaited_us = 0;  // time that operations of this node have waited for it
};

struct WorkerFigures {
  double busy_us = 0;  // time of rounds that moved something
};

// One rank on one lane.
struct RankFigures {
  unsigned rank = 0;
  unsigned lane = 0;
  const char* ring = "";            // unknown, whole, incomplete, refused
  std::optional<unsigned> missing;  // incomplete: first rank, except this one, that nothing is known of
  std::string refused;              // reason; "": it is not refused
  std::string failed;               // reason why the last failed operation failed; "": none has
  std::vector<LinkFigures> links;
  CounterValues counters;
  std::vector<CodecFigures> codecs;           // codecs that were used; "raw" is for elements that went through none
  std::vector<StrategyFigures> strategies{};  // strategies that were used
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
  uint32_t in_flight = 0;              // operations in flight; one that is on several lanes counts for each lane
  std::optional<double> failed_s_ago;  // seconds since the last failed operation
  bool auth = false;
  std::string security = "none";  // the word of the configuration
  InjectedFaults faults;
  bool ready = false;  // whether the ring is ready, as all ranks here see it
  std::vector<PortFigures> ports;
  std::vector<PoolFigures> pools;  // packet pools; one for all lanes
  std::vector<NeighbourFigures> neighbours;
  std::vector<TableFigures> table;
  std::string metrics;  // ADDRESS:PORT of the metrics server; "": none
  std::vector<WorkerFigures> workers;
  std::vector<TrainerFigures> awaited;
  std::vector<RankFigures> ranks;
  std::vector<PlanFigures> plan;  // choices of `auto`, as trainers' libraries report them
};

// Returns the figures of a node. Control thread only. Figures of workers are up to 100 ms old.
[[nodiscard]] NodeFigures node_figures(const Node& node, Nanos now);

}  // namespace gradlane
