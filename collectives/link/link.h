// link.h - reliable channel to one neighbour over datagrams: every packet is delivered once, in any order
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"
#include "collectives/counters.h"
#include "collectives/exchange_config.h"
#include "collectives/link/congestion.h"
#include "collectives/link/link_totals.h"
#include "collectives/link/receive_window.h"
#include "collectives/link/rtt.h"
#include "collectives/packet_io.h"
#include "collectives/wire.h"

namespace gradlane {

// Sending. Each data packet gets the next sequence number. It stays in a table, with its buffer, until the neighbour
// acknowledges it: cumulatively (`ack`: all packets before that one) or singly (`sack`). A packet counts as lost
//
// - if a packet has arrived that was *transmitted* three or more transmissions later (RFC 9002, 6.1.1). Transmissions
//   have numbers of their own for that, so a lost retransmission is found, too;
// - if the neighbour reports that segments of it are missing;
// - if it has been in flight for the retransmission timeout (RFC 6298), which doubles until something is acknowledged.
//
// If no acknowledgement comes for some time, the latest packet in flight is sent again, once, as a probe (RFC 8985, 7).
// The next acknowledgement shows what has arrived. Packets sent before the probe that it leaves out are lost.
//
// Lost packets are sent first, within the congestion window. A retransmission has a new header (acknowledgement,
// stamp). Its payload, and the payload's part of the CRC, stay the same.
//
// Receiving. The owner calls classify(), checks the content, and then calls accept(). A packet that is not accepted is
// not acknowledged. Every packet carries the acknowledgement. If no packet is sent, flush() sends an acknowledgement
// alone. It does so at once if a packet is missing or arrived twice, after `ack_every` data packets, and otherwise
// after a short time.
//
// A link belongs to one session at a time. reset() forgets everything but the round-trip time and the totals, and gives
// all buffers back. While the link is up it keeps one buffer, so that it can acknowledge when the owner has none left.
// The neighbour's acknowledgements, which free buffers here, may depend on that.
class Link final : public PacketSink {
 public:
  // `window`: maximum number of packets in flight, a power of two.
  Link(const ExchangeConfig& config, size_t window, unsigned peer, PacketIo& io, Counters& counters);

  [[nodiscard]] unsigned peer() const noexcept { return peer_; }

  // ---- Session. up(): the neighbour is known to be in this session too.
  void reset(uint64_t session) noexcept;
  void set_up(Nanos now) noexcept;
  [[nodiscard]] bool up() const noexcept { return up_; }
  [[nodiscard]] Nanos last_heard() const noexcept { return heard_at_; }
  // Does not count a time in which this rank did not run (`asleep`) as silence of the neighbour, nor as time of a stuck
  // packet.
  void extend_deadlines(Nanos asleep, Nanos now) noexcept {
    heard_at_ = std::min(heard_at_ + asleep, now);
    stuck_at_ = std::min(stuck_at_ + asleep, now);
  }
  // Returns when the oldest packet became the oldest, if it has been sent again kStuck times since then; else kNever.
  [[nodiscard]] Nanos stuck_since() const noexcept;
  // Return the length of the oldest unacknowledged packet, and of the longest packet acknowledged while it has been the
  // oldest.
  [[nodiscard]] size_t stuck_bytes() const noexcept { return table_[unacked_ & (table_.size() - 1)].bytes; }
  [[nodiscard]] size_t acked_bytes() const noexcept { return acked_bytes_; }
  // Returns the length of the longest IP packet that reaches the neighbour, in bytes: PacketIo::path_bytes().
  [[nodiscard]] size_t path_bytes() const noexcept { return io_.path_bytes(peer_); }
  // Returns when the oldest packet became the oldest; 0 if all packets are acknowledged.
  [[nodiscard]] Nanos waiting_since() const noexcept { return unacked_ == next_ ? 0 : stuck_at_; }

