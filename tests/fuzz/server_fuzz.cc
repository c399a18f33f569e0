// server_fuzz.cc - libFuzzer target: any messages from up to three trainers at once, while lanes are quick or slow
//
// Aborts if the server does not finish, if a lane gets an impossible command, or if a client gets an invalid message.
// Each command touches all memory that a lane knows, so that AddressSanitizer finds unmapped memory. Input: a sequence
// of
//   byte 0   bits 0-1: action (send, receive, close and connect again, lanes)
//            bits 2-3: trainer; for lanes: bit 2: they execute their commands, bit 3: a fault
//   send     byte 1: length of the message, which follows; bit 4 of byte 0: it gets a good magic and version
//   lanes    with bit 3: byte 1 is the fault that lane 0 reports for trainer 0
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "client/abi.h"
#include "dataplane/trainer/server.h"

namespace gradlane::test {
namespace {

constexpr unsigned kLanes = 2;
constexpr unsigned kTrainers = 2;
constexpr size_t kClients = 3;  // one more than there are ranks

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

void expect(bool so, const char* what) {
  if (!so) fail(what);
}

// Lanes that run in this thread. Commands for them wait until carry_out_all() is called.
class InlineLanes {
 public:
  InlineLanes() {
    for (size_t i = 0; i < kLanes; ++i) {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) abort();
      bells_[i] = FileDescriptor(ends[0]);
      doorbells_[i] = FileDescriptor(ends[1]);
    }
  }

  ServerLanes interface() {
    ServerLanes lanes{.lanes = kLanes, .doorbells = {}, .channels = {}};
    for (const FileDescriptor& doorbell : doorbells_) lanes.doorbells.push_back(doorbell.get());
    for (ControlChannel& channel : desks_) lanes.channels.push_back(&channel);
    return lanes;
  }
  ControlChannel& channel(size_t index) { return desks_[index]; }

  void carry_out_all() {
    for (size_t i = 0; i < desks_.size(); ++i) {
      while (Command* const command = desks_[i].mailbox.take()) carry_out(known_[i], *command);
    }
  }

 private:
  struct Known {
    bool attached = false;
    uint8_t* control = nullptr;
    std::array<uint8_t*, GL_MAX_SEGMENTS> base{};
    std::array<size_t, GL_MAX_SEGMENTS> bytes{};
  };

  static void carry_out(Known& known, Command& command) {
    if (known.attached) *known.control = 0;
    for (size_t i = 0; i < known.base.size(); ++i) {
      if (known.base[i] != nullptr) known.base[i][0] = known.base[i][known.bytes[i] - 1] = 1;
    }
    expect(known.attached != (command.kind == Command::Kind::kAttach), "lanes are told of a trainer that is not there");
    switch (command.kind) {
      case Command::Kind::kAttach:
        known = {true, reinterpret_cast<uint8_t*>(command.lane), {}, {}};
        break;
      case Command::Kind::kAddSegment:
        expect(known.base[command.segment] == nullptr && command.bytes != 0, "segment added twice, or empty");
        known.base[command.segment] = command.base;
        known.bytes[command.segment] = command.bytes;
        break;
      case Command::Kind::kRemoveSegment:
        expect(known.base[command.segment] == command.base, "segment removed that is not there");
        known.base[command.segment] = nullptr;
        break;
      case Command::Kind::kDetach:
        known = {};
        break;
      case Command::Kind::kEndGeneration:
      case Command::Kind::kClose:
        fail("lanes are told to close");
    }
    command.done.store(true, std::memory_order_release);
  }

  std::array<FileDescriptor, kLanes> bells_;
  std::array<FileDescriptor, kLanes> doorbells_;
  std::array<ControlChannel, kLanes * kTrainers> desks_;
  std::array<Known, kLanes * kTrainers> known_;
};

class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  uint8_t byte() {
    const auto one = take(1);
    return one.empty() ? 0 : one[0];
  }
  std::span<const uint8_t> take(size_t count) {
    const auto front = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(front.size());
    return front;
  }

 private:
  std::span<const uint8_t> bytes_;
};

