// key_file.h - the file with the key that all nodes of a ring share (set-up only)
#pragma once

#include <string>

#include "dataplane/frame/packet_auth.h"

namespace gradlane {

// The file has 64 to 1024 hexadecimal digits, two for each byte of the key, and white space at their end at most. It
// must be a plain file that nobody but its owner may read or write, and the owner must be root or the user that this
// process runs as. Throws SetupError, which says nothing of the file's content.
[[nodiscard]] RingKey read_key_file(const std::string& file);

}  // namespace gradlane
