// net_accelerator.cc - hosts behind accelerators, for `gradlane run --link accelerator` (main thread: set-up)
#include "tools/run/interface.h"
#include "tools/run/net.h"

namespace gradlane {

// Sets up a host in the node's namespace, where this process is. The veth pair from the switch ends there already.
//
// Packets that arrive at the accelerator's ports are for its packet sockets only. By default, the kernel takes packets
// to the host's address from any interface. It would see them twice, and answer ARP at all three interfaces. So
// nftables drops them after the packet sockets have them. This link needs nftables.
void RunNet::add_host(unsigned node) const {
  run({"ip", "link", "set", "lo", "up"});
  if (plan_.has_accelerators()) {
    const std::string mtu = std::to_string(plan_.mtu);
    run({"ip", "link", "add", kVethName, "mtu", mtu, "type", "veth", "peer", "name", kHostPortName, "mtu", mtu});
    for (const char* const port : {kHostPortName, kWirePortName}) drop_input(port);
    turn_offloads_off(kVethName);
    turn_offloads_off(kHostPortName);
    finish_cable(kWirePortName);
    run({"ip", "link", "set", kHostPortName, "up"});
    run({"ip", "link", "set", kVethName, "up"});
  } else {
    finish_cable(kVethName);
  }
  run({"ip", "address", "add", node_address(node) + "/24", "dev", kVethName});
}

}  // namespace gradlane
