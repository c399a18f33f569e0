// choice_reports.h - reports of client libraries on the choices of `auto`, as figures and log lines (control thread)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"
#include "dataplane/trainer/control_tables.h"

namespace gradlane {

// Figures of a class of operations of one rank. Times are in ns per byte of the tensor, except saved_ms; 0: not known.
struct PlanFigures {
  unsigned rank = 0;
  std::string operation;  // "all_reduce"
  std::string type;
  uint64_t from = 0;  // bytes of the tensor, from `from` to less than `to`; 0 and 0: any size
  uint64_t to = 0;
  std::string asked;  // name that was asked for, such as auto:2^-10, or codec that has no effect here
  std::string codec;
  std::string strategy;  // "": the daemon's first strategy
  bool exact = true;
  bool settled = false;
  bool frozen = false;  // fixed by a plan
  std::string why;      // reason why nothing is rounded, or another remark; "": none
  uint64_t operations = 0;
  uint64_t bytes = 0;  // bytes of tensors
  // Bytes that this rank sent for these operations: encoded elements without packet headers and retransmits.
  uint64_t sent_bytes = 0;
  double predicted = 0;
  double measured = 0;
  double baseline = 0;  // time of the baseline: raw elements by the first strategy
  // Best alternative that was tried or predicted: a codec that rounds if the chosen one is exact, else an exact one.
  std::string rival;
  double rival_measured = 0;
  double saved_ms = 0;  // ms that all these operations together have saved, compared with the baseline
  unsigned changes = 0;
  bool warns = false;      // worth a warning to users who want compression
  bool configured = true;  // false: a codec is configured or named, but has no effect here
};

// Returns figures for all rows that make sense. Trainers may write anything, so other rows are left out, and texts are
// made printable.
[[nodiscard]] std::vector<PlanFigures> plan_figures(const std::vector<SessionReports>& reports);

// Returns the figures in one line: "all_reduce of 1MiB to 2MiB, codec auto:2^-10: fixed:10 by ring, 3.1 ns per byte;
// raw takes 8.2".
[[nodiscard]] std::string plan_line(const PlanFigures& figures);

// Finds classes that are new, or whose choice has changed since their last line, and returns a log line for each. A
// rank causes at most one line per class in ten seconds, for at most kMostSaid classes. The classes of a trainer that
// has gone are forgotten.
class ReportWatch {
 public:
  struct Line {
    bool warning = false;
    std::string kind;  // for a LogLimiter, as trainers write parts of the text
    std::string text;
  };
  [[nodiscard]] std::vector<Line> look(const std::vector<PlanFigures>& all, Nanos now);

 private:
  // The latest line that was logged for a class. A rank may have several classes with the same `of`; `turn` numbers
  // them.
  struct Said {
    unsigned rank;
    std::string of;  // operation, type and size; each has few values
    size_t turn;
    std::string chosen;
    Nanos at;
  };
  [[nodiscard]] bool is_new(const PlanFigures& it, size_t turn, Nanos now);

  std::vector<Said> said_;
};

}  // namespace gradlane
