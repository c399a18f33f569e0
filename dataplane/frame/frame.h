// frame.h - Ethernet, ARP, IPv4, ICMP and UDP around gradlane packets: what arrived, what to answer, what to write
//
// Pure functions over bytes: no DPDK, no state. Frames have no FCS. Multi-byte fields in these structs and arguments
// are in host byte order unless a name says otherwise.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/counter_set.h"
#include "config/config.h"

namespace gradlane {

inline constexpr size_t kEthernetBytes = 14;
inline constexpr size_t kIpv4Bytes = 20;
inline constexpr size_t kUdpBytes = 8;
inline constexpr size_t kFrameBytes = kEthernetBytes + kIpv4Bytes + kUdpBytes;  // in front of the link header
inline constexpr size_t kArpFrameBytes = kEthernetBytes + 28;

// ---- Traffic classes (RFC 2474: the ToS byte is DSCP and ECN; ECN is ignored).

enum class TrafficClass : uint8_t { kCompressed, kRaw, kControl, kHost, kCount };
inline constexpr size_t kTrafficClasses = static_cast<size_t>(TrafficClass::kCount);
// Metrics of Prometheus that the counters below are samples of.
inline constexpr MetricFamily kPortReceiveClassPacketsMetric = {"gradlane_port_receive_class_packets_total", "class",
                                                                "packets received, by the class that their ToS is of"};
inline constexpr CounterRow<TrafficClass> kTrafficClassRows[] = {
    {TrafficClass::kCompressed, "compressed", "packets received with the ToS of compressed data",
     &kPortReceiveClassPacketsMetric},
    {TrafficClass::kRaw, "raw", "packets received with the ToS of other data", &kPortReceiveClassPacketsMetric},
    {TrafficClass::kControl, "control", "packets received with the ToS of control", &kPortReceiveClassPacketsMetric},
    {TrafficClass::kHost, "host", "IPv4 packets received with another ToS"},
};
static_assert(is_complete(kTrafficClassRows));
constexpr const auto& counter_rows(TrafficClass) noexcept { return kTrafficClassRows; }

// What a packet of ours is to switches on its way; its first run decides.
[[nodiscard]] TrafficClass class_of(const uint8_t* packet, size_t bytes) noexcept;

class Classifier {
 public:
  Classifier(uint8_t compressed, uint8_t raw, uint8_t control) noexcept;
  [[nodiscard]] TrafficClass classify(uint8_t tos) const noexcept { return table_[tos]; }
  [[nodiscard]] uint8_t tos_of(TrafficClass value) const noexcept { return tos_[static_cast<size_t>(value)]; }

