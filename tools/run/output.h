// output.h - the output of child processes, line by line, on the descriptors of this process (main thread only)
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gradlane {

// Keeps lines for a descriptor that may be slow, and that other processes may use, too. It never blocks.
class LineSink {
 public:
  explicit LineSink(int fd);

  // Adds a line. A newline follows `line`.
  void add(std::string_view prefix, std::string_view line);
  // Writes as much as the descriptor takes now.
  void write_some();

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] bool empty() const noexcept { return waiting_.size() == written_; }
  [[nodiscard]] bool full() const noexcept { return waiting_.size() - written_ >= kFull; }
  [[nodiscard]] bool broken() const noexcept { return broken_; }  // nobody reads from the descriptor any more

 private:
  static constexpr size_t kFull = size_t{256} << 10;

  int fd_;
  std::string waiting_;
  size_t written_ = 0;
  bool broken_ = false;
};

// Returns whether both are the same file, pipe or terminal.
[[nodiscard]] bool same_file(int one, int other);

// Owns the read end of a child's pipe.
class LineSource {
 public:
  // Lines go to `sink` with `prefix` before each.
  LineSource(int fd, std::string prefix, LineSink& sink);
  LineSource(LineSource&& from) noexcept;
  LineSource& operator=(LineSource&&) = delete;
  ~LineSource();

  // Reads from the pipe once. Returns whether it got any output.
  bool read_some();
  // Reads all output that is left, and ends the last line. The process must have ended.
  void read_rest();

  [[nodiscard]] int fd() const noexcept { return fd_; }  // -1: the pipe has ended
  [[nodiscard]] bool waits() const noexcept { return sink_->full(); }
  [[nodiscard]] const std::string& last_line() const noexcept { return last_line_; }

 private:
  void add(std::string_view text);
  void finish_line();
  void close_it();

  int fd_;
  std::string prefix_;
  LineSink* sink_;
  std::string line_;  // line that has not ended yet
  std::string last_line_;
};

}  // namespace gradlane
