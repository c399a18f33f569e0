// gradlaned.cc - the daemon's command line
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "config/accelerator.h"
#include "config/loader.h"
#include "dataplane/accelerator/daemon.h"
#include "dataplane/daemon/daemon.h"
#include "dataplane/daemon/log_file.h"
#include "tools/version.h"

namespace {

constexpr int kBadInput = 2;

// Throws SetupError. Nodes may share a process; an accelerator has one of its own.
void check_together(const std::vector<gradlane::AnyConfig>& configs, const std::vector<std::string>& files) {
  if (configs.size() == 1) return;
  for (size_t i = 0; i < configs.size(); ++i) {
    if (std::holds_alternative<gradlane::NodeConfig>(configs[i])) continue;
    throw gradlane::SetupError(files[i] + " is an accelerator's file, and one of " + std::to_string(configs.size()) +
                               "; start a gradlaned for each accelerator, with nothing else in it");
  }
}

int run_all(const std::vector<gradlane::AnyConfig>& configs) {
  if (const auto* const accelerator = std::get_if<gradlane::AcceleratorConfig>(&configs.front())) {
    return gradlane::run_accelerator(*accelerator, GRADLANE_VERSION);
  }
  std::vector<gradlane::NodeConfig> nodes;
  for (const gradlane::AnyConfig& config : configs) nodes.push_back(std::get<gradlane::NodeConfig>(config));
  return gradlane::run_daemon(nodes, GRADLANE_VERSION);
}

int run(int argc, char** argv) {
  CLI::App app{"gradlaned: nodes of a ring and the socket their trainers come to, or an accelerator", "gradlaned"};
  std::vector<std::string> files;
  std::optional<unsigned> rank;
  bool check = false;
  app.add_option("--config,-c", files, "Configuration of an accelerator, or of a node; once for each node")
      ->type_name("FILE")
      ->required();
  app.add_option("--rank", rank, "The node that this one is, whatever the file says")->type_name("N");
  app.add_flag("--check", check, "Check and print the configuration with all defaults, and end");
  app.set_version_flag("--version", std::string("gradlaned ") + GRADLANE_VERSION);
  app.footer(
      "Runs until SIGTERM or SIGINT: then it waits for what is in flight, removes its\n"
      "sockets and exits with 0. If it cannot start: exit 2. If an interface goes away:\n"
      "exit 3. SIGHUP opens `log_file` anew. docs/configuration.md has all settings.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    throw gradlane::SetupError(std::string(error.what()) + "\nsee 'gradlaned --help'");
  }

  if (rank && files.size() > 1) throw gradlane::SetupError("--rank: of one node, and there are several --config");
  std::vector<gradlane::AnyConfig> configs;
  for (const std::string& file : files) configs.push_back(gradlane::load_any_config(file, rank));
  check_together(configs, files);
  if (check) {
    for (const gradlane::AnyConfig& config : configs) {
      std::visit([](const auto& it) { std::fputs(gradlane::config_text(it).c_str(), stdout); }, config);
    }
    return 0;
  }
  gradlane::open_log(std::visit([](const auto& it) { return it.log_file; }, configs.front()));
  spdlog::set_default_logger(spdlog::stderr_color_mt("gradlaned"));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  const std::string level = std::visit([](const auto& it) { return it.log; }, configs.front());
  spdlog::set_level(spdlog::level::from_str(level));
  const int code = run_all(configs);
  spdlog::shutdown();
  std::_Exit(code);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    const std::string text = std::string("gradlaned: ") + error.what() + "\n";
    std::fputs(text.c_str(), stderr);
    gradlane::tell_starter(text);
    return kBadInput;
  }
}
