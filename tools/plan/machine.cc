// machine.cc - who asks for a plan: this host
#include "tools/plan/machine.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <string>

#include "compress/isa.h"
#include "tools/version.h"

namespace gradlane {
namespace {

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

CalibrationUse this_use() {
  CalibrationUse use;
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) == 0) use.host = name.data();
  use.cpu = cpu_model();
  use.isa = isa_name(select_isa());
  use.program = GRADLANE_VERSION;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  use.now_s = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
  return use;
}

}  // namespace gradlane
