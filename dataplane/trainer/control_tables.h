// control_tables.h - what a trainer is told in its control segment: codecs, strategies, ways, and room for what it
// reports (control thread)
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

  // Of the whole segment.
  [[nodiscard]] size_t bytes() const noexcept { return reports_at_ + GL_MAX_REPORTS * sizeof(gl_report_row); }
  // Fills in a segment of zeros: gl_control, and the tables.
  void write(uint8_t* base) const;

 private:
  uint32_t lanes_;
  std::vector<gl_codec_row> codecs_;
  std::vector<gl_strategy_row> strategies_;
  std::vector<gl_way_row> ways_;
  std::vector<gl_plan_row> plan_;
  size_t codecs_at_ = 0;
  size_t strategies_at_ = 0;
  size_t ways_at_ = 0;
  size_t plan_at_ = 0;
  size_t reports_at_ = 0;
};

// Copies of the rows that a trainer has filled in, of a segment that was written like that. Nothing in them is checked.
[[nodiscard]] std::vector<gl_report_row> reports_of(const uint8_t* base, size_t bytes);

// What one trainer reports. No rows: it is not there, or has nothing to say.
struct SessionReports {
  unsigned rank = 0;
  std::vector<gl_report_row> rows{};
};

}  // namespace gradlane
