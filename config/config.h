// config.h - the settings of one node, and their defaults (node_keys.cc has the ranges)
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
using IpAddress = std::array<uint8_t, 16>;  // IPv4 as ::ffff:10.77.0.1 (RFC 4291, 2.5.5.2)

// Behaviour of a worker while no packets arrive. It keeps polling (kSpin), or leaves its CPU to other threads after
// each poll (kYield). kAdaptive is like kYield, but the worker sleeps if no packets arrive for some time.
enum class IdlePolicy : uint8_t { kSpin, kYield, kAdaptive };

// The protection of packets between nodes: AES-256-GCM that only authenticates, or encrypts; or AES-128-GCM.
enum class Security : uint8_t { kNone, kAuthenticated, kEncrypted, kEncrypted128 };

inline constexpr unsigned kMaxNodes = 256;
inline constexpr unsigned kMaxTrainers = 16;    // per node
inline constexpr unsigned kMaxLanes = 16;       // per node; GL_MAX_LANES of client/abi.h
inline constexpr unsigned kMaxPorts = 16;       // per node
inline constexpr size_t kMaxProcessPorts = 32;  // for all nodes of a daemon: DPDK's RTE_MAX_ETHPORTS
inline constexpr size_t kMinIpMtu = 576;
inline constexpr size_t kMaxIpMtu = 16384;    // with sockets: on loopback, four such packets fill a superpacket
inline constexpr size_t kMaxFrameMtu = 9000;  // with all other ports, and with accelerators
inline constexpr size_t kIpUdpBytes = 28;     // headers between the MTU of IP and that of the exchange, for IPv4

// An address and a port of TCP or UDP.
struct IpPort {
  IpAddress ip{};
  uint16_t port = 0;
  bool operator==(const IpPort&) const = default;
};

// A node of the ring. All nodes have the same table of these.
struct NodeAddress {
  unsigned rank = 0;              // place of the node in the ring
  uint32_t ip = 0;                // IPv4 address in frames, in host byte order (config/addresses.h)
  std::optional<MacAddress> mac;  // absent: found by ARP
  std::string host{};             // name or address of the machine, by which it finds its rank; empty if not given
  // Address and first UDP port of sockets. If absent, sockets use `ip` and NodeConfig::udp_port.
  std::optional<IpAddress> real{};
  std::optional<uint16_t> udp_port{};
};

struct PortConfig {
  enum class Kind : uint8_t {
    kDevice,  // DPDK devargs of a virtual device: "net_memif0,role=server,..."
    kPci,     // PCI address of a NIC, followed by devargs if they are needed: "0000:03:00.0"
    kRing,    // one end of an in-process link of that name; another node of the same process has the other end
    kUdp,     // sockets of the kernel, with the kernel's addresses
  };
  std::string name;  // name in logs and metrics; e0, e1, ... if not given
  Kind kind = Kind::kDevice;
  std::string device;             // devargs, PCI address or name of the link; for sockets `auto` or `any`
  std::vector<unsigned> nodes;    // ranks of the nodes that this port reaches; empty: all other nodes
  std::optional<MacAddress> mac;  // absent: the device has its own
};

// Faults that a node injects into the frames that it receives, for tests. Probabilities are per frame.
struct InjectedFaults {
  double drop = 0;
  double duplicate = 0;
  double reorder = 0;  // frame arrives after up to 8 later ones
  double corrupt = 0;  // one bit is flipped
  double delay = 0;    // frame arrives delay_time late
  Nanos delay_time = kMillisecond;
  uint64_t seed = 1;

  [[nodiscard]] bool any() const noexcept { return drop + duplicate + reorder + corrupt + delay > 0; }
  bool operator==(const InjectedFaults&) const = default;
};

// The strategy and codec for operations that leave these to the library, from `from` bytes on and below `to` bytes.
struct PlanChoice {
  uint64_t from = 0;
  uint64_t to = 0;
  StrategyId strategy;
  Codec codec = find_codec(kDefaultCodec);
};
inline constexpr size_t kMaxPlanChoices = 64;  // GL_MAX_PLAN_ROWS of client/abi.h