  // ---- Sending data.
  // Return whether a data packet may be sent now. Data that passes through this rank may exceed the congestion window
  // by a quarter, so that it can be sent while own data fills the window. Packets that are relayed unchanged may exceed
  // it by half, because they lose more by waiting. The last slot of the table is kept for control packets.
  [[nodiscard]] bool can_send() const noexcept { return room_in_table(1) && in_flight() < window(); }
  [[nodiscard]] bool can_pass() const noexcept { return room_in_table(1) && in_flight() < window() + window() / 4; }
  [[nodiscard]] bool can_relay() const noexcept { return room_in_table(1) && in_flight() < window() + window() / 2; }
  [[nodiscard]] bool can_send_control() const noexcept { return room_in_table(0); }
  [[nodiscard]] size_t in_flight() const noexcept { return in_flight_ + waiting_; }
  [[nodiscard]] size_t window() const noexcept { return congestion_.packets(); }
  // Sets how many ranks send, or may send, to the neighbour at a time, for the congestion window. They share one queue.
  void share(unsigned senders) noexcept { congestion_.share(senders); }
  // Counts a stall. Call it if data waits and can_send() is false, because a window is full or the neighbour accepts no
  // more packets.
  void count_stall() noexcept;

  // Sends a data packet now, or when the window allows. Its bytes after the link header are complete, and its CRC state
  // is `payload_crc`. The buffer belongs to the link from now on. Call this only if one of the functions above returns
  // true.
  void send(Packet packet, size_t bytes, uint32_t payload_crc, Nanos now) noexcept;

  // ---- PacketSink: packets that have waited for a short time while they were filled.
  [[nodiscard]] bool takes(bool control) const noexcept override { return control ? can_send_control() : can_pass(); }
  void take(Packet packet, size_t bytes, uint32_t payload_crc, Nanos now) noexcept override {
    send(packet, bytes, payload_crc, now);
  }

  // Sends a packet without sequence number: an acknowledgement (no payload) or a hello.
  bool send_bare(PacketKind kind, std::span<const uint8_t> payload, Nanos now) noexcept;

  // ---- Receiving, for packets of this session.
  [[nodiscard]] ReceiveWindow::Place classify(uint32_t sequence) const noexcept { return received_.place(sequence); }
  void accept(const LinkHeader& header) noexcept;  // takes a data packet
  void repeat(uint32_t sequence) noexcept {        // takes a data packet that had arrived before
    received_.repeat(sequence);
    ack_now_ = true;
  }
  // A report that segments of a packet are missing, although a later packet has begun to arrive or, if `overdue`, none
  // of them has come for a while. Bit i of `arrived` stands for segment i.
  struct MissingSegments {
    uint32_t sequence = 0;
    uint64_t arrived = 0;
    bool overdue = false;
  };
  void send_missing(const MissingSegments& report, Nanos now) noexcept;
  // Processes the acknowledgement in any packet, and notes that the neighbour is alive.
  void acknowledge(const LinkHeader& header, Nanos now) noexcept;

  // ---- Time.
  void poll(Nanos now) noexcept;  // handles timeouts and retransmissions; call it before new data is sent
  // Sends acknowledgements that no data packet carried, and keep-alives. Call it after new data was sent.
  void flush(Nanos now) noexcept;
  [[nodiscard]] Nanos deadline() const noexcept;

  [[nodiscard]] const RttEstimator& rtt() const noexcept { return rtt_; }
  [[nodiscard]] double congestion_window() const noexcept { return congestion_.exact(); }
  [[nodiscard]] const LinkTotals& totals() const noexcept { return totals_; }

 private:
  enum class State : uint8_t {
    kFree,
    kInFlight,
    kUnsent,    // the owner could not send it yet
    kLostSack,  // lost, because later packets arrived; to be sent again
    kLostTimeout,
    kArrived,  // acknowledged singly; the buffer has been given back
  };
  struct Slot {
    Packet packet;
    Nanos sent_at = 0;
    uint64_t transmission = 0;  // number of the latest transmission
    uint32_t payload_crc = 0;
    uint16_t bytes = 0;
    State state = State::kFree;
    // retransmissions, counted up to kStuck; above 0, an acknowledgement does not say which transmission arrived
    uint8_t again = 0;
  };

