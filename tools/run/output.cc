// output.cc - the output of child processes, line by line (main thread only)
#include "tools/run/output.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace gradlane {
namespace {

// Bytes of one write(). A pipe that poll() reports as writable takes as many without blocking.
constexpr size_t kPiece = 4096;
constexpr int kPieces = 64;
constexpr size_t kBuffer = size_t{64} << 10;
// Longer lines are cut into pieces.
constexpr size_t kMaxLine = size_t{64} << 10;
// Number of reads after which the pipe of an ended process is empty. It is limited because a child of that process may
// write forever.
constexpr int kMaxRest = 16;

bool takes_more(int fd) {
  pollfd one = {fd, POLLOUT, 0};
  return poll(&one, 1, 0) > 0;
}

}  // namespace

bool same_file(int one, int other) {
  struct stat first = {}, second = {};
  return fstat(one, &first) == 0 && fstat(other, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

LineSink::LineSink(int fd) : fd_(fd) {}

void LineSink::add(std::string_view prefix, std::string_view line) {
  if (broken_) return;
  waiting_.append(prefix).append(line).push_back('\n');
}

void LineSink::write_some() {
  for (int i = 0; i < kPieces && !empty() && takes_more(fd_); ++i) {
    const ssize_t count = write(fd_, waiting_.data() + written_, std::min(kPiece, waiting_.size() - written_));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) {
      broken_ = true;
      written_ = waiting_.size();
      break;
    }
    written_ += static_cast<size_t>(count);
  }
  if (empty() || written_ > kFull) {
    waiting_.erase(0, written_);
    written_ = 0;
  }
}

LineSource::LineSource(int fd, std::string prefix, LineSink& sink)
    : fd_(fd), prefix_(std::move(prefix)), sink_(&sink) {}

LineSource::LineSource(LineSource&& from) noexcept
    : fd_(std::exchange(from.fd_, -1)),
      prefix_(std::move(from.prefix_)),
      sink_(from.sink_),
      line_(std::move(from.line_)),
      last_line_(std::move(from.last_line_)) {}

LineSource::~LineSource() {
  if (fd_ >= 0) close(fd_);
}

void LineSource::close_it() {
  if (!line_.empty()) finish_line();
  close(fd_);
  fd_ = -1;
}

void LineSource::finish_line() {
  sink_->add(prefix_, line_);
  if (!line_.empty()) std::swap(last_line_, line_);
  line_.clear();
}

void LineSource::add(std::string_view text) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const size_t room = kMaxLine - line_.size();
    const size_t take = std::min({end, text.size(), room});
    line_.append(text.substr(0, take));
    text.remove_prefix(take);
    const bool ended = !text.empty() && text.front() == '\n';
    if (ended) text.remove_prefix(1);
    if (ended || line_.size() == kMaxLine) finish_line();
  }
}

bool LineSource::read_some() {
  if (fd_ < 0) return false;
  std::array<char, kBuffer> buffer;
  const ssize_t count = read(fd_, buffer.data(), buffer.size());
  if (count > 0) {
    add({buffer.data(), static_cast<size_t>(count)});
    return true;
  }
  if (count == 0 || (errno != EAGAIN && errno != EINTR)) close_it();
  return false;
}

void LineSource::read_rest() {
  for (int i = 0; i < kMaxRest && read_some(); ++i) continue;
  if (fd_ >= 0 && !line_.empty()) finish_line();
}

}  // namespace gradlane
