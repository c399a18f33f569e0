// admin_socket.h - the socket where people and tools ask a running node: one line, one JSON document (control thread
// only)
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/listening_socket.h"

namespace gradlane {

// What became of a request.
struct AdminAnswer {
  std::string text;  // the document; a newline is added
  // If set, the text is not there yet: called with every step until it gives it, for 60 s at most. It is destroyed at
  // once when the client goes away, so what it owns ends with it.
  std::function<std::optional<std::string>()> later;
};

// A document as it goes out: one line of ASCII. Names in it may be whatever stands in the configuration.
[[nodiscard]] std::string admin_text(const nlohmann::json& document);

// {"error": text}
[[nodiscard]] std::string admin_error(const std::string& text);

// A Unix stream socket. A client sends a line, gets a document, and the connection closes. Never blocks, and holds no
// more than kMostClients clients, each with a request of at most kMostRequest bytes. One that takes more than kPatience
// to send its request, or to read the answer, is dropped. The owner runs step() when fd() is readable, and in any case
// every 100 ms, or every few ms while busy().
class AdminSocket {
 public:
  using Clock = std::chrono::steady_clock;
  using Handler = std::function<AdminAnswer(const std::string& request)>;  // without the newline
  static constexpr size_t kMostClients = 16;
  static constexpr size_t kMostRequest = 256;
  static constexpr std::chrono::milliseconds kLeastStay{100};  // before it has to make room for another one
  static constexpr std::chrono::seconds kPatience{5};
  static constexpr std::chrono::seconds kLater{60};

  // From now on clients are served. Throws SetupError as the trainers' socket does. The file's mode is 0660; it is
  // removed at the end.
  AdminSocket(const std::string& path, Handler handler);
  ~AdminSocket();
  AdminSocket(const AdminSocket&) = delete;
  AdminSocket& operator=(const AdminSocket&) = delete;

  [[nodiscard]] int fd() const noexcept { return epoll_.get(); }
  void step(Clock::time_point now = Clock::now());
  [[nodiscard]] bool busy() const noexcept;  // an answer is not there yet
  [[nodiscard]] size_t clients() const noexcept;

 private:
  struct Client;
  void accept_some(Clock::time_point now);
  void look_away(Clock::time_point until) noexcept;
  [[nodiscard]] Clock::time_point make_room(Clock::time_point now);
  void read_request(Client& client, Clock::time_point now);
  void answer(Client& client, const std::string& request, Clock::time_point now);
  void ready(Client& client, std::string text, Clock::time_point now);
  void write_answer(Client& client);
  void step_client(Client& client, Clock::time_point now);
  [[nodiscard]] bool watch(int operation, int fd, uint32_t events) const noexcept;

  ListeningSocket listener_;
  Handler handler_;
  FileDescriptor epoll_;
  bool cannot_accept_ = false;
  Clock::time_point accept_again_;
  std::vector<Client> clients_;  // in the order they came
};

}  // namespace gradlane
