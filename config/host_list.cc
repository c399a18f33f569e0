// host_list.cc - parsers of lists of hosts, as people and SLURM write them (set-up only)
#include "config/host_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/parse.h"
#include "config/addresses.h"
#include "config/common_sections.h"
#include "config/config.h"
#include "config/faults.h"

namespace gradlane {
namespace {

constexpr uint16_t kLeastFilePort = 1024;
constexpr size_t kMostDigits = 18;  // most digits of SLURM's numbers, with leading zeros
constexpr uint64_t kMostNumber = 999999999;
constexpr const char* kHostsAllowed = "allowed: names, IPv4 and IPv6 addresses, HOST:PORT, [IPV6]:PORT";
constexpr const char* kSlurmAllowed = "allowed: as in login2,n[01-03,7],rack[0-1]n[0-9]";

[[noreturn]] void refuse_count(const std::string& where) {
  refuse_word(where, fmt::format("more than {} hosts, allowed: 1 to {}", kMaxNodes, kMaxNodes));
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// Returns the part before the separator, and removes both from `text`.
std::string_view take_until(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

bool is_of_name(unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; }

// Parses "name", "name:port", "::1" or "[::1]:port".
Host host_of(std::string_view word, const std::string& where, const char* of = "UDP") {
  const auto colons = std::ranges::count(word, ':');
  const size_t end = word.starts_with('[') ? word.find(']') : colons == 1 ? word.find(':') : std::string_view::npos;
  const bool bracketed = word.starts_with('[') && end != std::string_view::npos;
  std::string_view name = word.substr(0, end);
  std::string_view rest = word.substr(std::min(end, word.size()));  // with its colon
  if (bracketed) {
    name.remove_prefix(1);
    rest.remove_prefix(1);
  }
  Host host{std::string(name), 0};
  const bool ipv6 = bracketed || colons > 1;
  const bool right = ipv6 ? name.find(':') != std::string_view::npos && parse_address(host.name).has_value()
                          : !name.empty() && name.size() <= kLongestHost && name.front() != '-' &&
                                std::ranges::all_of(name, is_of_name);
  if (!right) refuse_word(where, fmt::format("{} is not a host, {}", quote_text(word), kHostsAllowed));
  if (rest.empty()) return host;
  const auto port = rest.starts_with(':') ? parse_decimal(rest.substr(1), 1, 65535) : std::nullopt;
  if (!port)
    refuse_word(where, fmt::format("{} has no {} port after its ':', allowed: 1 to 65535", quote_text(word), of));
  host.port = static_cast<uint16_t>(*port);
  return host;
}

// ---- SLURM's lists

struct Range {
  uint64_t first = 0;
  uint64_t last = 0;
  size_t digits = 0;  // least number of digits
};

// Parses "7" or "01-03".
std::optional<Range> range_of(std::string_view text) {
  const size_t dash = text.find('-');
  const auto first = parse_decimal(text.substr(0, dash), 0, kMostNumber);
  Range range{first.value_or(0), first.value_or(0), std::min(dash, text.size())};
  if (!first || range.digits > kMostDigits) return std::nullopt;
  if (dash == std::string_view::npos) return range;
  const auto last = parse_decimal(text.substr(dash + 1), range.first, kMostNumber);
  if (!last) return std::nullopt;
  range.last = *last;
  return range;
}

// Parses the text between brackets: "01-03,7".
std::vector<Range> ranges_of(std::string_view text, const std::string& where) {
  const std::string all = quote_text("[" + std::string(text) + "]");
  std::vector<Range> ranges;
  for (bool more = true; more;) {
    more = text.find(',') != std::string_view::npos;
    const auto range = range_of(take_until(text, ','));
    if (!range) refuse_word(where, fmt::format("{} are not numbers, {}", all, kSlurmAllowed));
    if (range->last - range->first >= kMaxNodes || ranges.size() == kMaxNodes) refuse_count(where);
    ranges.push_back(*range);
  }
  return ranges;
}

// Expands one item, "rack[0-1]n[0-9]-ib". The leftmost numbers change last.
std::vector<std::string> names_of(std::string_view item, const std::string& where) {
  std::vector<std::string> names = {""};
  const std::string_view whole = item;
  while (!item.empty()) {
    const size_t open = std::min(item.find('['), item.size());
    const std::string_view plain = item.substr(0, open);
    if (plain.find(']') != std::string_view::npos) {
      refuse_word(where, fmt::format("{} has a ']' without its '[', {}", quote_text(whole), kSlurmAllowed));
    }
    for (std::string& name : names) name += plain;
    item.remove_prefix(open);
    if (item.empty()) break;
    const size_t close = item.find(']');
    if (close == std::string_view::npos) {
      refuse_word(where, fmt::format("{} has a '[' without its ']', {}", quote_text(whole), kSlurmAllowed));
    }
    const std::vector<Range> ranges = ranges_of(item.substr(1, close - 1), where);
    item.remove_prefix(close + 1);
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const Range& range : ranges) {
        for (uint64_t number = range.first; number <= range.last; ++number) {
          if (longer.size() == kMaxNodes) refuse_count(where);
          longer.push_back(fmt::format("{}{:0{}}", name, number, range.digits));
        }
      }
    }
    names = std::move(longer);
  }
  return names;
}

// Returns the item before the next comma outside brackets, and removes both from `text`.
std::string_view take_item(std::string_view& text) {
  size_t end = 0;
  for (bool inside = false; end < text.size() && (inside || text[end] != ','); ++end) {
    if (text[end] == '[') inside = true;
    if (text[end] == ']') inside = false;
  }
  const std::string_view item = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return item;
}

}  // namespace

std::vector<Host> parse_hosts(std::string_view list, const std::string& where, const char* of) {
  std::vector<Host> hosts;
  for (bool more = true; more;) {
    more = list.find(',') != std::string_view::npos;
    const std::string_view word = trimmed(take_until(list, ','));
    if (word.empty())
      refuse_word(where, fmt::format("a host is missing at the beginning, end, or between commas, {}", kHostsAllowed));
    if (hosts.size() == kMaxNodes) refuse_count(where);
    hosts.push_back(host_of(word, where, of));
  }
  return hosts;
}

std::vector<Host> parse_host_file(std::string_view text, const std::string& path) {
  std::vector<Host> hosts;
  for (unsigned line = 1; !text.empty(); ++line) {
    std::string_view row = take_until(text, '\n');
    row = trimmed(row.substr(0, row.find('#')));
    const auto end = std::ranges::find_if(row, is_space);
    const std::string_view word = row.substr(0, static_cast<size_t>(end - row.begin()));
    if (word.empty()) continue;
    const std::string where = fmt::format("{}:{}", path, line);
    if (hosts.size() == kMaxNodes) refuse_count(where);
    hosts.push_back(host_of(word, where));
    if (hosts.back().port != 0 && hosts.back().port < kLeastFilePort) {
      refuse_word(where, fmt::format("{} has a UDP port below {}, which only root may use; if it is a number of "
                                     "processes, as in MPICH's host files, leave it out",
                                     quote_text(word), kLeastFilePort));
    }
  }
  if (hosts.empty()) refuse_word(path, "the file has no hosts, allowed: one host per line");
  return hosts;
}

std::vector<Host> parse_slurm_hosts(std::string_view list, const std::string& where) {
  std::vector<Host> hosts;
  for (bool more = true; more;) {
    const std::string_view before = list;
    const std::string_view item = take_item(list);
    more = item.size() < before.size();
    if (item.empty()) refuse_word(where, fmt::format("a host is missing, {}", kSlurmAllowed));
    for (const std::string& name : names_of(item, where)) {
      if (hosts.size() == kMaxNodes) refuse_count(where);
      if (name.find(':') != std::string::npos)
        refuse_word(where, fmt::format("{} is not a name, {}", quote_text(name), kSlurmAllowed));
      hosts.push_back(host_of(name, where));
    }
  }
  return hosts;
}

}  // namespace gradlane
