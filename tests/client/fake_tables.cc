// fake_tables.cc - the control segment of a fake daemon: its tables, and the reports of trainers
#include <algorithm>
#include <cstring>

#include "tests/client/fake_daemon.h"

namespace gradlane {
namespace {

template <class Row>
uint8_t* put_rows(uint8_t* at, const std::vector<Row>& rows) {
  std::ranges::copy(rows, reinterpret_cast<Row*>(at));
  return at + rows.size() * sizeof(Row);
}

}  // namespace

size_t FakeDaemon::table_bytes() const {
  return gl_control_bytes(settings_.lanes) + settings_.codecs.size() * sizeof(gl_codec_row) +
         settings_.strategies.size() * sizeof(gl_strategy_row) + settings_.ways.size() * sizeof(gl_way_row) +
         settings_.plan.size() * sizeof(gl_plan_row) +
         (settings_.ways.empty() ? 0 : GL_MAX_REPORTS * sizeof(gl_report_row));
}

void FakeDaemon::write_tables(uint8_t* base) {
  control_->magic = GL_MAGIC;
  control_->version = GL_ABI_VERSION;
  control_->lanes = settings_.lanes;
  control_->codecs = static_cast<uint32_t>(settings_.codecs.size());
  control_->codec_row_bytes = sizeof(gl_codec_row);
  control_->strategies = static_cast<uint32_t>(settings_.strategies.size());
  control_->strategy_row_bytes = sizeof(gl_strategy_row);
  control_->ways = static_cast<uint32_t>(settings_.ways.size());
  control_->way_row_bytes = sizeof(gl_way_row);
  control_->plan_rows = static_cast<uint32_t>(settings_.plan.size());
  control_->plan_row_bytes = sizeof(gl_plan_row);
  control_->reports = settings_.ways.empty() ? 0 : GL_MAX_REPORTS;
  control_->report_row_bytes = sizeof(gl_report_row);
  uint8_t* at = base + gl_control_bytes(settings_.lanes);
  at = put_rows(at, settings_.codecs);
  at = put_rows(at, settings_.strategies);
  at = put_rows(at, settings_.ways);
  put_rows(at, settings_.plan);
  if (settings_.control) settings_.control(*control_);
}

std::vector<gl_report_row> FakeDaemon::reports() {
  const std::lock_guard lock(mutex_);
  std::vector<gl_report_row> rows(GL_MAX_REPORTS);
  const size_t bytes = rows.size() * sizeof(gl_report_row);
  std::memcpy(rows.data(), reinterpret_cast<const uint8_t*>(control_) + control_bytes_ - bytes, bytes);
  std::erase_if(rows, [](const gl_report_row& row) { return row.version == 0; });
  return rows;
}

}  // namespace gradlane
