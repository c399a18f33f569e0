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
  // received packets and runs
  kDeferred,
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
                                                        "packets received and accepted"};
inline constexpr MetricFamily kPacketsDroppedMetric = {"gradlane_packets_dropped_total", "reason",
                                                       "packets received and dropped"};
inline constexpr MetricFamily kBadAcknowledgementsMetric = {"gradlane_bad_acknowledgements_total", "",
                                                            "acknowledgements of packets that were never sent"};
inline constexpr MetricFamily kPacketsSentMetric = {"gradlane_packets_sent_total", "kind",
                                                    "packets sent, without retransmissions"};
inline constexpr MetricFamily kRetransmissionsMetric = {
    "gradlane_retransmissions_total", "cause",
    "data packets sent again: after a time-out, or because later ones arrived (sack)"};
inline constexpr MetricFamily kPacketsSentBytesMetric = {
    "gradlane_packets_sent_bytes_total", "kind",
    "bytes of packets sent, with retransmissions, from the link header on"};
inline constexpr MetricFamily kSendStallsMetric = {
    "gradlane_send_stalls_total", "cause",
    "events that kept packets from being sent: the port was busy, no buffer was free, the neighbour's credit was used "
    "up, the window was full; and packets received that had to wait for that"};
inline constexpr MetricFamily kRunsMetric = {"gradlane_runs_total", "fate",
                                             "runs of elements received, by what was done with them"};
inline constexpr MetricFamily kPhasePacketsMetric = {"gradlane_phase_packets_total", "phase",
                                                     "data packets sent, by phase"};
inline constexpr MetricFamily kPhaseBytesMetric = {"gradlane_phase_bytes_total", "phase",
                                                   "bytes of data packets sent, by phase"};
inline constexpr MetricFamily kOperationsMetric = {"gradlane_operations_total", "result", "operations that ended"};
inline constexpr MetricFamily kExchangeSecondsMetric = {
    "gradlane_exchange_seconds_total", "", "how long operations were in progress, including waits for other ranks",
    1e-9};
inline constexpr MetricFamily kLossyOperationsMetric = {
    "gradlane_lossy_operations_total", "",
    "sums through a lossy codec without error feedback; a sample of each is examined"};
inline constexpr MetricFamily kLossyValuesMetric = {"gradlane_lossy_values_total", "",
                                                    "values in these samples that were not zero"};
inline constexpr MetricFamily kLossyZeroedValuesMetric = {"gradlane_lossy_zeroed_values_total", "",
                                                          "of these, values that became zero"};
inline constexpr MetricFamily kLossyNormShareMetric = {"gradlane_lossy_norm_share_total", "",
                                                       "lost share of each sample's norm, added up", 1e-6};
inline constexpr MetricFamily kSessionsMetric = {"gradlane_sessions_total", "", "sessions of the ring entered"};
inline constexpr MetricFamily kPeersLostMetric = {
    "gradlane_peers_lost_total", "cause",
    "neighbours lost: not heard (silent), heard but not reached (stuck), restarted"};
