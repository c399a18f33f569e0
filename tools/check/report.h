// report.h - verdicts of `gradlane check`, one line each (main thread only)
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace gradlane {

class CheckReport {
 public:
  // Adds "ok   what".
  void ok(const std::string& what) { items_.push_back({"ok", what, "", ""}); }
  // Adds "note what: text", for a fact worth knowing that is no fault.
  void note(const std::string& what, const std::string& text) { items_.push_back({"note", what, text, ""}); }
  // Adds "FAIL what: why; advice".
  void fail(const std::string& what, const std::string& why, const std::string& advice) {
    items_.push_back({"FAIL", what, why, advice});
  }

  [[nodiscard]] bool good() const noexcept;
  // Returns whether an earlier FAIL ends like this text of another program, so that both are about the same fault.
  [[nodiscard]] bool has_failed_like(std::string_view text) const noexcept;
  // Returns a line for each item that was added since the last call, each with its newline.
  [[nodiscard]] std::string news();
  [[nodiscard]] nlohmann::json json() const;

 private:
  struct Item {
    const char* verdict;
    std::string what;
    std::string why;
    std::string advice;
  };
  std::vector<Item> items_;
  size_t told_ = 0;
};

}  // namespace gradlane
