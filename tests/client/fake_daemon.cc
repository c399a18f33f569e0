// fake_daemon.cc - the daemon of fake_daemon.h: its socket, lanes and shared memory. A thread of its own runs it.
#include "tests/client/fake_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "client/gradlane.h"

namespace gradlane {
namespace {

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(std::string("fake daemon: ") + what + ": " + std::strerror(errno));
}

int make_memory(const char* name, size_t bytes, uint8_t** base) {
  const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  require(fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0, "memfd");
  require(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0, "seals");
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  require(mapped != MAP_FAILED, "mmap");
  *base = static_cast<uint8_t*>(mapped);
  return fd;
}

// Returns the daemon's end and the client's end.
std::pair<int, int> make_bell() {
  int ends[2];
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
  return {ends[0], ends[1]};
}

void copy_text(char* out, size_t room, const std::string& text) {
  std::memset(out, 0, room);
  std::memcpy(out, text.data(), std::min(text.size(), room - 1));
}

void send_message(int fd, const void* message, size_t bytes, const std::vector<int>& fds = {}) {
  iovec part{const_cast<void*>(message), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(64 * sizeof(int))]{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = static_cast<char*>(control);
    header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* const c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
  }
  (void)sendmsg(fd, &header, MSG_NOSIGNAL);
}

}  // namespace

FakeDaemon::FakeDaemon(Settings settings) : settings_(std::move(settings)) {
  char folder[] = "/tmp/gradlane-fake-XXXXXX";
  require(mkdtemp(folder) != nullptr, "mkdtemp");
  folder_ = folder;
  path_ = folder_ + "/socket";
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  copy_text(static_cast<char*>(address.sun_path), sizeof(address.sun_path), path_);
  require(bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0, "bind");
  require(listen(listener_, 8) == 0, "listen");
  wake_ = make_bell();
  thread_ = std::thread([this] { run(); });
}

FakeDaemon::~FakeDaemon() {
  stop_ = true;
  gl_ring(wake_.second);
  thread_.join();
  drop_client();
  if (newcomer_ >= 0) close(newcomer_);
  close(listener_);
  close(wake_.first);
  close(wake_.second);
  unlink(path_.c_str());
  rmdir(folder_.c_str());
}

void FakeDaemon::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (serve_lanes()) continue;
    // A lane of the real daemon does the same: it says that it sleeps, checks once more for submissions, and then
    // sleeps.
    set_asleep(1);
    if (serve_lanes()) continue;
    std::vector<pollfd> fds{
        {listener_, POLLIN, 0}, {wake_.first, POLLIN, 0}, {client_, POLLIN, 0}, {newcomer_, POLLIN, 0}};
    for (const Lane& lane : lanes_) fds.push_back({lane.doorbell, POLLIN, 0});
    lock.unlock();
    poll(fds.data(), fds.size(), -1);
    lock.lock();
    set_asleep(0);
    gl_drain_bell(wake_.first);
    for (const Lane& lane : lanes_) gl_drain_bell(lane.doorbell);
    if ((fds[0].revents & POLLIN) != 0) accept_client();
    if (fds[2].revents != 0 && fds[2].fd == client_) serve_message();
    if (fds[3].revents != 0 && fds[3].fd == newcomer_) serve_newcomer();
  }
}

void FakeDaemon::accept_client() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  if (settings_.hang_ups > 0) {
    --settings_.hang_ups;
    close(fd);
    return;
  }
  if (newcomer_ >= 0) close(newcomer_);
  newcomer_ = fd;
}

void FakeDaemon::serve_newcomer() {
  gl_hello hello{};
  const ssize_t bytes = recv(newcomer_, &hello, sizeof(hello), MSG_DONTWAIT);
  const int fd = newcomer_;
  newcomer_ = -1;
  if (bytes != sizeof(hello) || hello.type != GL_MSG_HELLO || hello.magic != GL_MAGIC) {
    close(fd);
    return;
  }
  const bool known = hello.rank < 0 || static_cast<uint32_t>(hello.rank) == settings_.rank;
  if (!settings_.refusal.empty() || hello.version != GL_ABI_VERSION || !known) {
    if (!settings_.refusal.empty()) {
      refuse(fd, settings_.refusal, settings_.refused_version);
    } else if (!known) {
      refuse(fd, "rank " + std::to_string(hello.rank) + " is not of this node");
    } else {
      refuse(fd, "version", GL_ABI_VERSION);
    }
    close(fd);
    return;
  }
  drop_client();
  client_ = fd;
  greet();
}

void FakeDaemon::serve_message() {
  union {
    uint32_t type;
    gl_allocate allocate;
    gl_segment segment;
    gl_codec_name codec;
    uint8_t bytes[256];
  } message{};
  const ssize_t bytes = recv(client_, &message, sizeof(message), MSG_DONTWAIT);
  if (bytes < 0 && errno == EAGAIN) return;
  if (bytes <= 0) return drop_client();
  switch (message.type) {
    case GL_MSG_ALLOCATE:
      return allocate(message.allocate);
    case GL_MSG_FREE:
      return free_segment(message.segment);
    case GL_MSG_FIND_CODEC:
      return find_codec(message.codec);
    default:
      return refuse(client_, "no such message");
  }
}

