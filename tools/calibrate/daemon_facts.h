// daemon_facts.h - what a daemon says of itself that a calibration needs: by its admin socket (main thread)
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gradlane {

struct DaemonFacts {
  unsigned node = 0;
  unsigned nodes = 0;
  unsigned trainers = 1;  // of a node
  unsigned workers = 1;   // threads, whatever number of lanes they share
  double mtu = 1500;
  std::string port;          // "udp", "packets", "card"; else its driver: "vhost"
  double speed = 0;          // bytes per s of its slowest card, as that says; 0: it has others, or one does not say it
  std::vector<double> busy;  // s, of each worker since the start
};

// From the document that `gradlane stats` gets.
[[nodiscard]] DaemonFacts facts_of(const nlohmann::json& document);

class DaemonView {
 public:
  // `socket`: of the trainers, and `admin`, of which one may be said; empty: as for `gradlane stats`. Throws
  // SetupError.
  DaemonView(const std::string& socket, const std::string& admin);

  // Now. Throws SetupError.
  [[nodiscard]] DaemonFacts facts() const;
  // s there and back, the least of some probes between workers that are awake, to each node; 0: it is no neighbour, or
  // has not answered. Throws SetupError.
  [[nodiscard]] std::vector<double> round_trips(unsigned nodes) const;

 private:
  std::string path_;
};

}  // namespace gradlane
