// terminal.h - full-screen use of a terminal: its alternate screen, keys without Enter, signals (main thread)
#pragma once

#include <signal.h>
#include <termios.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "tools/top/table.h"

namespace gradlane {

// Returns whether standard output can show a live view: it is a terminal, and TERM is set and not "dumb".
[[nodiscard]] bool has_screen();

// Blocks SIGINT, SIGTERM, SIGHUP, SIGWINCH and SIGTSTP in the calling thread and in threads that start later. The
// signals are then read with next().
class TerminalSignals {
 public:
  TerminalSignals();  // throws SetupError
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  // Returns the next signal that has arrived; 0 if there is none.
  [[nodiscard]] int next() const noexcept;

 private:
  FileDescriptor fd_;
};

// Takes over the terminal for its lifetime, and restores it at the end.
class Terminal {
 public:
  enum class Event : unsigned char { kTime, kResized, kEnd };

  explicit Terminal(const TerminalSignals& signals);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  [[nodiscard]] size_t width() const;
  [[nodiscard]] size_t height() const;
  // Returns false if nobody reads the output any more.
  [[nodiscard]] bool show(const std::vector<PageLine>& page) const;
  // Waits until `end`, or until a key or a signal ends the wait earlier.
  [[nodiscard]] Event wait(std::chrono::steady_clock::time_point end);

 private:
  void enter();
  void leave() const;
  void suspend();
  [[nodiscard]] bool read_keys();

  const TerminalSignals& signals_;
  const bool colours_;
  termios before_{};
  bool keys_;  // standard input is a terminal
};

}  // namespace gradlane
