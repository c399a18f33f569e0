// node_addresses.cc - the node's address on its ports: claims it at the start, logs conflicts (control thread only)
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/error.h"
#include "config/addresses.h"
#include "config/values.h"
#include "dataplane/device/eal.h"
#include "dataplane/kernel/host_claim.h"
#include "dataplane/kernel/kernel_interface.h"
#include "dataplane/node/node.h"

namespace gradlane {
namespace {

constexpr Nanos kLogInterval = 10 * kSecond;
constexpr const char* kCause =
    "check whether a configuration was copied (`rank`), or another host has this address; every node needs its own";

}  // namespace

void Node::claim_address() {
  const NodeAddress& own = config_.nodes[config_.rank];
  // Sockets use the kernel's address, and the kernel gives a UDP port to one socket only.
  const auto needs_none = [](const PortConfig& port) { return traits_of(port).local || traits_of(port).sockets; };
  if (std::ranges::all_of(config_.ports, needs_none)) return;
  const auto sockets = std::ranges::find(config_.ports, PortConfig::Kind::kUdp, &PortConfig::kind);
  if (sockets != config_.ports.end()) {
    const auto device = std::ranges::find_if_not(config_.ports, needs_none);
    throw SetupError(
        fmt::format("ports {} and {}: sockets need this node's address in the kernel, but the device needs an "
                    "address that the kernel does not have: use sockets for all machines, or for none",
                    sockets->name, device->name));
  }
  const std::string ip = address_text(own);
  claim_on_host("address " + ip, "stop it, or set this node's own `rank` and address");
  const std::string owner = owner_of(address_of(own));
  if (owner.empty()) return;
  spdlog::warn(
      "address {}: the kernel has this address, too, on {}, so it answers ARP requests for gradlane and refuses its "
      "packets: ip addr del {} dev {}",
      ip, owner, ip, owner);
}

bool Node::addresses_settled() {
  for (NodePort& it : ports_) {
    if (!it.claim->held()) it.port->maintain();
  }
  return std::ranges::all_of(ports_, [](const NodePort& it) {
    using State = AddressClaim::State;
    const State state = it.claim->state();
    return state == State::kHeld || state == State::kTaken || !it.port->link_up();
  });
}

void Node::check_addresses() const {
  for (const NodePort& it : ports_) {
    if (it.claim->state() != AddressClaim::State::kTaken) continue;
    throw SetupError(fmt::format("port {}: {} is in use by {}: {}", it.port->name(),
                                 address_text(config_.nodes[config_.rank]), mac_text(unpack_mac(it.claim->rival())),
                                 kCause));
  }
}

void Node::log_addresses(Nanos now) {
  const std::string ip = address_text(config_.nodes[config_.rank]);
  for (NodePort& it : ports_) {
    const AddressClaim& claim = *it.claim;
    NodePort::AddressLog& logged = it.address_log;
    if (claim.conflicts() != logged.conflicts) logged.conflict_at = now;
    const bool taken = claim.state() == AddressClaim::State::kTaken;
    const bool conflict = claim.conflicts() != logged.conflicts;
    const bool asked = claim.times_asked() != logged.asked;
    logged.conflicts = claim.conflicts();
    if ((!taken && !conflict && !asked) || now < logged.log_at) continue;
    logged.log_at = now + kLogInterval;
    logged.asked = claim.times_asked();
    const std::string rival = mac_text(unpack_mac(claim.rival()));
    if (taken) {
      spdlog::error("port {}: {} is in use by {}: this node does not use it until that host releases it: {}",
                    it.port->name(), ip, rival, kCause);
    } else if (conflict) {
      spdlog::error("port {}: {} has this node's address {}, too: {}", it.port->name(), rival, ip, kCause);
    } else {
      spdlog::warn("port {}: {} asked for {}, the address of this node, and was told that it is in use: {}",
                   it.port->name(), mac_text(unpack_mac(claim.asker())), ip, kCause);
    }
  }
}

}  // namespace gradlane
