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
constexpr double kMinReported = 1e6;     // bytes; for less, nothing is reported

Savings ask_all(const std::vector<std::string>& admins) {
  std::vector<Savings> nodes;
  for (const std::string& path : admins)
    nodes.push_back(savings_from(at(ask_admin(path, "stats", kAnswerTime), "worth_total")));
  return savings_of_all(nodes);
}

}  // namespace

std::vector<std::string> job_savings(const std::vector<std::string>& admins) {
  const char* const wanted = std::getenv("GRADLANE_SUMMARY");
  if (wanted != nullptr && std::string_view(wanted) == "0") return {};
  try {
    std::this_thread::sleep_for(kPublished);
    const Savings savings = ask_all(admins);
    return savings.raw_bytes < kMinReported ? std::vector<std::string>{} : savings_lines(savings);
  } catch (const SetupError&) {
    return {};  // the job itself went well
  }
}

}  // namespace gradlane