  Slot& slot(uint32_t sequence) noexcept { return table_[sequence & (table_.size() - 1)]; }
  [[nodiscard]] bool room_in_table(uint32_t spare) const noexcept {
    return up_ && next_ - unacked_ + spare < table_.size() && static_cast<int32_t>(limit_ - next_ - spare) > 0;
  }
  void transmit(uint32_t sequence, Nanos now) noexcept;
  bool ensure_free_buffer(Slot& it) noexcept;
  bool emit(Packet packet, size_t bytes, PacketKind kind, uint32_t sequence, uint32_t payload_crc, Nanos now) noexcept;
  void arrived(Slot& slot) noexcept;
  void lose(Slot& slot, State reason) noexcept;
  void find_lost(uint32_t end) noexcept;
  [[nodiscard]] size_t segments_of(const Slot& it) const noexcept { return (it.bytes + part_ - 1) / part_; }
  void expire(Nanos now) noexcept;
  void probe(Nanos now) noexcept;
  void count_full(Nanos now) noexcept;
  void set_credit(uint16_t credit) noexcept;
  void sample_rtt(const LinkHeader& header, size_t acked, Nanos now) noexcept;

  PacketIo& io_;
  Counters& counters_;
  const unsigned peer_;
  const Nanos keep_alive_;
  const Nanos max_rto_;
  const Nanos min_rto_;
  const size_t queue_target_;
  const size_t segments_;
  const size_t part_;  // bytes of a packet in each of its segments but the last
  const unsigned most_ack_every_;

  uint64_t session_ = 0;
  bool up_ = false;
  Nanos heard_at_ = 0;
  Nanos sent_at_ = 0;  // time of the latest transmission; packets that are sent again many times do not count
  Packet spare_;
  Nanos retry_at_ = 0;  // time of the next try, after the owner could not send or had no buffer

  // Sending: sequence numbers unacked_ to next_ - 1 are in the table.
  std::vector<Slot> table_;
  uint32_t unacked_ = 0;
  uint32_t next_ = 0;
  Nanos stuck_at_ = 0;      // time when the packet at unacked_ became the oldest
  size_t acked_bytes_ = 0;  // length of the longest packet acknowledged after stuck_at_
  uint32_t limit_ = 0;      // the neighbour accepts sequence numbers before this one
  size_t in_flight_ = 0;    // State::kInFlight
  size_t waiting_ = 0;      // unsent and lost packets
  uint64_t transmissions_ = 0;
  uint64_t newest_arrived_ = 0;  // highest transmission number known to have arrived
  unsigned backoff_ = 0;
  Nanos expire_at_ = kNever;
  Nanos probe_at_ = kNever;
  uint64_t probe_ = 0;  // transmission number of a probe; 0: none was sent since the latest acknowledgement
  bool limited_ = false;
  bool full_ = false;  // the link was full at `looked_at_`
  Nanos looked_at_ = 0;
  uint64_t looked_bytes_ = 0;  // totals_.bytes at that time
  LinkTotals totals_;
  RttEstimator rtt_;
  CongestionWindow congestion_;
  ReturnQueue return_queue_;

  // Receiving.
  ReceiveWindow received_;
  uint16_t credit_ = 0;  // window of the neighbour, which is constant; 0: unknown
  unsigned ack_every_ = 1;
  unsigned unacknowledged_ = 0;  // data packets received after the latest acknowledgement was sent
  bool ack_now_ = false;
  Nanos ack_at_ = kNever;
  std::array<uint64_t, 3> latest_fields_{};  // bytes of the latest header from `sack` to `echo`
  uint32_t stamp_ = 0;                       // stamp of the latest packet
  Nanos stamped_at_ = 0;                     // time when that packet arrived
};

}  // namespace gradlane
