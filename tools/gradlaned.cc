// gradlaned.cc - the daemon's command line
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/types.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "config/accelerator.h"
#include "config/addresses.h"
#include "config/choices.h"
#include "config/node_words.h"
#include "dataplane/accelerator/daemon.h"
#include "dataplane/daemon/daemon.h"
#include "dataplane/daemon/log_file.h"
#include "dataplane/node/pair_keys.h"
#include "tools/exit_status.h"
#include "tools/hosts/machine.h"
#include "tools/unknown_option.h"
#include "tools/version.h"

namespace {

constexpr size_t kHelpIndent = 24;                // column of the descriptions
constexpr std::chrono::seconds kKeyPatience{60};  // with the program that passes public keys on
constexpr int kLargestPid = 1 << 22;              // the kernel's PID_MAX_LIMIT

// Throws SetupError if an accelerator's file is one of several. Nodes may share a process, but accelerators may not.
void check_together(const std::vector<gradlane::AnyConfig>& configs, const std::vector<std::string>& files) {
  if (configs.size() == 1) return;
  for (size_t i = 0; i < configs.size(); ++i) {
    if (std::holds_alternative<gradlane::NodeConfig>(configs[i])) continue;
    throw gradlane::SetupError(files[i] + " is the file of an accelerator, but --config names " +
                               std::to_string(configs.size()) +
                               " files; start a separate gradlaned for each accelerator");
  }
}

int run_all(const std::vector<gradlane::AnyConfig>& configs, const std::vector<pid_t>& serving, bool tidy) {
  if (const auto* const accelerator = std::get_if<gradlane::AcceleratorConfig>(&configs.front())) {
    if (!serving.empty())
      throw gradlane::SetupError("--for: only for nodes, because an accelerator has no trainers to wait for");
    return gradlane::run_accelerator(*accelerator, GRADLANE_RELEASE, tidy);
  }
  std::vector<gradlane::NodeConfig> nodes;
  for (const gradlane::AnyConfig& config : configs) nodes.push_back(std::get<gradlane::NodeConfig>(config));
  std::optional<gradlane::PairKeys> pairs;
  if (std::ranges::any_of(nodes, [](const auto& it) { return it.key_file == gradlane::kPairKeyFile; })) {
    if (nodes.size() != 1) throw gradlane::SetupError("auth.key_file stdin: only for one node");
    pairs = gradlane::agree_on_keys(nodes.front(), STDIN_FILENO, STDOUT_FILENO, kKeyPatience);
    // The program that has started the daemon may close its ends of the pipes now.
    const gradlane::FileDescriptor nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
    dup2(nothing.get(), STDIN_FILENO);
    dup2(nothing.get(), STDOUT_FILENO);
  }
  return gradlane::run_daemon(nodes, pairs ? &*pairs : nullptr, serving, GRADLANE_RELEASE, tidy);
}

// Removes the log, and its folder if that is empty. The daemon has already removed its sockets. Other files beside the
// log stay, and then so does the folder.
void remove_log(const std::string& log_file) {
  std::error_code ignored;
  std::filesystem::remove(log_file, ignored);
  // Unlike std::filesystem::remove(), this does not try first to remove a file, which containment may refuse.
  (void)rmdir(std::filesystem::path(log_file).parent_path().c_str());
}

struct Options {
  std::vector<std::string> files;
  gradlane::NodeWords words;
  std::vector<pid_t> serving;
  bool tidy = false;
  bool check = false;
};

// Throws SetupError for options that do not fit together.
void check_options(const Options& options) {
  const bool nodes = !options.words.nodes.empty();
  const size_t files = options.files.size();
  if (!nodes && files == 0) throw gradlane::SetupError(gradlane::ways_to_start(gradlane::environment()));
  if (nodes && files != 0) {
    throw gradlane::SetupError(
        "--nodes and --config exclude each other; with --nodes, use --set KEY=VALUE for settings");
  }
  if (!nodes && !options.words.ports.empty()) {
    throw gradlane::SetupError("--port needs --nodes; with --config, use --set 'ports=[{udp: auto}]'");
  }
  if (options.words.rank && files > 1)
    throw gradlane::SetupError("--rank: only for one node, but there are several --config");
}

// Loads all configurations. If a launcher decides the rank, sets `launcher` to its name, for the log.
std::vector<gradlane::AnyConfig> load(const Options& options, std::string& launcher) {
  if (options.files.empty()) {
    gradlane::LoadedWords loaded = gradlane::load_node_words(options.words, gradlane::queries());
    launcher = loaded.launcher;
    return {std::move(loaded.config)};
  }
  std::vector<gradlane::AnyConfig> configs;
  for (const std::string& file : options.files) {
    configs.push_back(gradlane::load_any_config(file, options.words.rank, options.words.settings));
  }
  check_together(configs, options.files);
  return configs;
}

void add_options(CLI::App& app, Options& options) {
  app.get_formatter()->column_width(kHelpIndent);
  app.add_option("--nodes", options.words.nodes,
                 "Hosts of the ring, the same on all of them: names or\n"
                 "addresses with commas, with :PORT of UDP or without;\n"
                 "@FILE: a host in each line, as of mpirun; @slurm: those\n"
                 "of the SLURM job. The rank is the position of this\n"
                 "machine's address in the list; if that is not clear, the\n"
                 "rank of mpirun or srun that started one per host")
      ->type_name("HOSTS");
  app.add_option("--config,-c", options.files, "Configuration of a node, or of an accelerator; once for\neach node")
      ->type_name("FILE")
      ->allow_extra_args(false);
  app.add_option("--rank", options.words.rank, "Rank of this node; overrides address and file")->type_name("N");
  app.add_option("--port", options.words.ports,
                 "With --nodes: udp, sockets of the kernel (default);\n"
                 "af_packet:IFACE, af_xdp:IFACE, a device of DPDK as\n"
                 "net_memif0,..., or a PCI address")
      ->type_name("PORT")
      ->allow_extra_args(false);
  app.add_option("--set", options.words.settings,
                 "Any setting of a file, which it overrides; repeatable:\n"
                 "timeouts.peer=5s, 'strategies=[direct]', mtu=9000")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("--for", options.serving,
                 "Processes, with commas: the daemon ends after the last\n"
                 "of them has ended, for whatever reason")
      ->type_name("PID,...")
      ->delimiter(',')
      ->check(CLI::Range(1, kLargestPid).description(""))
      ->allow_extra_args(false);
  app.add_flag("--tidy", options.tidy,
               "If it ends well (exit 0), remove `log_file`, and its\n"
               "folder if nothing else is in there");
  app.add_flag("--check", options.check, "Check all settings, print them as a file, and end");
  app.set_version_flag("--version", std::string("gradlaned ") + GRADLANE_RELEASE);
  app.footer(
      "Runs until SIGTERM or SIGINT: then it waits for running operations, removes its\n"
      "sockets and exits with 0. If it cannot start: exit 2, or 4 if another process\n"
      "uses its UDP port. If a device goes away: exit 3. SIGHUP reopens `log_file`.\n"
      "docs/configuration.md has all settings.");
}

int run(int argc, char** argv) {
  CLI::App app{"gradlaned: a node of a ring, and the socket of its trainers; or an accelerator", "gradlaned"};
  Options options;
  add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> extras = app.remaining();
    const auto option = std::ranges::find_if(extras, [](const std::string& it) { return it.starts_with('-'); });
    throw gradlane::SetupError((option != extras.end() ? gradlane::unknown_option(app, *option) : error.what()) +
                               "\nsee 'gradlaned --help'");
  }

