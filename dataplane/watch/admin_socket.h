// admin_socket.h - the socket where people and tools ask a running node: one line, one JSON document (control thread
// only)
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/listening_socket.h"
#include "dataplane/watch/client_server.h"

namespace gradlane {

using AdminAnswer = ServerAnswer;  // its text is the document; a newline is added

// A document as it goes out: one line of ASCII. Names in it may be whatever stands in the configuration.
[[nodiscard]] std::string admin_text(const nlohmann::json& document);

// {"error": text}
[[nodiscard]] std::string admin_error(const std::string& text);

// A Unix stream socket. A client sends a line, gets a document, and the connection closes: ClientServer.
class AdminSocket {
 public:
  using Clock = ClientServer::Clock;
  using Handler = std::function<AdminAnswer(const std::string& request)>;  // without the newline
  static constexpr size_t kMostRequest = 256;

  // From now on clients are served. Throws SetupError as the trainers' socket does. The file's mode is 0660; it is
  // removed at the end.
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