void FakeDaemon::refuse(int fd, const std::string& text, uint32_t version, bool no_codec) {
  gl_text message{};
  message.type = GL_MSG_REFUSED;
  message.version = version;
  message.world = settings_.refused_world;
  message.no_codec = no_codec ? 1 : 0;
  copy_text(static_cast<char*>(message.text), settings_.refused_bytes, text);
  send_message(fd, &message, sizeof(message));
}

void FakeDaemon::greet() {
  uint8_t* base = nullptr;
  control_bytes_ = table_bytes();
  const int control_fd = make_memory("fake-control", control_bytes_, &base);
  control_ = reinterpret_cast<gl_control*>(base);
  write_tables(base);
  const auto [completion_fd, trainers_fd] = make_bell();
  completion_fd_ = completion_fd;
  std::vector<int> fds{control_fd, trainers_fd};
  for (uint32_t i = 0; i < settings_.lanes; ++i) {
    auto* const shared = reinterpret_cast<gl_lane*>(control_ + 1) + i;
    const uint32_t first = settings_.first_count;
    shared->submit_tail = shared->submit_head = shared->complete_tail = shared->complete_head = first;
    const auto [doorbell, trainers_doorbell] = make_bell();
    lanes_.push_back({shared, doorbell, first, first, {}});
    fds.push_back(trainers_doorbell);
  }
  gl_welcome welcome{};
  welcome.type = GL_MSG_WELCOME;
  welcome.rank = settings_.rank;
  welcome.world = settings_.world;
  welcome.lanes = settings_.lanes;
  welcome.control_bytes = control_bytes_;
  welcome.max_bytes = settings_.max_bytes;
  welcome.pid = static_cast<uint32_t>(getpid());
  welcome.flags = settings_.flags;
  welcome.trainers = settings_.trainers;
  copy_text(static_cast<char*>(welcome.codec), GL_NAME, settings_.codec);
  const std::vector<int> made = fds;
  if (settings_.welcome) settings_.welcome(welcome, fds);
  send_message(client_, &welcome, sizeof(welcome), fds);
  for (const int fd : made) close(fd);
}

void FakeDaemon::allocate(const gl_allocate& request) {
  size_t total = request.bytes;
  uint32_t id = 0;
  for (const auto& [number, segment] : segments_) {
    total += segment.bytes;
    if (number == id) ++id;
  }
  if (total > settings_.memory || id == GL_MAX_SEGMENTS) {
    return refuse(
        client_, std::to_string(request.bytes) + " bytes are more than is left of " + std::to_string(settings_.memory));
  }
  Segment segment;
  segment.bytes = (request.bytes + 4095) / 4096 * 4096;
  segment.fd = make_memory("fake-segment", segment.bytes, &segment.base);
  segments_[id] = segment;
  const gl_segment answer{GL_MSG_SEGMENT, settings_.garbage_answers ? GL_MAX_SEGMENTS : id, segment.bytes};
  send_message(client_, &answer, sizeof(answer), {segment.fd});
}

void FakeDaemon::free_segment(const gl_segment& request) {
  const auto found = segments_.find(request.id);
  if (found == segments_.end()) return refuse(client_, "no such segment");
  munmap(found->second.base, found->second.bytes);
  close(found->second.fd);
  segments_.erase(found);
  const gl_segment answer{GL_MSG_FREED, request.id, 0};
  send_message(client_, &answer, sizeof(answer));
}

void FakeDaemon::find_codec(gl_codec_name request) {
  ++codec_questions_;
  const std::string name(static_cast<const char*>(request.name));
  std::vector<gl_codec_row> rows = settings_.codecs;
  for (const gl_codec_row& it : fake_codecs()) rows.push_back(it);
  const size_t word = name.find(':');
  const auto row = std::ranges::find_if(rows, [&](const gl_codec_row& it) { return name.substr(0, word) == it.word; });
  if (row == rows.end() || (row->most != 0 && word == name.npos)) {
    return refuse(client_, "there is no codec '" + name + "'", 0, true);
  }
  request.type = GL_MSG_CODEC;
  request.id = row->id;
  request.states = row->states;
  request.flags = row->flags;
  request.arguments = word == name.npos ? 0 : std::strtoull(name.c_str() + word + 1, nullptr, 10);
  send_message(client_, &request, sizeof(request));
}

bool FakeDaemon::serve_lanes() {
  bool moved = false;
  for (unsigned i = 0; i < lanes_.size(); ++i) moved |= serve_lane(i);
  if (moved) changed_.notify_all();
  return moved;
}

