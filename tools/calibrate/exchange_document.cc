// exchange_document.cc - what gradlane.torch.exchange_times prints (no I/O)
#include "tools/calibrate/exchange_document.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"

namespace gradlane {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(std::string_view where, const std::string& what) {
  throw SetupError(fmt::format("{} printed something unexpected: {}{}", kExchangeModule, where, what));
}

// `where` is no std::string: if it were a temporary one, GCC 13 and later would warn of a dangling reference to it.
const json& field(const json& of, std::string_view where, const char* key) {
  if (!of.is_object() || !of.contains(key)) refuse(where, fmt::format("{} is missing", key));
  return of[key];
}

double real_field(const json& of, std::string_view where, const char* key, double least) {
  const json& value = field(of, where, key);
  if (!value.is_number() || !(value.get<double>() >= least) || !std::isfinite(value.get<double>())) {
    refuse(where, fmt::format("{} is {}; it must be a number of at least {:g}", key, value.dump(), least));
  }
  return value.get<double>();
}

std::string text_field(const json& of, std::string_view where, const char* key) {
  const json& value = field(of, where, key);
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
    refuse(where, fmt::format("{} is {}; it must be a text", key, value.dump()));
  }
  return value;
}

const json& list_field(const json& of, std::string_view where, const char* key) {
  const json& value = field(of, where, key);
  if (!value.is_array() || value.empty()) refuse(where, fmt::format("{} is no list, or empty", key));
  return value;
}

MeasuredExchange read_exchange(const json& document, const std::string& where) {
  MeasuredExchange exchange{text_field(document, where, "library"), text_field(document, where, "codec"), {}};
  for (const json& each : list_field(document, where, "points")) {
    const std::string place = fmt::format("{}points[{}].", where, exchange.points.size());
    const double larger = exchange.points.empty() ? sizeof(float) : exchange.points.back().bytes + 1;
    exchange.points.push_back({real_field(each, place, "bytes", larger), real_field(each, place, "seconds", 1e-9),
                               real_field(each, place, "busy", 0)});
  }
  return exchange;
}

}  // namespace

ExchangeTimes parse_exchange_times(const std::string& text) {
  const json document = json::parse(text, nullptr, false);
  if (document.is_discarded()) refuse("", text.empty() ? "nothing" : "no JSON, but " + text.substr(0, 80));
  ExchangeTimes times;
  times.cores = real_field(document, "", "cores", 1e-6);
  times.background = real_field(document, "", "background", 0);
  for (const json& each : list_field(document, "", "exchanges")) {
    times.exchanges.push_back(read_exchange(each, fmt::format("exchanges[{}].", times.exchanges.size())));
  }
  return times;
}

}  // namespace gradlane
