// housekeeping.cc - one round of the control thread (control thread only)
#include "dataplane/daemon/housekeeping.h"

#include <algorithm>

namespace gradlane {

std::vector<int> Housekeeping::fds() const {
  std::vector<int> fds;
  for (const auto& node : nodes_) {
    fds.push_back(node->server().fd());
    if (node->admin() != nullptr) fds.push_back(node->admin()->fd());
    if (node->metrics() != nullptr) fds.push_back(node->metrics()->fd());
  }
  return fds;
}

bool Housekeeping::busy() const {
  return std::ranges::any_of(nodes_, [](const auto& node) {
    return node->server().busy() || node->probing() || (node->admin() != nullptr && node->admin()->busy());
  });
}

void Housekeeping::step(Nanos now) {
  for (const auto& node : nodes_) {
    node->server().step(now);
    node->step_probing(now);
    if (node->admin() != nullptr) node->admin()->step();
    if (node->metrics() != nullptr) node->metrics()->step();
  }
}

bool Housekeeping::maintain(Nanos now) {
  if (now < tend_at_) return false;
  tend_at_ = now + kStep;
  for (const auto& node : nodes_) node->maintain(now);
  for (const auto& job : jobs_) job->look(now);
  return true;
}

}  // namespace gradlane
