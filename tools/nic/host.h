// host.h - files and programs of this machine, as `gradlane nic` uses them (main thread only)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"

namespace gradlane {

// Returns the text with '?' for each byte that is not printable ASCII.
[[nodiscard]] std::string printable(std::string_view text);

// Returns whether the text is 1 to 64 letters, digits, '_', '-' and '.', and the first one is a letter or digit. Such
// names are safe in paths, commands and files of systemd.
[[nodiscard]] bool is_plain_name(std::string_view text) noexcept;

// Paths begin with '/'. They are below `root`, which is "" for the machine itself; tests give another folder. Reads
// take a bounded number of bytes, because a test or a driver may have put anything there.
class Host {
 public:
  explicit Host(std::string root) : root_(std::move(root)) {}

  [[nodiscard]] std::string path(const std::string& path) const { return root_ + path; }
  [[nodiscard]] bool is_real() const noexcept { return root_.empty(); }

  [[nodiscard]] bool has(const std::string& path) const;
  // Returns the first `most` bytes of a file; "" if it cannot be read.
  [[nodiscard]] std::string text(const std::string& path, size_t most) const;
  // Returns the first line of a short file; "" if it cannot be read.
  [[nodiscard]] std::string line(const std::string& path) const;
  [[nodiscard]] std::optional<uint64_t> number(const std::string& path) const;  // decimal
  // Returns the last part of a symbolic link's target; "" if there is no link.
  [[nodiscard]] std::string link(const std::string& path) const;
  // Returns the sorted names in a folder; none if it cannot be read.
  [[nodiscard]] std::vector<std::string> names(const std::string& path) const;
  [[nodiscard]] std::optional<uint32_t> user_id(const std::string& name) const;  // from /etc/passwd

  // ---- Changes. All throw SetupError, which names the file.

  void write_attribute(const std::string& path, const std::string& value) const;  // the file must exist
  // Writes a whole file, and makes its folders. Other processes see the old content or the new one.
  void write_file(const std::string& path, const std::string& text) const;
  void make_link(const std::string& path, const std::string& target) const;
  // Returns false if there is no such file.
  bool remove(const std::string& path) const;
  // Waits until no other process has this lock, and takes it until the descriptor is closed.
  [[nodiscard]] FileDescriptor lock(const std::string& path) const;
  void give_to(const std::string& path, uint32_t user) const;  // owner `user`, mode 0600

  // Runs a program of /usr/sbin, /usr/bin, /sbin or /bin. Returns "", or why it failed.
  [[nodiscard]] std::string run(const std::vector<std::string>& words) const;

 private:
  std::string root_;
};

// Waits until the kernel has done something, for 5 s at most. Returns whether it has.
[[nodiscard]] bool wait_until(const std::function<bool()>& done);

}  // namespace gradlane
