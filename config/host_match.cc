// host_match.cc - the choice of one address for each host, and of the host that this machine is (set-up only)
#include "config/host_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/parse.h"
#include "config/faults.h"

namespace gradlane {
namespace {

constexpr size_t kMostListed = 16;  // most hosts or addresses in a message

std::string listed(std::vector<std::string> texts) {
  const size_t all = texts.size();
  texts.resize(std::min(all, kMostListed));
  const std::string more = all > kMostListed ? fmt::format(" and {} more", all - kMostListed) : "";
  return fmt::format("{}{}", fmt::join(texts, ", "), more);
}

std::string ips_text(std::span<const IpAddress> ips) {
  std::vector<std::string> texts;
  for (const IpAddress& ip : ips) texts.push_back(ip_text(ip));
  return texts.empty() ? "none" : listed(std::move(texts));
}

// Returns "node-a (10.0.0.1)", "10.0.0.1" or "10.0.0.1, port 19000".
std::string host_text(const Host& host, const IpAddress& ip) {
  const std::string text = ip_text(ip);
  const bool named = parse_address(host.name) != ip;
  return (named ? fmt::format("{} ({})", host.name, text) : text) +
         (host.port == 0 ? "" : fmt::format(", port {}", host.port));
}

// Returns the host's addresses of that family, sorted, without link-local ones. Loopback addresses count only if there
// are no others.
std::vector<IpAddress> candidates(const FoundHost& host, bool ipv6) {
  std::vector<IpAddress> ips;
  for (const IpAddress& ip : host.ips) {
    if (ipv4_of(ip).has_value() != ipv6 && !is_of_one_link(ip)) ips.push_back(ip);
  }
  std::ranges::sort(ips);
  ips.erase(std::unique(ips.begin(), ips.end()), ips.end());
  if (!std::ranges::all_of(ips, is_loopback)) std::erase_if(ips, is_loopback);
  return ips;
}

bool all_have(const std::vector<FoundHost>& hosts, bool ipv6) {
  return std::ranges::all_of(hosts, [&](const FoundHost& host) { return !candidates(host, ipv6).empty(); });
}

// Refuses a mix of loopback and other addresses. Debian's /etc/hosts causes it: there a machine's own name has
// 127.0.1.1.
void check_loopback(const std::vector<FoundHost>& hosts, const std::vector<IpAddress>& ips, const std::string& where) {
  const auto count = std::ranges::count_if(ips, is_loopback);
  if (count == 0 || static_cast<size_t>(count) == ips.size()) return;
  const auto it = std::ranges::find_if(ips, is_loopback);
  const FoundHost& host = hosts[static_cast<size_t>(it - ips.begin())];
  const std::string hint = parse_address(host.host.name) ? "" : ": write its address instead, or change /etc/hosts";
  refuse_word(
      where,
      fmt::format(
          "{} is a loopback address, which other machines cannot reach; allowed: all nodes on loopback, or none{}",
          host_text(host.host, *it), hint));
}

// ---- The rank that mpirun or srun gives

struct Launcher {
  const char* rank;
  const char* size;  // null: the launcher gives no size, and its rank is not used
};
constexpr Launcher kLaunchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                   {"PMIX_RANK", nullptr},
                                   {"PMI_RANK", "PMI_SIZE"},
                                   {"SLURM_PROCID", "SLURM_NTASKS"}};

struct Given {
  const char* name = nullptr;
  uint64_t rank = 0;
  std::optional<uint64_t> size;
};

// Returns the first rank whose size is known. Otherwise returns the first rank, for messages.
std::optional<Given> given_by(const Environment& environment) {
  std::optional<Given> first;
  for (const auto& [rank, size] : kLaunchers) {
    const auto text = environment(rank);
    const auto number = text ? parse_decimal(*text) : std::nullopt;
    if (!number) continue;
    const auto count = size != nullptr ? environment(size) : std::nullopt;
    const Given given{rank, *number, count ? parse_decimal(*count) : std::nullopt};
    if (given.size) return given;
    if (!first) first = given;
  }
  return first;
}

std::string text_of(const Given& given) {
  const std::string size = given.size ? fmt::format("{}", *given.size) : "an unknown number";
  return fmt::format("{} of {} ({})", given.rank, size, given.name);
}

}  // namespace

std::vector<IpAddress> choose_ips(const std::vector<FoundHost>& hosts, const std::string& where) {
  const bool ipv6 = !all_have(hosts, false);
  if (ipv6 && !all_have(hosts, true)) {
    std::vector<std::string> texts;
    for (const FoundHost& it : hosts) texts.push_back(fmt::format("{} has {}", it.host.name, ips_text(it.ips)));
    refuse_word(
        where,
        fmt::format("the nodes have no kind of address in common, allowed: all IPv4, or all IPv6 (not link-local): {}",
                    listed(std::move(texts))));
  }
  std::vector<IpAddress> ips;
  for (const FoundHost& it : hosts) {
    const std::vector<IpAddress> found = candidates(it, ipv6);
    if (found.size() > 1) {
      refuse_word(where, fmt::format("{} has {} addresses, {}: write the one that the ring should use, on all machines",
                                     it.host.name, found.size(), ips_text(found)));
    }
    ips.push_back(found.front());
  }
  check_loopback(hosts, ips, where);
  return ips;
}

RankHere rank_here(const std::vector<FoundHost>& hosts, const std::vector<IpAddress>& ips,
                   const std::vector<LocalIp>& here, const Environment& environment, const std::string& where) {
  std::vector<unsigned> matches;
  std::vector<std::string> nodes;    // all nodes
  std::vector<std::string> matched;  // nodes that are this machine
  for (unsigned rank = 0; rank < hosts.size(); ++rank) {
    nodes.push_back(host_text(hosts[rank].host, ips[rank]));
    // Every machine has all of 127.0.0.0/8.
    const bool is_here = is_loopback(ips[rank]) || std::ranges::find(here, ips[rank], &LocalIp::ip) != here.end();
    if (!is_here) continue;
    matches.push_back(rank);
    matched.push_back(fmt::format("rank {} is {}", rank, nodes.back()));
  }
  if (matches.size() == 1) return {matches.front(), ""};

  const auto given = given_by(environment);
  const bool of_nodes = given && given->rank < hosts.size() && given->size == hosts.size();
  if (of_nodes && (matches.empty() || std::ranges::find(matches, given->rank) != matches.end())) {
    return {static_cast<unsigned>(given->rank), text_of(*given)};
  }
  std::vector<std::string> own;
  for (const LocalIp& it : here) {
    if (!is_loopback(it.ip) && !is_of_one_link(it.ip)) own.push_back(ip_text(it.ip) + " on " + it.interface);
  }
  const std::string launched = given ? text_of(*given) : "";
  const std::string say = fmt::format("say which node this is with --rank 0 to {}", hosts.size() - 1) +
                          (launched.empty() ? "" : fmt::format("; the launcher gives it rank {}", launched));
  if (!matches.empty()) refuse_word(where, fmt::format("several nodes are this machine: {}; {}", listed(matched), say));
  refuse_word(where, fmt::format("none of the nodes is this machine: they are {}, and it has {}; {}", listed(nodes),
                                 own.empty() ? "only loopback" : listed(own), say));
}

}  // namespace gradlane
