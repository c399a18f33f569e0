// check.cc - verdicts about an accelerator, from its own reports (main thread only)
#include "dataplane/accelerator/commands/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/error.h"
#include "dataplane/accelerator/commands/check_machine.h"
#include "dataplane/accelerator/engine/peers.h"
#include "dataplane/accelerator/kernel/bypass.h"
#include "tools/admin/client.h"
#include "tools/admin/json_fields.h"
#include "tools/check/daemon.h"

namespace gradlane {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAnswerTime{5000};  // time limit for an answer of the daemon
constexpr milliseconds kAgain{100};

void check_configuration(const AcceleratorConfig& config, const json& document, CheckReport& report) {
  const json theirs = object_at(document, "config");
  std::vector<std::string> differences;
  const auto compare = [&](const char* key, const json& file) {
    const auto it = theirs.find(key);
    if (it == theirs.end() || *it == file) return;
    differences.push_back(fmt::format("{} is {} in the daemon and {} in the file", key, it->dump(), file.dump()));
  };
  compare("codec", config.codec.name());
  compare("mtu", config.mtu);
  compare("repack", config.repack);
  compare("tos_compressed", config.tos_compressed);
  compare("tos_wire", config.tos_wire);
  if (differences.empty()) return;
  report.fail("daemon",
              fmt::format("the running daemon has other settings than this file: {}", fmt::join(differences, ", ")),
              "restart the daemon");
}

void check_links_up(const json& document, CheckReport& report) {
  const json ports = object_at(document, "ports");
  for (const auto& [name, port] : ports.items()) {
    const auto up = port.find("link_up");
    if (up == port.end() || !up->is_boolean()) continue;
    const std::string what = fmt::format("link of port {}", name);
    if (up->get<bool>()) {
      report.ok(what + ": up");
    } else {
      report.fail(what, "down", "check the cable and the interface (`ip link`)");
    }
  }
}

// Returns whether marked traffic was sent to the peer within the last kKept. If not, the daemon does not ask the peer,
// and the peer's state is not known.
bool is_used(const json& peer) { return number_at(peer, "used_s_ago") < accel::Peers::kKept / kSecond; }

void check_peer(const AcceleratorConfig& config, const json& peer, CheckReport& report) {
  const std::string ip = text_at(peer, "ip");
  const std::string state = text_at(peer, "state");
  const uint64_t compressed = number_at(peer, "compressed_packets");
  const uint64_t uncompressed = number_at(peer, "uncompressed_packets");
  if (state == "answers") {
    return report.ok(fmt::format("{}: an accelerator answers; {} packets went there compressed", ip, compressed));
  }
  if (!is_used(peer)) {
    return report.note(ip, "no marked traffic went there lately, so it is not known whether an accelerator answers");
  }
  if (state == "blocked") {
    return report.fail(ip,
                       "an accelerator answers, but compressed TCP segments do not arrive: marked traffic is sent "
                       "there uncompressed for some minutes",
                       "check the devices on the way that track TCP connections (firewalls, NAT, proxies); see "
                       "docs/accelerator.md, \"What it cannot do\"");
  }
  if (uncompressed == 0) return report.note(ip, "no accelerator answers there, and no marked traffic goes there");
  report.fail(ip,
              fmt::format("marked traffic (ToS {:#04x}) is sent there uncompressed: no accelerator answers",
                          config.tos_compressed),
              fmt::format("start an accelerator there with udp_port: {} and tos: {{wire: {:#04x}}}, let UDP port {} "
                          "pass the firewalls, or do not mark this traffic",
                          config.udp_port, config.tos_wire, config.udp_port));
}

// Adds lines only for what is right. Anything wrong is among the daemon's advice.
void check_kernel(const AcceleratorConfig& config, const json& document, CheckReport& report) {
  const Bypass bypass = bypass_of(config);
  const json kernel = object_at(document, "kernel");
  const auto is = [&kernel](const char* key) { return kernel.contains(key) && kernel[key] == true; };
  if (bypass.table.empty()) return;
  if (is("kept_off")) report.ok(fmt::format("the kernel does not process packets of {}", bypass.ends()));
  if (!is("bypass")) return;
  report.ok(bypass.joins()
                ? fmt::format("without gradlaned the kernel forwards packets between {}, except compressed ones",
                              bypass.ends())
                : "without gradlaned no packets pass");
}

// Adds the daemon's advice, except for subjects that have lines of their own here: offloads and peers.
void check_advice(const AcceleratorConfig& config, const json& document, CheckReport& report) {
  const json texts = list_at(document, "advice");
  const json about = list_at(document, "advice_about");
  for (size_t i = 0; i < texts.size(); ++i) {
    const json about_this = i < about.size() ? about[i] : json();
    const bool told = about_this == "peer" || (about_this == "offloads" && sees_interfaces(config));
    if (told || !texts[i].is_string()) continue;
    report.fail("accelerator", texts[i].get<std::string>(), "");
  }
}

void check_damage(const json& document, CheckReport& report) {
  const json counters = object_at(document, "counters");
  const uint64_t dropped = number_at(counters, "wire_dropped");
  if (dropped == 0) return;
  std::vector<std::string> reasons;
  for (const auto& [name, value] : counters.items()) {
    constexpr std::string_view kPrefix = "bundle_";
    if (!name.starts_with(kPrefix) || !value.is_number() || value == 0) continue;
    reasons.push_back(fmt::format("{} {}", name.substr(kPrefix.size()), value.dump()));
  }
  report.note("packets from the wire", fmt::format("{} with the code point of accelerators were damaged and "
                                                   "dropped{}{}; gradlane stats --all explains the reasons",
                                                   dropped, reasons.empty() ? "" : ": ", fmt::join(reasons, ", ")));
}

// `document` is the daemon's answer to "stats" (status.h).
void check_answer(const AcceleratorConfig& config, const json& document, CheckReport& report) {
  if (text_at(document, "mode") != "accelerator") {
    return report.fail("daemon", fmt::format("the daemon on {} is not an accelerator", config.admin),
                       "set another `admin` here, or stop that daemon");
  }
  report.note("daemon", fmt::format("asked the running daemon, process {}", number_at(document, "pid")));
  check_configuration(config, document, report);
  check_links_up(document, report);
  check_kernel(config, document, report);
  check_advice(config, document, report);
  const json peers = list_at(document, "peers");
  for (const json& peer : peers) check_peer(config, peer, report);
  if (peers.empty()) {
    report.note(
        "peers",
        fmt::format(
            "this machine sent no marked traffic (ToS {:#04x}) lately, so it is not known whether accelerators answer",
            config.tos_compressed));
  }
  check_damage(document, report);
}

// Returns whether the daemon has asked a peer, and does not know yet if an accelerator answers there.
bool asks_peers(const json& document) {
  return std::ranges::any_of(list_at(document, "peers"),
                             [](const json& it) { return text_at(it, "state") == "asked" && is_used(it); });
}

void ask(const AcceleratorConfig& config, milliseconds time, CheckReport& report, json& document) {
  try {
    const auto end = Clock::now() + time;
    document = ask_admin(config.admin, "stats", kAnswerTime);
    while (asks_peers(document) && Clock::now() < end) {
      std::this_thread::sleep_for(kAgain);
      document = ask_admin(config.admin, "stats", kAnswerTime);
    }
    check_answer(config, document, report);
  } catch (const SetupError& error) {
    report.fail("daemon", error.what(), "if the daemon hangs, no packets pass: stop it, and start it again");
  }
}

}  // namespace

// Starts no daemon for the checks: when such a daemon ended, programs of this machine would lose the interface again.
void check_accelerator(const AcceleratorConfig& config, milliseconds time, CheckReport& report,
                       const std::function<void()>& print, json& document) {
  const bool runs = somebody_listens(config.admin);
  check_accelerator_machine(config, runs, report);
  print();
  if (runs) {
    ask(config, time, report, document);
  } else {
    check_accelerator_is_missing(config, report);
  }
}

}  // namespace gradlane
