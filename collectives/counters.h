// counters.h - counters for every outcome of a packet and for other events, with their names
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/counter_set.h"

namespace gradlane {

enum class Counter : uint8_t {
  // packets received: each counts as exactly one of these
  kDelivered,
  kAckReceived,
  kHelloReceived,
  kHelloStale,
  kHelloRefused,
  kDuplicate,
  kTooFar,
  kTooShort,
  kBadMagic,
  kBadVersion,
  kBadCrc,
  kBadKind,
  kStaleSession,
  kUnknownPeer,
  kBadRun,
  kBadBounds,
  kBadRoute,
  kBadDigest,
  kBadCodec,
  kBadBlock,
  kNotStarted,
  // acknowledgements in packets that were received
  kBadAck,
  // packets sent
  kDataSent,
  kAckSent,
  kHelloSent,
  kRetransmitTimeout,
  kRetransmitSack,
  kDataBytes,
  kControlBytes,
  // events that kept packets from being sent
  kTransmitBusy,
  kNoBuffer,
  kCreditStall,
  kWindowStall,
  // runs
  kRunsMerged,
  kRunsAbsorbed,
  kRunsRelayed,
  kRunsStored,
  kRunsDiscarded,
  kReducePackets,
  kReduceBytes,
  kGatherPackets,
  kGatherBytes,
  kRunBytes,
  kElementBytes,
  // operations and sessions
  kOperationsDone,
  kOperationsFailed,
  kExchangeNs,
  kLossyOperations,
  kLossyValues,
  kLossyZeroed,
  kLossyNormPpm,
  kSessions,
  kPeerSilent,
  kPeerStuck,
  kPeerRestarted,
  kCount
};
// Prometheus metrics. The counters below are samples of them.
inline constexpr MetricFamily kPacketsReceivedMetric = {"gradlane_packets_received_total", "kind",
                                                        "packets received and taken"};
inline constexpr MetricFamily kPacketsDroppedMetric = {"gradlane_packets_dropped_total", "reason",
                                                       "packets received and dropped"};
inline constexpr MetricFamily kBadAcknowledgementsMetric = {"gradlane_bad_acknowledgements_total", "",
                                                            "acknowledgements of what was never sent"};
inline constexpr MetricFamily kPacketsSentMetric = {"gradlane_packets_sent_total", "kind",
                                                    "packets sent, without retransmissions"};
inline constexpr MetricFamily kRetransmissionsMetric = {
    "gradlane_retransmissions_total", "cause",
    "data packets sent again: after a time-out, or as later ones arrived (sack)"};
inline constexpr MetricFamily kPacketsSentBytesMetric = {
    "gradlane_packets_sent_bytes_total", "kind",
    "bytes of packets sent, with retransmissions, from the link header on"};
inline constexpr MetricFamily kSendStallsMetric = {
    "gradlane_send_stalls_total", "cause",
    "events that kept packets from being sent: the port was busy, no buffer was free, the neighbour's credit was used "
    "up, the window was full"};
inline constexpr MetricFamily kRunsMetric = {"gradlane_runs_total", "fate",
                                             "runs of elements received, by what became of them"};
inline constexpr MetricFamily kPhasePacketsMetric = {"gradlane_phase_packets_total", "phase",
                                                     "data packets sent, by phase"};
inline constexpr MetricFamily kPhaseBytesMetric = {"gradlane_phase_bytes_total", "phase",
                                                   "bytes of data packets sent, by phase"};
inline constexpr MetricFamily kOperationsMetric = {"gradlane_operations_total", "result", "operations that ended"};
inline constexpr MetricFamily kExchangeSecondsMetric = {
    "gradlane_exchange_seconds_total", "", "how long operations were under way, waits for other ranks included", 1e-9};
inline constexpr MetricFamily kLossyOperationsMetric = {
    "gradlane_lossy_operations_total", "",
    "sums through a lossy codec without error feedback, a sample of each of which is looked at"};
inline constexpr MetricFamily kLossyValuesMetric = {"gradlane_lossy_values_total", "",
                                                    "values in these samples that were not zero"};
inline constexpr MetricFamily kLossyZeroedValuesMetric = {"gradlane_lossy_zeroed_values_total", "",
                                                          "of these, values that became zero"};
inline constexpr MetricFamily kLossyNormShareMetric = {"gradlane_lossy_norm_share_total", "",
                                                       "lost share of each sample's norm, added up", 1e-6};
inline constexpr MetricFamily kSessionsMetric = {"gradlane_sessions_total", "", "sessions of the ring entered"};
inline constexpr MetricFamily kPeersLostMetric = {"gradlane_peers_lost_total", "cause",
                                                  "neighbours given up: not heard, heard but not reached, restarted"};
inline constexpr CounterRow<Counter> kCounterRows[] = {
    {Counter::kDelivered, "delivered", "data packets taken", &kPacketsReceivedMetric, "data"},
    {Counter::kAckReceived, "ack_received", "acknowledgements without data", &kPacketsReceivedMetric, "ack"},
    {Counter::kHelloReceived, "hello_received", "hellos taken", &kPacketsReceivedMetric, "hello"},
    {Counter::kHelloStale, "hello_stale", "hellos of an earlier life or session", &kPacketsDroppedMetric},
    {Counter::kHelloRefused, "hello_refused", "hellos of a node that is configured differently",
     &kPacketsDroppedMetric},
    {Counter::kDuplicate, "duplicate", "data packets that had arrived before", &kPacketsDroppedMetric},
    {Counter::kTooFar, "too_far", "data packets beyond the receive window", &kPacketsDroppedMetric},
    {Counter::kTooShort, "too_short", "packets shorter than their headers, or longer than the MTU",
     &kPacketsDroppedMetric},
    {Counter::kBadMagic, "bad_magic", "packets of something else", &kPacketsDroppedMetric},
    {Counter::kBadVersion, "bad_version", "packets of another protocol version", &kPacketsDroppedMetric},
    {Counter::kBadCrc, "bad_crc", "damaged packets", &kPacketsDroppedMetric},
    {Counter::kBadKind, "bad_kind", "packets of no known kind", &kPacketsDroppedMetric},
    {Counter::kStaleSession, "stale_session",
     "packets of another session, or from a neighbour that has not met this life of the node", &kPacketsDroppedMetric},
    {Counter::kUnknownPeer, "unknown_peer", "packets from a rank that is no neighbour", &kPacketsDroppedMetric},
    {Counter::kBadRun, "bad_run", "data packets whose run headers do not fit their length", &kPacketsDroppedMetric},
    {Counter::kBadBounds, "bad_bounds", "runs outside their tensor, or more than expected", &kPacketsDroppedMetric},
    {Counter::kBadRoute, "bad_route", "runs that nobody should send here", &kPacketsDroppedMetric},
    {Counter::kBadDigest, "bad_digest", "runs of an operation that is another one here", &kPacketsDroppedMetric},
    {Counter::kBadCodec, "bad_codec", "runs in another codec than their operation's", &kPacketsDroppedMetric},
    {Counter::kBadBlock, "bad_block", "runs whose payload is no block of that codec", &kPacketsDroppedMetric},
    {Counter::kNotStarted, "not_started", "runs of an operation that has not started here", &kPacketsDroppedMetric},
    {Counter::kBadAck, "bad_ack", "acknowledgements of what was never sent", &kBadAcknowledgementsMetric},
    {Counter::kDataSent, "data_sent", "data packets sent, without retransmissions", &kPacketsSentMetric, "data"},
    {Counter::kAckSent, "ack_sent", "acknowledgements and keep-alives without data", &kPacketsSentMetric, "ack"},
    {Counter::kHelloSent, "hello_sent", "hellos sent", &kPacketsSentMetric, "hello"},
    {Counter::kRetransmitTimeout, "retransmit_timeout", "data packets sent again after a time-out",
     &kRetransmissionsMetric, "timeout"},
    {Counter::kRetransmitSack, "retransmit_sack", "data packets sent again because later ones arrived",
     &kRetransmissionsMetric, "sack"},
    {Counter::kDataBytes, "data_bytes", "bytes of data packets, with retransmissions, from the link header on",
     &kPacketsSentBytesMetric, "data"},
    {Counter::kControlBytes, "control_bytes", "bytes of all other packets sent", &kPacketsSentBytesMetric, "control"},
    {Counter::kTransmitBusy, "transmit_busy", "the owner could not send", &kSendStallsMetric},
    {Counter::kNoBuffer, "no_buffer", "the owner had no packet buffer", &kSendStallsMetric},
    {Counter::kCreditStall, "credit_stall", "the neighbour's credit was used up", &kSendStallsMetric, "credit"},
    {Counter::kWindowStall, "window_stall", "the congestion window or the send window was full", &kSendStallsMetric,
     "window"},
    {Counter::kRunsMerged, "runs_merged", "runs added to and passed on in one pass", &kRunsMetric, "merged"},
    {Counter::kRunsAbsorbed, "runs_absorbed", "runs put into the tensor to be sent later", &kRunsMetric, "absorbed"},
    {Counter::kRunsRelayed, "runs_relayed", "runs stored and passed on as they came", &kRunsMetric, "relayed"},
    {Counter::kRunsStored, "runs_stored", "runs stored and not passed on", &kRunsMetric, "stored"},
    {Counter::kRunsDiscarded, "runs_discarded", "runs of operations that were over", &kRunsMetric, "discarded"},
    {Counter::kReducePackets, "reduce_packets", "data packets of the reduce phase", &kPhasePacketsMetric, "reduce"},
    {Counter::kReduceBytes, "reduce_bytes", "bytes of reduce_packets, from the link header on", &kPhaseBytesMetric,
     "reduce"},
    {Counter::kGatherPackets, "gather_packets", "data packets of the gather phase", &kPhasePacketsMetric, "gather"},
    {Counter::kGatherBytes, "gather_bytes", "bytes of gather_packets, from the link header on", &kPhaseBytesMetric,
     "gather"},
    {Counter::kRunBytes, "run_bytes", "bytes of elements sent, encoded, with the headers of their runs"},
    {Counter::kElementBytes, "element_bytes", "what the same elements take in memory"},
    {Counter::kOperationsDone, "operations_done", "operations that succeeded", &kOperationsMetric, "done"},
    {Counter::kOperationsFailed, "operations_failed", "operations that failed", &kOperationsMetric, "failed"},
    {Counter::kExchangeNs, "exchange_ns", "how long operations were under way, waits for other ranks included",
     &kExchangeSecondsMetric},
    {Counter::kLossyOperations, "lossy_operations",
     "sums through a lossy codec without error feedback: a sample of each is looked at", &kLossyOperationsMetric},
    {Counter::kLossyValues, "lossy_values", "values in these samples that were not zero", &kLossyValuesMetric},
    {Counter::kLossyZeroed, "lossy_zeroed", "of these, values that became zero", &kLossyZeroedValuesMetric},
    {Counter::kLossyNormPpm, "lossy_norm_ppm", "lost share of each sample's norm, in millionths, added up",
     &kLossyNormShareMetric},
    {Counter::kSessions, "sessions", "sessions entered", &kSessionsMetric},
    {Counter::kPeerSilent, "peer_silent", "neighbours given up for silence", &kPeersLostMetric, "silent"},
    {Counter::kPeerStuck, "peer_stuck", "neighbours given up as they are heard, but packets do not arrive there",
     &kPeersLostMetric, "stuck"},
    {Counter::kPeerRestarted, "peer_restarted", "neighbours that came back without their state", &kPeersLostMetric,
     "restarted"},
};
static_assert(is_complete(kCounterRows));
constexpr const auto& counter_rows(Counter) noexcept { return kCounterRows; }

inline constexpr size_t kCounters = kCounterCount<Counter>;

using Counters = CounterSet<Counter>;

}  // namespace gradlane