bool FakeDaemon::serve_lane(unsigned number) {
  Lane& lane = lanes_[number];
  const uint32_t tail = __atomic_load_n(&lane.shared->submit_tail, __ATOMIC_SEQ_CST);
  if (paused_ || tail == lane.submit_head) return false;
  while (lane.submit_head != tail) {
    const gl_submission submission = lane.shared->submissions[lane.submit_head % GL_SLOTS];
    __atomic_store_n(&lane.shared->submit_head, ++lane.submit_head, __ATOMIC_RELEASE);
    lane.seen.push_back(submission);
    if (settings_.on_submission && !settings_.on_submission(number, submission)) continue;
    gl_completion completion{};
    completion.cookie = submission.cookie;
    completion.sent_bytes = settings_.sent_bytes;
    if (settings_.worked) {
      completion.begun_ns = lane.clock;
      completion.ended_ns = lane.clock += settings_.worked(submission);
    }
    if (submission.kind != GL_CANCEL && submission.kind != GL_RESUME) put(number, completion);
  }
  return true;
}

void FakeDaemon::put(unsigned lane, const gl_completion& completion) {
  Lane& it = lanes_[lane];
  it.shared->completions[it.complete_tail % GL_SLOTS] = completion;
  __atomic_store_n(&it.shared->complete_tail, ++it.complete_tail, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&control_->waiting, __ATOMIC_SEQ_CST) != 0) gl_ring(completion_fd_);
}

void FakeDaemon::set_asleep(uint32_t asleep) {
  for (const Lane& lane : lanes_) __atomic_store_n(&lane.shared->asleep, asleep, __ATOMIC_SEQ_CST);
}

void FakeDaemon::drop_client() {
  if (client_ >= 0) close(client_);
  client_ = -1;
  for (const auto& [id, segment] : segments_) {
    munmap(segment.base, segment.bytes);
    close(segment.fd);
  }
  segments_.clear();
  for (const Lane& lane : lanes_) close(lane.doorbell);
  lanes_.clear();
  if (control_ != nullptr) munmap(control_, control_bytes_);
  control_ = nullptr;
  if (completion_fd_ >= 0) close(completion_fd_);
  completion_fd_ = -1;
  changed_.notify_all();
}

// ---- Functions that the test's thread calls

void FakeDaemon::complete(unsigned lane, uint64_t cookie, int32_t code, const std::string& text,
                          bool residual_cleared) {
  gl_completion completion{};
  completion.cookie = cookie;
  completion.code = code;
  completion.residual_cleared = residual_cleared ? 1 : 0;
  copy_text(static_cast<char*>(completion.text), GL_TEXT, text);
  put_completion(lane, completion);
}

void FakeDaemon::put_completion(unsigned lane, const gl_completion& completion) {
  const std::lock_guard lock(mutex_);
  put(lane, completion);
}

void FakeDaemon::goodbye(const std::string& text) {
  const std::lock_guard lock(mutex_);
  gl_text message{};
  message.type = GL_MSG_GOODBYE;
  copy_text(static_cast<char*>(message.text), GL_MESSAGE_TEXT, text);
  send_message(client_, &message, sizeof(message));
  shutdown(client_, SHUT_RDWR);
}

void FakeDaemon::hang_up() {
  const std::lock_guard lock(mutex_);
  shutdown(client_, SHUT_RDWR);
}

void FakeDaemon::pause(bool paused) {
  const std::lock_guard lock(mutex_);
  paused_ = paused;
  gl_ring(wake_.second);
}

std::vector<gl_submission> FakeDaemon::seen(unsigned lane) {
  const std::lock_guard lock(mutex_);
  return lanes_[lane].seen;
}

bool FakeDaemon::await_seen(unsigned lane, size_t count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kLong, [&] { return lanes_[lane].seen.size() >= count; });
}

void FakeDaemon::set_complete_tail(unsigned lane, uint32_t value) {
  const std::lock_guard lock(mutex_);
  __atomic_store_n(&lanes_[lane].shared->complete_tail, value, __ATOMIC_SEQ_CST);
  gl_ring(completion_fd_);
}

void FakeDaemon::set_submit_head(unsigned lane, uint32_t value) {
  const std::lock_guard lock(mutex_);
  __atomic_store_n(&lanes_[lane].shared->submit_head, value, __ATOMIC_SEQ_CST);
}

void FakeDaemon::set_figures(unsigned lane, uint64_t bytes, uint64_t packets, uint64_t retransmitted) {
  const std::lock_guard lock(mutex_);
  gl_lane* const shared = lanes_[lane].shared;
  __atomic_store_n(&shared->data_bytes, bytes, __ATOMIC_RELAXED);
  __atomic_store_n(&shared->data_packets, packets, __ATOMIC_RELAXED);
  __atomic_store_n(&shared->retransmitted, retransmitted, __ATOMIC_RELAXED);
}

void FakeDaemon::send_raw(uint32_t type) {
  const std::lock_guard lock(mutex_);
  send_message(client_, &type, sizeof(type));
}

}  // namespace gradlane
