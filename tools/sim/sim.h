// sim.h - `gradlane sim`: what an exchange would take on a network that is not there, with the real exchange in it
#pragma once

#include <string>
#include <vector>

namespace gradlane {

// As the user wrote them. Empty lists and strings stand for the defaults.
struct SimOptions {
  std::vector<std::string> nodes;
  std::vector<std::string> codecs;      // codec_list(), find_codec_pair()
  std::vector<std::string> strategies;  // of find_strategies()
  std::vector<std::string> plays;       // of find_play()
  bool around_switch = false;           // implied by strategies other than the ring
  std::vector<std::string> ops;         // of op_name()
  std::string size;                     // of the tensor on each rank
  std::vector<std::string> together;    // operations that it is divided among, all submitted at once
  std::string operations;               // of a rank, in flight
  std::string gbps;
  std::string rtt;
  std::string queue;
  std::string mtu;  // of IP
  std::string loss;
  std::string duplicate;
  std::string reorder;
  std::string corrupt;
  std::string window;  // packets in flight
  std::string gamma;   // time per byte that an aggregator adds
  std::string data;    // of data_names()
  std::string seed;
  bool json = false;
};

// Runs one operation after the other, each on a network of its own, and prints a row for each to standard output;
// progress and failed operations to standard error. Returns the exit status: 1 if an operation failed or gave wrong
// results. Throws SetupError for options that cannot be used, and where the memory does not suffice.
[[nodiscard]] int run_sim(const SimOptions& options);

}  // namespace gradlane
