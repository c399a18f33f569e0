// client_server.h - clients that ask one thing each, and none that can keep the control thread waiting (control thread
// only)
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

// What became of a request.
struct ServerAnswer {
  std::string text;
  // If set, the text is not there yet: called with every step until it gives it, for 60 s at most. It is destroyed at
  // once when the client goes away, so what it owns ends with it.
  std::function<std::optional<std::string>()> later;
};

// Of a listening stream socket, which the owner has made and keeps open. A client sends a request, gets an answer, and
// the connection closes. Never blocks, and holds no more than kMostClients clients, each with a request of bounded
// size. One that takes more than kPatience to send its request, or to read the answer, is dropped. The owner runs
// step() when fd() is readable, and in any case every 100 ms, or every few ms while busy().
class ClientServer {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Sender : uint8_t {
    kOpen,     // may send more
    kEnded,    // has ended its side: this is all it says, and not empty
    kTooMuch,  // has sent more than most_request
  };
  struct Protocol {
    const char* name;  // of what clients come to, for the log: "the admin socket"
    size_t most_request;
    // What has come so far; none: wait for more, of who may send more. Others are dropped.
    std::function<std::optional<ServerAnswer>(std::string_view, Sender)> answer;
    std::string timeout;  // what a client is told whose answer is not there after kLater
  };
  static constexpr size_t kMostClients = 16;
  static constexpr std::chrono::milliseconds kLeastStay{100};  // before it has to make room for another one
  static constexpr std::chrono::seconds kPatience{5};
  static constexpr std::chrono::seconds kLater{60};

  // `listener` does not block. Throws SetupError.
  ClientServer(int listener, Protocol protocol);
  ~ClientServer();
  ClientServer(const ClientServer&) = delete;
  ClientServer& operator=(const ClientServer&) = delete;

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
