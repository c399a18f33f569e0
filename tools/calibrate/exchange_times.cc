// exchange_times.cc - all-reduces through PyTorch, which a child process measures (main thread only)
#include "tools/calibrate/exchange_times.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "tools/run/child.h"
#include "tools/run/settings.h"

namespace gradlane {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kImportTime{45};  // others wait for this rank for 60 s
constexpr std::chrono::seconds kRunTime{300};    // it normally takes half a minute; each operation has a limit of 60 s
constexpr std::chrono::milliseconds kChildTick{100};
constexpr size_t kMostOutput = size_t{1} << 20;

struct Ending {
  int status = 0;
  bool late = false;  // it was killed because its time was over
  std::string out;
  std::string err;
};

// Reads what there is, and keeps the end of it. Closes the descriptor at the end of the file.
void read_some(FileDescriptor& fd, std::string& text) {
  std::array<char, 4096> piece;
  ssize_t bytes = 0;
  while (fd && (bytes = read(fd.get(), piece.data(), piece.size())) > 0) {
    text.append(piece.data(), static_cast<size_t>(bytes));
    if (text.size() > kMostOutput) text.erase(0, text.size() - kMostOutput);
  }
  if (bytes == 0) fd.reset();
}

// Returns PYTHONPATH for the child: in a source tree, the package of that tree comes last.
std::string python_path() {
  const char* const set = std::getenv("PYTHONPATH");
  std::string path = set == nullptr ? "" : set;
  std::error_code error;
  const fs::path root = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path().parent_path();
  const fs::path package = root / "client" / "python";
  if (!fs::is_directory(package / "gradlane", error)) return path;
  return path.empty() ? package.string() : path + ":" + package.string();
}

Ending run_python(const ExchangeRun& run, const std::vector<std::string>& arguments, std::chrono::seconds limit) {
  ChildSpec spec;
  spec.command = {run.python};
  spec.command.insert(spec.command.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = run.variables;
  if (const std::string path = python_path(); !path.empty()) variables.push_back("PYTHONPATH=" + path);
  spec.environment = environment_with(variables);
  sigset_t mask;
  sigprocmask(SIG_BLOCK, nullptr, &mask);
  const Child child = start_child(spec, mask);
  FileDescriptor out(child.out);
  FileDescriptor err(child.err);
  Ending ending;
  const auto end = Clock::now() + limit;
  while (waitpid(child.pid, &ending.status, WNOHANG) == 0) {
    if (Clock::now() > end) {
      ending.late = true;
      kill(-child.pid, SIGKILL);
      waitpid(child.pid, &ending.status, 0);
      break;
    }
    std::array<pollfd, 2> both = {{{out.get(), POLLIN, 0}, {err.get(), POLLIN, 0}}};
    poll(both.data(), both.size(), static_cast<int>(kChildTick.count()));
    read_some(out, ending.out);
    read_some(err, ending.err);
  }
  read_some(out, ending.out);
  read_some(err, ending.err);
  return ending;
}

std::string last_line(std::string_view text) {
  while (text.ends_with('\n') || text.ends_with(' ')) text.remove_suffix(1);
  const size_t before = text.rfind('\n');
  return std::string(before == text.npos ? text : text.substr(before + 1));
}

// Returns why the child has failed; "" if it has not.
std::string fault_of(const Ending& ending, std::chrono::seconds limit) {
  if (ending.late) return fmt::format("did not end within {} s, so it was killed", limit.count());
  if (ending.status == 0) return "";
  const std::string last = last_line(ending.err);
  return last.empty() ? ending_text(ending.status) : last;
}

}  // namespace

std::string import_fault(const ExchangeRun& run) {
  const Ending ending = run_python(run, {"-c", fmt::format("import {}", kExchangeModule)}, kImportTime);
  const std::string fault = fault_of(ending, kImportTime);
  return fault.empty() ? "" : fmt::format("{}: {}", run.python, fault);
}

ExchangeTimes run_exchange_times(const ExchangeRun& run) {
  std::vector<std::string> words = {"-m", kExchangeModule, "--json"};
  if (run.quick) words.insert(words.end(), {"--seconds", "3"});
  const Ending ending = run_python(run, words, kRunTime);
  if (const std::string fault = fault_of(ending, kRunTime); !fault.empty()) {
    throw SetupError(fmt::format("{} -m {}: {}", run.python, kExchangeModule, fault));
  }
  return parse_exchange_times(ending.out);
}

}  // namespace gradlane
