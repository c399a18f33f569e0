// settings.h - settings of `gradlane run`: its checked options, and the environment variables of trainers (set-up only)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/strategy/strategy_id.h"
#include "tools/run/run.h"

namespace gradlane {

inline constexpr unsigned kMaxRunNodes = 64;
// 127.0.0.0/8 has 24 bits for hosts: 18 for the job, 6 for the node. The first and the last job would have broadcast
// addresses.
inline constexpr unsigned kMaxJob = (1U << 18) - 2;

struct RunSettings {
  enum class Link : uint8_t {
    kVhost,  // a process per node, with shared memory between neighbours
    kMemif,  // a process per node, as with kVhost, but with memif; a node may die when its neighbour is killed
    kRing,   // all nodes in one process
    kVeth,   // a process per node, each in a network namespace with a veth pair to a switch
    // A process per node with UDP sockets. They use loopback addresses, or with a rate or --inside, the kernel's
    // network in namespaces as with kVeth.
    kUdp,
    // Hosts, each in a namespace with its own kernel network, and an accelerator between that and the veth pair.
    kAccelerator,
  };
  unsigned nodes = 1;
  Link link = Link::kVhost;
  std::string link_name;
  std::string codec;
  // The codec that --codec names, for PyTorch: it can be fixed:adaptive, which daemons lack. Empty if there is none.
  std::string trainers_codec;
  std::vector<StrategyId> strategies = {StrategyId{}};
  unsigned lanes = 1;
  unsigned trainers = 1;  // per node
  bool local_reduce = false;
  // with kVeth, and kUdp with namespaces: commands run in the nodes' namespaces, which also have a kernel network
  bool inside = false;
  bool ipv6 = false;    // with kUdp: nodes have IPv6 addresses
  size_t mtu = 9000;    // of IP packets
  uint64_t rate = 0;    // rate of links in bit/s; 0: they are not shaped
  std::string timeout;  // time limit of operations, in the form of configuration files; empty: their default
  bool repack = true;
  bool accelerators = true;  // with kAccelerator; false: the same network without accelerators
  std::string idle;
  std::string security;  // `security` of configuration files
  std::string log;
  unsigned metrics = 0;  // TCP port of node 0 for Prometheus; node i has port + i; 0: none
  std::string keep_configs;
  bool prefix = true;
  std::vector<std::string> command;  // command of the trainers; empty: none
  std::string daemon;                // path of the executable
  unsigned job = 1;                  // random, up to kMaxJob: makes the loopback addresses of several runs different

  [[nodiscard]] bool has_namespaces() const noexcept {
    return link == Link::kVeth || link == Link::kAccelerator || (link == Link::kUdp && (rate != 0 || inside));
  }
  [[nodiscard]] bool has_accelerators() const noexcept { return link == Link::kAccelerator && accelerators; }
  [[nodiscard]] bool has_daemons() const noexcept { return link != Link::kAccelerator || accelerators; }
  // Returns whether the command of a rank runs in its node's namespace.
  [[nodiscard]] bool runs_inside() const noexcept { return inside || link == Link::kAccelerator; }
  [[nodiscard]] unsigned ranks() const noexcept { return nodes * trainers; }
  [[nodiscard]] unsigned node_of(unsigned rank) const noexcept { return rank / trainers; }
};

// Checks the options and returns the settings. Throws SetupError.
[[nodiscard]] RunSettings make_run_settings(const RunOptions& options);

// Returns the IPv4 address of a node: "10.77.0.1" for node 0.
[[nodiscard]] std::string node_address(unsigned node);
// Returns the IPv6 address of a node: "fd77::1" for node 0.
[[nodiscard]] std::string node_ipv6_address(unsigned node);
// Returns the IPv4 address of a node on the loopback interface.
[[nodiscard]] std::string loopback_address(unsigned node, unsigned job);
// Returns the first UDP port of a node, if all nodes share the one IPv6 address of the loopback interface.
[[nodiscard]] unsigned loopback_port(const RunSettings& plan, unsigned node);
// Returns the address of the kernel's own interface in the node's namespace, with --inside: "10.77.1.1" for node 0.
[[nodiscard]] std::string inside_address(unsigned node);

// Returns the path of gradlaned: the one that GRADLANED names, else the one beside this executable, else the one in
// PATH. Throws SetupError.
[[nodiscard]] std::string find_daemon();

// Returns 0 if the command can be executed. Otherwise returns the same as a shell: 127 if the command does not exist,
// 126 if it is not executable.
[[nodiscard]] int command_fault(const std::string& name);

// Returns variables, as "NAME=value", that trainers get in addition to those of this process. These are the variables
// that torchrun sets if all ranks are on one machine, and the socket of the rank's daemon.
[[nodiscard]] std::vector<std::string> rank_variables(const RunSettings& plan, unsigned rank, unsigned port,
                                                      const std::string& socket);
// Returns the variables with --inside. These are the ones that torchrun sets if each node is a machine of its own, and
// the socket of the rank's daemon. They also have the addresses of all nodes, and `spaces`, the names of their
// namespaces.
[[nodiscard]] std::vector<std::string> inside_variables(const RunSettings& plan, unsigned rank, unsigned port,
                                                        const std::string& socket, std::vector<std::string> spaces);
// Returns the variables for hosts behind accelerators. These are the ones that torchrun sets if each rank is on a
// machine of its own, all addresses, and the accelerator's admin socket, if there is one.
[[nodiscard]] std::vector<std::string> host_variables(const RunSettings& plan, unsigned node, unsigned port,
                                                      const std::string& admin);

// Returns this process's environment, in which `variables` replace those of the same name.
[[nodiscard]] std::vector<std::string> environment_with(const std::vector<std::string>& variables);

}  // namespace gradlane
