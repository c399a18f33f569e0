// recordings.h - made-up traces of a ring
#pragma once

#include <vector>

#include "tools/trace/recording.h"

namespace gradlane::test {

// Returns traces of a ring. Each of `nodes` does `operations` all-reduces one after the other, each for 10 ms with 1 ms
// in between. During an all-reduce, a node waits for packets of the node before it. It also sends one block to the next
// node, which takes 100 us on the way. All nodes ask for an all-reduce at the same time.
std::vector<NodeRecording> ring_recording(unsigned nodes, unsigned operations);

}  // namespace gradlane::test
