// loopback.h - `gradlane loopback`: a test of gradlane's packet path, in the way of DPDK's testpmd
#pragma once

#include <string>
#include <vector>

namespace gradlane {

// The options as the user wrote them. Empty ones stand for the defaults.
struct LoopbackOptions {
  std::string mode;                  // io, classify, codec, ring
  std::vector<std::string> devices;  // DPDK devargs, none or two
  std::string burst;
  std::string packets;
  std::string size;  // bytes of a frame
  std::string seconds;
  std::string core;
  std::string codec;
  std::string bytes;  // bytes of a tensor
  std::string data;   // one of data_names()
  std::string seed;
  bool stats = false;  // a line every second, even if the output is no terminal
  bool json = false;
};

// Runs the loopback and prints to standard output. Returns the exit status: 1 if ranks ended with different results.
// Throws SetupError for options that cannot be used, and for devices that do not work.
[[nodiscard]] int run_loopback(const LoopbackOptions& options);

}  // namespace gradlane
