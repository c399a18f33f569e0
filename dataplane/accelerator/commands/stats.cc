// stats.cc - an accelerator's document as text (no I/O)
#include "dataplane/accelerator/commands/stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/values.h"

namespace gradlane {
namespace {

using nlohmann::json;
using Row = std::vector<std::string>;

// The reasons why marked packets went uncompressed, by counter.
constexpr std::pair<const char*, const char*> kReasons[] = {
    {"raw_no_peer", "no accelerator answers there"},
    {"raw_small", "too little payload"},
    {"raw_size", "UDP payload is not a multiple of 4 bytes"},
    {"raw_no_gain", "would not become smaller"},
    {"raw_shape", "fragments, IP options, or neither UDP nor TCP"},
    {"raw_flags", "SYN, FIN, RST, URG"},
    {"raw_unknown", "start of the connection not seen"},
    {"raw_sent_before", "a retransmission"},
    {"raw_no_memory", "no memory to keep it"},
    {"raw_checksum", "checksum is wrong"},
};
constexpr std::string_view kReasonPrefix = "raw_";

// Values of the counters: totals or rates.
class Figures {
 public:
  explicit Figures(const StatsLooks& looks)
      : looks_(looks), now_(member(&looks.now, "counters")), before_(member(looks.before, "counters")) {}

  [[nodiscard]] double total(const char* name) const { return counter(now_, name); }
  // Returns the increase since the previous document or, without rates, the total.
  [[nodiscard]] double amount(const char* name) const {
    return looks_.rates() ? std::max(total(name) - counter(before_, name), 0.0) : total(name);
  }
  [[nodiscard]] double figure(const char* name) const {
    return looks_.rates() ? amount(name) / looks_.seconds : amount(name);
  }
  [[nodiscard]] const json* now() const { return now_; }
  [[nodiscard]] const json* before() const { return before_; }

