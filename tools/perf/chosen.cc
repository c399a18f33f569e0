// chosen.cc - the library's choice for operations that leave codec or strategy to it, as the daemon reports it (main
// thread)
#include "tools/perf/chosen.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "client/gradlane.h"
#include "tools/admin/client.h"
#include "tools/stats/parts.h"

namespace gradlane {
namespace {

constexpr std::chrono::milliseconds kPatience{2000};

const char* kind_of(PerfOp op) { return op == PerfOp::kAllReduce ? "all_reduce" : "reduce_scatter"; }

}  // namespace

std::string chosen_of(const PerfRow& row, const std::string& type, unsigned rank, unsigned world) {
  // Trainer passes the larger of row.count and `least` to the library, as gradlane_how::whole.
  const size_t least = size_t{GRADLANE_EXACT_BELOW} * (row.together == 1 ? world : 1);
  const size_t whole = std::max(row.count, least) * (row.bytes / row.count);
  const double bytes = static_cast<double>(whole) * (row.op == PerfOp::kReduceScatter ? world : 1);
  std::string chosen;
  try {
    const nlohmann::json document = ask_admin(admin_path({}), "stats", kPatience);
    for (const nlohmann::json& it : at(document, "plan")) {
      const bool same = at(it, "rank") == rank && at(it, "operation") == kind_of(row.op) && at(it, "type") == type &&
                        at(it, "asked") == row.codec;
      if (!same || number(at(it, "from")) > bytes || number(at(it, "to")) <= bytes) continue;
      chosen = text(at(it, "codec"));
      if (const std::string by = text(at(it, "strategy")); !by.empty()) chosen += " by " + by;
    }
  } catch (const SetupError&) {
    return "";  // the figures of the row are right without it
  }
  return chosen;
}

}  // namespace gradlane
