// daemon_facts.h - facts about a daemon that a calibration needs, from its admin socket (main thread)
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gradlane {

struct DaemonFacts {
  unsigned node = 0;
  unsigned nodes = 0;
  unsigned trainers = 1;  // number of trainers per node
  unsigned workers = 1;   // number of worker threads, whatever the number of lanes
  double mtu = 1500;
  std::string port;          // "udp", "packets" or "card"; for other ports the driver, as "vhost"
  double speed = 0;          // bytes per s that its slowest card reports; 0 if a port is no card, or reports none
  std::vector<double> busy;  // busy time of each worker since the start, in s
  // address or name where TCP reaches the machine of each node; "": unknown
  std::vector<std::string> reach;
};

// Reads the facts from the answer to "stats".
[[nodiscard]] DaemonFacts facts_of(const nlohmann::json& document);

class DaemonView {
 public:
  // `socket` is the trainers' socket, and `admin` the admin socket. If both are given, only `admin` is used. If both
  // are empty, the daemon is found as by `gradlane stats`. Throws SetupError.
  DaemonView(const std::string& socket, const std::string& admin);

  // Asks the daemon for its present facts. Throws SetupError.
  [[nodiscard]] DaemonFacts facts() const;
  // Returns the round-trip time to each node in s: the shortest of several probes between workers that are awake. It is
  // 0 if the node is no neighbour or has not answered. Throws SetupError.
  [[nodiscard]] std::vector<double> round_trips(unsigned nodes) const;

 private:
  std::string path_;
};

}  // namespace gradlane
