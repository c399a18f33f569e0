// queue_counters.h - counters for packets between a port and the exchange: one row per counter
#pragma once

#include <cstdint>

#include "base/counter_set.h"
#include "dataplane/frame/frame.h"

namespace gradlane {

// Events of packets between the frame and the exchange, in addition to FrameVerdict.
enum class QueueCounter : uint8_t {
  kReceived,
  kReceivedBytes,
  kSent,
  kSentBytes,
  kSegmented,
  kNotNeighbour,
  kStranger,
  kForged,
  kReplayed,
  kUnmet,
  kWrongTos,
  kWrongLane,
  kSendBusy,
  kNoMac,
  kNoAddress,
  kLinkDown,
  kNoCopy,
  kAnswered,
  kInjectedDrop,
  kInjectedDuplicate,
  kInjectedReorder,
  kInjectedCorrupt,
  kInjectedDelay,
  kArpSent,
  kProbeSent,
  kProbeRefused,
  kCount
};
// Metrics of Prometheus; the counters below are samples of them.
inline constexpr MetricFamily kPortReceiveFramesMetric = {"gradlane_port_receive_frames_total", "", "frames received"};
inline constexpr MetricFamily kPortReceiveBytesMetric = {"gradlane_port_receive_bytes_total", "",
                                                         "bytes of frames received"};
inline constexpr MetricFamily kPortTransmitFramesMetric = {"gradlane_port_transmit_frames_total", "", "frames sent"};
inline constexpr MetricFamily kPortTransmitBytesMetric = {"gradlane_port_transmit_bytes_total", "",
                                                          "bytes of frames sent"};
inline constexpr MetricFamily kPortPutOffMetric = {
    "gradlane_port_put_off_total", "cause",
    "packets that had to wait: the device accepted no more, or no buffer was free for a copy"};
inline constexpr MetricFamily kPortAnswersMetric = {"gradlane_port_answers_total", "",
                                                    "ARP requests and pings answered"};
inline constexpr MetricFamily kPortInjectedFaultsMetric = {"gradlane_port_injected_faults_total", "fault",
                                                           "frames duplicated, delayed or changed on purpose (faults)"};
inline constexpr MetricFamily kPortRequestsMetric = {"gradlane_port_requests_total", "kind",
                                                     "ARP requests, probes and answers to probes sent"};
inline constexpr CounterRow<QueueCounter> kQueueCounterRows[] = {
    {QueueCounter::kReceived, "received", "frames received", &kPortReceiveFramesMetric},
    {QueueCounter::kReceivedBytes, "received_bytes", "bytes of frames received", &kPortReceiveBytesMetric},
    {QueueCounter::kSent, "sent", "frames sent", &kPortTransmitFramesMetric},
    {QueueCounter::kSentBytes, "sent_bytes", "bytes of frames sent", &kPortTransmitBytesMetric},
    {QueueCounter::kSegmented, "segmented", "frames dropped: in more than one buffer", &kPortDropsMetric},
    {QueueCounter::kNotNeighbour, "not_neighbour", "gradlane packets dropped: from a node that is no neighbour",
     &kPortDropsMetric},
    {QueueCounter::kStranger, "stranger", "gradlane packets dropped: from a second machine with a neighbour's address",
     &kPortDropsMetric},
    {QueueCounter::kForged, "forged", "gradlane packets dropped: not authenticated with the ring's key",
     &kPortDropsMetric},
    {QueueCounter::kReplayed, "replayed",
     "gradlane packets dropped: they arrived before, or are of an earlier epoch of the neighbour", &kPortDropsMetric},
    {QueueCounter::kUnmet, "unmet", "gradlane packets dropped: the two ends have not met since one of them started",
     &kPortDropsMetric},
    {QueueCounter::kWrongTos, "wrong_tos",
     "gradlane packets dropped: from a neighbour, with a ToS that is not in `tos`", &kPortDropsMetric},
    {QueueCounter::kWrongLane, "wrong_lane", "gradlane packets dropped: for a lane of another worker",
     &kPortDropsMetric},
    {QueueCounter::kSendBusy, "send_busy", "packets that had to wait: the device accepted no more", &kPortPutOffMetric,
     "busy"},
    {QueueCounter::kNoMac, "no_mac", "packets dropped: the neighbour has not answered ARP yet", &kPortDropsMetric},
    {QueueCounter::kNoAddress, "no_address",
     "packets dropped: this node's address is not claimed yet, or another host has it", &kPortDropsMetric},
    {QueueCounter::kLinkDown, "link_down", "packets dropped: the device has accepted none for some time",
     &kPortDropsMetric},
    {QueueCounter::kNoCopy, "no_copy", "packets that had to wait: no buffer was free for a copy", &kPortPutOffMetric},
    {QueueCounter::kAnswered, "answered", "ARP requests and pings answered", &kPortAnswersMetric},
    {QueueCounter::kInjectedDrop, "injected_drop", "frames dropped on purpose (faults)", &kPortDropsMetric},
    {QueueCounter::kInjectedDuplicate, "injected_duplicate", "frames duplicated on purpose", &kPortInjectedFaultsMetric,
     "duplicate"},
    {QueueCounter::kInjectedReorder, "injected_reorder", "frames reordered on purpose, behind later ones",
     &kPortInjectedFaultsMetric, "reorder"},
    {QueueCounter::kInjectedCorrupt, "injected_corrupt", "frames changed in one bit on purpose",
     &kPortInjectedFaultsMetric, "corrupt"},
    {QueueCounter::kInjectedDelay, "injected_delay", "frames delayed on purpose", &kPortInjectedFaultsMetric, "delay"},
    {QueueCounter::kArpSent, "arp_sent", "ARP requests sent", &kPortRequestsMetric, "arp"},
    {QueueCounter::kProbeSent, "probe_sent", "probes and answers to probes sent", &kPortRequestsMetric, "probe"},
    {QueueCounter::kProbeRefused, "probe_refused", "probes dropped: damaged, not from a neighbour, or not requested",
     &kPortDropsMetric},
};
static_assert(is_complete(kQueueCounterRows));
constexpr const auto& counter_rows(QueueCounter) noexcept { return kQueueCounterRows; }

struct QueueCounters {
  CounterSet<QueueCounter> events;
  CounterSet<FrameVerdict> verdicts;
  CounterSet<TrafficClass> classes;  // received IPv4 packets

  void add(QueueCounter counter, uint64_t n = 1) noexcept { events.add(counter, n); }
};

}  // namespace gradlane
