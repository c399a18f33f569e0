// recordings.h - made-up traces of a ring
#pragma once

#include <vector>

#include "tools/trace/recording.h"

namespace gradlane::test {

// Each of `nodes` does so many all-reduces one after the other, each for 10 ms with 1 ms in between, in which it waits
// for packets of the node before, and sends one block to the next one, 100 us on the way. All nodes ask at once.
std::vector<NodeRecording> ring_recording(unsigned nodes, unsigned operations);

}  // namespace gradlane::test
