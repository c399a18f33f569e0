// metrics_server.h - where Prometheus, and `gradlane top` elsewhere, ask a running node: HTTP (control thread only)
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "base/file_descriptor.h"
#include "config/config.h"
#include "dataplane/watch/client_server.h"
#include "dataplane/watch/http_request.h"

namespace gradlane {

// A TCP socket. GET and HEAD of /metrics and /stats get the document, all else an error, and the connection closes:
// ClientServer. Each document is made once in kFresh, however many ask.
class MetricsServer {
 public:
  using Clock = ClientServer::Clock;
  using Types = std::array<std::string, kHttpDocuments>;  // of HttpDocument
  using Source = std::function<std::string(HttpDocument)>;
  static constexpr std::chrono::milliseconds kFresh{100};  // as figures of workers are

  // From now on clients are served. Port 0: any that is free. Throws SetupError, saying why it cannot be.
  MetricsServer(const IpPort& address, Types types, Source source);

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
  [[nodiscard]] const std::string& document(HttpDocument which);
  [[nodiscard]] std::optional<ServerAnswer> answer(std::string_view so_far, ClientServer::Sender sender);

  const Types types_;
  const Source source_;
  Clock::time_point now_;
  std::array<Document, kHttpDocuments> documents_;
  FileDescriptor listener_;
  ClientServer server_;
};

}  // namespace gradlane
