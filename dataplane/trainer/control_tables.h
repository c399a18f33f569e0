// control_tables.h - the tables in a trainer's control segment: codecs, strategies, candidates, the plan, and space for
// its reports (control thread)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "client/abi.h"
#include "config/config.h"

namespace gradlane {

class ControlTables {
 public:
  ControlTables(const NodeConfig& config, uint32_t lanes, std::vector<gl_way_row> ways);

  // Returns the size of the segment in bytes.
  [[nodiscard]] size_t bytes() const noexcept { return reports_at_ + GL_MAX_REPORTS * sizeof(gl_report_row); }
  // Writes gl_control and the tables into a segment of zeros.
  void write(uint8_t* base) const;

 private:
  uint32_t lanes_;
  std::vector<gl_codec_row> codecs_;
  std::vector<gl_strategy_row> strategies_;
  std::vector<gl_way_row> ways_;
  std::vector<gl_plan_row> plan_;
  size_t codecs_at_ = 0;
  size_t strategies_at_ = 0;
  size_t candidates_at_ = 0;
  size_t plan_at_ = 0;
  size_t reports_at_ = 0;
};

// Returns copies of the report rows that a trainer has filled in. `base` is a segment that write() has prepared.
// Nothing in the rows is checked.
[[nodiscard]] std::vector<gl_report_row> reports_of(const uint8_t* base, size_t bytes);

// The reports of one trainer. There are no rows if the trainer is not attached or has nothing to report.
struct SessionReports {
  unsigned rank = 0;
  std::vector<gl_report_row> rows{};
};

}  // namespace gradlane
