// calibration_use.cc - the host that uses a calibration, and the time (set-up only)
#include "config/calibration_use.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>

#include "compress/isa.h"

namespace gradlane {

CalibrationUse calibration_use(const std::string& program) {
  CalibrationUse use;
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) == 0) use.host = name.data();
  use.cpu = "unknown";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (!line.starts_with("model name") || colon == line.npos) continue;
    use.cpu = line.substr(colon + 2);
    break;
  }
  use.isa = isa_name(select_isa());
  use.program = program;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  use.now_s = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
  return use;
}

}  // namespace gradlane
