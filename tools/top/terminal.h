// terminal.h - a whole terminal: its other screen, keys without Enter, signals (main thread)
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

// Whether a live view may be shown on standard output: a terminal that knows more than lines.
[[nodiscard]] bool has_screen();

// SIGINT, SIGTERM, SIGHUP, SIGWINCH and SIGTSTP come through it from then on, in threads that start later, too.
class TerminalSignals {
 public:
  TerminalSignals();  // throws SetupError
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  // The next one that has come; 0: none.
  [[nodiscard]] int next() const noexcept;

 private:
  FileDescriptor fd_;
};

// Takes the terminal as long as it lives, and leaves it as it was.
class Terminal {
 public:
  enum class Event : unsigned char { kTime, kResized, kEnd };

  explicit Terminal(const TerminalSignals& signals);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  [[nodiscard]] size_t width() const;
  [[nodiscard]] size_t height() const;
  // False: nobody reads it any more.
  [[nodiscard]] bool show(const std::vector<PageLine>& page) const;
  // Until then, or what happens before.
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
