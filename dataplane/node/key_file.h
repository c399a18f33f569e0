// key_file.h - the file with the key that all nodes of a ring share (control thread only)
#pragma once

#include <string>

#include "base/file_descriptor.h"
#include "dataplane/secure/ring_key.h"

namespace gradlane {

// Reads the key file. `name` begins the texts of errors: "auth.key_file FILE". It has 64 to 1024 hexadecimal digits,
// two for each byte of the key, and at most white space after them. It must be a plain file that only its owner may
// read or write. The owner must be root or the user that runs this process. Throws SetupError, which shows nothing of
// the file's content.
[[nodiscard]] RingKey read_key_file(const FileDescriptor& file, const std::string& name);
// Opens it first.
[[nodiscard]] RingKey read_key_file(const std::string& path, const std::string& name);

// Makes a key of 32 random bytes, and writes it to a new file of mode 0600. Throws SetupError if there is such a file
// already.
RingKey make_key_file(const std::string& path);

}  // namespace gradlane