 private:
  std::array<TrafficClass, 256> table_;
  std::array<uint8_t, kTrafficClasses> tos_;
};

// ---- Receiving

// Every frame is exactly one of these. All but the first five are dropped, and counted under this name.
enum class FrameVerdict : uint8_t {
  kGradlane,
  kArp,
  kEcho,
  kProbe,
  kRival,
  kNotForUs,
  kHost,
  kOtherEtherType,
  kRunt,
  kBadIpHeader,
  kIpOptions,
  kFragment,
  kBadUdp,
  kBadChecksum,
  kBadArp,
  kCount
};
// Metrics of Prometheus that the counters below are samples of.
inline constexpr MetricFamily kPortReceiveKindFramesMetric = {
    "gradlane_port_receive_kind_frames_total", "kind",
    "frames received: for the exchange, ARP, pings, probes, of a host with this node's address, of other programs"};
inline constexpr MetricFamily kPortDropsMetric = {"gradlane_port_drops_total", "reason",
                                                  "frames and packets dropped, both ways"};
inline constexpr CounterRow<FrameVerdict> kFrameVerdictRows[] = {
    {FrameVerdict::kGradlane, "gradlane", "packets for the exchange", &kPortReceiveKindFramesMetric},
    {FrameVerdict::kArp, "arp", "ARP requests for this node's address, and replies to it",
     &kPortReceiveKindFramesMetric},
    {FrameVerdict::kEcho, "echo", "ICMP echo requests to this node's address", &kPortReceiveKindFramesMetric},
    {FrameVerdict::kProbe, "probe", "probes of the way to a neighbour, and answers, whatever their ToS",
     &kPortReceiveKindFramesMetric},
    {FrameVerdict::kRival, "rival", "ARP packets of another host that has this node's address",
     &kPortReceiveKindFramesMetric},
    {FrameVerdict::kNotForUs, "not_for_us", "frames for another MAC or IP address", &kPortReceiveKindFramesMetric},
    {FrameVerdict::kHost, "host", "IPv4 packets of other ToS classes, ports or protocols",
     &kPortReceiveKindFramesMetric},
    {FrameVerdict::kOtherEtherType, "other_ethertype", "frames that are neither IPv4 nor ARP",
     &kPortReceiveKindFramesMetric},
    {FrameVerdict::kRunt, "runt", "frames shorter than their headers say", &kPortDropsMetric},
    {FrameVerdict::kBadIpHeader, "bad_ip_header", "IPv4 headers with a wrong version, length or checksum",
     &kPortDropsMetric},
    {FrameVerdict::kIpOptions, "ip_options", "gradlane packets and pings with IP options", &kPortDropsMetric},
    {FrameVerdict::kFragment, "fragment", "fragments of IPv4 packets", &kPortDropsMetric},
    {FrameVerdict::kBadUdp, "bad_udp", "UDP lengths that do not fit the packet", &kPortDropsMetric},
    {FrameVerdict::kBadChecksum, "bad_checksum", "UDP or ICMP checksums that are wrong", &kPortDropsMetric},
    {FrameVerdict::kBadArp, "bad_arp", "ARP packets not about IPv4 over Ethernet, or from a group address",
     &kPortDropsMetric},
};
static_assert(is_complete(kFrameVerdictRows));
constexpr const auto& counter_rows(FrameVerdict) noexcept { return kFrameVerdictRows; }

// What a port answers to.
struct LocalAddress {
  MacAddress mac{};
  uint32_t ip = 0;
  uint16_t udp_port = 0;   // the first,
  uint16_t udp_ports = 0;  //   and how many
};

struct ParsedFrame {
  FrameVerdict verdict = FrameVerdict::kRunt;
  TrafficClass traffic = TrafficClass::kHost;
  uint8_t tos = 0;  // kGradlane, kProbe: as it arrived
  uint32_t source_ip =
      0;  // kGradlane, kProbe, kEcho; kArp: the sender's, 0 if it only probes for the address (RFC 5227)
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  size_t bytes = 0;  // kGradlane, kProbe: of the UDP payload, which is at kFrameBytes; kEcho: of the ICMP message
  MacAddress source_mac{};  // kArp, kRival: the sender's, as the ARP packet says
  uint32_t asked_ip = 0;    // kNotForUs: an ARP packet of source_ip about this address; 0: it is none
};

// Looks at a received frame. Only packets of a gradlane class, UDP, to our address and ports are kGradlane; their IP
// header checksum was verified (the packet's own CRC covers the rest; a UDP checksum that is not 0 is left to the NIC).
// Probes (dataplane/frame/probe.h) may be of any class: they are to find out who changes ToS bytes.
// Reads nothing outside `frame`, whatever it contains. A frame may be longer than its packet (padding).
//
// IPv4 comes to our own MAC address only: a broadcast frame with our IP address is not for us (RFC 1122, 3.3.6), nor is
// one for a multicast MAC. ARP comes to our own or to the broadcast MAC. Frames with a VLAN tag are kOtherEtherType.
[[nodiscard]] ParsedFrame parse_frame(std::span<const uint8_t> frame, const LocalAddress& local,
                                      const Classifier& classifier) noexcept;

// ---- Answering: rewrites a frame of verdict kArp (a request) or kEcho into its answer, in place. Returns the length
// of the answer, or 0 if none is due (ARP replies).
[[nodiscard]] size_t answer_frame(std::span<uint8_t> frame, const ParsedFrame& parsed,
                                  const LocalAddress& local) noexcept;

// ---- Sending

// From where to where.
struct Flow {
  MacAddress source_mac{};
  MacAddress destination_mac{};
  uint32_t source_ip = 0;
  uint32_t destination_ip = 0;
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
};

// Writes the kFrameBytes headers in front of a payload of `bytes` bytes: don't-fragment, TTL 64, correct IP checksum,
// UDP checksum 0 (none; the gradlane header has a CRC32C of everything behind it).
void write_headers(uint8_t* frame, const Flow& flow, uint8_t tos, size_t bytes) noexcept;

// Then, for what leaves this machine: the UDP checksum (RFC 768), with the payload as it is now; a sum of 0 is 0xffff.
void seal_udp(uint8_t* frame, size_t bytes) noexcept;
// Or the sum of the pseudo-header alone, not complemented: where devices go on from.
void begin_udp_checksum(uint8_t* frame) noexcept;
// Of a kGradlane frame.
[[nodiscard]] bool has_udp_checksum(const uint8_t* frame) noexcept;

// Writes an ARP request (RFC 826) of kArpFrameBytes bytes: who has `ip`? With local.ip == 0 it is a probe, and about
// local.ip itself an announcement (RFC 5227).
void write_arp_request(uint8_t* frame, const LocalAddress& local, uint32_t ip) noexcept;

}  // namespace gradlane
