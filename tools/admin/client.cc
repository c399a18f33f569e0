// client.cc - client for the admin socket of a running daemon (main thread)
#include "tools/admin/client.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "base/socket_folders.h"
#include "config/accelerator.h"

namespace gradlane {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kSuffix = ".sock";
constexpr const char* kWhere = "name it with --socket, --admin or --config; gradlaned --check prints it";
constexpr size_t kMostAnswer = size_t{64} << 20;
constexpr std::chrono::milliseconds kFindPatience{1000};  // patience with a daemon that the user has not named

std::string beside(std::string socket) {
  if (socket.ends_with(kSuffix)) socket.resize(socket.size() - kSuffix.size());
  return socket + ".admin";
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) throw SetupError("this path is too long for a socket: " + path);
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// Returns whether a process listens there, even if it is busy.
bool accepts(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) return false;
  const sockaddr_un address = address_of(path);
  const FileDescriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 || errno == EAGAIN;
}

// Returns the admin sockets in a folder that accept, sorted. If `silent` is empty, sets it to one that does not accept.
std::vector<std::string> listening_in(const std::string& folder, std::string& silent) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".admin" || !entry.is_socket(error)) continue;
    if (accepts(entry.path())) {
      found.push_back(entry.path().string());
    } else if (silent.empty()) {
      silent = entry.path().string();
    }
  }
  std::ranges::sort(found);
  return found;
}

// Returns the admin sockets of this user's jobs, those of each job by node. `gradlane run` makes one folder for each
// job, gradlane.torch one for each rank. Folders of ranks belong to the same job if their rings have the same
// configuration digest. The digest covers the ring's addresses and UDP ports, which no other job has.
std::map<std::string, std::vector<std::string>> sockets_of_jobs(const std::string& runtime) {
  std::map<std::string, std::map<std::pair<unsigned, std::string>, std::string>> rings;
  std::error_code error;
  for (const fs::path& folder : {fs::path(runtime), fs::temp_directory_path(error)}) {
    if (!folder.is_absolute()) continue;
    for (const auto& entry : fs::directory_iterator(folder, fs::directory_options::skip_permission_denied, error)) {
      const std::string path = entry.path().string();
      if (!entry.path().filename().string().starts_with("gradlane-") || !is_private_folder(path, geteuid())) continue;
      std::string silent;
      for (const std::string& each : listening_in(path, silent)) {
        try {
          const nlohmann::json status = ask_admin(each, "stats", kFindPatience);
          const bool of_rank = entry.path().filename().string().starts_with("gradlane-job-");
          const std::string ring = of_rank && status.contains("config_digest") ? status["config_digest"].dump() : path;
          rings[ring][{status.value("node", 0U), each}] = each;
        } catch (const std::exception&) {  // the daemon is ending, or it is not gradlane's
        }
      }
    }
  }
  std::map<std::string, std::vector<std::string>> found;
  for (const auto& [ring, nodes] : rings) {
    for (const auto& node : nodes) found[ring].push_back(node.second);
  }
  return found;
}

// Returns the admin sockets of the first folder that has any, or else those of the only job. If there are none, returns
// one path: connecting to it fails with a message that says what is wrong.
std::vector<std::string> all_of_one_folder() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string own = private_socket_folder(geteuid());
  std::string silent;
  for (const std::string& folder : socket_folders(geteuid(), runtime != nullptr ? runtime : "")) {
    if (folder == own && !is_private_folder(own, geteuid())) continue;
    std::vector<std::string> found = listening_in(folder, silent);
    if (!found.empty()) return found;
  }
  const auto jobs = sockets_of_jobs(runtime != nullptr ? runtime : "");
  if (jobs.size() == 1) return jobs.begin()->second;
  if (jobs.size() > 1) {
    std::vector<std::string> firsts;
    for (const auto& job : jobs) firsts.push_back(job.second.front());
    throw SetupError(
        fmt::format("daemons of {} jobs run; choose one with --admin: {}", jobs.size(), fmt::join(firsts, ", ")));
  }
  return {silent.empty() ? std::string(kSystemSocketFolder) + "/node0.admin" : silent};
}

// Returns the admin socket of node 0, or else the only one. Throws SetupError if a folder has several.
std::string only_one() {
  const std::vector<std::string> found = all_of_one_folder();
  for (const std::string& each : found) {
    const std::string name = fs::path(each).filename();
    if (name == "node0.admin" || name == "n0.admin") return each;
  }
  // Each socket of a PyTorch job has a folder of its own. The sockets are sorted by node, so the first is the choice.
  const bool same_folder = fs::path(found.front()).parent_path() == fs::path(found.back()).parent_path();
  if (found.size() > 1 && same_folder)
    throw SetupError(fmt::format("several admin sockets: {}; choose one with --admin", fmt::join(found, ", ")));
  return found.front();
}

