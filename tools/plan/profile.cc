// profile.cc - a profile of a model, read from a file
#include "tools/plan/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/read_file.h"

namespace gradlane {
namespace {

using Json = nlohmann::json;

constexpr double kMilli = 1e-3;
constexpr size_t kMostLayers = 100000;
constexpr double kMostElements = 1e13;
constexpr double kMostMs = 1e9;
constexpr double kRounding = 1e-3;  // tolerance for numbers that people have written
constexpr double kMostProfiled = 1e7;
constexpr size_t kMostBytes = size_t{16} << 20;

// A place in a file, for messages.
struct At {
  std::string file;
  std::string path;

  [[noreturn]] void refuse(const std::string& key, const std::string& what) const {
    throw SetupError(fmt::format("{}: {}{}: {}", file, path, key, what));
  }
};

double real_at(const Json& of, const char* key, const At& at, double least, double most) {
  const auto found = of.find(key);
  const std::string allowed = fmt::format("allowed: {} to {:g}", least, most);
  if (found == of.end()) at.refuse(key, "is missing, " + allowed);
  if (!found->is_number()) {
    // Writing out nested values would need as much stack as they are deep, so only their type is named.
    const std::string text = found->is_structured() ? found->type_name() : found->dump().substr(0, 40);
    at.refuse(key, fmt::format("{} is not a number, {}", text, allowed));
  }
  const auto value = found->get<double>();
  if (!(value >= least && value <= most)) at.refuse(key, fmt::format("{:g} is out of range, {}", value, allowed));
  return value;
}

std::string name_at(const Json& of, const At& at) {
  const auto found = of.find("name");
  if (found == of.end() || !found->is_string()) at.refuse("name", "is missing or not a text");
  auto name = found->get<std::string>();
  // Names are printed to a terminal.
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::ranges::any_of(name, control)) at.refuse("name", "has control characters");
  return name;
}

ModelLayer layer_of(const Json& each, const At& at) {
  if (!each.is_object()) at.refuse("", "is not an object");
  ModelLayer layer;
  layer.name = name_at(each, at);
  layer.elements = real_at(each, "elements", at, 1, kMostElements);
  if (each.contains("backward_ms")) layer.work = real_at(each, "backward_ms", at, 0, kMostMs);
  return layer;
}

}  // namespace

Profile parse_profile(std::string_view text, const std::string& file) {
  const Json whole = Json::parse(text, nullptr, false);
  const At at = {file, ""};
  if (whole.is_discarded() || !whole.is_object())
    throw SetupError(file + ": is not a JSON object, so it is not a profile");
  Profile profile;
  profile.table.name = name_at(whole, at);
  profile.table.batch = static_cast<unsigned>(real_at(whole, "batch", at, 1, kMostProfiled));
  if (whole.contains("backward_ms")) profile.table.backward = kMilli * real_at(whole, "backward_ms", at, 1e-6, kMostMs);
  profile.forward = profile.table.backward / 2;
  if (whole.contains("forward_ms")) profile.forward = kMilli * real_at(whole, "forward_ms", at, 0, kMostMs);
  const auto layers = whole.find("layers");
  if (layers == whole.end() || !layers->is_array() || layers->empty() || layers->size() > kMostLayers) {
    at.refuse("layers", fmt::format("must be a list of 1 to {} layers", kMostLayers));
  }
  for (const Json& each : *layers) {
    profile.table.layers.push_back(layer_of(each, {file, fmt::format("layers[{}].", profile.table.layers.size())}));
  }
  for (size_t i = 0; i < profile.table.layers.size(); ++i) {
    const double layer = kMilli * profile.table.layers[i].work;
    if (layer <= profile.table.backward * (1 + kRounding)) continue;
    At{file, fmt::format("layers[{}].", i)}.refuse(
        "backward_ms", fmt::format("{:g} is more than the backward_ms of all layers, {:g}", layer / kMilli,
                                   profile.table.backward / kMilli));
  }
  if (profile.table.work() == 0) {
    for (ModelLayer& each : profile.table.layers) each.work = each.elements;
  }
  return profile;
}

Profile load_profile(const std::string& path) {
  const FileText file = read_file(path, kMostBytes + 1);
  if (!file.fault.empty()) throw SetupError(path + ": cannot read the profile: " + file.fault);
  if (file.text.size() > kMostBytes) throw SetupError(path + ": is not a profile: it has more than 16 MiB");
  return parse_profile(file.text, path);
}

}  // namespace gradlane
