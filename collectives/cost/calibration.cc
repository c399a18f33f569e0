// calibration.cc - what an exchange costs: the figures, and the check whether they may be used (pure)
#include "collectives/cost/calibration.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "collectives/wire.h"

namespace gradlane {
namespace {

// Bytes from the preamble to the UDP header.
constexpr double kFrameBytes = 66;
// Bytes of IP and UDP headers among these.
constexpr double kDatagramBytes = 28;

std::string days_text(uint64_t seconds) { return std::to_string(seconds / 86400) + " days"; }

}  // namespace

double CodecCost::width(double contributions) const noexcept {
  const double k = std::max(contributions, 1.0);
  double each = bytes + doubling * std::log2(k);
  if (density > 0) each = bytes * (1 - std::pow(1 - density, k)) / density;
  return std::min(each, std::max(most_bytes, bytes));
}

double CodecCost::result_width(double contributions) const noexcept {
  if (owners) return bytes;  // the owner encodes it again, as a contribution is encoded
  return results > 0 ? results : width(contributions);
}

void PacketCost::set_mtu(double mtu) noexcept {
  const double headers = sizeof(LinkHeader) + sizeof(RunHeader);
  payload = mtu - kDatagramBytes - headers;
  overhead = kFrameBytes + headers;
}

double PacketCost::mtu() const noexcept { return payload + kDatagramBytes + sizeof(LinkHeader) + sizeof(RunHeader); }

const CodecCost* Calibration::find(std::string_view codec) const noexcept {
  const auto found = std::ranges::find(codecs, codec, &CodecCost::name);
  return found == codecs.end() ? nullptr : &*found;
}

const MeasuredExchange* find_exchange(std::span<const MeasuredExchange> exchanges, std::string_view library,
                                      std::string_view codec) noexcept {
  const auto found = std::ranges::find_if(
      exchanges, [&](const MeasuredExchange& each) { return each.library == library && each.codec == codec; });
  return found == exchanges.end() ? nullptr : &*found;
}

std::string misfit_text(const CalibrationChecks& checks) {
  constexpr double kFits = 2;
  if (checks.times_as_long <= 0) return {};
  const bool low = checks.times_as_long > 1;
  const double off = low ? checks.times_as_long : 1 / checks.times_as_long;
  if (off <= kFits) return {};
  char text[160];
  std::snprintf(text, sizeof text,
                "these figures do not fit this ring: the predicted time is %.1f times too %s; when measured, "
                "compressing was %.2f times as fast as raw",
                off, low ? "low" : "high", checks.speedup);
  return text;
}

void mark_unsteady(std::vector<LinkCost>& links) noexcept {
  for (LinkCost& each : links) {
    for (const LinkCost& other : links) {
      if (each.from != other.to || each.to != other.from) continue;
      const auto [less, more] = std::minmax(each.bandwidth, other.bandwidth);
      each.unsteady |= more > less * kUnsteady;
    }
  }
}

LinkCost slowest(const std::vector<LinkCost>& links, const LinkCost& fallback) noexcept {
  if (links.empty()) return fallback;
  LinkCost worst = links.front();
  for (const LinkCost& each : links) {
    worst.latency = std::max(worst.latency, each.latency);
    if (each.bandwidth > worst.bandwidth) continue;
    worst.at_least = each.at_least && (worst.at_least || each.bandwidth < worst.bandwidth);
    worst.bandwidth = each.bandwidth;
  }
  return worst;
}

std::string calibration_fault(const Calibration& calibration, const CalibrationUse& use) {
  const auto differs = [](const char* what, const std::string& measured, const std::string& here) {
    return std::string("it was measured ") + what + " '" + measured + "', but here it is '" + here + "'";
  };
  if (calibration.version != kCalibrationVersion) {
    return "it has version " + std::to_string(calibration.version) + ", but this program reads version " +
           std::to_string(kCalibrationVersion);
  }
  if (calibration.host != use.host) return differs("on host", calibration.host, use.host);
  if (calibration.cpu != use.cpu) return differs("on CPU", calibration.cpu, use.cpu);
  if (calibration.isa != use.isa) return differs("with kernels for", calibration.isa, use.isa);
  if (calibration.program != use.program) return differs("with gradlane", calibration.program, use.program);
  if (calibration.made_s > use.now_s + 86400) return "it was made in the future: " + calibration.made;
  const uint64_t age = use.now_s - std::min(calibration.made_s, use.now_s);
  if (age > use.longest_s) {
    return "it was made " + days_text(age) + " ago (" + calibration.made + "), but at most " +
           days_text(use.longest_s) + " are allowed";
  }
  return {};
}

}  // namespace gradlane
