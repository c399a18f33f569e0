// faults.h - collects what is wrong with a configuration file, and names the first of it (set-up only)
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace gradlane {

// Of a file; both count from 1, columns in bytes. Line 0: on the command line, and the column is the number of the word
// there, from 0 on.
struct Place {
  unsigned line = 1;
  unsigned column = 1;
};

class ConfigFaults {
 public:
  // `words`: of the command line, as in "--set log=warn", that places of line 0 lead to.
  explicit ConfigFaults(std::string file, std::vector<std::string> words = {})
      : file_(std::move(file)), words_(std::move(words)) {}

  // Something that stands in the file is wrong. `path` leads to it, as in "ports[0].mac"; empty: the file as a whole.
  void add(Place place, const std::string& path, const std::string& what) { keep({false, place, path, what}); }
  // Something is not there. Told last: a key that is missing may be there, and be misspelt.
  void add_missing(Place place, const std::string& path, const std::string& what) { keep({true, place, path, what}); }

  [[nodiscard]] size_t count() const noexcept { return count_; }
  // Throws SetupError for the fault that comes first in the file, and words before it, if there is one.
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

// Throws SetupError: "WORD: what is wrong, what is allowed", for a word of the command line.
[[noreturn]] void refuse_word(const std::string& word, const std::string& what);

// A text of the file between quotes, made fit for a message of one line.
[[nodiscard]] std::string quote_text(std::string_view text);

}  // namespace gradlane
