// option_group.h - options of a subcommand under one heading of its help (main thread, once)
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>

namespace gradlane {

class OptionGroup {
 public:
  OptionGroup(CLI::App& command, std::string heading) : command_(command), heading_(std::move(heading)) {}

  // Adds an option. The help shows `value_name` after its name.
  template <typename T>
  CLI::Option* add(const char* name, const char* value_name, T& value, const char* text) const {
    return command_.add_option(name, value, text)->type_name(value_name)->group(heading_);
  }

  CLI::Option* flag(const char* name, bool& value, const char* text) const {
    return command_.add_flag(name, value, text)->group(heading_);
  }

 private:
  CLI::App& command_;
  std::string heading_;
};

}  // namespace gradlane
