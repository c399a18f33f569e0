// job_watch.cc - what the latest job on a node has moved (control thread only)
#include "dataplane/status/job_watch.h"

#include <utility>

#include "dataplane/node/node.h"
#include "dataplane/trainer/ways.h"

namespace gradlane {

JobWatch::JobWatch(const Node& node) : node_(node), figures_(figures_of(node.config())) {}

void JobWatch::look() {
  const bool attached = node_.server().attached() > 0;
  if (attached && !attached_) before_ = std::move(idle_);
  if (attached) idle_looks_ = 0;
  attached_ = attached;
  // Nothing moves then.
  if (attached || idle_looks_ == kSettled) return;
  idle_ = node_figures(node_);
  ++idle_looks_;
}

Worth JobWatch::worth(const NodeFigures& now) const { return worth_of(now, before_ ? &*before_ : nullptr, figures_); }

}  // namespace gradlane
