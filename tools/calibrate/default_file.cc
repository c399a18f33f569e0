// default_file.cc - default places of this host's calibration (set-up only)
#include "tools/calibrate/default_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/file_descriptor.h"

namespace gradlane {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOfMachine = "/etc/gradlane/calibration.yaml";
constexpr const char* kOfUser = "gradlane/calibration.yaml";

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns the path of the user's own calibration; empty if this user has no folder for it.
std::string of_user() {
  const std::string config = variable("XDG_CONFIG_HOME");
  if (config.starts_with('/')) return fs::path(config) / kOfUser;
  const std::string home = variable("HOME");
  return home.starts_with('/') ? fs::path(home) / ".config" / kOfUser : fs::path();
}

}  // namespace

std::string calibration_target() {
  if (geteuid() == 0) return kOfMachine;
  const std::string own = of_user();
  if (own.empty())
    throw SetupError("neither XDG_CONFIG_HOME nor HOME has a path for the calibration: name a file with -o FILE");
  return own;
}

std::vector<std::string> calibration_places() {
  std::vector<std::string> places;
  if (const std::string own = of_user(); !own.empty()) places.push_back(own);
  places.emplace_back(kOfMachine);
  return places;
}

NewFile::NewFile(std::string path, bool make_folder) : path_(std::move(path)) {
  std::error_code error;
  if (fs::is_directory(path_, error)) throw SetupError(fmt::format("-o {}: is a folder; a file is needed", path_));
  // put() renames a new file to this path. It would replace a device, a pipe or a link by an ordinary file.
  if (const auto kind = fs::symlink_status(path_, error).type();
      kind != fs::file_type::not_found && kind != fs::file_type::regular) {
    throw SetupError(fmt::format("-o {}: exists and is not a regular file", path_));
  }
  const fs::path folder = fs::path(path_).parent_path();
  if (make_folder && !folder.empty()) fs::create_directories(folder, error);
  if (!make_folder && !folder.empty() && !fs::is_directory(folder, error)) {
    throw SetupError(fmt::format("-o {}: cannot be written: there is no folder {}", path_, folder.string()));
  }
  // This only checks that the file can be created. Nothing is left if the user interrupts the measurement.
  std::string beside;
  const FileDescriptor made = make_beside(beside);
  fs::remove(beside, error);
}

// Creates a new file beside the target, and sets `name` to its path. Its random name prevents others from putting
// something else there first.
FileDescriptor NewFile::make_beside(std::string& name) const {
  name = path_ + ".XXXXXX";
  FileDescriptor made(mkostemp(name.data(), O_CLOEXEC));
  if (made) return made;
  throw SetupError(fmt::format("{}: cannot be written: {}; name a file with -o FILE", path_, std::strerror(errno)));
}

void NewFile::put(const std::string& text) {
  std::string beside;
  std::error_code error;
  {
    const FileDescriptor made = make_beside(beside);
    // readable for all users of this host, because the figures are true for all
    (void)fchmod(made.get(), S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH);
  }
  std::ofstream out(beside);
  errno = 0;
  if (!(out << text << std::flush)) {
    const int why = errno;
    fs::remove(beside, error);
    throw SetupError(fmt::format("{}: cannot be written: {}", path_, std::strerror(why)));
  }
  fs::rename(beside, path_, error);
  if (!error) return;
  std::error_code ignored;
  fs::remove(beside, ignored);
  throw SetupError(fmt::format("{}: cannot be written: {}", path_, error.message()));
}

}  // namespace gradlane
