// plan_reports.h - what trainers' libraries say of operations that were left to them, as figures and lines of the log
// (control thread)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"
#include "dataplane/trainer/control_tables.h"

namespace gradlane {

// A class of operations of one rank. Times are ns per byte of the tensor; 0: not known.
struct PlanFigures {
  unsigned rank = 0;
  std::string operation;  // "all_reduce"
  std::string type;
  uint64_t from = 0;  // bytes of the tensor; from 0 to 0: of any size
  uint64_t to = 0;
  std::string asked;  // the codec by which it was left to the library, or that does not apply
  std::string codec;
  std::string strategy;  // "": the daemon's first
  bool exact = true;
  bool settled = false;
  bool frozen = false;  // by a plan
  std::string why;      // why nothing is rounded, or what else is to be said; "": nothing
  uint64_t operations = 0;
  uint64_t bytes = 0;       // of tensors
  uint64_t sent_bytes = 0;  // for them, by this rank: encoded elements, without packets' headers and repeats
  double predicted = 0;
  double measured = 0;
  double baseline = 0;  // raw, by the first strategy
  std::string rival;    // the best that was tried or predicted, of codecs that round if this one is exact, else exact
  double rival_measured = 0;
  double saved_ms = 0;  // so far, beside the baseline
  unsigned changes = 0;
  bool warns = false;      // somebody who wants it compressed should know
  bool configured = true;  // false: a codec is configured or named, and does nothing here
};

// Trainers may write what they like: what makes no sense is left out, and texts are printable.
[[nodiscard]] std::vector<PlanFigures> plan_figures(const std::vector<SessionReports>& reports);

// In one line: "all_reduce of 1MiB to 2MiB, codec auto:2^-10: fixed:10 by ring, 3.1 ns per byte; raw takes 8.2".
[[nodiscard]] std::string plan_line(const PlanFigures& figures);

// What is new since the last look, as lines of the log. Trainers cannot make it more than a line for each class in ten
// seconds, of so many classes. Those of a trainer that has gone are forgotten.
class ReportWatch {
 public:
  struct Line {
    bool warning = false;
    std::string text;
  };
  [[nodiscard]] std::vector<Line> look(const std::vector<PlanFigures>& all, Nanos now);

 private:
  // Of a class, what was said last. Two of a rank may be alike in all of this: then it is their turn that counts.
  struct Said {
    unsigned rank;
    std::string of;  // operation, type and size, which are of few
    size_t turn;
    std::string chosen;
    Nanos at;
  };
  [[nodiscard]] bool is_new(const PlanFigures& it, size_t turn, Nanos now);

  std::vector<Said> said_;
};

}  // namespace gradlane
