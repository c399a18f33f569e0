// terminal.cc - full-screen use of a terminal: its alternate screen, keys without Enter, signals (main thread)
#include "tools/top/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace gradlane {
namespace {

// xterm's control sequences, which all terminals of today know: alternate screen, no cursor, no wrapping of lines.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
constexpr std::string_view kLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr winsize kClassic{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};

bool put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      pollfd out{STDOUT_FILENO, POLLOUT, 0};
      poll(&out, 1, -1);
      continue;
    }
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

winsize size() {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0;
  return known ? size : kClassic;
}

const char* colour_of(PageLine::Style style) {
  switch (style) {
    case PageLine::Style::kPlain:
      break;
    case PageLine::Style::kTitle:
      return "\x1b[1m";
    case PageLine::Style::kGood:
      return "\x1b[32m";
    case PageLine::Style::kWarning:
      return "\x1b[33m";
    case PageLine::Style::kBad:
      return "\x1b[31m";
  }
  return "";
}

bool wants_colours() {
  const char* const no = std::getenv("NO_COLOR");  // no-color.org
  return no == nullptr || *no == 0;
}

}  // namespace

bool has_screen() {
  const char* const term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && term != nullptr && *term != 0 && std::strcmp(term, "dumb") != 0;
}

TerminalSignals::TerminalSignals() {
  sigset_t signals{};
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  fd_ = FileDescriptor(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw SetupError(std::string("cannot wait for signals: ") + std::strerror(errno));
}

int TerminalSignals::next() const noexcept {
  signalfd_siginfo info{};
  return read(fd_.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
}

Terminal::Terminal(const TerminalSignals& signals)
    : signals_(signals), colours_(wants_colours()), keys_(tcgetattr(STDIN_FILENO, &before_) == 0) {
  enter();
}

Terminal::~Terminal() { leave(); }

void Terminal::enter() {
  if (keys_) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    // A job in the background stops here until it is in the foreground.
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }
  (void)put(kEnter);
}

void Terminal::leave() const {
  (void)put(kLeave);
  if (keys_) (void)tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

// Handles Ctrl-Z: the shell gets its terminal back until the user enters `fg`.
void Terminal::suspend() {
  leave();
  raise(SIGSTOP);
  enter();
}

size_t Terminal::width() const { return size().ws_col; }
size_t Terminal::height() const { return size().ws_row; }

bool Terminal::show(const std::vector<PageLine>& page) const {
  // Overwrites the old text, so that nothing flickers.
  std::string text = "\x1b[H";
  const winsize screen = size();
  for (size_t i = 0; i < page.size(); ++i) {
    const char* const colour = colours_ ? colour_of(page[i].style) : "";
    if (i > 0) text += "\r\n";
    text += colour + page[i].text + (*colour != 0 ? "\x1b[m" : "");
    // In a full line the cursor stays on the last character, and this sequence would erase it.
    if (page[i].text.size() < screen.ws_col) text += "\x1b[K";
  }
  if (page.size() < screen.ws_row) text += "\r\n\x1b[J";
  return put(text);
}

// Returns true if the user has pressed q.
bool Terminal::read_keys() {
  std::array<char, 64> keys{};
  const ssize_t got = read(STDIN_FILENO, keys.data(), keys.size());
  if (got <= 0) {
    keys_ = keys_ && got < 0 && (errno == EINTR || errno == EAGAIN);
    return false;
  }
  return std::find_if(keys.begin(), keys.begin() + got, [](char key) { return key == 'q' || key == 'Q'; }) !=
         keys.begin() + got;
}

Terminal::Event Terminal::wait(std::chrono::steady_clock::time_point end) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    if (left <= 0) return Event::kTime;
    std::array<pollfd, 2> watched = {{{signals_.fd(), POLLIN, 0}, {keys_ ? STDIN_FILENO : -1, POLLIN, 0}}};
    if (poll(watched.data(), watched.size(), static_cast<int>(left)) <= 0) continue;
    for (int signal = signals_.next(); signal != 0; signal = signals_.next()) {
      if (signal != SIGWINCH && signal != SIGTSTP) return Event::kEnd;
      if (signal == SIGTSTP) suspend();
      return Event::kResized;
    }
    if (watched[1].revents != 0 && read_keys()) return Event::kEnd;
  }
}

}  // namespace gradlane
