// key_file.h - the file with the key that all nodes of a ring share (set-up only)
#pragma once

#include <string>

#include "dataplane/secure/ring_key.h"

namespace gradlane {

// Reads the key file. It has 64 to 1024 hexadecimal digits, two for each byte of the key, and at most white space after
// them. It must be a plain file that only its owner may read or write. The owner must be root or the user that runs
// this process. Throws SetupError, which shows nothing of the file's content.
[[nodiscard]] RingKey read_key_file(const std::string& file);

}  // namespace gradlane
