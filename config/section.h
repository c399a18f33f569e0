// section.h - a checked view of a YAML tree: values of the right type and range, or a fault (set-up only)
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "config/faults.h"
#include "config/values.h"
#include "config/yaml_tree.h"

namespace gradlane {

// A value of the file, and the path that leads to it. If the value is wrong, a reader records a fault and returns
// nothing.
class Value {
 public:
  Value(const YamlNode& node, std::string path, ConfigFaults& faults)
      : node_(&node), path_(std::move(path)), faults_(&faults) {}

  [[nodiscard]] const YamlNode& node() const noexcept { return *node_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] ConfigFaults& faults() const noexcept { return *faults_; }
  void fault(const std::string& what) const { faults_->add(node_->place, path_, what); }

  [[nodiscard]] std::optional<uint64_t> whole(uint64_t least, uint64_t most) const;
  [[nodiscard]] std::optional<uint64_t> size(uint64_t least, uint64_t most) const;
  [[nodiscard]] std::optional<Nanos> duration(Nanos least, Nanos most) const;
  [[nodiscard]] std::optional<double> probability() const;
  [[nodiscard]] std::optional<double> real(double least, double most) const;
  [[nodiscard]] std::optional<bool> flag() const;
  // Returns the index of the choice that is equal to the text.
  [[nodiscard]] std::optional<size_t> choice(std::span<const char* const> choices) const;
  // Returns a text that is not empty, has at most `longest` bytes and no control characters.
  [[nodiscard]] std::optional<std::string> text(size_t longest) const;
  // Returns such a text if it has only letters, digits, '_', '-' and '.'.
  [[nodiscard]] std::optional<std::string> name(size_t longest) const;
  [[nodiscard]] std::optional<IpAddress> host_ip() const;
  [[nodiscard]] std::optional<MacAddress> host_mac() const;
  [[nodiscard]] std::optional<IpPort> ip_port() const;
  [[nodiscard]] std::optional<std::vector<Value>> list(const char* of_what) const;

 private:
  // Returns the text of a scalar. `wanted` and `allowed` are for the message.
  [[nodiscard]] const std::string* scalar(std::string_view wanted, std::string_view allowed) const;
  [[nodiscard]] const std::string* wrong_type(std::string_view wanted, std::string_view allowed) const;

  const YamlNode* node_;
  std::string path_;
  ConfigFaults* faults_;
};

// Returns ", did you mean 'mtu'?" if one of the known words is similar, otherwise a comma.
[[nodiscard]] std::string guess(std::string_view word, std::span<const char* const> known);

// Keys that are unknown here and known elsewhere, and the message about them.
struct KeysElsewhere {
  std::span<const char* const> keys;
  const char* what = "";
};

// A map whose keys are known.
class Section {
 public:
  // Records a fault if `value` is no map, and for keys that are unknown or given twice.
  Section(const Value& value, std::span<const char* const> allowed, const KeysElsewhere& elsewhere = {});

  [[nodiscard]] std::optional<Value> find(std::string_view key) const;
  // Does the same, and records a fault if the key is not there.
  [[nodiscard]] std::optional<Value> need(std::string_view key) const;
  // Records a fault of the section itself: a key is missing.
  void missing(std::string_view key, const std::string& what) const;
  [[nodiscard]] const Value& value() const noexcept { return value_; }

  // Set `target` if the key is there and its value is right.
  template <class T>
  void whole(std::string_view key, T& target, uint64_t least, uint64_t most) const {
    if (const auto found = find(key)) set(target, found->whole(least, most));
  }
  void size(std::string_view key, size_t& target, uint64_t least, uint64_t most) const {
    if (const auto found = find(key)) set(target, found->size(least, most));
  }
  void duration(std::string_view key, Nanos& target, Nanos least, Nanos most) const {
    if (const auto found = find(key)) set(target, found->duration(least, most));
  }
  void probability(std::string_view key, double& target) const {
    if (const auto found = find(key)) set(target, found->probability());
  }
  void flag(std::string_view key, bool& target) const {
    if (const auto found = find(key)) set(target, found->flag());
  }

 private:
  template <class T, class U>
  static void set(T& target, const std::optional<U>& value) {
    if (value) target = static_cast<T>(*value);
  }
  [[nodiscard]] std::string path_of(std::string_view key) const;

  Value value_;
};

}  // namespace gradlane
