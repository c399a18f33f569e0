// table.cc - a view as lines of text that fit a screen (pure functions)
#include "tools/top/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/stats/parts.h"

namespace gradlane {
namespace {

using Style = PageLine::Style;
using TableRows = std::vector<std::vector<std::string>>;

constexpr size_t kMostEvents = 3;
constexpr size_t kIndents = 20;   // least width at which continued lines are indented
constexpr size_t kLeastRows = 2;  // least number of lines for nodes, and for links

std::string percent(double share) { return fmt::format("{:.0f}", 100 * share); }
std::string gbps(double bytes) { return digits(bytes * 8 / 1e9); }

PageLine title_of(const TopView& view) {
  const auto answer = std::ranges::count_if(view.nodes, [](const TopNode& it) {
    return it.state != "not asked" && it.state != "missing" && it.state != "gone";
  });
  return {fmt::format("gradlane top   {} of {} nodes answer   daemons' codec {}   MTU {}", answer, view.size,
                      view.codec, view.mtu),
          Style::kTitle};
}

PageLine totals_of(const TopView& view) {
  double out = 0;
  double done = 0;
  double weight = 0;
  double ratio = 0;
  double saved = 0;
  for (const TopNode& it : view.nodes) {
    out += it.out;
    done = std::max(done, it.done);
    saved = std::max(saved, it.saved);
    if (it.ratio <= 0) continue;
    weight += it.out;
    ratio += it.out * it.ratio;
  }
  if (!view.rates) return {"no figures yet"};
  return {fmt::format("{} Gb/s sent by all   {} operations/s   ratio {}   saved {:.0f} ms/s", gbps(out), digits(done),
                      weight > 0 ? digits(ratio / weight) : "-", 1e3 * saved)};
}

PageLine verdict_of(const TopView& view) {
  return {view.verdict, view.bad ? Style::kBad : view.held_up ? Style::kWarning : Style::kGood};
}

std::vector<PageLine> node_lines(const TopView& view, bool wide) {
  TableRows rows = {{"node", "state", "exch %", "done/s", wide ? "out Gb/s" : "Gb/s", "ratio", "saved ms", "CPU %"}};
  if (wide) {
    rows[0].insert(rows[0].end(), {"in Gb/s", "in flight", "failed", "up", "address"});
  }
  for (const TopNode& it : view.nodes) {
    const bool here = it.state != "not asked" && it.state != "missing" && it.state != "gone";
    const auto figure = [here](std::string text) { return here ? std::move(text) : std::string("-"); };
    rows.push_back({std::to_string(it.node), it.state, figure(percent(it.exchanging)), figure(digits(it.done)),
                    figure(gbps(it.out)), figure(it.ratio > 0 ? digits(it.ratio) : "-"),
                    figure(fmt::format("{:.0f}", 1e3 * it.saved)), figure(percent(it.busy))});
    if (wide) {
      rows.back().insert(rows.back().end(),
                         {figure(gbps(it.in)), figure(count_text(it.in_flight)), figure(count_text(it.failed)),
                          figure(time_text(it.up)), it.address.empty() ? "-" : it.address});
    }
  }
  const Lines text = table(rows);
  std::vector<PageLine> lines = {{text[0] + "  waits for", Style::kTitle}};
  for (size_t i = 0; i < view.nodes.size(); ++i) {
    const TopNode& it = view.nodes[i];
    const bool bad = it.state != "whole" && it.state != "not asked";
    const bool late = view.held_up && it.is_slow;
    lines.push_back({text[i + 1] + "  " + it.waits, bad ? Style::kBad : late ? Style::kWarning : Style::kPlain});
  }
  return lines;
}

std::vector<PageLine> link_lines(const TopView& view, bool wide) {
  // Links that carry acknowledgements only, like the return path in a ring, are left out.
  std::vector<const TopLink*> links;
  for (const TopLink& it : view.links) {
    if (it.carries || it.mark != TopLink::Mark::kNone || !it.up) links.push_back(&it);
  }
  if (links.empty()) {
    for (const TopLink& it : view.links) links.push_back(&it);
  }
  if (links.empty()) return {};
  TableRows rows = {{"link", "full %", "Mb/s", "when full", "RTT ms", "window", "again %"}};
  if (wide) rows[0].insert(rows[0].end(), {"in flight", "packets/s", "resent/s"});
  for (const TopLink* const it : links) {
    rows.push_back({fmt::format("{} -> {}", it->from, it->to), percent(it->full), digits(it->rate * 8 / 1e6),
                    it->full_rate > 0 ? digits(it->full_rate * 8 / 1e6) : "-", it->up ? digits(it->rtt * 1e3) : "-",
                    digits(it->window), fmt::format("{:.2f}", 100 * it->lost())});
    if (wide) {
      rows.back().insert(rows.back().end(),
                         {count_text(it->in_flight), count_text(it->packets), count_text(it->resent)});
    }
  }
  const Lines text = table(rows);
  std::vector<PageLine> lines = {{text[0], Style::kTitle}};
  for (size_t i = 0; i < links.size(); ++i) {
    const TopLink& it = *links[i];
    const bool slowest = it.mark == TopLink::Mark::kSlowest;
    const char* const mark = !it.up                            ? "  down"
                             : slowest                         ? "  << slowest"
                             : it.mark == TopLink::Mark::kSlow ? "  < slow"
                                                               : "";
    lines.push_back({text[i + 1] + mark, !it.up ? Style::kBad : *mark != 0 ? Style::kWarning : Style::kPlain});
  }
  return lines;
}

// Cuts a table to `most` lines, its header included. Lines that are not plain come first then.
void cut(std::vector<PageLine>& lines, size_t most, const char* what) {
  if (lines.size() <= most) return;
  std::stable_partition(lines.begin() + 1, lines.end(), [](const PageLine& it) { return it.style != Style::kPlain; });
  const size_t hidden = lines.size() - most + 1;
  lines.resize(std::max<size_t>(most, 1) - 1);
  lines.push_back({fmt::format("{} more {}", hidden, what), PageLine::Style::kPlain});
}

// Appends a line to the page, and wraps it at spaces.
void wrap(std::vector<PageLine>& page, const PageLine& line, size_t width) {
  std::string text = line.text;
  while (width > 0 && text.size() > width) {
    size_t at = text.rfind(' ', width);
    if (at == std::string::npos || at < width / 2) at = width;
    page.push_back({text.substr(0, at), line.style});
    text = (width > kIndents ? "  " : "") + text.substr(std::min(text.find_first_not_of(' ', at), text.size()));
  }
  page.push_back({std::move(text), line.style});
}

void finish(std::vector<PageLine>& page, size_t width, size_t height) {
  if (height > 0 && page.size() > height) page.resize(height);
  for (PageLine& line : page) {
    if (width > 0 && line.text.size() > width) line.text.resize(width);
    // Text from daemons must not control the terminal.
    std::ranges::replace_if(
        line.text, [](unsigned char c) { return c < ' ' || c >= 0x7f; }, '?');
  }
}

}  // namespace

std::vector<PageLine> page_of(const TopView& view, const std::vector<std::string>& events, size_t width,
                              size_t height) {
  const bool wide = width == 0 || width >= kWide;
  std::vector<PageLine> page = {title_of(view)};
  wrap(page, verdict_of(view), width);
  for (const std::string& note : view.notes) wrap(page, {note, PageLine::Style::kWarning}, width);
  page.push_back(totals_of(view));
  page.push_back({});

  std::vector<PageLine> nodes = node_lines(view, wide);
  std::vector<PageLine> links = link_lines(view, wide);
  std::vector<PageLine> last;
  for (size_t i = events.size() - std::min(events.size(), kMostEvents); i < events.size(); ++i) {
    last.push_back({events[i], PageLine::Style::kWarning});
  }
  if (height > 0) {
    const size_t fixed = page.size() + 1 + (last.empty() ? 0 : last.size() + 1);
    const size_t room = std::max(height, fixed + 2 * (kLeastRows + 1)) - fixed;
    const size_t of_links = std::min(links.size(), std::max(room / 2, room - std::min(room, nodes.size())));
    cut(nodes, room - of_links, "nodes");
    cut(links, of_links, "links");
  }
  page.insert(page.end(), nodes.begin(), nodes.end());
  if (!links.empty()) page.push_back({});
  page.insert(page.end(), links.begin(), links.end());
  if (!last.empty()) page.push_back({});
  page.insert(page.end(), last.begin(), last.end());
  finish(page, width, height);
  return page;
}

}  // namespace gradlane
