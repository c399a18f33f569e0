// faults.h - collects what is wrong with a configuration file, and names the first of it (set-up only)
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

namespace gradlane {

// Of a file; both count from 1, columns in bytes.
struct Place {
  unsigned line = 1;
  unsigned column = 1;
};

class Faults {
 public:
  explicit Faults(std::string file) : file_(std::move(file)) {}

  // Something that stands in the file is wrong. `path` leads to it, as in "ports[0].mac"; empty: the file as a whole.
  void add(Place place, const std::string& path, const std::string& what) { keep({false, place, path, what}); }
  // Something is not there. Told last: a key that is missing may be there, and be misspelt.
  void add_missing(Place place, const std::string& path, const std::string& what) { keep({true, place, path, what}); }

  [[nodiscard]] size_t count() const noexcept { return count_; }
  // Throws SetupError for the fault that comes first in the file, if there is one.
  void throw_first() const;

 private:
  struct Fault {
    bool missing;
    Place place;
    std::string path;
    std::string what;
    [[nodiscard]] auto order() const noexcept { return std::tuple(missing, place.line, place.column); }
  };
  void keep(const Fault& fault);

  std::string file_;
  std::optional<Fault> first_;
  size_t count_ = 0;
};

// A text of the file between quotes, made fit for a message of one line.
[[nodiscard]] std::string quoted(std::string_view text);

}  // namespace gradlane
