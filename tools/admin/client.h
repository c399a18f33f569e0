// client.h - client for the admin socket of a running daemon (main thread)
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gradlane {

// Place of an admin socket: at most one of these. If all are empty, GRADLANE_SOCKET counts. Without that variable, the
// first of socket_folders() counts in which a socket accepts: its node0.admin, else its only *.admin. If there is no
// such folder either, it is node 0 of the only job of this user that runs here.
struct AdminPlace {
  std::string socket;  // the trainers' socket; the admin socket is beside it
  std::string admin;
  std::string config;            // configuration file of the node
  std::optional<unsigned> rank;  // with `config`: node of that file, whatever its own rank is
};

// Returns the path of the admin socket. Throws SetupError if there are several places, or none.
[[nodiscard]] std::string admin_path(const AdminPlace& place);

// Returns that path, and all admin sockets in the same folder that accept. If the place is empty and GRADLANE_SOCKET is
// not set, returns all sockets of the first folder that has any, or else of the only job. Throws as admin_path() does.
[[nodiscard]] std::vector<std::string> admin_paths(const AdminPlace& place);

// Sends one line, and returns the document that comes back. Throws SetupError with advice: no daemon is there, there is
// no permission, no answer comes in time, or the daemon does not know the request.
[[nodiscard]] nlohmann::json ask_admin(const std::string& path, const std::string& request,
                                       std::chrono::milliseconds patience);

}  // namespace gradlane
