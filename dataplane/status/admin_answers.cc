// admin_answers.cc - answers to requests that people and tools send to a node (control thread only)
#include "dataplane/status/admin_answers.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "config/values.h"
#include "dataplane/node/node.h"
#include "dataplane/status/job_watch.h"
#include "dataplane/status/status.h"
#include "dataplane/status/trace_answers.h"
#include "dataplane/watch/probe_json.h"

namespace gradlane {
namespace {

constexpr Nanos kProbeTime = 3 * kSecond;

// Returns how long a probe may take, for "probe" and "probe 3000"; none for other requests.
std::optional<Nanos> probe_time(std::string_view request) {
  static constexpr std::string_view kProbe = "probe";
  if (request == kProbe) return kProbeTime;
  if (!request.starts_with(kProbe) || request.substr(kProbe.size(), 1) != " ") return std::nullopt;
  const auto time = parse_whole(request.substr(kProbe.size() + 1));
  if (!time || *time < 100 || *time > 30'000) return std::nullopt;
  return *time * kMillisecond;
}

nlohmann::json document_of(const Node& node, const JobWatch& job, const ProcessFacts& process, Nanos now) {
  const NodeFigures figures = node_figures(node, now);
  nlohmann::json document = status_json(figures, process_figures(process));
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

}  // namespace

std::string stats_text(const Node& node, const JobWatch& job, const ProcessFacts& process, Nanos now) {
  return admin_text(document_of(node, job, process, now));
}

AdminAnswer answer_admin(Node& node, const JobWatch& job, const ProcessFacts& process, const std::string& request,
                         Nanos (*clock)() noexcept) {
  if (request == "stats") return {stats_text(node, job, process, clock()), {}};
  if (const auto words = savings_answer(node, job, request, clock())) return {*words, {}};
  if (request.starts_with("trace")) return answer_trace(node, request, clock());
  const std::optional<Nanos> most = probe_time(request);
  if (!most)
    return {admin_error(
                "unknown request; allowed: stats, worth, worth MICROSECONDS, probe, probe MILLISECONDS (100 to 30000), "
                "trace ..."),
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
