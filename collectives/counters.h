// counters.h - every outcome of a packet, and other events worth counting, with their names
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gradlane {

// clang-format off
#define GRADLANE_COUNTERS(X)                                                         \
  /* packets received: each counts as exactly one of these */                        \
  X(Delivered, "delivered", "data packets taken")                                    \
  X(AckReceived, "ack_received", "acknowledgements without data")                    \
  X(HelloReceived, "hello_received", "hellos taken")                                 \
  X(HelloStale, "hello_stale", "hellos of an earlier life or session")               \
  X(HelloRefused, "hello_refused", "hellos of a node that is configured differently")\
  X(Duplicate, "duplicate", "data packets that had arrived before")                  \
  X(TooFar, "too_far", "data packets beyond the receive window")                     \
  X(TooShort, "too_short", "packets shorter than their headers, or longer than the MTU") \
  X(BadMagic, "bad_magic", "packets of something else")                              \
  X(BadVersion, "bad_version", "packets of another protocol version")                \
  X(BadCrc, "bad_crc", "damaged packets")                                            \
  X(BadKind, "bad_kind", "packets of no known kind")                                 \
  X(StaleSession, "stale_session", "packets of another session, or from a neighbour that has not met this life of the node")                     \
  X(UnknownPeer, "unknown_peer", "packets from a rank that is no neighbour")         \
  X(BadRun, "bad_run", "data packets whose run headers do not fit their length")     \
  X(BadBounds, "bad_bounds", "runs outside their tensor, or more than expected")     \
  X(BadRoute, "bad_route", "runs that nobody should send here")                      \
  X(BadDigest, "bad_digest", "runs of an operation that is another one here")        \
  X(BadCodec, "bad_codec", "runs in another codec than their operation's")           \
  X(BadBlock, "bad_block", "runs whose payload is no block of that codec")           \
  X(NotStarted, "not_started", "runs of an operation that has not started here")     \
  /* acknowledgements inside packets that were taken */                              \
  X(BadAck, "bad_ack", "acknowledgements of what was never sent")                    \
  /* packets sent */                                                                 \
  X(DataSent, "data_sent", "data packets sent, without retransmissions")             \
  X(AckSent, "ack_sent", "acknowledgements and keep-alives without data")            \
  X(HelloSent, "hello_sent", "hellos sent")                                          \
  X(RetransmitTimeout, "retransmit_timeout", "data packets sent again after a time-out") \
  X(RetransmitSack, "retransmit_sack", "data packets sent again because later ones arrived") \
  X(DataBytes, "data_bytes", "bytes of data packets, with retransmissions, from the link header on") \
  X(ControlBytes, "control_bytes", "bytes of all other packets sent")                \
  /* what kept packets from being sent: events */                                    \
  X(TransmitBusy, "transmit_busy", "the owner could not send")                       \
  X(NoBuffer, "no_buffer", "the owner had no packet buffer")                         \
  X(CreditStall, "credit_stall", "the neighbour's credit was used up")               \
  X(WindowStall, "window_stall", "the congestion window or the send window was full") \
  /* runs */                                                                         \
  X(RunsMerged, "runs_merged", "runs added to and passed on in one pass")            \
  X(RunsAbsorbed, "runs_absorbed", "runs put into the tensor to be sent later")      \
  X(RunsRelayed, "runs_relayed", "runs stored and passed on as they came")           \
  X(RunsStored, "runs_stored", "runs stored and not passed on")                      \
  X(RunsDiscarded, "runs_discarded", "runs of operations that were over")            \
  X(ReducePackets, "reduce_packets", "data packets of the reduce phase")             \
  X(ReduceBytes, "reduce_bytes", "bytes of reduce_packets, from the link header on") \
  X(GatherPackets, "gather_packets", "data packets of the gather phase")             \
  X(GatherBytes, "gather_bytes", "bytes of gather_packets, from the link header on") \
  /* operations and sessions */                                                      \
  X(OperationsDone, "operations_done", "operations that succeeded")                  \
  X(OperationsFailed, "operations_failed", "operations that failed")                 \
  X(LossyOperations, "lossy_operations", "sums through a lossy codec without error feedback: a sample of each is looked at") \
  X(LossyValues, "lossy_values", "values in these samples that were not zero")       \
  X(LossyZeroed, "lossy_zeroed", "of these, values that became zero")                \
  X(LossyNormPpm, "lossy_norm_ppm", "lost share of each sample's norm, in millionths, added up") \
  X(Sessions, "sessions", "sessions entered")                                        \
  X(PeerSilent, "peer_silent", "neighbours given up for silence")                    \
  X(PeerStuck, "peer_stuck", "neighbours given up as they are heard, but packets do not arrive there") \
  X(PeerRestarted, "peer_restarted", "neighbours that came back without their state")
// clang-format on

enum class Counter : uint8_t {
#define GRADLANE_COUNTER_ENUM(symbol, name, help) k##symbol,
  GRADLANE_COUNTERS(GRADLANE_COUNTER_ENUM)
#undef GRADLANE_COUNTER_ENUM
      kCount
};

inline constexpr size_t kCounters = static_cast<size_t>(Counter::kCount);

// For telemetry: short and stable, and what it counts.
[[nodiscard]] const char* counter_name(Counter counter) noexcept;
[[nodiscard]] const char* counter_help(Counter counter) noexcept;

// Written by one thread.
class Counters {
 public:
  void add(Counter counter, uint64_t n = 1) noexcept { values_[static_cast<size_t>(counter)] += n; }
  [[nodiscard]] uint64_t operator[](Counter counter) const noexcept { return values_[static_cast<size_t>(counter)]; }

 private:
  std::array<uint64_t, kCounters> values_{};
};

}  // namespace gradlane
