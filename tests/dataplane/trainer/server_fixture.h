// server_fixture.h - a server, raw clients of its socket, and a thread that plays the lanes
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "client/abi.h"
#include "dataplane/trainer/server.h"

namespace gradlane::test {

// ---- Clients

struct Reply {
  bool ended = false;  // whether the connection has ended
  std::vector<uint8_t> bytes;
  std::vector<FileDescriptor> fds;

  [[nodiscard]] uint32_t type() const;  // type of the message; 0 if the reply has no message
  [[nodiscard]] std::string text() const;
  template <typename T>
  [[nodiscard]] T as() const {
    T message{};
    EXPECT_EQ(bytes.size(), sizeof(T));
    std::memcpy(&message, bytes.data(), std::min(bytes.size(), sizeof(T)));
    return message;
  }
};

class RawClient {
 public:
  explicit RawClient(const std::string& path);
  [[nodiscard]] bool send(std::span<const uint8_t> bytes) const;
  template <typename T>
  [[nodiscard]] bool send(const T& message) const {
    return send(std::span(reinterpret_cast<const uint8_t*>(&message), sizeof(T)));
  }
  // Receives the next message, or the end of the connection. Returns false if nothing has arrived yet.
  [[nodiscard]] bool receive(Reply& reply) const;
  void close() { fd_.reset(); }
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  FileDescriptor fd_;
};

[[nodiscard]] gl_hello hello_message(int rank = -1);
[[nodiscard]] gl_codec_name find_message(const std::string& name);

// Memory that a client has mapped from a file descriptor.
class Mapping {
 public:
  Mapping(int fd, size_t bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  [[nodiscard]] uint8_t* base() const { return base_; }

 private:
  uint8_t* base_;
  size_t bytes_;
};

// ---- Lanes

// A command that a lane has executed.
struct Told {
  unsigned lane;
  Command::Kind kind;
  unsigned trainer;
  unsigned segment;
  size_t bytes;
};

class FakeLanes {
 public:
  FakeLanes(unsigned lanes, unsigned trainers, bool local_reduce);
  ~FakeLanes();
  FakeLanes(const FakeLanes&) = delete;
  FakeLanes& operator=(const FakeLanes&) = delete;

  [[nodiscard]] ServerLanes interface() const;
  [[nodiscard]] ControlChannel& channel(unsigned lane, unsigned trainer) const;
  // Sets whether lanes take commands, but execute none until this is off again.
  void hold(bool on) { hold_ = on; }
  // Sets the lanes (bit i: lane i) on which a generation ends when a trainer detaches.
  void end_generation(unsigned lanes) { break_off_ = lanes; }
  // Sets whether lanes take no commands at all.
  void stall(bool on);
  [[nodiscard]] std::vector<Told> told() const;
  [[nodiscard]] size_t count(Command::Kind kind) const;
  [[nodiscard]] unsigned rings() const { return rings_; }  // number of rings of the doorbells

 private:
  struct Known;
  void run();
  void take(unsigned lane, ControlChannel& channel);
  void carry_out(unsigned lane, Command& command);

  unsigned lanes_;
  unsigned trainers_;
  std::vector<std::unique_ptr<ControlChannel>> owned_;
  std::vector<ControlChannel*> desks_;
  std::vector<FileDescriptor> bells_;      // the lanes' ends
  std::vector<FileDescriptor> doorbells_;  // the trainers' ends
  std::atomic<bool> hold_{false}, stall_{false}, stalled_{false}, end_{false};
  std::atomic<unsigned> rings_{0}, break_off_{0};
  std::vector<std::pair<unsigned, Command*>> held_;  // thread only
  std::vector<Known> known_;                         // thread only
  mutable std::mutex mutex_;
  std::vector<Told> told_;
  std::thread thread_;
};

// ---- The server with its clients and lanes

[[nodiscard]] size_t open_files();

class ServerTest : public testing::Test {
 protected:
  ServerTest();
  ~ServerTest() override;

  // Starts this node as the second of two, with ranks 3 to 5, or as config_ says. config_ may be changed before.
  void start();
  // Steps the server until the condition holds. Fails after 10 minutes.
  [[nodiscard]] testing::AssertionResult until(const std::function<bool()>& condition);
  [[nodiscard]] RawClient connect() const { return RawClient(config_.socket); }
  [[nodiscard]] Reply receive(const RawClient& client);
  template <typename T>
  [[nodiscard]] Reply ask(const RawClient& client, const T& message) {
    EXPECT_TRUE(client.send(message));
    return receive(client);
  }
  [[nodiscard]] RawClient welcomed(int rank = -1);
  // Expects a goodbye, then the end of the connection. Returns the text of the goodbye.
  [[nodiscard]] std::string goodbye(const RawClient& client);
  // Runs a step of the server at the current time.
  void step() { server_->step(now()); }
  // Returns the current time, which only skip() changes.
  [[nodiscard]] Nanos now() const { return now_; }
  void skip(Nanos time) { now_ += time; }
  // Closes the server and waits until it is finished.
  void finish();

  [[nodiscard]] std::string log() const { return log_.str(); }
  [[nodiscard]] size_t log_count(const std::string& what) const;

  std::string folder_;
  NodeConfig config_;
  PacketRoom packets_;
  std::unique_ptr<FakeLanes> lanes_;
  std::unique_ptr<Server> server_;

 private:
  Nanos now_ = kSecond;
  size_t files_before_;
  std::ostringstream log_;
};

}  // namespace gradlane::test
