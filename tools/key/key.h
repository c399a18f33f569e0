// key.h - `gradlane key`: makes keys of nodes, and gives new ones to running daemons (main thread)
#pragma once

#include <cstdint>
#include <string>

#include "tools/admin/client.h"

namespace gradlane {

struct KeyOptions {
  enum class Command : uint8_t { kNone, kNew, kRotate, kShow };
  Command command = Command::kNone;
  std::string file;
  AdminPlace place;
  uint64_t old_for = 600;  // s
  bool json = false;
};

// Returns the exit status. Throws SetupError if a file cannot be used.
int run_key(const KeyOptions& options);

}  // namespace gradlane
