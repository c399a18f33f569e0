// faults.h - a collection of the faults in a configuration file, and the message about the first one (set-up only)
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace gradlane {

// A place in a file: line and column count from 1, columns in bytes. Line 0 means the command line. The column is then
// the number of a word, from 0 on.
struct Place {
  unsigned line = 1;
  unsigned column = 1;
};

class ConfigFaults {
 public:
  // `words` are words of the command line, as in "--set log=warn". Places of line 0 refer to them.
  explicit ConfigFaults(std::string file, std::vector<std::string> words = {})
      : file_(std::move(file)), words_(std::move(words)) {}

  // Adds a fault of something in the file. `path` leads to it, as in "ports[0].mac"; empty: the file as a whole.
  void add(Place place, const std::string& path, const std::string& what) { keep({false, place, path, what}); }
  // Adds a fault of something that is missing. It is reported last, because the key may be there and be misspelt.
  void add_missing(Place place, const std::string& path, const std::string& what) { keep({true, place, path, what}); }

  [[nodiscard]] size_t count() const noexcept { return count_; }
  // Throws SetupError for the first fault in the file, if there is a fault. Words of the command line come before the
  // file.
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

  [[nodiscard]] std::string text_of(Place place) const;

  std::string file_;
  std::vector<std::string> words_;
  std::optional<Fault> first_;
  size_t count_ = 0;
};

// Throws SetupError for a word of the command line: "WORD: what is wrong, what is allowed".
[[noreturn]] void refuse_word(const std::string& word, const std::string& what);

// Returns a text of the file between quotes. It is shortened and escaped to fit into a message of one line.
[[nodiscard]] std::string quote_text(std::string_view text);

}  // namespace gradlane
