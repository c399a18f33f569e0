// counters.h - every outcome of a packet, and other events worth counting, with their names
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
  // acknowledgements inside packets that were taken
  kBadAck,
  // packets sent
  kDataSent,
  kAckSent,
  kHelloSent,
  kRetransmitTimeout,
  kRetransmitSack,
  kDataBytes,
  kControlBytes,
  // what kept packets from being sent: events
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
inline constexpr CounterRow<Counter> kCounterRows[] = {
    {Counter::kDelivered, "delivered", "data packets taken"},
    {Counter::kAckReceived, "ack_received", "acknowledgements without data"},
    {Counter::kHelloReceived, "hello_received", "hellos taken"},
    {Counter::kHelloStale, "hello_stale", "hellos of an earlier life or session"},
    {Counter::kHelloRefused, "hello_refused", "hellos of a node that is configured differently"},
    {Counter::kDuplicate, "duplicate", "data packets that had arrived before"},
    {Counter::kTooFar, "too_far", "data packets beyond the receive window"},
    {Counter::kTooShort, "too_short", "packets shorter than their headers, or longer than the MTU"},
    {Counter::kBadMagic, "bad_magic", "packets of something else"},
    {Counter::kBadVersion, "bad_version", "packets of another protocol version"},
    {Counter::kBadCrc, "bad_crc", "damaged packets"},
    {Counter::kBadKind, "bad_kind", "packets of no known kind"},
    {Counter::kStaleSession, "stale_session",
     "packets of another session, or from a neighbour that has not met this life of the node"},
    {Counter::kUnknownPeer, "unknown_peer", "packets from a rank that is no neighbour"},
    {Counter::kBadRun, "bad_run", "data packets whose run headers do not fit their length"},
    {Counter::kBadBounds, "bad_bounds", "runs outside their tensor, or more than expected"},
    {Counter::kBadRoute, "bad_route", "runs that nobody should send here"},
    {Counter::kBadDigest, "bad_digest", "runs of an operation that is another one here"},
    {Counter::kBadCodec, "bad_codec", "runs in another codec than their operation's"},
    {Counter::kBadBlock, "bad_block", "runs whose payload is no block of that codec"},
    {Counter::kNotStarted, "not_started", "runs of an operation that has not started here"},
    {Counter::kBadAck, "bad_ack", "acknowledgements of what was never sent"},
    {Counter::kDataSent, "data_sent", "data packets sent, without retransmissions"},
    {Counter::kAckSent, "ack_sent", "acknowledgements and keep-alives without data"},
    {Counter::kHelloSent, "hello_sent", "hellos sent"},
    {Counter::kRetransmitTimeout, "retransmit_timeout", "data packets sent again after a time-out"},
    {Counter::kRetransmitSack, "retransmit_sack", "data packets sent again because later ones arrived"},
    {Counter::kDataBytes, "data_bytes", "bytes of data packets, with retransmissions, from the link header on"},
    {Counter::kControlBytes, "control_bytes", "bytes of all other packets sent"},
    {Counter::kTransmitBusy, "transmit_busy", "the owner could not send"},
    {Counter::kNoBuffer, "no_buffer", "the owner had no packet buffer"},
    {Counter::kCreditStall, "credit_stall", "the neighbour's credit was used up"},
    {Counter::kWindowStall, "window_stall", "the congestion window or the send window was full"},
    {Counter::kRunsMerged, "runs_merged", "runs added to and passed on in one pass"},
    {Counter::kRunsAbsorbed, "runs_absorbed", "runs put into the tensor to be sent later"},
    {Counter::kRunsRelayed, "runs_relayed", "runs stored and passed on as they came"},
    {Counter::kRunsStored, "runs_stored", "runs stored and not passed on"},
    {Counter::kRunsDiscarded, "runs_discarded", "runs of operations that were over"},
    {Counter::kReducePackets, "reduce_packets", "data packets of the reduce phase"},
    {Counter::kReduceBytes, "reduce_bytes", "bytes of reduce_packets, from the link header on"},
    {Counter::kGatherPackets, "gather_packets", "data packets of the gather phase"},
    {Counter::kGatherBytes, "gather_bytes", "bytes of gather_packets, from the link header on"},
    {Counter::kRunBytes, "run_bytes", "bytes of elements sent, encoded, with the headers of their runs"},
    {Counter::kElementBytes, "element_bytes", "what the same elements take in memory"},
    {Counter::kOperationsDone, "operations_done", "operations that succeeded"},
    {Counter::kOperationsFailed, "operations_failed", "operations that failed"},
    {Counter::kExchangeNs, "exchange_ns", "how long operations were under way, waits for other ranks included"},
    {Counter::kLossyOperations, "lossy_operations",
     "sums through a lossy codec without error feedback: a sample of each is looked at"},
    {Counter::kLossyValues, "lossy_values", "values in these samples that were not zero"},
    {Counter::kLossyZeroed, "lossy_zeroed", "of these, values that became zero"},
    {Counter::kLossyNormPpm, "lossy_norm_ppm", "lost share of each sample's norm, in millionths, added up"},
    {Counter::kSessions, "sessions", "sessions entered"},
    {Counter::kPeerSilent, "peer_silent", "neighbours given up for silence"},
    {Counter::kPeerStuck, "peer_stuck", "neighbours given up as they are heard, but packets do not arrive there"},
    {Counter::kPeerRestarted, "peer_restarted", "neighbours that came back without their state"},
};
static_assert(is_complete(kCounterRows));
constexpr const auto& counter_rows(Counter) noexcept { return kCounterRows; }

inline constexpr size_t kCounters = kCounterCount<Counter>;

using Counters = CounterSet<Counter>;

}  // namespace gradlane
