// output.h - what processes print, line by line, on the descriptors of this one
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gradlane {

// Lines on their way to a descriptor that may be slow, and may be shared with other processes. Never blocks.
class LineSink {
 public:
  explicit LineSink(int fd);

  // A newline is added to `line`.
  void add(std::string_view prefix, std::string_view line);
  // Writes what the descriptor takes now.
  void write_some();

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] bool empty() const noexcept { return waiting_.size() == written_; }
  [[nodiscard]] bool full() const noexcept { return waiting_.size() - written_ >= kFull; }
  [[nodiscard]] bool broken() const noexcept { return broken_; }  // nobody reads it any more

 private:
  static constexpr size_t kFull = size_t{256} << 10;

  int fd_;
  std::string waiting_;
  size_t written_ = 0;
  bool broken_ = false;
};

// Whether both are the same file, pipe or terminal.
[[nodiscard]] bool same_file(int one, int other);

// The read end of a child's pipe; owns it.
class LineSource {
 public:
  // Lines go to `sink` with `prefix` before each.
  LineSource(int fd, std::string prefix, LineSink& sink);
  LineSource(LineSource&& from) noexcept;
  LineSource& operator=(LineSource&&) = delete;
  ~LineSource();

  // Reads once; whether there was anything.
  bool read_some();
  // All that is there, an unfinished last line included; the process has ended.
  void read_rest();

  [[nodiscard]] int fd() const noexcept { return fd_; }  // -1: at its end
  [[nodiscard]] bool waits() const noexcept { return sink_->full(); }
  [[nodiscard]] const std::string& last_line() const noexcept { return last_line_; }

 private:
  void add(std::string_view text);
  void finish_line();
  void close_it();

  int fd_;
  std::string prefix_;
  LineSink* sink_;
  std::string line_;  // without its end so far
  std::string last_line_;
};

}  // namespace gradlane
