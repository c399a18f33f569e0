// client.h - client for the admin socket of a running daemon (main thread)
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gradlane {

// Names the admin socket of a daemon. At most one of `socket`, `admin` and `config` is set. If all are empty, the
// variable GRADLANE_SOCKET stands for `socket`. Without that variable, it is a socket in the first of socket_folders()
// that has one which accepts connections: node0.admin, else the only *.admin. If no folder has one, it is the socket of
// node 0 of the only job that this user runs here.
struct AdminPlace {
  std::string socket;  // the trainers' socket; the admin socket is in the same folder
  std::string admin;
  std::string config;            // configuration file of the node
  std::optional<unsigned> rank;  // with `config`: rank of the node to ask, in place of the rank in that file
};

// Returns the path of the admin socket. Throws SetupError if there are several places, or none.
[[nodiscard]] std::string admin_path(const AdminPlace& place);

// Returns the path of admin_path(), and all other admin sockets in the same folder that accept connections. If the
// place is empty and GRADLANE_SOCKET is not set, returns all sockets of the first folder that has any, or else of the
// only job. Throws as admin_path() does.
[[nodiscard]] std::vector<std::string> admin_paths(const AdminPlace& place);

// Sends one line, and returns the document that comes back. Throws SetupError with advice: no daemon is there, there is
// no permission, no answer comes in time, or the daemon does not know the request.
[[nodiscard]] nlohmann::json ask_admin(const std::string& path, const std::string& request,
                                       std::chrono::milliseconds patience);

// Does the same with an open file beside the line. Returns the document even if it is {"error": text}.
[[nodiscard]] nlohmann::json tell_admin(const std::string& path, const std::string& request, int file,
                                        std::chrono::milliseconds patience);

}  // namespace gradlane
