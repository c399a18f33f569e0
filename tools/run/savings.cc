// savings.cc - the gain by compression in a job that is over, as its daemons report it (main thread)
#include "tools/run/savings.h"

#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "dataplane/status/savings.h"
#include "tools/admin/client.h"
#include "tools/stats/parts.h"

namespace gradlane {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAnswerTime{500};
constexpr milliseconds kPublished{120};  // time until workers have published their last figures
constexpr double kWorthTelling = 1e6;    // bytes; for less, nothing is reported

Worth ask_all(const std::vector<std::string>& admins) {
  std::vector<Worth> nodes;
  for (const std::string& path : admins)
    nodes.push_back(worth_from(at(ask_admin(path, "stats", kAnswerTime), "worth_total")));
  return worth_of_all(nodes);
}

}  // namespace

std::vector<std::string> job_worth(const std::vector<std::string>& admins) {
  const char* const wanted = std::getenv("GRADLANE_SUMMARY");
  if (wanted != nullptr && std::string_view(wanted) == "0") return {};
  try {
    std::this_thread::sleep_for(kPublished);
    const Worth worth = ask_all(admins);
    return worth.raw_bytes < kWorthTelling ? std::vector<std::string>{} : worth_lines(worth);
  } catch (const SetupError&) {
    return {};  // the job itself went well
  }
}

}  // namespace gradlane