inline constexpr size_t kSocketQueueTarget = 64;
inline constexpr size_t kSegmentsQueueTarget = 5;  // the same if packets go in segments through a network

struct NodeConfig {
  std::string file;  // name of the file, for messages

  // ---- Nodes and ranks. Nodes are sorted by rank; ranks of nodes are 0 to nodes.size() - 1.
  unsigned rank = 0;
  std::vector<NodeAddress> nodes;
  unsigned trainers = 1;      // on each node
  bool verify = false;        // trainers' libraries verify sums
  bool local_reduce = false;  // trainers of a node are reduced first, and are one rank of the ring

  // ---- Packets.
  std::vector<PortConfig> ports;
  size_t mtu = 1500;          // MTU of IP
  bool segments = true;       // sockets send packets that are longer than `mtu`, in several datagrams
  uint16_t udp_port = 18400;  // first of lanes * trainers UDP ports
  uint8_t tos_compressed = 0x28;
  uint8_t tos_raw = 0x20;
  uint8_t tos_control = 0xc0;

  // ---- Threads.
  unsigned lanes = 1;           // queue pairs per port, and parts that tensors are divided into
  unsigned threads = 1;         // workers; at most `lanes`
  std::vector<unsigned> cores;  // CPU of each thread; empty: the scheduler chooses
  IdlePolicy idle = IdlePolicy::kAdaptive;

  // ---- Memory.
  bool hugepages = false;
  size_t trainer_memory = size_t{4} << 30;  // most bytes that a trainer may share with the daemon

  // ---- The exchange. World, mtu, rank and codec of ExchangeConfig follow from other settings, incarnation is random.
  Codec codec = find_codec(kDefaultCodec);
  // strategies that operations may name; the first one is the default
  std::vector<StrategyId> strategies = {StrategyId{}};
  // Choices that the library makes, for operations that name no codec or no strategy. auto_codec is empty if the
  // library does not choose the codec. Otherwise it is "auto" or "auto:2^-10", and `codec` is exact. The calibration
  // has the figures with which the library predicts. A plan replaces the library's trials. `calibration` and
  // `plan_file` are paths, or empty.
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
  Nanos shutdown_timeout = 2 * kSecond;  // most time that operations in flight may take after SIGTERM
  Nanos min_rto = settings::kMinRto.standard;

  // ---- Protection: docs/security.md
  Security security = Security::kNone;
  bool security_chosen = false;  // the configuration names `security` or a key
  std::string key_file;          // file with the ring's key; empty with Security::kNone
  bool containment = true;       // gives up what a running daemon does not need
  std::string user;  // user that the daemon becomes after it has all its devices and sockets; empty: it keeps its user

  InjectedFaults faults;

  // ---- Sockets and logs.
  std::string socket;             // path of the trainers' socket, which the daemon makes
  std::string admin;              // path of the socket for `gradlane stats` and `gradlane check`
  std::optional<IpPort> metrics;  // TCP address for Prometheus and `gradlane top`; absent: none
  std::string metrics_socket;     // path of a Unix socket in place of `metrics`, or empty
  bool telemetry = false;         // has no effect; release 0.3 will refuse it
  std::string log = "info";       // trace, debug, info, warn, error
  std::string log_file;           // path, reopened on SIGHUP; empty: standard error
};

// Returns the number of ranks of the exchange on each node: its trainers, or 1 if they reduce locally.
[[nodiscard]] inline unsigned ranks_per_node(const NodeConfig& config) noexcept {
  return config.local_reduce ? 1 : config.trainers;
}
// Returns whether any port of the node uses sockets.
[[nodiscard]] inline bool of_sockets(const NodeConfig& config) noexcept {
  return std::ranges::any_of(config.ports, [](const PortConfig& it) { return it.kind == PortConfig::Kind::kUdp; });
}
[[nodiscard]] inline unsigned world_of(const NodeConfig& config) noexcept {
  return static_cast<unsigned>(config.nodes.size()) * ranks_per_node(config);
}

}  // namespace gradlane
