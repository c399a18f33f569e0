// port.cc - the state that all ports share (control thread only)
#include "dataplane/device/port.h"

#include "base/error.h"

namespace gradlane {

Port::Port(const PortConfig& config, const NodeConfig* node)
    : config_(config),
      traits_(traits_of(config)),
      name_(config.name),
      lanes_(node == nullptr ? 1 : node->lanes),
      queues_(lanes_),
      steering_(node == nullptr ? Steering() : Steering(*node, config.nodes, traits_.local || traits_.sockets)) {}

Port::~Port() = default;

void Port::fail(const SetupError& error) const {
  throw SetupError("port " + name_ + ": " + error.what(), error.fault());
}

}  // namespace gradlane
