// admin_answers.cc - what people and tools ask a node, and its answers (control thread only)
#include "dataplane/status/admin_answers.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "config/values.h"
#include "dataplane/node/node.h"
#include "dataplane/status/status.h"
#include "dataplane/watch/probe_json.h"

namespace gradlane {
namespace {

constexpr Nanos kProbeTime = 3 * kSecond;

// How long a probe may take: "probe", "probe 3000".
std::optional<Nanos> probe_time(std::string_view request) {
  static constexpr std::string_view kProbe = "probe";
  if (request == kProbe) return kProbeTime;
  if (!request.starts_with(kProbe) || request.substr(kProbe.size(), 1) != " ") return std::nullopt;
  const auto time = parse_whole(request.substr(kProbe.size() + 1));
  if (!time || *time < 100 || *time > 30'000) return std::nullopt;
  return *time * kMillisecond;
}

nlohmann::json document_of(const Node& node, const ProcessFacts& process) {
  return status_json(node_figures(node), process_figures(process));
}

}  // namespace

AdminAnswer answer_admin(Node& node, const ProcessFacts& process, const std::string& request) {
  if (request == "stats") return {admin_text(document_of(node, process)), {}};
  const std::optional<Nanos> most = probe_time(request);
  if (!most) return {admin_error("unknown request; allowed: stats, probe, probe MILLISECONDS (100 to 30000)"), {}};
  // One run serves all that ask while it lasts.
  node.start_probing(*most);
  return {"", [&node, process]() -> std::optional<std::string> {
            if (node.prober().running()) return std::nullopt;
            nlohmann::json document = document_of(node, process);
            document["probes"] = probes_json(node.prober().results(), probe_identity(node.config()));
            return admin_text(document);
          }};
}

}  // namespace gradlane
