// client_server.h - a server for clients that each send one request; no client can make the control thread wait
// (control thread only)
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"

namespace gradlane {

// The answer to a request, now or later.
struct ServerAnswer {
  std::string text;
  // If set, the text is not ready yet. Every step calls this function until it returns the text, for 60 s at most. It
  // is destroyed as soon as the client disconnects, with everything that it owns.
  std::function<std::optional<std::string>()> later;
};

// Serves the clients of a listening stream socket, which the owner has made and keeps open. A client sends a request
// and gets an answer, and then the connection closes. The server never blocks. It holds at most kMostClients clients,
// each with a request of limited size. A client that takes more than kPatience to send its request or to read the
// answer is dropped. The owner calls step() when fd() is readable, and also every 100 ms, or every few ms while busy().
class ClientServer {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Sender : uint8_t {
    kOpen,     // the client may send more
    kEnded,    // the client has closed its side; the request is complete and not empty
    kTooMuch,  // the client has sent more than most_request bytes
    kFiles,    // the client has sent a file, and is neither root nor this process's user
  };
  struct Request {
    std::string_view so_far;  // all bytes that the client has sent so far
    Sender sender = Sender::kOpen;
    std::optional<uid_t> user;  // of the client, if known
    FileDescriptor& file;       // a file that came with the bytes; the handler may take it
  };
  struct Protocol {
    const char* name;  // name of the socket in the log: "the admin socket"
    size_t most_request;
    // Returns nothing to wait for more bytes; a client that cannot send more is then dropped.
    std::function<std::optional<ServerAnswer>(const Request&)> answer;
    std::string timeout;  // text for a client whose answer is not ready after kLater
  };
  static constexpr size_t kMostClients = 16;
  // time that a client may stay before it can be dropped for a new one
  static constexpr std::chrono::milliseconds kLeastStay{100};
  static constexpr std::chrono::seconds kPatience{5};
  static constexpr std::chrono::seconds kLater{60};

  // `listener` must not block. Throws SetupError.
  ClientServer(int listener, Protocol protocol);
  ~ClientServer();
  ClientServer(const ClientServer&) = delete;
  ClientServer& operator=(const ClientServer&) = delete;

  [[nodiscard]] int fd() const noexcept { return epoll_.get(); }
  void step(Clock::time_point now = Clock::now());
  [[nodiscard]] bool busy() const noexcept;  // whether an answer is not ready yet
  [[nodiscard]] size_t clients() const noexcept;

 private:
  struct Client;
  void accept_some(Clock::time_point now);
  void pause_accepting(Clock::time_point until) noexcept;
  [[nodiscard]] Clock::time_point make_room(Clock::time_point now);
  void read_request(Client& client, Clock::time_point now);
  void ready(Client& client, std::string text, Clock::time_point now);
  void write_answer(Client& client);
  void step_client(Client& client, Clock::time_point now);
  [[nodiscard]] bool watch(int operation, int fd, uint32_t events) const noexcept;

  const int listener_;
  const Protocol protocol_;
  FileDescriptor epoll_;
  bool cannot_accept_ = false;
  Clock::time_point accept_again_;
  std::vector<Client> clients_;  // in the order they came
};

}  // namespace gradlane
