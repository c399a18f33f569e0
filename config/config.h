// config.h - one node's settings: what can be set, and defaults (node_keys.cc has the ranges)
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "collectives/exchange_config.h"

namespace gradlane {

using MacAddress = std::array<uint8_t, 6>;
using IpAddress = std::array<uint8_t, 16>;  // of IPv4 as ::ffff:10.77.0.1 (RFC 4291, 2.5.5.2)

// What a worker does while nothing comes: poll on; leave its CPU to others after each poll; or the latter, and after
// some time sleep.
enum class IdlePolicy : uint8_t { kSpin, kYield, kAdaptive };

inline constexpr unsigned kMaxNodes = 256;
inline constexpr unsigned kMaxTrainers = 16;    // per node
inline constexpr unsigned kMaxLanes = 16;       // per node; GL_MAX_LANES of client/abi.h
inline constexpr unsigned kMaxPorts = 16;       // per node
inline constexpr size_t kMaxProcessPorts = 32;  // of all nodes of a daemon: DPDK's RTE_MAX_ETHPORTS
inline constexpr size_t kMinIpMtu = 576;
inline constexpr size_t kMaxIpMtu = 9000;
inline constexpr size_t kIpUdpBytes = 28;  // headers between the MTU of IP and that of the exchange (of IPv4)

// Of TCP or UDP.
struct IpPort {
  IpAddress ip{};
  uint16_t port = 0;
  bool operator==(const IpPort&) const = default;
};

// A machine of the ring. The table is the same on all nodes.
struct NodeAddress {
  unsigned rank = 0;              // of the node: its place in the ring
  uint32_t ip = 0;                // IPv4, host byte order: what frames have (config/addresses.h)
  std::optional<MacAddress> mac;  // absent: asked for by ARP
  std::string host{};             // name or address of the machine, by which it finds its rank; empty: not given
  // What sockets have in place of `ip` and of NodeConfig::udp_port; absent: these.
  std::optional<IpAddress> real{};
  std::optional<uint16_t> udp_port{};
};

struct PortConfig {
  enum class Kind : uint8_t {
    kDevice,  // DPDK devargs of a virtual device: "net_memif0,role=server,..."
    kPci,     // PCI address of a NIC, with devargs behind it if need be: "0000:03:00.0"
    kRing,    // one end of an in-process link of that name; the other end is another node of the same process
    kUdp,     // sockets of the kernel, with its addresses
  };
  std::string name;  // in logs and figures; e0, e1, ... if not given
  Kind kind = Kind::kDevice;
  std::string device;             // devargs, PCI address, name of the link; of sockets: auto, or any address
  std::vector<unsigned> nodes;    // reached through this port, by rank; empty: all others
  std::optional<MacAddress> mac;  // absent: the device's own
};

// Faults that a node makes itself, in the frames it receives, to see what comes of them. Probabilities are per frame.
struct InjectedFaults {
  double drop = 0;
  double duplicate = 0;
  double reorder = 0;  // arrives behind up to 8 later ones
  double corrupt = 0;  // one bit is another one
  double delay = 0;    // arrives delay_time late
  Nanos delay_time = kMillisecond;
  uint64_t seed = 1;

  [[nodiscard]] bool any() const noexcept { return drop + duplicate + reorder + corrupt + delay > 0; }
  bool operator==(const InjectedFaults&) const = default;
};

// How operations that leave it to the library go, from so many bytes on and below so many.
struct PlanChoice {
  uint64_t from = 0;
  uint64_t to = 0;
  StrategyId strategy;
  Codec codec = find_codec(kDefaultCodec);
};
inline constexpr size_t kMaxPlanChoices = 64;  // GL_MAX_PLAN_ROWS of client/abi.h

inline constexpr size_t kSocketQueueTarget = 64;

struct NodeConfig {
  std::string file;  // where it was read from, for messages

  // ---- Who is who. Nodes are sorted by rank; ranks of nodes are 0 to nodes.size() - 1.
  unsigned rank = 0;
  std::vector<NodeAddress> nodes;
  unsigned trainers = 1;      // on each node
  bool local_reduce = false;  // trainers of a node are summed up before the ring, and are one rank of it

  // ---- How packets travel.
  std::vector<PortConfig> ports;
  size_t mtu = 1500;          // of IP
  uint16_t udp_port = 18400;  // the first of lanes * trainers
  uint8_t tos_compressed = 0x28;
  uint8_t tos_raw = 0x20;
  uint8_t tos_control = 0xc0;

  // ---- Threads.
  unsigned lanes = 1;           // queue pairs per port, and parts that tensors are divided into
  unsigned threads = 1;         // workers; at most `lanes`
  std::vector<unsigned> cores;  // one per thread, to pin it there; empty: wherever the scheduler likes
  IdlePolicy idle = IdlePolicy::kAdaptive;

  // ---- Memory.
  bool hugepages = false;
  size_t trainer_memory = size_t{4} << 30;  // shared buffers of a trainer, bytes

  // ---- The exchange: world, mtu, rank, codec follow from the above, incarnation is drawn at the start.
  Codec codec = find_codec(kDefaultCodec);
  std::vector<StrategyId> strategies = {StrategyId{}};  // those that operations may name; the first one is the default
  // What the library chooses, of operations that name nothing: the codec, `codec` is exact then ("auto", "auto:2^-10";
  // empty: it does not); the strategy; by which figures, and in place of trials by which plan (paths; empty: none).
  std::string auto_codec;
  bool auto_strategy = false;
  std::string calibration;
  std::string plan_file;
  std::vector<PlanChoice> plan;
  size_t window = settings::kWindow.standard;
  size_t operations = settings::kOperations.standard;
  size_t max_tensor = settings::kMaxTensor.standard;
  size_t queue_target = settings::kQueueTarget.standard;
  Nanos peer_timeout = settings::kPeerTimeout.standard;
  Nanos start_timeout = settings::kStartTimeout.standard;
  Nanos operation_timeout = settings::kOperationTimeout.standard;
  Nanos shutdown_timeout = 2 * kSecond;  // how long operations in flight may take to end after SIGTERM
  Nanos min_rto = settings::kMinRto.standard;

  // ---- Protection. docs/security.md
  std::string key_file;  // packets carry a tag made with the key in it; empty: they do not
  std::string user;      // whom the daemon becomes once it has all it needs; empty: it stays who it is

  InjectedFaults faults;

  // ---- Talking to the outside.
  std::string socket;             // path; made by the daemon
  std::string admin;              // path: `gradlane stats` and `gradlane check` ask here
  std::optional<IpPort> metrics;  // where Prometheus and `gradlane top` ask, by TCP; absent: they do not
  bool telemetry = false;         // has no effect; accepted until 0.3
  std::string log = "info";       // trace, debug, info, warn, error
  std::string log_file;           // path; opened anew on SIGHUP; empty: standard error
};

// Ranks of the exchange: trainers, or nodes where they reduce locally.
[[nodiscard]] inline unsigned ranks_per_node(const NodeConfig& config) noexcept {
  return config.local_reduce ? 1 : config.trainers;
}
// Any of its ports is.
[[nodiscard]] inline bool of_sockets(const NodeConfig& config) noexcept {
  return std::ranges::any_of(config.ports, [](const PortConfig& it) { return it.kind == PortConfig::Kind::kUdp; });
}
[[nodiscard]] inline unsigned world_of(const NodeConfig& config) noexcept {
  return static_cast<unsigned>(config.nodes.size()) * ranks_per_node(config);
}

}  // namespace gradlane
