// gradlaned.cc - the node daemon's command line
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "compress/error.h"
#include "config/loader.h"
#include "dataplane/daemon.h"
#include "tools/version.h"

namespace {

constexpr int kBadInput = 2;

int run(int argc, char** argv) {
  CLI::App app{"gradlaned: one or more nodes of a ring, and the socket their trainers come to", "gradlaned"};
  std::vector<std::string> files;
  bool check = false;
  app.add_option("--config,-c", files, "Configuration of a node; once for each node")->type_name("FILE")->required();
  app.add_flag("--check", check, "Check and print the configuration with all defaults, and end");
  app.set_version_flag("--version", std::string("gradlaned ") + GRADLANE_VERSION);
  app.footer(
      "Runs until SIGTERM or SIGINT: then it waits for what is in flight, removes its\n"
      "socket and exits with 0. If it cannot start: exit 2. docs/configuration.md has\n"
      "all settings.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    throw gradlane::SetupError(std::string(error.what()) + "\nsee 'gradlaned --help'");
  }

  std::vector<gradlane::NodeConfig> nodes;
  for (const std::string& file : files) nodes.push_back(gradlane::load_config(file));
  if (check) {
    for (const gradlane::NodeConfig& node : nodes) std::fputs(gradlane::config_text(node).c_str(), stdout);
    return 0;
  }
  spdlog::set_default_logger(spdlog::stderr_color_mt("gradlaned"));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  spdlog::set_level(spdlog::level::from_str(nodes.front().log));
  const int code = gradlane::run_daemon(nodes, GRADLANE_VERSION);
  spdlog::shutdown();
  std::_Exit(code);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gradlaned: %s\n", error.what());
    return kBadInput;
  }
}
