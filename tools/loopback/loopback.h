// loopback.h - `gradlane loopback`: testpmd's habits for the packet path of gradlane
#pragma once

#include <string>
#include <vector>

namespace gradlane {

// As the user wrote them. Empty ones stand for the defaults.
struct LoopbackOptions {
  std::string mode;                  // io, classify, codec, ring
  std::vector<std::string> devices;  // DPDK devargs, none or two
  std::string burst;
  std::string packets;
  std::string size;  // of frames
  std::string seconds;
  std::string core;
  std::string codec;
  std::string bytes;  // of tensors
  std::string data;   // of data_names()
  std::string seed;
  bool stats = false;  // every second, even if the output is no terminal
  bool json = false;
};

// Runs it and prints to standard output. Returns the exit status: 1 if ranks ended with different results. Throws
// SetupError for options that cannot be used, and for devices that do not work.
[[nodiscard]] int run_loopback(const LoopbackOptions& options);

}  // namespace gradlane
