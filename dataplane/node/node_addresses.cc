// node_addresses.cc - what becomes of the node's address on its ports: at the start, in the log (control thread only)
#include <spdlog/spdlog.h>

#include <algorithm>

#include "config/values.h"
#include "dataplane/device/eal.h"
#include "dataplane/kernel/kernel_interface.h"
#include "dataplane/node/node.h"

namespace gradlane {
namespace {

constexpr Nanos kLogInterval = 10 * kSecond;
constexpr const char* kCause =
    "is its configuration a copied one (`rank`), or has another host this address? Every node needs its own";

}  // namespace

void Node::claim_address() {
  const uint32_t ip = config_.nodes[config_.rank].ip;
  const auto is_local = [](const PortConfig& port) { return traits_of(port).local; };
  if (std::ranges::all_of(config_.ports, is_local)) return;
  address_.emplace("address " + ip_text(ip), "stop it, or set this node's own `rank` and address");
  const std::string owner = owner_of(ip);
  if (owner.empty()) return;
  spdlog::warn(
      "address {}: the kernel has it too, on {}: it answers for gradlane, and refuses its packets: ip addr del {} "
      "dev {}",
      ip_text(ip), owner, ip_text(ip), owner);
}

bool Node::addresses_settled() {
  for (Wire& wire : wires_) {
    if (!wire.claim->held()) wire.port->tend();
  }
  return std::ranges::all_of(wires_, [](const Wire& wire) {
    using State = AddressClaim::State;
    const State state = wire.claim->state();
    return state == State::kHeld || state == State::kTaken || !wire.port->link_up();
  });
}

void Node::check_addresses() const {
  for (const Wire& wire : wires_) {
    if (wire.claim->state() != AddressClaim::State::kTaken) continue;
    throw SetupError(fmt::format("port {}: {} is in use by {}: {}", wire.port->name(),
                                 ip_text(config_.nodes[config_.rank].ip), mac_text(unpack_mac(wire.claim->rival())),
                                 kCause));
  }
}

void Node::log_addresses() {
  const Nanos now = clock_now();
  const std::string ip = ip_text(config_.nodes[config_.rank].ip);
  for (Wire& wire : wires_) {
    const AddressClaim& claim = *wire.claim;
    AddressNews& news = wire.news;
    if (claim.conflicts() != news.conflicts) news.conflict_at = now;
    const bool taken = claim.state() == AddressClaim::State::kTaken;
    const bool conflict = claim.conflicts() != news.conflicts;
    const bool asked = claim.times_asked() != news.asked;
    news.conflicts = claim.conflicts();
    if ((!taken && !conflict && !asked) || now < news.log_at) continue;
    news.log_at = now + kLogInterval;
    news.asked = claim.times_asked();
    const std::string rival = mac_text(unpack_mac(claim.rival()));
    if (taken) {
      spdlog::error("port {}: {} is in use by {}: this node does not use it as long as that is so: {}",
                    wire.port->name(), ip, rival, kCause);
    } else if (conflict) {
      spdlog::error("port {}: {} has this node's address {}, too: {}", wire.port->name(), rival, ip, kCause);
    } else {
      spdlog::warn("port {}: {} wanted {}, the address of this node, and was told that it is in use: {}",
                   wire.port->name(), mac_text(unpack_mac(claim.asker())), ip, kCause);
    }
  }
}

}  // namespace gradlane
