// sim.h - `gradlane sim`: the time of an exchange on a simulated network, with the real exchange code
#pragma once

#include <string>
#include <vector>

namespace gradlane {

// Options as the user wrote them. Empty lists and strings stand for the defaults.
struct SimOptions {
  std::vector<std::string> nodes;
  std::vector<std::string> codecs;      // in the form of codec_list() and find_codec_pair()
  std::vector<std::string> strategies;  // in the form of find_strategies()
  std::vector<std::string> plays;       // names of flow models, as find_flow_model() takes them
  // true if a switch connects the nodes. Strategies other than the ring, flow models, and codecs that the ring alone
  // cannot carry imply it.
  bool around_switch = false;
  std::vector<std::string> ops;       // names of op_name()
  std::string size;                   // size of the tensor on each rank
  std::vector<std::string> together;  // operations that the tensor is divided among, all submitted at once
  std::string operations;             // operations of a rank in flight
  std::string gbps;
  std::string rtt;
  std::string queue;
  std::string mtu;  // of IP packets
  std::string loss;
  std::string duplicate;
  std::string reorder;
  std::string corrupt;
  std::string window;  // packets in flight to one neighbour
  std::string gamma;   // time per byte that an aggregator adds
  std::string data;    // one of data_names()
  std::string seed;
  bool hash = false;  // the table has a column with hashes of results
  bool json = false;
};

// Runs one operation after the other, each on a network of its own. Prints a row for each to standard output. Progress
// and failed operations go to standard error. Returns the exit status: 1 if an operation failed or gave wrong results.
// Throws SetupError if options cannot be used or memory does not suffice.
[[nodiscard]] int run_sim(const SimOptions& options);

}  // namespace gradlane
