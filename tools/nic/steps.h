// steps.h - the steps of `gradlane nic setup` and their reversal, each with a line of output (main thread only)
#pragma once

#include <string>

#include "tools/nic/host.h"
#include "tools/nic/nic.h"
#include "tools/nic/state.h"

namespace gradlane {

// Each step does what is missing, and prints what it did. In a dry run it prints what it would do, and changes nothing.
// All throw SetupError if they cannot do it.
class NicSteps {
 public:
  NicSteps(const Host& host, bool is_dry_run) : host_(host), is_dry_run_(is_dry_run) {}

  void save(const NicState& state) const;
  void load_modules(const NicState& state) const;
  void add_hugepages(NicState& state) const;
  void remove_hugepages(const NicState& state) const;
  void write_files(const NicState& state) const;
  void bind(const Nic& nic, const NicState& state) const;

  // Undoes all steps, also after only some were done. Returns what cannot be undone, or "".
  [[nodiscard]] std::string undo(const NicState& state) const;

 private:
  // In a dry run, prints "would WHAT text" and returns true.
  [[nodiscard]] bool only_says(const char* what, const std::string& text) const;
  static void say(const char* what, const std::string& text);
  void allow_no_iommu() const;
  void bind_to_vfio(const std::string& address) const;
  void give_to_user(const Nic& nic, const NicState& state) const;
  void forbid_no_iommu(const NicState& state) const;
  void give_back(const NicState& state) const;
  void remove_files(const NicState& state) const;
  void tell_systemd() const;

  const Host& host_;
  bool is_dry_run_;
};

}  // namespace gradlane
