// job_watch.cc - the figures of the latest job on a node (control thread only)
#include "dataplane/status/job_watch.h"

#include <utility>

#include "dataplane/node/node.h"
#include "dataplane/trainer/candidate_predictor.h"

namespace gradlane {

JobWatch::JobWatch(const Node& node) : node_(node), figures_(figures_of(node.config())) {}

void JobWatch::look(Nanos now) {
  const bool attached = node_.server().attached() > 0;
  if (attached && !attached_) {
    before_ = std::move(idle_);
    chosen_ = false;
  }
  if (attached) {
    idle_looks_ = 0;
    // The reports of a trainer disappear when it goes.
    chosen_ = chosen_ || codec_chosen(plan_figures(node_.server().reports()));
    ever_chosen_ = ever_chosen_ || chosen_;
  }
  attached_ = attached;
  // Figures do not change without trainers.
  if (attached || idle_looks_ == kSettled) return;
  idle_ = node_figures(node_, now);
  ++idle_looks_;
}

Savings JobWatch::savings(const NodeFigures& now) const {
  Savings savings = savings_of(now, before_ ? &*before_ : nullptr, figures_);
  savings.chosen = savings.chosen || chosen_;
  return savings;
}

Savings JobWatch::total(const NodeFigures& now) const {
  Savings savings = savings_of(now, nullptr, figures_);
  savings.chosen = savings.chosen || ever_chosen_;
  return savings;
}

}  // namespace gradlane