  check_options(options);
  std::string launcher;
  const std::vector<gradlane::AnyConfig> configs = load(options, launcher);
  if (options.check) {
    for (const gradlane::AnyConfig& config : configs) {
      std::visit([](const auto& it) { std::fputs(gradlane::config_text(it).c_str(), stdout); }, config);
      const auto* const node = std::get_if<gradlane::NodeConfig>(&config);
      const std::string warning = node != nullptr ? gradlane::choices_warning(*node) : "";
      if (!warning.empty()) std::fprintf(stderr, "gradlaned: warning: %s\n", warning.c_str());
    }
    return 0;
  }
  const std::string log_file = std::visit([](const auto& it) { return it.log_file; }, configs.front());
  if (options.tidy && log_file.empty()) throw gradlane::SetupError("--tidy: removes log_file, but none is set");
  gradlane::open_log(log_file);
  spdlog::set_default_logger(spdlog::stderr_color_mt("gradlaned"));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  const std::string level = std::visit([](const auto& it) { return it.log; }, configs.front());
  spdlog::set_level(spdlog::level::from_str(level));
  if (!launcher.empty())
    spdlog::info("the rank is that of the launcher, {}, because the addresses do not determine it", launcher);
  const int code = run_all(configs, options.serving, options.tidy);
  spdlog::shutdown();
  if (options.tidy && code == 0) remove_log(log_file);
  std::_Exit(code);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    const std::string text = std::string("gradlaned: ") + error.what() + "\n";
    std::fputs(text.c_str(), stderr);
    gradlane::write_to_original_stderr(text);
    const auto* const setup = dynamic_cast<const gradlane::SetupError*>(&error);
    return setup != nullptr && setup->fault() == gradlane::SetupFault::kPortInUse ? gradlane::kExitPortInUse
                                                                                  : gradlane::kExitBadInput;
  }
}
