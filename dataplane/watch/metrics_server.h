// metrics_server.h - the HTTP server that Prometheus, and `gradlane top` on other machines, query (control thread only)
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/file_descriptor.h"
#include "base/listening_socket.h"
#include "config/config.h"
#include "dataplane/watch/client_server.h"
#include "dataplane/watch/http_request.h"

namespace gradlane {

// A server at a TCP address or a Unix socket. GET and HEAD of /metrics and /stats return the document, all other
// requests an error. Then the connection closes, see ClientServer. Each document is made at most once per kFresh,
// however many clients ask for it.
class MetricsServer {
 public:
  using Clock = ClientServer::Clock;
  using Types = std::array<std::string, kHttpDocuments>;  // content types, by HttpDocument
  using Source = std::function<std::string(HttpDocument)>;
  static constexpr std::chrono::milliseconds kFresh{100};  // workers publish their figures at the same interval

  // Serves clients from now on. Port 0 means any free port. Throws SetupError with the reason if it cannot listen.
  MetricsServer(const IpPort& address, Types types, Source source);
  // Does the same at a Unix socket. The file has mode 0660 and is removed at the end.
  MetricsServer(const std::string& path, Types types, Source source);

  [[nodiscard]] int fd() const noexcept { return server_.fd(); }
  void step(Clock::time_point now = Clock::now());
  [[nodiscard]] size_t clients() const noexcept { return server_.clients(); }
  [[nodiscard]] uint16_t port() const;

 private:
  struct Document {
    std::string text;
    Clock::time_point made;
    bool there = false;
  };
  MetricsServer(FileDescriptor tcp, std::unique_ptr<ListeningSocket> file, Types types, Source source);
  [[nodiscard]] const std::string& document(HttpDocument which);
  [[nodiscard]] std::optional<ServerAnswer> answer(std::string_view so_far, ClientServer::Sender sender);

  const Types types_;
  const Source source_;
  Clock::time_point now_;
  std::array<Document, kHttpDocuments> documents_;
  // One of these two listens.
  FileDescriptor tcp_;
  std::unique_ptr<ListeningSocket> file_;
  ClientServer server_;
};

}  // namespace gradlane
