// host.cc - files and programs of this machine, as `gradlane nic` uses them (main thread only)
#include "tools/nic/host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/parse.h"

namespace gradlane {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestLine = 4096;   // sysfs has attributes of a page at most
constexpr size_t kMostNames = 65'536;   // in a folder
constexpr size_t kPasswdLine = 16'384;  // longest line of /etc/passwd

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw SetupError(fmt::format("{} cannot be {}: {}", printable(path), what, std::strerror(error)));
}

bool is_letter_or_digit(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

void write_all(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path, "written", errno);
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

std::string printable(std::string_view text) {
  std::string clean(text);
  std::ranges::replace_if(
      clean, [](char c) { return c < ' ' || c > '~'; }, '?');
  return clean;
}

bool is_plain_name(std::string_view text) noexcept {
  const auto fits = [](char c) { return is_letter_or_digit(c) || c == '_' || c == '-' || c == '.'; };
  return !text.empty() && text.size() <= 64 && is_letter_or_digit(text.front()) && std::ranges::all_of(text, fits);
}

bool Host::has(const std::string& path) const { return access((root_ + path).c_str(), F_OK) == 0; }

std::string Host::text(const std::string& path, size_t most) const {
  const FileDescriptor file(open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string text;
  if (!file) return text;
  char part[16'384];
  while (text.size() < most) {
    const ssize_t got = read(file.get(), part, std::min(sizeof(part), most - text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(part, static_cast<size_t>(got));
  }
  return text;
}

std::string Host::line(const std::string& path) const {
  std::string line = text(path, kLongestLine);
  return line.substr(0, line.find('\n'));
}

std::optional<uint64_t> Host::number(const std::string& path) const { return parse_decimal(line(path)); }

std::string Host::link(const std::string& path) const {
  std::error_code none;
  return fs::read_symlink(root_ + path, none).filename().string();
}

std::vector<std::string> Host::names(const std::string& path) const {
  std::vector<std::string> names;
  std::error_code none;  // devices may disappear meanwhile
  for (fs::directory_iterator it(root_ + path, none); !none && it != fs::directory_iterator(); it.increment(none)) {
    if (names.size() < kMostNames) names.push_back(it->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

std::optional<uint32_t> Host::user_id(const std::string& name) const {
  std::FILE* const file = std::fopen((root_ + "/etc/passwd").c_str(), "re");
  if (file == nullptr) return std::nullopt;
  std::vector<char> space(kPasswdLine);
  passwd entry{};
  passwd* found = nullptr;
  std::optional<uint32_t> id;
  while (!id && fgetpwent_r(file, &entry, space.data(), space.size(), &found) == 0) {
    if (name == entry.pw_name) id = entry.pw_uid;
  }
  std::fclose(file);
  return id;
}

void Host::write_attribute(const std::string& path, const std::string& value) const {
  const FileDescriptor file(open((root_ + path).c_str(), O_WRONLY | O_CLOEXEC));
  if (!file) fail(root_ + path, "opened", errno);
  write_all(file.get(), value + "\n", root_ + path);
}

void Host::write_file(const std::string& path, const std::string& text) const {
  const std::string full = root_ + path;
  const std::string scratch = full + ".new";
  std::error_code error;
  fs::create_directories(fs::path(full).parent_path(), error);
  {
    const FileDescriptor file(open(scratch.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (!file) fail(full, "written", errno);
    write_all(file.get(), text, full);
    if (fchmod(file.get(), 0644) != 0 || fsync(file.get()) != 0) fail(full, "written", errno);
  }
  if (rename(scratch.c_str(), full.c_str()) != 0) fail(full, "written", errno);
}

void Host::make_link(const std::string& path, const std::string& target) const {
  std::error_code error;
  fs::create_directories(fs::path(root_ + path).parent_path(), error);
  if (symlink(target.c_str(), (root_ + path).c_str()) != 0 && errno != EEXIST) fail(root_ + path, "made", errno);
}

bool Host::remove(const std::string& path) const {
  if (unlink((root_ + path).c_str()) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR) fail(root_ + path, "removed", errno);
  return false;
}

FileDescriptor Host::lock(const std::string& path) const {
  FileDescriptor file(open((root_ + path).c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) fail(root_ + path, "opened", errno);
  while (flock(file.get(), LOCK_EX) != 0) {
    if (errno != EINTR) fail(root_ + path, "locked", errno);
  }
  return file;
}

void Host::give_to(const std::string& path, uint32_t user) const {
  const std::string full = root_ + path;
  if (chown(full.c_str(), user, static_cast<gid_t>(-1)) != 0) fail(full, "given to the user", errno);
  if (chmod(full.c_str(), 0600) != 0) fail(full, "given to the user", errno);
}

std::string Host::run(const std::vector<std::string>& words) const {
  std::string program;
  for (const char* const folder : {"/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"}) {
    if (program.empty() && access((root_ + folder + words[0]).c_str(), X_OK) == 0) program = root_ + folder + words[0];
  }
  if (program.empty()) return fmt::format("there is no program {}", words[0]);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = -1;
  if (const int error = posix_spawn(&pid, program.c_str(), nullptr, nullptr, arguments.data(), environ); error != 0) {
    return fmt::format("{}: {}", words[0], std::strerror(error));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  return fmt::format("'{}' failed", fmt::join(words, " "));
}

bool wait_until(const std::function<bool()>& done) {
  constexpr std::chrono::seconds kPatience{5};
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace gradlane
