// common_sections.cc - the parts of a configuration file that both modes have (set-up only)
#include "config/common_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/read_file.h"
#include "config/values.h"
#include "config/words.h"

namespace gradlane {
namespace {

constexpr size_t kLongestUser = 32;  // limit of useradd
constexpr size_t kLongestLink = 16;  // DPDK's names of rings have 28 bytes, and some of them are our prefix
constexpr size_t kLongestDevice = 1000;

}  // namespace

std::string read_config_file(const std::string& path, const char* what) {
  FileText file = read_file(path, kMaxConfigBytes + 1);  // one byte more, to find out whether the file is too long
  if (file.fault.empty()) return std::move(file.text);
  throw SetupError(fmt::format("{}: cannot read the {}: {}", path, what, file.fault));
}

const YamlNode* accelerator_mode(const YamlNode& tree) {
  const auto found = std::ranges::find(tree.keys, "mode", &YamlNode::text);
  if (found == tree.keys.end()) return nullptr;
  const YamlNode& mode = tree.items[static_cast<size_t>(found - tree.keys.begin())];
  return mode.kind == YamlNode::Kind::kScalar && mode.text == kModeWords[1] ? &mode : nullptr;
}

void read_codec(const Section& root, Codec& codec, const std::string& more) {
  const auto value = root.find("codec");
  if (!value) return;
  const auto name = value->text(kLongestCodecName);
  if (!name) return;
  try {
    codec = find_codec(*name);
  } catch (const SetupError& error) {
    const bool lists = !more.empty() && error.fault() == SetupFault::kUnknownName;
    value->fault(lists ? error.what() + ("  " + more + "\n") : error.what());
  }
}

void read_idle(const Section& worker, IdlePolicy& idle) {
  if (const auto value = worker.find("idle")) {
    if (const auto choice = value->choice(kIdleWords)) idle = static_cast<IdlePolicy>(*choice);
  }
}

void read_user(const Section& root, std::string& user) {
  if (const auto value = root.find("user")) user = value->name(kLongestUser).value_or("");
}

void read_log(const Section& root, std::string& log, std::string& file) {
  if (const auto value = root.find("log")) {
    if (const auto choice = value->choice(kLogWords)) log = kLogWords[*choice];
  }
  if (const auto path = root.find("log_file")) file = path->text(kLongestPath).value_or("");
}

void read_tos(const Section& root, std::span<const TosClass> classes, unsigned least) {
  const auto value = root.find("tos");
  if (!value) return;
  std::vector<const char*> keys;
  for (const TosClass& it : classes) keys.push_back(it.key);
  const Section section(*value, keys);
  const size_t faults = value->faults().count();
  for (const auto& [key, tos] : classes) {
    section.whole(key, tos, least, 0xff);
    if (tos % 4 == 0) continue;
    section.find(key)->fault(fmt::format("{:#04x} has ECN bits set, the two lowest, allowed: multiples of 4", tos));
  }
  if (value->faults().count() != faults) return;
  for (size_t i = 0; i < classes.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (classes[i].value != classes[j].value) continue;
      section.find(classes[i].key)
          .value_or(*value)
          .fault(
              fmt::format("{:#04x} is already used by {}, allowed: different ones", classes[i].value, classes[j].key));
    }
  }
}

std::optional<Value> read_port_device(const Section& section, std::span<const DeviceKey> keys, PortConfig& port) {
  std::vector<const char*> words;
  for (const DeviceKey& it : keys) words.push_back(it.key);
  const std::string allowed = fmt::format("{}", fmt::join(words, ", "));
  std::optional<Value> chosen;
  for (const auto& [key, kind] : keys) {
    const auto found = section.find(key);
    if (!found) continue;
    if (chosen) {
      found->fault(fmt::format("a port has one device, and this one already has {}, allowed: one of {}", chosen->path(),
                               allowed));
      return std::nullopt;
    }
    chosen = found;
    port.kind = kind;
  }
  if (!chosen) {
    if (section.value().node().kind == YamlNode::Kind::kMap) {
      section.value().faults().add_missing(section.value().node().place, section.value().path(),
                                           fmt::format("has no device, allowed: one of the keys {}", allowed));
    }
    return std::nullopt;
  }
  const auto text = port.kind == PortConfig::Kind::kRing ? chosen->name(kLongestLink) : chosen->text(kLongestDevice);
  if (!text) return std::nullopt;
  port.device = *text;
  return chosen;
}

std::string in_quotes(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

std::string path_text(const std::string& path) { return path.empty() ? "" : in_quotes(path); }

std::string device_text(const PortConfig& port) {
  static constexpr const char* kKinds[] = {"device", "pci", "ring", "udp"};  // by PortConfig::Kind
  return fmt::format("{}: {}", kKinds[static_cast<size_t>(port.kind)], in_quotes(port.device));
}

}  // namespace gradlane
