// check.cc - `gradlane check`, item by item (main thread only)
#include "tools/check/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>
#include <variant>

#include "base/error.h"
#include "config/accelerator.h"
#include "config/addresses.h"
#include "config/loader.h"
#include "config/values.h"
#include "dataplane/accelerator/commands/check.h"
#include "dataplane/node/node.h"
#include "tools/admin/client.h"
#include "tools/check/daemon.h"
#include "tools/check/host.h"
#include "tools/check/links.h"
#include "tools/check/report.h"
#include "tools/check/ring.h"
#include "tools/check/sockets.h"

namespace gradlane {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr Nanos kLeastTime = 100 * kMillisecond;
constexpr Nanos kMostTime = 30 * kSecond;
constexpr milliseconds kPatience{5000};  // for answers that the daemon has at once
// limit of a probe; another client's probe may be under way, and its result is then used here
constexpr milliseconds kLongestProbe{kMostTime / kMillisecond};
constexpr milliseconds kLook{100};
constexpr milliseconds kLinger{1000};  // time for neighbours' checks that still use our daemon

milliseconds time_of(const CheckOptions& options) {
  const auto time = options.time.empty() ? std::optional(5 * kSecond) : parse_duration(options.time);
  if (!time || *time < kLeastTime || *time > kMostTime) {
    throw SetupError(fmt::format("--time '{}': must be 100ms to 30s", options.time));
  }
  return milliseconds(*time / kMillisecond);
}

std::string summary(const NodeConfig& config) {
  return fmt::format("node {} of {}, {}", config.rank, config.nodes.size(), address_text(config.nodes[config.rank]));
}
std::string summary(const AcceleratorConfig& config) {
  return fmt::format("accelerator, host {}, wire {}", config.host.device, config.wire.device);
}

std::optional<AnyConfig> read_config(const CheckOptions& options, CheckReport& report) {
  try {
    AnyConfig config = load_any_config(options.config, options.rank);
    const std::string what = std::visit([](const auto& it) { return summary(it); }, config);
    report.ok(fmt::format("configuration {}: {}", options.config, what));
    return config;
  } catch (const SetupError& error) {
    report.fail("configuration", error.what(), "docs/configuration.md has all settings");
    return std::nullopt;
  }
}

class Check {
 public:
  explicit Check(const CheckOptions& options) : options_(options), time_(time_of(options)) {}

  int run() {
    const std::optional<AnyConfig> config = read_config(options_, report_);
    print();
    nlohmann::json document;
    if (config) std::visit([&](const auto& it) { check_all(it, document); }, *config);
    if (options_.json) {
      nlohmann::json all = report_.json();
      all["daemon"] = document;
      std::printf("%s\n", all.dump(2).c_str());
    }
    return report_.good() ? 0 : 1;
  }

 private:
  void check_all(const NodeConfig& config, nlohmann::json& document) {
    CheckDaemon daemon(config, options_.rank);
    check_host(config, daemon.runs());
    check_with(config, daemon, document);
    print();
    if (!daemon.runs() && all_neighbours_answer(document)) daemon.wait(kLinger);
  }

  void check_all(const AcceleratorConfig& config, nlohmann::json& document) {
    check_accelerator(
        config, time_, report_, [this] { print(); }, document);
    print();
  }

  void check_host(const NodeConfig& config, bool daemon_runs) {
    check_cpus(workers_of(config), report_);
    check_numa(config.ports, config.cores, report_);
    if (!daemon_runs) {
      check_files(config, report_);
      check_hugepages(config.hugepages ? Node::packet_bytes(config) : 0, config.ports, report_);
      check_permissions(config, report_);
    }
    check_interfaces(config, !daemon_runs, report_);
    check_sockets(config, report_);
    print();
  }

  void check_with(const NodeConfig& config, CheckDaemon& daemon, nlohmann::json& document) {
    if (!daemon.start(report_)) return;
    try {
      const auto end = Clock::now() + time_;
      document = daemon.ask(fmt::format("probe {}", time_.count()), kLongestProbe + kPatience);
      tell_daemon(config, daemon.runs(), document);
      settle(daemon, end, document);
      check_ports(config, document, report_);
      check_neighbours(config, document, report_);
      check_ring(document, report_);
    } catch (const SetupError& error) {
      report_.fail("daemon", error.what(), "the neighbours were not checked");
    }
  }

  void tell_daemon(const NodeConfig& config, bool runs, const nlohmann::json& document) {
    if (!runs) {
      return report_.note("daemon",
                          fmt::format("no daemon runs on {}: started gradlaned for this check", config.admin));
    }
    report_.note("daemon", fmt::format("asked the running daemon, process {}", document.value("pid", 0)));
    const bool same = document.value("mtu", size_t{0}) == config.mtu &&
                      document.value("codec", "") == config.codec.name() &&
                      document.value("config_digest", "") == fmt::format("{:#018x}", rank_table_digest(config));
    if (same) return;
    report_.fail("daemon", "the running daemon has other settings than this file", "restart the daemon");
  }

  // If all neighbours answer, waits until links are up and the ring is ready, or until `end`. The daemon reports these
  // a moment after the answers.
  void settle(CheckDaemon& daemon, Clock::time_point end, nlohmann::json& document) {
    if (!all_neighbours_answer(document)) return;
    while (!(ring_is_ready(document) && all_links_up(document)) && Clock::now() < end) {
      daemon.wait(kLook);
      const nlohmann::json news = daemon.ask("stats", kPatience);
      for (const auto& [key, value] : news.items()) document[key] = value;
    }
  }

  void print() {
    if (options_.json) return;
    std::fputs(report_.news().c_str(), stdout);
    std::fflush(stdout);
  }

  const CheckOptions& options_;
  const milliseconds time_;
  CheckReport report_;
};

}  // namespace

int run_check(const CheckOptions& options) { return Check(options).run(); }

}  // namespace gradlane
