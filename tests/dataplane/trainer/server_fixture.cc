// server_fixture.cc - a server, raw clients of its socket, and a thread that plays the lanes
#include "tests/dataplane/trainer/server_fixture.h"

#include <poll.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>

namespace gradlane::test {

using namespace std::chrono_literals;

// ---- Clients

uint32_t Reply::type() const {
  uint32_t type = 0;
  if (bytes.size() >= sizeof(type)) std::memcpy(&type, bytes.data(), sizeof(type));
  return type;
}

std::string Reply::text() const {
  const auto message = as<gl_text>();
  EXPECT_NE(memchr(message.text, 0, GL_MESSAGE_TEXT), nullptr);
  return message.text;
}

RawClient::RawClient(const std::string& path) : fd_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0)
      << std::strerror(errno);
}

bool RawClient::send(std::span<const uint8_t> bytes) const {
  return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

bool RawClient::receive(Reply& reply) const {
  uint8_t bytes[512];
  iovec part{bytes, sizeof(bytes)};
  alignas(cmsghdr) uint8_t control[CMSG_SPACE(64 * sizeof(int))];
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(fd_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && errno == EAGAIN) return false;
  EXPECT_GE(got, 0) << std::strerror(errno);  // a reset of the connection must not lose a goodbye that was sent before
  reply = {};
  reply.ended = got <= 0;
  reply.bytes.assign(bytes, bytes + std::max<ssize_t>(got, 0));
  for (cmsghdr* each = CMSG_FIRSTHDR(&header); each != nullptr; each = CMSG_NXTHDR(&header, each)) {
    const size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::vector<int> fds(count);
    std::memcpy(fds.data(), CMSG_DATA(each), count * sizeof(int));
    for (const int fd : fds) reply.fds.emplace_back(fd);
  }
  return true;
}

gl_hello hello_message(int rank) { return {GL_MSG_HELLO, GL_MAGIC, GL_ABI_VERSION, rank}; }

gl_codec_name find_message(const std::string& name) {
  gl_codec_name message{};
  message.type = GL_MSG_FIND_CODEC;
  name.copy(message.name, sizeof(message.name));
  return message;
}

Mapping::Mapping(int fd, size_t bytes) : bytes_(bytes) {
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  EXPECT_NE(mapped, MAP_FAILED) << std::strerror(errno);
  base_ = static_cast<uint8_t*>(mapped);
}

Mapping::~Mapping() { munmap(base_, bytes_); }

// ---- Lanes

// Memory that a lane may touch.
struct FakeLanes::Known {
  unsigned lane;
  unsigned trainer;
  unsigned segment;  // GL_MAX_SEGMENTS: the lane's part of the control segment
  uint8_t* base;
  size_t bytes;
};

FakeLanes::FakeLanes(unsigned lanes, unsigned trainers, bool local_reduce) : lanes_(lanes), trainers_(trainers) {
  for (unsigned lane = 0; lane < lanes; ++lane) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    bells_.emplace_back(ends[0]);
    doorbells_.emplace_back(ends[1]);
    for (unsigned trainer = 0; trainer < trainers; ++trainer) {
      if (trainer == 0 || !local_reduce) owned_.push_back(std::make_unique<ControlChannel>());
      desks_.push_back(owned_.back().get());
    }
  }
  thread_ = std::thread([this] { run(); });
}

FakeLanes::~FakeLanes() {
  end_ = true;
  thread_.join();
}

ServerLanes FakeLanes::interface() const {
  ServerLanes lanes{.lanes = lanes_, .doorbells = {}, .channels = desks_};
  for (const FileDescriptor& doorbell : doorbells_) lanes.doorbells.push_back(doorbell.get());
  return lanes;
}

ControlChannel& FakeLanes::channel(unsigned lane, unsigned trainer) const {
  return *desks_[lane * trainers_ + trainer];
}

void FakeLanes::stall(bool on) {
  stall_ = on;
  while (stalled_ != on) std::this_thread::sleep_for(100us);
}

std::vector<Told> FakeLanes::told() const {
  const std::lock_guard lock(mutex_);
  return told_;
}

size_t FakeLanes::count(Command::Kind kind) const {
  const std::vector<Told> all = told();
  return static_cast<size_t>(
      std::count_if(all.begin(), all.end(), [=](const Told& told) { return told.kind == kind; }));
}

void FakeLanes::run() {
  while (!end_) {
    stalled_ = stall_.load();
    for (unsigned i = 0; i < desks_.size() && !stalled_; ++i) take(i / trainers_, *desks_[i]);
    if (!hold_) {
      for (const auto& [lane, command] : held_) carry_out(lane, *command);
      held_.clear();
    }
    std::this_thread::sleep_for(200us);
  }
}

void FakeLanes::take(unsigned lane, ControlChannel& channel) {
  std::array<char, 64> rings;
  const ssize_t count = recv(bells_[lane].get(), rings.data(), rings.size(), MSG_DONTWAIT);
  if (count > 0) rings_ += static_cast<unsigned>(count);
  while (Command* const command = channel.mailbox.take()) held_.emplace_back(lane, command);
}

