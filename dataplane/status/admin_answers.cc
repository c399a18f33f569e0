// admin_answers.cc - answers to requests that people and tools send to a node (control thread only)
#include "dataplane/status/admin_answers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "config/values.h"
#include "dataplane/node/key_file.h"
#include "dataplane/node/node.h"
#include "dataplane/status/job_watch.h"
#include "dataplane/status/status.h"
#include "dataplane/status/trace_answers.h"
#include "dataplane/watch/probe_json.h"

namespace gradlane {
namespace {

constexpr Nanos kProbeTime = 3 * kSecond;
constexpr std::string_view kRotate = "rotate ";
constexpr uint64_t kLongestOldKey = 30 * 24 * 3600;  // s

// Returns how long a probe may take, for "probe" and "probe 3000"; none for other requests.
std::optional<Nanos> probe_time(std::string_view request) {
  static constexpr std::string_view kProbe = "probe";
  if (request == kProbe) return kProbeTime;
  if (!request.starts_with(kProbe) || request.substr(kProbe.size(), 1) != " ") return std::nullopt;
  const auto time = parse_whole(request.substr(kProbe.size() + 1));
  if (!time || *time < 100 || *time > 30'000) return std::nullopt;
  return *time * kMillisecond;
}

nlohmann::json keys_json(const Node::KeyFigures& keys) {
  return {{"newest", key_name(keys.newest)},
          {"old", keys.old ? nlohmann::json(key_name(*keys.old)) : nlohmann::json()},
          {"old_for_s", static_cast<double>(keys.old_for) / kSecond},
          {"waits_for", keys.waits_for}};
}

nlohmann::json document_of(const Node& node, const JobWatch& job, const ProcessFacts& process, Nanos now) {
  const NodeFigures figures = node_figures(node, now);
  nlohmann::json document = status_json(figures, process_figures(process));
  if (const auto keys = node.key_figures(now)) document["keys"] = keys_json(*keys);
  if (node.has_pair_keys()) document["keys"] = {{"pairs", true}};
  document["worth"] = savings_json(job.savings(figures));
  document["worth_total"] = savings_json(job.total(figures));
  return document;
}

// Answers "worth" and "worth 1500", in words. The number is the hidden time that a trainer has measured.
std::optional<std::string> savings_answer(const Node& node, const JobWatch& job, std::string_view request, Nanos now) {
  static constexpr std::string_view kWorth = "worth";
  if (!request.starts_with(kWorth)) return std::nullopt;
  std::optional<double> hidden;
  if (request.size() > kWorth.size()) {
    const auto us = request[kWorth.size()] == ' ' ? parse_whole(request.substr(kWorth.size() + 1)) : std::nullopt;
    if (!us) return std::nullopt;
    hidden = static_cast<double>(*us) / 1e6;
  }
  return admin_text({{"lines", savings_lines(job.savings(node_figures(node, now)), hidden)}});
}

// Answers "rotate 600": a key file comes with it, and the key before it is accepted for 600 s more.
AdminAnswer answer_rotate(Node& node, const AdminRequest& from, Nanos (*clock)() noexcept) {
  const auto seconds = parse_whole(std::string_view(from.line).substr(kRotate.size()));
  if (!seconds || *seconds > kLongestOldKey) {
    return {admin_error(fmt::format("allowed: rotate SECONDS, 0 to {}, with a key file", kLongestOldKey)), {}};
  }
  if (from.user != 0 && from.user != geteuid()) {
    return {admin_error(fmt::format("only root and uid {}, which runs the daemon, may change its keys", geteuid())),
            {}};
  }
  if (!from.file) return {admin_error("no key file came with the request"), {}};
  try {
    const RingKey key = read_key_file(from.file, "the key file");
    node.rotate_key(key, *seconds * kSecond, clock());
  } catch (const SetupError& error) {
    return {admin_error(error.what()), {}};
  }
  return {"", [&node, clock]() -> std::optional<std::string> {
            if (node.rotating(clock())) return std::nullopt;
            return admin_text({{"node", node.config().rank}, {"keys", keys_json(*node.key_figures(clock()))}});
          }};
}

}  // namespace

std::string stats_text(const Node& node, const JobWatch& job, const ProcessFacts& process, Nanos now) {
  return admin_text(document_of(node, job, process, now));
}

AdminAnswer answer_admin(Node& node, const JobWatch& job, const ProcessFacts& process, const AdminRequest& from,
                         Nanos (*clock)() noexcept) {
  const std::string& request = from.line;
  if (request.starts_with(kRotate)) return answer_rotate(node, from, clock);
  if (request == "stats") return {stats_text(node, job, process, clock()), {}};
  if (const auto words = savings_answer(node, job, request, clock())) return {*words, {}};
  if (request.starts_with("trace")) return answer_trace(node, request, clock());
  const std::optional<Nanos> most = probe_time(request);
  if (!most)
    return {admin_error(
                "unknown request; allowed: stats, worth, worth MICROSECONDS, probe, probe MILLISECONDS (100 to 30000), "
                "trace ..., rotate SECONDS"),
            {}};
  // One run serves all clients that ask while it lasts.
  node.start_probing(*most, clock());
  return {"", [&node, &job, process, clock]() -> std::optional<std::string> {
            if (node.prober().running()) return std::nullopt;
            nlohmann::json document = document_of(node, job, process, clock());
            document["probes"] = probes_json(node.prober().results(), probe_identity(node.config()));
            return admin_text(document);
          }};
}

}  // namespace gradlane
