// admin_socket.h - the socket at which people and tools query a running node: a line is the request, a JSON document
// the answer (control thread only)
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/file_descriptor.h"
#include "base/listening_socket.h"
#include "dataplane/watch/client_server.h"

namespace gradlane {

using AdminAnswer = ServerAnswer;  // its text is the document; AdminSocket adds a newline

struct AdminRequest {
  std::string line;                          // has no newline
  std::optional<uid_t> user = std::nullopt;  // that runs the client
  FileDescriptor file = {};                  // that came with the line
};

// Returns a document as it is sent: one line of ASCII. Names from the configuration in it may contain any characters.
[[nodiscard]] std::string admin_text(const nlohmann::json& document);

// Returns {"error": text} as it is sent.
[[nodiscard]] std::string admin_error(const std::string& text);

// A Unix stream socket. A client sends a line and gets a document, and then the connection closes. See ClientServer.
class AdminSocket {
 public:
  using Clock = ClientServer::Clock;
  using Handler = std::function<AdminAnswer(AdminRequest& request)>;
  static constexpr size_t kMostRequest = 256;

  // Serves clients from now on. Throws SetupError like the trainers' socket. The file has mode 0660 and is removed at
  // the end.
  AdminSocket(const std::string& path, Handler handler);

  [[nodiscard]] int fd() const noexcept { return server_.fd(); }
  void step(Clock::time_point now = Clock::now()) { server_.step(now); }
  [[nodiscard]] bool busy() const noexcept { return server_.busy(); }
  [[nodiscard]] size_t clients() const noexcept { return server_.clients(); }

 private:
  ListeningSocket listener_;
  ClientServer server_;
};

}  // namespace gradlane