void FakeLanes::carry_out(unsigned lane, Command& command) {
  {
    const std::lock_guard lock(mutex_);
    told_.push_back({lane, command.kind, command.trainer, command.segment, command.bytes});
  }
  // All memory that the lane knows must still be mapped, whatever commands it got. Otherwise this crashes.
  for (const Known& known : known_) {
    if (known.lane == lane) known.base[0] = known.base[known.bytes - 1] = 0;
  }
  switch (command.kind) {
    case Command::Kind::kAttach:
      EXPECT_EQ(command.control->magic, GL_MAGIC);
      EXPECT_EQ(command.lane, reinterpret_cast<gl_lane*>(command.control + 1) + lane);
      EXPECT_GE(command.completion_fd, 0);
      known_.push_back({lane, command.trainer, GL_MAX_SEGMENTS, reinterpret_cast<uint8_t*>(command.lane->submissions),
                        sizeof(command.lane->submissions)});
      break;
    case Command::Kind::kAddSegment:
      EXPECT_TRUE(std::all_of(command.base, command.base + command.bytes, [](uint8_t byte) { return byte == 0; }));
      known_.push_back({lane, command.trainer, command.segment, command.base, command.bytes});
      break;
    case Command::Kind::kRemoveSegment:
    case Command::Kind::kDetach: {
      const bool all = command.kind == Command::Kind::kDetach;
      const size_t gone = std::erase_if(known_, [&](const Known& known) {
        return known.lane == lane && known.trainer == command.trainer && (all || known.segment == command.segment);
      });
      EXPECT_GE(gone, 1U);
      command.ended_generation = all && (break_off_ >> lane & 1) != 0;
      break;
    }
    case Command::Kind::kEndGeneration:
      break;
    case Command::Kind::kClose:
      ADD_FAILURE() << "the server does not close lanes";
  }
  command.done.store(true, std::memory_order_release);
}

// ---- The server with its clients and lanes

size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

ServerTest::ServerTest() : files_before_(open_files()) {
  std::string name = (std::filesystem::temp_directory_path() / "gradlane-server-XXXXXX").string();
  folder_ = mkdtemp(name.data());
  config_.file = "test.yaml";
  config_.rank = 1;
  config_.nodes = {{0, 1, {}}, {1, 2, {}}};
  config_.trainers = 3;
  config_.lanes = 2;
  config_.trainer_memory = size_t{64} << 20;
  config_.socket = folder_ + "/run/node.sock";
  auto logger = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_));
  logger->set_level(spdlog::level::info);
  spdlog::set_default_logger(logger);
}

ServerTest::~ServerTest() {
  if (server_) finish();
  server_.reset();
  lanes_.reset();
  // A thread closes sockets.
  const auto deadline = std::chrono::steady_clock::now() + 10min;
  while (open_files() != files_before_ && std::chrono::steady_clock::now() < deadline) poll(nullptr, 0, 1);
  EXPECT_EQ(open_files(), files_before_) << "file descriptors leak";
  EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "files are left over";
  std::filesystem::remove_all(folder_);
}

void ServerTest::start() {
  lanes_ = std::make_unique<FakeLanes>(config_.lanes, config_.trainers, config_.local_reduce);
  ServerLanes lanes = lanes_->interface();
  lanes.packets = packets_;
  server_ = std::make_unique<Server>(config_, std::move(lanes));
  server_->open();
}

testing::AssertionResult ServerTest::until(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + 10min;
  for (;;) {
    if (condition()) return testing::AssertionSuccess();
    if (std::chrono::steady_clock::now() > deadline) return testing::AssertionFailure() << "it never happens";
    pollfd entry{server_->fd(), POLLIN, 0};
    poll(&entry, 1, 1);
    step();
  }
}

Reply ServerTest::receive(const RawClient& client) {
  Reply reply;
  EXPECT_TRUE(until([&] { return client.receive(reply); }));
  return reply;
}

RawClient ServerTest::welcomed(int rank) {
  RawClient client = connect();
  const Reply reply = ask(client, hello_message(rank));
  EXPECT_EQ(reply.type(), GL_MSG_WELCOME);
  return client;
}

std::string ServerTest::goodbye(const RawClient& client) {
  const Reply reply = receive(client);
  EXPECT_EQ(reply.type(), GL_MSG_GOODBYE);
  EXPECT_TRUE(receive(client).ended);
  return reply.text();
}

void ServerTest::finish() {
  lanes_->hold(false);
  lanes_->stall(false);
  server_->close("the test ends", now());
  EXPECT_TRUE(until([this] { return server_->finished(); }));
  EXPECT_EQ(server_->attached(), 0U);
  EXPECT_FALSE(server_->busy());
}

size_t ServerTest::log_count(const std::string& what) const {
  const std::string all = log_.str();
  size_t count = 0;
  for (size_t at = all.find(what); at != std::string::npos; at = all.find(what, at + 1)) ++count;
  return count;
}

}  // namespace gradlane::test