inline constexpr CounterRow<Counter> kCounterRows[] = {
    {Counter::kDelivered, "delivered", "data packets accepted", &kPacketsReceivedMetric, "data"},
    {Counter::kAckReceived, "ack_received", "acknowledgements without data", &kPacketsReceivedMetric, "ack"},
    {Counter::kHelloReceived, "hello_received", "hellos accepted", &kPacketsReceivedMetric, "hello"},
    {Counter::kHelloStale, "hello_stale", "hellos of an earlier session, or from before a restart",
     &kPacketsDroppedMetric},
    {Counter::kHelloRefused, "hello_refused", "hellos of a node that is configured differently",
     &kPacketsDroppedMetric},
    {Counter::kDuplicate, "duplicate", "data packets that had arrived before", &kPacketsDroppedMetric},
    {Counter::kTooFar, "too_far", "data packets beyond the receive window", &kPacketsDroppedMetric},
    {Counter::kTooShort, "too_short", "packets shorter than their headers, or longer than the MTU",
     &kPacketsDroppedMetric},
    {Counter::kBadMagic, "bad_magic", "packets that are not gradlane's", &kPacketsDroppedMetric},
    {Counter::kBadVersion, "bad_version", "packets of another protocol version", &kPacketsDroppedMetric},
    {Counter::kBadCrc, "bad_crc", "damaged packets", &kPacketsDroppedMetric},
    {Counter::kBadKind, "bad_kind", "packets of an unknown kind", &kPacketsDroppedMetric},
    {Counter::kStaleSession, "stale_session",
     "packets of another session, or from a neighbour that does not know yet that this node has started",
     &kPacketsDroppedMetric},
    {Counter::kUnknownPeer, "unknown_peer", "packets from a rank that is not a neighbour", &kPacketsDroppedMetric},
    {Counter::kBadRun, "bad_run", "data packets whose run headers do not fit their length", &kPacketsDroppedMetric},
    {Counter::kBadBounds, "bad_bounds", "runs outside their tensor, or more than expected", &kPacketsDroppedMetric},
    {Counter::kBadRoute, "bad_route", "runs that should not be sent to this rank", &kPacketsDroppedMetric},
    {Counter::kBadDigest, "bad_digest", "runs of an operation that is a different one on this rank",
     &kPacketsDroppedMetric},
    {Counter::kBadCodec, "bad_codec", "runs in another codec than their operation's", &kPacketsDroppedMetric},
    {Counter::kBadBlock, "bad_block", "runs whose payload is not a valid block of that codec", &kPacketsDroppedMetric},
    {Counter::kNotStarted, "not_started", "runs of an operation that has not started here", &kPacketsDroppedMetric},
    {Counter::kBadAck, "bad_ack", "acknowledgements of packets that were never sent", &kBadAcknowledgementsMetric},
    {Counter::kDataSent, "data_sent", "data packets sent, without retransmissions", &kPacketsSentMetric, "data"},
    {Counter::kAckSent, "ack_sent", "acknowledgements and keep-alives without data", &kPacketsSentMetric, "ack"},
    {Counter::kHelloSent, "hello_sent", "hellos sent", &kPacketsSentMetric, "hello"},
    {Counter::kRetransmitTimeout, "retransmit_timeout", "data packets sent again after a time-out, also as probes",
     &kRetransmissionsMetric, "timeout"},
    {Counter::kRetransmitSack, "retransmit_sack", "data packets sent again because later ones arrived",
     &kRetransmissionsMetric, "sack"},
    {Counter::kDataBytes, "data_bytes", "bytes of data packets, with retransmissions, from the link header on",
     &kPacketsSentBytesMetric, "data"},
    {Counter::kControlBytes, "control_bytes", "bytes of all other packets sent", &kPacketsSentBytesMetric, "control"},
    {Counter::kTransmitBusy, "transmit_busy", "the port was busy", &kSendStallsMetric},
    {Counter::kNoBuffer, "no_buffer", "no packet buffer was free", &kSendStallsMetric},
    {Counter::kCreditStall, "credit_stall", "the neighbour's credit was used up", &kSendStallsMetric, "credit"},
    {Counter::kWindowStall, "window_stall", "the congestion window or the send window was full", &kSendStallsMetric,
     "window"},
    {Counter::kDeferred, "deferred", "received data packets that were deferred, because the next link was full",
     &kSendStallsMetric},
    {Counter::kRunsMerged, "runs_merged", "runs added to this rank's elements and passed on in one step", &kRunsMetric,
     "merged"},
    {Counter::kRunsAbsorbed, "runs_absorbed", "runs put into the tensor first and sent later", &kRunsMetric,
     "absorbed"},
    {Counter::kRunsRelayed, "runs_relayed", "runs stored and passed on unchanged", &kRunsMetric, "relayed"},
    {Counter::kRunsStored, "runs_stored", "runs stored and not passed on", &kRunsMetric, "stored"},
    {Counter::kRunsDiscarded, "runs_discarded", "runs of operations that had already ended", &kRunsMetric, "discarded"},
    {Counter::kReducePackets, "reduce_packets", "data packets of the reduce phase", &kPhasePacketsMetric, "reduce"},
    {Counter::kReduceBytes, "reduce_bytes", "bytes of reduce_packets, from the link header on", &kPhaseBytesMetric,
     "reduce"},
    {Counter::kGatherPackets, "gather_packets", "data packets of the gather phase", &kPhasePacketsMetric, "gather"},
    {Counter::kGatherBytes, "gather_bytes", "bytes of gather_packets, from the link header on", &kPhaseBytesMetric,
     "gather"},
    {Counter::kRunBytes, "run_bytes", "bytes of elements sent, encoded, with the headers of their runs"},
    {Counter::kElementBytes, "element_bytes", "bytes of the same elements in memory"},
    {Counter::kOperationsDone, "operations_done", "operations that succeeded", &kOperationsMetric, "done"},
    {Counter::kOperationsFailed, "operations_failed", "operations that failed", &kOperationsMetric, "failed"},
    {Counter::kExchangeNs, "exchange_ns", "how long operations were in progress, including waits for other ranks",
     &kExchangeSecondsMetric},
    {Counter::kLossyOperations, "lossy_operations",
     "sums through a lossy codec without error feedback; a sample of each is examined", &kLossyOperationsMetric},
    {Counter::kLossyValues, "lossy_values", "values in these samples that were not zero", &kLossyValuesMetric},
    {Counter::kLossyZeroed, "lossy_zeroed", "of these, values that became zero", &kLossyZeroedValuesMetric},
    {Counter::kLossyNormPpm, "lossy_norm_ppm", "lost share of each sample's norm, in millionths, added up",
     &kLossyNormShareMetric},
    {Counter::kSessions, "sessions", "sessions entered", &kSessionsMetric},
    {Counter::kPeerSilent, "peer_silent", "neighbours lost because they were silent", &kPeersLostMetric, "silent"},
    {Counter::kPeerStuck, "peer_stuck", "neighbours lost because packets do not arrive there, although they are heard",
     &kPeersLostMetric, "stuck"},
    {Counter::kPeerRestarted, "peer_restarted", "neighbours lost because they restarted", &kPeersLostMetric,
     "restarted"},
};
static_assert(is_complete(kCounterRows));
constexpr const auto& counter_rows(Counter) noexcept { return kCounterRows; }

inline constexpr size_t kCounters = kCounterCount<Counter>;

using Counters = CounterSet<Counter>;

}  // namespace gradlane
