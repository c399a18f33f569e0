// socket_folders.h - where the sockets of daemons are, unless somebody says it (set-up only)
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gradlane {

// Made by root, for daemons of root or of whom root has given it to.
inline constexpr const char* kSystemSocketFolder = "/run/gradlane";

// "/tmp/gradlane-1000". Anybody may make it first: it is none unless is_private_folder().
[[nodiscard]] std::string private_socket_folder(uid_t user);

// A folder, no link to one, of that user, with no right of anybody else's.
[[nodiscard]] bool is_private_folder(const std::string& path, uid_t user);

// Where to look for a daemon's sockets, in this order: those two, and between them, where `runtime` (what
// XDG_RUNTIME_DIR says) is a path from the root, the one there. client/library/find.c has the same for trainers.
[[nodiscard]] std::vector<std::string> socket_folders(uid_t user, const std::string& runtime);

// Whether a daemon of this process can make sockets in that folder, and the folder if it is not there.
[[nodiscard]] bool can_hold_sockets(const std::string& path);

}  // namespace gradlane