[[noreturn]] void fail_to_connect(const std::string& path, int error) {
  struct stat there {};
  const std::string socket = path.ends_with(".admin") ? path.substr(0, path.size() - 6) + ".sock" : "";
  if (error == ENOENT && !socket.empty() && stat(socket.c_str(), &there) == 0) {
    throw SetupError(fmt::format("there is no {}, but there is {}: its daemon is too old, or has another `admin`; {}",
                                 path, socket, kWhere));
  }
  if (stat(path.c_str(), &there) == 0 && !S_ISSOCK(there.st_mode)) {
    throw SetupError(fmt::format("{} is not a socket; {}", path, kWhere));
  }
  switch (error) {
    case ENOENT:
      throw SetupError(fmt::format("there is no {}: is the daemon running? {}", path, kWhere));
    case ECONNREFUSED:
      throw SetupError(fmt::format("no daemon listens on {}: the one that created it died", path));
    case EACCES:
    case EPERM:
      throw SetupError(fmt::format(
          "no permission to use {}: it is for its user and group only; use sudo, or join that group", path));
    case EAGAIN:
      throw SetupError(fmt::format("cannot connect to {}: the daemon hangs, or has too many clients", path));
    case EPROTOTYPE:
      throw SetupError(fmt::format("{} is the trainers' socket, or another program's; {}", path, kWhere));
    default:
      throw SetupError(fmt::format("cannot connect to {}: {}", path, std::strerror(error)));
  }
}

// Connects. While other clients keep the daemon busy, the connection waits.
FileDescriptor connect_to(const std::string& path, std::chrono::milliseconds patience) {
  const sockaddr_un address = address_of(path);
  FileDescriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) throw SetupError(std::string("cannot make a Unix socket: ") + std::strerror(errno));
  const timeval most{.tv_sec = patience.count() / 1000, .tv_usec = patience.count() % 1000 * 1000};
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    fail_to_connect(path, errno);
  return fd;
}

// Reads until the daemon closes the connection.
std::string read_all(int fd, const std::string& path, std::chrono::milliseconds patience) {
  std::string text;
  std::vector<char> bytes(size_t{64} << 10);
  const auto end = Clock::now() + patience;
  while (text.size() < kMostAnswer) {
    const ssize_t got = recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got == 0) return text;
    if (got > 0) {
      text.append(bytes.data(), static_cast<size_t>(got));
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) {
      throw SetupError(fmt::format("the daemon on {} closed the connection; it ended, or has too many clients: {}",
                                   path, std::strerror(errno)));
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) {
      throw SetupError(
          fmt::format("no answer on {} within {} ms: the daemon hangs, or is stopped", path, patience.count()));
    }
    pollfd watched{fd, POLLIN, 0};
    poll(&watched, 1, static_cast<int>(left.count()) + 1);
  }
  throw SetupError(fmt::format("the answer on {} is too long; it does not come from a gradlane daemon", path));
}

}  // namespace

std::string admin_path(const AdminPlace& place) {
  const int given = int{!place.socket.empty()} + int{!place.admin.empty()} + int{!place.config.empty()};
  if (place.rank && place.config.empty()) throw SetupError("--rank: needs --config, and chooses a node of that file");
  if (given > 1) throw SetupError("--socket, --admin, --config: give only one of them");
  if (!place.admin.empty()) return place.admin;
  if (place.socket.ends_with(".admin")) {
    throw SetupError(fmt::format("--socket takes the trainers' socket, NAME.sock; use --admin for {}", place.socket));
  }
  if (!place.socket.empty()) return beside(place.socket);
  if (!place.config.empty()) {
    return std::visit([](const auto& config) { return config.admin; }, load_any_config(place.config, place.rank));
  }
  const char* const socket = std::getenv("GRADLANE_SOCKET");
  return socket != nullptr && *socket != 0 ? beside(socket) : only_one();
}

std::vector<std::string> admin_paths(const AdminPlace& place) {
  const char* const socket = std::getenv("GRADLANE_SOCKET");
  const bool given = !place.socket.empty() || !place.admin.empty() || !place.config.empty() || place.rank;
  if (!given && (socket == nullptr || *socket == 0)) return all_of_one_folder();
  std::vector<std::string> paths = {admin_path(place)};
  const fs::path first = fs::absolute(paths.front());
  std::string silent;
  for (std::string& each : listening_in(first.parent_path(), silent)) {
    if (each != first) paths.push_back(std::move(each));
  }
  return paths;
}

nlohmann::json tell_admin(const std::string& path, const std::string& request, int file,
                          std::chrono::milliseconds patience) {
  const FileDescriptor fd = connect_to(path, patience);
  std::string line = request + "\n";
  iovec part{.iov_base = line.data(), .iov_len = line.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (file >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &file, sizeof(file));
  }
  // A line is shorter than any socket's buffer.
  if (sendmsg(fd.get(), &message, MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) {
    throw SetupError(fmt::format("cannot send a request on {}: {}", path, std::strerror(errno)));
  }
  const std::string text = read_all(fd.get(), path, patience);
  nlohmann::json document = nlohmann::json::parse(text, nullptr, false);
  if (!document.is_object()) {
    throw SetupError(fmt::format("the answer on {} is incomplete, or does not come from a gradlane daemon", path));
  }
  return document;
}

nlohmann::json ask_admin(const std::string& path, const std::string& request, std::chrono::milliseconds patience) {
  nlohmann::json document = tell_admin(path, request, -1, patience);
  if (document.contains("error")) {
    throw SetupError(fmt::format("the daemon does not answer '{}': {}; it may be older than this program", request,
                                 document["error"].dump()));
  }
  return document;
}

}  // namespace gradlane
