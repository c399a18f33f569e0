// frame.h - Ethernet, ARP, IPv4, ICMP and UDP around gradlane packets: parsing, answering and writing frames
//
// The functions are pure: they work on bytes, without DPDK and without state. Frames have no FCS. Multi-byte fields in
// these structs and arguments are in host byte order unless a name says otherwise.
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
inline constexpr size_t kFrameBytes = kEthernetBytes + kIpv4Bytes + kUdpBytes;  // headers before the link header
inline constexpr size_t kArpFrameBytes = kEthernetBytes + 28;

// ---- Traffic classes (RFC 2474: the ToS byte is DSCP and ECN; ECN is ignored).

enum class TrafficClass : uint8_t { kCompressed, kRaw, kControl, kHost, kCount };
inline constexpr size_t kTrafficClasses = static_cast<size_t>(TrafficClass::kCount);
// Prometheus metrics; the counters below are samples of them.
inline constexpr MetricFamily kPortReceiveClassPacketsMetric = {"gradlane_port_receive_class_packets_total", "class",
                                                                "packets received, by traffic class (ToS)"};
inline constexpr CounterRow<TrafficClass> kTrafficClassRows[] = {
    {TrafficClass::kCompressed, "compressed", "packets received with the ToS of compressed data",
     &kPortReceiveClassPacketsMetric},
    {TrafficClass::kRaw, "raw", "packets received with the ToS of other data", &kPortReceiveClassPacketsMetric},
    {TrafficClass::kControl, "control", "packets received with the ToS of control", &kPortReceiveClassPacketsMetric},
    {TrafficClass::kHost, "host", "IPv4 packets received with another ToS"},
};
static_assert(is_complete(kTrafficClassRows));
constexpr const auto& counter_rows(TrafficClass) noexcept { return kTrafficClassRows; }

// Returns the traffic class of a packet that this node sends. The first run in the packet decides the class. The class
// decides the ToS byte, on which the treatment by switches depends.
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

// Each frame gets exactly one of these verdicts, and is counted under its name. Frames of all verdicts except the first
// five are dropped.
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
// Prometheus metrics; the counters below are samples of them.
inline constexpr MetricFamily kPortReceiveKindFramesMetric = {
    "gradlane_port_receive_kind_frames_total", "kind",
    "frames received: of the exchange, ARP, pings, probes, of a host with this node's address, of other programs"};
inline constexpr MetricFamily kPortDropsMetric = {"gradlane_port_drops_total", "reason",
                                                  "frames and packets dropped, while receiving or sending"};
inline constexpr CounterRow<FrameVerdict> kFrameVerdictRows[] = {
    {FrameVerdict::kGradlane, "gradlane", "packets for the exchange", &kPortReceiveKindFramesMetric},
    {FrameVerdict::kArp, "arp", "ARP requests for this node's address, and replies to it",
     &kPortReceiveKindFramesMetric},
    {FrameVerdict::kEcho, "echo", "ICMP echo requests to this node's address", &kPortReceiveKindFramesMetric},
    {FrameVerdict::kProbe, "probe", "probes of the path to a neighbour and answers to them, with any ToS",
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
    {FrameVerdict::kBadArp, "bad_arp",
     "ARP packets that are not for IPv4 over Ethernet, or that come from a group address", &kPortDropsMetric},
};
static_assert(is_complete(kFrameVerdictRows));
constexpr const auto& counter_rows(FrameVerdict) noexcept { return kFrameVerdictRows; }

// The addresses and UDP ports that a port answers to.
struct LocalAddress {
  MacAddress mac{};
  uint32_t ip = 0;
  uint16_t udp_port = 0;   // first UDP port
  uint16_t udp_ports = 0;  // number of UDP ports, from the first one on
};

struct ParsedFrame {
  FrameVerdict verdict = FrameVerdict::kRunt;
  TrafficClass traffic = TrafficClass::kHost;
  uint8_t tos = 0;  // kGradlane, kProbe: ToS byte as it arrived
  uint32_t source_ip =
      0;  // sender of kGradlane, kProbe, kEcho or ARP; 0 in a kArp frame that probes for the address (RFC 5227)
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  // kGradlane, kProbe: length of the UDP payload, which is at kFrameBytes; kEcho: length of the ICMP message
  size_t bytes = 0;
  MacAddress source_mac{};  // kArp, kRival: MAC address of the sender, from the ARP packet
  uint32_t asked_ip = 0;    // kNotForUs: address that an ARP packet of source_ip asks about; 0: no such packet
};

// Parses a received frame. Reads nothing outside `frame`, whatever it contains. A frame may be longer than its packet
// (padding).
//
// A frame is kGradlane only if it is a UDP packet of a gradlane traffic class to our address and ports, and its IP
// header checksum is correct. The CRC in the gradlane packet covers the rest; the NIC checks a UDP checksum that is not
// 0. Probes (dataplane/frame/probe.h) may be of any class, because they find out where ToS bytes are changed.
//
// IPv4 frames must have our own MAC address as destination. A broadcast frame with our IP address is not for us (RFC
// 1122, 3.3.6), and neither is a frame to a multicast MAC address. ARP frames must go to our own or to the broadcast
// MAC address. Frames with a VLAN tag are kOtherEtherType.
[[nodiscard]] ParsedFrame parse_frame(std::span<const uint8_t> frame, const LocalAddress& local,
                                      const Classifier& classifier) noexcept;

// ---- Answering: rewrites a frame of verdict kArp (a request) or kEcho into its answer, in place. Returns the length
// of the answer, or 0 if the frame needs no answer (an ARP reply).
[[nodiscard]] size_t answer_frame(std::span<uint8_t> frame, const ParsedFrame& parsed,
                                  const LocalAddress& local) noexcept;

// ---- Sending

// Source and destination of a packet: MAC addresses, IP addresses and UDP ports.
struct Flow {
  MacAddress source_mac{};
  MacAddress destination_mac{};
  uint32_t source_ip = 0;
  uint32_t destination_ip = 0;
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
};

// Writes the kFrameBytes headers before a payload of `bytes` bytes. They have the don't-fragment bit, TTL 64 and a
// correct IP checksum. The UDP checksum is 0, which means none: the gradlane header has a CRC32C of all bytes that
// follow.
void write_headers(uint8_t* frame, const Flow& flow, uint8_t tos, size_t bytes) noexcept;

// Fills in the UDP checksum (RFC 768) of a frame that leaves this machine. Call it after write_headers(), when the
// payload is complete. A computed checksum of 0 is written as 0xffff.
void seal_udp(uint8_t* frame, size_t bytes) noexcept;
// Writes the sum of the pseudo-header alone, not complemented, in place of the UDP checksum. A device that computes
// checksums continues from there.
void begin_udp_checksum(uint8_t* frame) noexcept;
// Returns whether a kGradlane frame has a UDP checksum.
[[nodiscard]] bool has_udp_checksum(const uint8_t* frame) noexcept;

// Writes an ARP request (RFC 826) of kArpFrameBytes bytes that asks who has `ip`. The request is a probe if local.ip is
// 0, and an announcement if `ip` is local.ip (RFC 5227).
void write_arp_request(uint8_t* frame, const LocalAddress& local, uint32_t ip) noexcept;

}  // namespace gradlane
