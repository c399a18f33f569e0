// client.h - asks a running daemon by its admin socket (main thread)
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gradlane {

// Where to ask: at most one of them. Empty: what GRADLANE_SOCKET says, else node0.admin, else the only *.admin, in the
// first of socket_folders() where one accepts; else node 0 of the only job of this user that runs here.
struct AdminPlace {
  std::string socket;  // of the trainers: the admin socket stands beside it
  std::string admin;
  std::string config;            // file of the node,
  std::optional<unsigned> rank;  //   and which of its nodes, whatever it says
};

// The path of the admin socket. Throws SetupError if there are several places, or none.
[[nodiscard]] std::string admin_path(const AdminPlace& place);

// That path, and those beside it in its folder where somebody accepts; with an empty place all of the first folder that
// has any. Throws as admin_path() does.
[[nodiscard]] std::vector<std::string> admin_paths(const AdminPlace& place);

// Sends one line, and returns the document that comes. Throws SetupError that says what to do: nobody is there, no
// permission, no answer in that time, a daemon that does not know the request.
[[nodiscard]] nlohmann::json ask_admin(const std::string& path, const std::string& request,
                                       std::chrono::milliseconds patience);

}  // namespace gradlane
