// unknown_option.h - the error text for an option that a program does not have (main thread, once)
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "config/section.h"

namespace gradlane {

// Returns "unknown option '--strategy', did you mean '--strategies'?". `app` has the options that are known.
inline std::string unknown_option(const CLI::App& app, const std::string& option) {
  const std::string word = option.substr(0, option.find('='));
  std::vector<std::string> names;
  for (const CLI::Option* const each : app.get_options()) {
    for (const std::string& name : each->get_lnames()) names.push_back("--" + name);
  }
  std::vector<const char*> known;
  for (const std::string& name : names) known.push_back(name.c_str());
  const std::string guessed = word.starts_with("--") ? guess(word, known) : ",";
  return "unknown option '" + word + "'" + (guessed == "," ? "" : guessed);
}

}  // namespace gradlane