 private:
  const StatsLooks& looks_;
  const json* now_;
  const json* before_;
};

std::string tos_text(const json& tos) {
  return tos.is_number_unsigned() ? fmt::format("{:#04x}", tos.get<uint64_t>()) : text(tos);
}

Lines head_lines(const json& now) {
  const json& config = at(now, "config");
  std::string first = fmt::format("accelerator   up {}   gradlane {}", time_text(number(at(now, "uptime_s"))),
                                  text(at(now, "version")));
  if (const json& pid = at(now, "pid"); !pid.is_null()) first += "   pid " + text(pid);
  if (const json& rss = at(now, "rss_kb"); !rss.is_null()) first += fmt::format("   {:.1f} MiB", number(rss) / 1024);
  if (const json& faults = at(now, "faults"); !faults.is_null()) first += "   FAULTS INJECTED: " + faults.dump();
  const bool repack = at(config, "repack") == true;
  const std::string held =
      repack ? fmt::format("repacked within {:g} us", counter(&config, "hold_us")) : "not repacked";
  Lines lines{first, fmt::format("codec {}   MTU {}   ToS {}, on the wire {}   {}", text(at(config, "codec")),
                                 text(at(config, "mtu")), tos_text(at(config, "tos_compressed")),
                                 tos_text(at(config, "tos_wire")), held)};
  for (const json& advice : at(now, "advice")) lines.push_back("  WRONG: " + text(advice));
  return lines;
}

Lines port_lines(const StatsLooks& looks) {
  std::vector<Row> rows;
  rows.push_back(looks.rates()
                     ? Row{"port", "link", "rx Gb/s", "tx Gb/s", "rx frames/s", "tx frames/s", "dropped/s", "device"}
                     : Row{"port", "link", "rx bytes", "tx bytes", "rx frames", "tx frames", "dropped", "device"});
  for (const char* const name : {"host", "wire"}) {
    const json* const port = member(member(&looks.now, "ports"), name);
    const json* const before = member(member(looks.before, "ports"), name);
    if (!port->is_object()) continue;
    const auto figure = [&](const char* key) {
      const double total = counter(port, key);
      return looks.rates() ? std::max(total - counter(before, key), 0.0) / looks.seconds : total;
    };
    const auto bytes = [&](const char* key) {
      return looks.rates() ? digits(figure(key) * 8 / 1e9) : count_text(figure(key));
    };
    // Frames that were lost before they reached the accelerator, or that could not be sent.
    double lost = 0;
    for (const char* const key : {"missed", "dropped_full", "dropped_stalled", "dropped_segmented"})
      lost += figure(key);
    const json& up = at(*port, "link_up");
    rows.push_back({name, up.is_boolean() ? (up == true ? "up" : "down") : "-", bytes("received_bytes"),
                    bytes("sent_bytes"), count_text(figure("received")), count_text(figure("sent")), count_text(lost),
                    text(at(*port, "device"))});
  }
  return rows.size() == 1 ? Lines() : table(rows);
}

std::string share_text(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-";
}

// Returns all reasons. A raw_* counter that this program does not know has its name as its reason.
std::vector<std::pair<std::string, std::string>> reasons_in(const json* counters) {
  std::vector<std::pair<std::string, std::string>> all(std::begin(kReasons), std::end(kReasons));
  if (counters == nullptr || !counters->is_object()) return all;
  for (const auto& [name, value] : counters->items()) {
    const bool known = std::ranges::any_of(all, [&name = name](const auto& it) { return it.first == name; });
    if (name.starts_with(kReasonPrefix) && !known) all.emplace_back(name, name.substr(kReasonPrefix.size()));
  }
  return all;
}

Lines marked_lines(const StatsLooks& looks) {
  const Figures figures(looks);
  const double marked = figures.amount("marked");
  std::vector<Row> rows = {{"marked packets of the host", looks.rates() ? "packets/s" : "packets", "share"}};
  rows.push_back(
      {"compressed", count_text(figures.figure("compressed")), share_text(figures.amount("compressed"), marked)});
  for (const auto& [name, why] : reasons_in(figures.now())) {
    if (figures.total(name.c_str()) == 0) continue;
    rows.push_back({"uncompressed: " + why, count_text(figures.figure(name.c_str())),
                    share_text(figures.amount(name.c_str()), marked)});
  }
  Lines lines = table(rows);
  const double in = figures.amount("payload_bytes");
  const double out = figures.amount("compressed_bytes");
  const double frames = figures.amount("wire_frames");
  const auto quotient = [](double a, double b) { return b > 0 ? digits(a / b) : std::string("-"); };
  lines.push_back(fmt::format("compressed payload   {} bytes in   {} out   ratio {}   {} packets per frame",
                              count_text(in), count_text(out), quotient(in, out),
                              quotient(figures.amount("compressed"), frames)));
  lines.push_back(fmt::format("restored   {} packets{}   from {} frames   {} damaged ones dropped",
                              count_text(figures.figure("restored")), looks.rates() ? "/s" : "",
                              count_text(figures.figure("restored_frames")),
                              count_text(figures.total("wire_dropped"))));
  return lines;
}

Lines stream_lines(const json& now) {
  const json& streams = at(now, "streams");
  if (!streams.is_object()) return {};
  return {fmt::format("TCP connections   {} of {}   {} segments remembered, {} bytes", text(at(streams, "tracked")),
                      text(at(streams, "most")), text(at(streams, "records")),
                      count_text(number(at(streams, "record_bytes"))))};
}

const json* peer_before(const json* peers, const json& ip) {
  for (size_t i = 0; element(peers, i) != nullptr; ++i) {
    if (at(*element(peers, i), "ip") == ip) return element(peers, i);
  }
  return nullptr;
}

Lines peer_lines(const StatsLooks& looks) {
  const json& peers = at(looks.now, "peers");
  if (!peers.is_array() || peers.empty()) return {};
  const json* const peers_before = member(looks.before, "peers");
  const char* const per = looks.rates() ? "/s" : "";
  std::vector<Row> rows = {
      {"peer", "accelerator", fmt::format("compressed{}", per), fmt::format("uncompressed{}", per), "last"}};
  for (const json& peer : peers) {
    const json* const before = looks.rates() ? peer_before(peers_before, at(peer, "ip")) : nullptr;
    const auto figure = [&](const char* key) {
      const double amount = std::max(number(at(peer, key)) - counter(before, key), 0.0);
      return count_text(looks.rates() ? amount / looks.seconds : amount);
    };
    const json& ago = at(peer, "used_s_ago");
    rows.push_back({text(at(peer, "ip")), text(at(peer, "state")), figure("compressed_packets"),
                    figure("uncompressed_packets"), ago.is_number() ? time_text(number(ago)) + " ago" : "-"});
  }
  return table(rows);
}

// Lists the counters that are not 0. Counters that this program does not know come last.
Lines all_counters(const StatsLooks& looks, const Figures& figures) {
  Lines lines{"counters:"};
  json rest = figures.now()->is_object() ? *figures.now() : json::object();
  const auto add = [&](const std::string& name, const json& value, const char* help) {
    std::string line = counter_line(name, value, figures.before(), looks, help);
    if (!line.empty()) lines.push_back(std::move(line));
  };
  for (const auto& [name, help] : accelerator_counters()) {
    add(name, at(rest, name), help);
    rest.erase(name);
  }
  for (const auto& [name, value] : rest.items()) add(name, value, "");
  return lines;
}

}  // namespace

Lines accelerator_lines(const StatsLooks& looks, bool all) {
  const Figures figures(looks);
  Lines lines = head_lines(looks.now);
  for (const Lines& part : {port_lines(looks), marked_lines(looks), stream_lines(looks.now), peer_lines(looks),
                            all ? all_counters(looks, figures) : Lines()}) {
    if (part.empty()) continue;
    lines.emplace_back();
    append(lines, part);
  }
  return lines;
}

}  // namespace gradlane
