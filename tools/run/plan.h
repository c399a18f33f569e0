// plan.h - what `gradlane run` is to do: its options, understood and checked, and what trainers are told
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
inline constexpr unsigned kMaxJob = (1U << 18) - 2;  // 127.0.0.0/8 has 24 bits, the first and the last job broadcasts

struct RunPlan {
  enum class Link : uint8_t {
    kVhost,  // a process per node, shared memory between neighbours
    kMemif,  // likewise; it may happen that a node dies with a neighbour that is killed
    kRing,   // all nodes in one process
    kVeth,   // a process per node, each in a network namespace with a cable to a switch
    kUdp,  // a process per node with sockets: on loopback addresses, or with a rate as kVeth, and the kernel's network
    // Hosts, each with its own kernel's network in a namespace, and an accelerator between it and the cable.
    kAccelerator,
  };
  unsigned nodes = 1;
  Link link = Link::kVhost;
  std::string link_name;
  std::string codec;
  std::string
      trainers_codec;  // of --codec, for PyTorch: fixed:adaptive, say, which daemons do not do; empty: none was named
  std::vector<StrategyId> strategies = {StrategyId{}};
  unsigned lanes = 1;
  unsigned trainers = 1;  // per node
  bool local_reduce = false;
  bool inside = false;  // of kVeth and kUdp with namespaces: commands run in the nodes' namespaces, which have a
                        // network of the kernel's too
  bool ipv6 = false;    // of kUdp
  size_t mtu = 9000;    // of IP
  uint64_t rate = 0;    // of links, in bit/s; 0: as fast as they are
  std::string timeout;  // of operations, as configuration files have it; empty: their default
  bool repack = true;
  bool accelerators = true;  // of kAccelerator; false: cables lead straight to the hosts
  std::string idle;
  std::string log;
  unsigned metrics = 0;  // TCP port of node 0 for Prometheus, and those behind it of others; 0: none
  std::string keep_configs;
  bool prefix = true;
  std::vector<std::string> command;  // empty: none
  std::string daemon;                // path of the executable
  unsigned job = 1;                  // drawn, up to kMaxJob: tells loopback addresses of several runs apart

  [[nodiscard]] bool has_spaces() const noexcept {
    return link == Link::kVeth || link == Link::kAccelerator || (link == Link::kUdp && (rate != 0 || inside));
  }
  [[nodiscard]] bool has_accelerators() const noexcept { return link == Link::kAccelerator && accelerators; }
  [[nodiscard]] bool has_daemons() const noexcept { return link != Link::kAccelerator || accelerators; }
  // Whether the command of a rank is in its node's namespace.
  [[nodiscard]] bool runs_inside() const noexcept { return inside || link == Link::kAccelerator; }
  [[nodiscard]] unsigned ranks() const noexcept { return nodes * trainers; }
  [[nodiscard]] unsigned node_of(unsigned rank) const noexcept { return rank / trainers; }
};

// Throws SetupError.
[[nodiscard]] RunPlan make_run_plan(const RunOptions& options);

// The IPv4 address of a node: "10.77.0.1" of node 0.
[[nodiscard]] std::string node_address(unsigned node);
// The same of IPv6: "fd77::1".
[[nodiscard]] std::string node_ipv6_address(unsigned node);
// On the loopback interface.
[[nodiscard]] std::string loopback_address(unsigned node, unsigned job);
// The first UDP port of a node, where all nodes have the one IPv6 address of that interface.
[[nodiscard]] unsigned loopback_port(const RunPlan& plan, unsigned node);
// That of its kernel, with --inside: "10.77.1.1".
[[nodiscard]] std::string inside_address(unsigned node);

// The path of gradlaned: what GRADLANED names, or the one beside this executable, or in PATH. Throws SetupError.
[[nodiscard]] std::string find_daemon();

// 0 if the command can be executed; else what a shell returns: 127 for what is not there, 126 for what is not
// executable.
[[nodiscard]] int command_fault(const std::string& name);

// Variables that trainers get on top of those of this process: what torchrun sets where all ranks are on one machine,
// and where their daemon is: its socket. As "NAME=value".
[[nodiscard]] std::vector<std::string> rank_variables(const RunPlan& plan, unsigned rank, unsigned port,
                                                      const std::string& socket);
// The same with --inside: what torchrun sets where each node is a machine of its own, and where the nodes are: their
// addresses and `spaces`, the names of their namespaces.
[[nodiscard]] std::vector<std::string> inside_variables(const RunPlan& plan, unsigned rank, unsigned port,
                                                        const std::string& socket, std::vector<std::string> spaces);
// The same for hosts behind accelerators: what torchrun sets where each rank is on a machine of its own, all addresses,
// and the accelerator's admin socket, if there is one.
[[nodiscard]] std::vector<std::string> host_variables(const RunPlan& plan, unsigned node, unsigned port,
                                                      const std::string& admin);

// This process's environment, with these in place of those of the same name.
[[nodiscard]] std::vector<std::string> environment_with(const std::vector<std::string>& variables);

}  // namespace gradlane