const std::string& folder() {
  static const struct Folder {
    Folder() {
      std::string name = (std::filesystem::temp_directory_path() / "gradlane-server-fuzz-XXXXXX").string();
      path = mkdtemp(name.data());
      spdlog::set_level(spdlog::level::off);
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string path;
  } made;
  return made.path;
}

FileDescriptor connect_to(const std::string& path) {
  FileDescriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  expect(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0, "cannot connect");
  return fd;
}

// Receives all answers, checks them, and closes their file descriptors.
void receive_all(const FileDescriptor& client) {
  for (;;) {
    std::array<uint8_t, 256> bytes;
    alignas(cmsghdr) std::array<uint8_t, CMSG_SPACE(18 * sizeof(int))> control;
    iovec part{bytes.data(), bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t got = recvmsg(client.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got <= 0) return;
    size_t count = 0;
    if (const cmsghdr* const rights = CMSG_FIRSTHDR(&header); rights != nullptr) {
      count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      std::array<int, 18> fds{};
      std::memcpy(fds.data(), CMSG_DATA(rights), count * sizeof(int));
      for (size_t i = 0; i < count; ++i) ::close(fds[i]);
    }
    uint32_t type = 0;
    std::memcpy(&type, bytes.data(), sizeof(type));
    const auto is = [&](uint32_t wanted, size_t size, size_t fds) {
      return type == wanted && static_cast<size_t>(got) == size && count == fds;
    };
    expect(is(GL_MSG_WELCOME, sizeof(gl_welcome), 2 + kLanes) || is(GL_MSG_SEGMENT, sizeof(gl_segment), 1) ||
               is(GL_MSG_FREED, sizeof(gl_segment), 0) || is(GL_MSG_CODEC, sizeof(gl_codec_name), 0) ||
               is(GL_MSG_REFUSED, sizeof(gl_text), 0) || is(GL_MSG_GOODBYE, sizeof(gl_text), 0),
           "a message that makes no sense");
  }
}

void send_message(const FileDescriptor& client, std::span<const uint8_t> bytes, bool good) {
  std::vector<uint8_t> message(bytes.begin(), bytes.end());
  const uint32_t words[] = {GL_MAGIC, GL_ABI_VERSION};
  if (good && message.size() >= offsetof(gl_hello, rank)) std::memcpy(&message[4], words, sizeof(words));
  (void)send(client.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void run(Input input) {
  NodeConfig config;
  config.nodes = {{0, 1, {}}};
  config.trainers = kTrainers;
  config.lanes = kLanes;
  config.trainer_memory = size_t{4} << 20;
  config.socket = folder() + "/socket";
  InlineLanes lanes;
  Server server(config, lanes.interface());
  server.open();
  Nanos now = kSecond;
  std::array<FileDescriptor, kClients> clients;
  for (FileDescriptor& client : clients) client = connect_to(config.socket);
  server.step(now += kMillisecond);

  while (!input.empty()) {
    const uint8_t what = input.byte();
    FileDescriptor& client = clients[what / 4 % 4 % kClients];
    switch (what % 4) {
      case 0: {
        const size_t bytes = input.byte();
        send_message(client, input.take(bytes), (what & 16) != 0);
        break;
      }
      case 1:
        receive_all(client);
        break;
      case 2:
        client = connect_to(config.socket);
        break;
      default:
        if ((what & 4) != 0) lanes.carry_out_all();
        // Only an attached trainer can be at fault.
        if ((what & 8) != 0 && server.attached() == kTrainers) {
          lanes.channel(0).faults[0].fault.store(static_cast<TrainerFault>(input.byte()), std::memory_order_release);
        }
    }
    server.step(now += kMillisecond);
  }

  server.close("the input ends", now);
  for (int i = 0; i < 10 && !server.finished(); ++i) {
    lanes.carry_out_all();
    server.step(now += kMillisecond);
  }
  expect(server.finished() && !server.busy() && server.attached() == 0, "the server does not come to an end");
  for (const FileDescriptor& client : clients) receive_all(client);
}

constexpr int kPatience = 100'000;  // ms

size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

}  // namespace
}  // namespace gradlane::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gradlane::test;
  const size_t before = open_files();
  run(Input({data, size}));
  // A thread closes sockets.
  for (int i = 0; i < kPatience && open_files() != before; ++i) usleep(1000);
  expect(open_files() == before, "file descriptors leak");
  return 0;
}
