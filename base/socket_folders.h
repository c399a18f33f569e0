// socket_folders.h - the default folders of daemons' sockets (set-up only)
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gradlane {

// The folder that root creates, for daemons of root or of the user to whom root has given the folder.
inline constexpr const char* kSystemSocketFolder = "/run/gradlane";

// Returns a folder like "/tmp/gradlane-1000". Any user may have created it first: use it only if is_private_folder().
[[nodiscard]] std::string private_socket_folder(uid_t user);

// Returns whether `path` is a folder of that user (not a link to one) in which nobody else has any rights.
[[nodiscard]] bool is_private_folder(const std::string& path, uid_t user);

// Returns the folders in which to look for a daemon's sockets, in this order:
// 1. kSystemSocketFolder
// 2. gradlane in `runtime`, the value of XDG_RUNTIME_DIR, if that is an absolute path
// 3. private_socket_folder()
//
// client/library/find.c has the same list for trainers.
[[nodiscard]] std::vector<std::string> socket_folders(uid_t user, const std::string& runtime);

// Returns whether this process can create sockets in that folder. If the folder is missing, returns whether this
// process can create it.
[[nodiscard]] bool can_hold_sockets(const std::string& path);

}  // namespace gradlane
