// exchange_config.h - the configuration of an exchange
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/stream_copy.h"
#include "base/time.h"
#include "collectives/auto_scope.h"
#include "collectives/settings.h"
#include "collectives/strategy/strategy_id.h"
#include "collectives/wire.h"
#include "compress/codec.h"

namespace gradlane {

struct ExchangeConfig {
  // ---- These must be equal on all ranks. Neighbours compare them.
  unsigned world = 1;                       // 1 to kMaxWorld
  size_t mtu = 1472;                        // longest packet in bytes, from the link header on; kMinPacket to kMaxMtu
  size_t segments = 1;                      // datagrams in which the longest packet goes
  uint64_t rank_table = 0;                  // digest of the ranks' addresses; 0 is allowed if they cannot differ
  Codec codec = find_codec(kDefaultCodec);  // codec of fp32 operations that name no codec
  // Strategies that operations may name. The first one is the default of operations that name none. The ring may be
  // used even if it is not listed.
  std::vector<StrategyId> strategies = {StrategyId{}};
  AutoScope auto_scope;  // choices left to the trainers' libraries, which agree on them among all ranks
  // settings that neighbours compare one by one, to name the one that differs; nodes = 0: not compared
  RingSettings settings;

  // Bytes by which an IP packet is longer than the packet in it (headers, tag). Users know the MTU of IP, so texts
  // report lengths of IP packets.
  size_t around = 0;

  // ---- Settings of this rank.
  unsigned rank = 0;
  uint64_t incarnation = 0;  // random, different each time the node starts; not 0

  // ---- Memory, fixed at construction; see Exchange.
  size_t window = settings::kWindow.standard;  // packets in flight to one neighbour of the ring: a power of two
  // Limit of operations that are in flight, wait, or have an unread completion. Operations on tensors of at most 16 KiB
  // have memory of their own: with them, there may be four times as many.
  size_t operations = settings::kOperations.standard;
  size_t max_bytes = settings::kMaxTensor.standard;  // largest tensor of an operation

  size_t stream_bytes = kStreamBytes;  // tensors from here on are written past the caches

  unsigned ack_every = 4;  // data packets per acknowledgement; fewer if some time has passed
  // Pads data packets that are nearly full to the length of full ones. Some ports handle many packets of one length in
  // one call.
  bool pad = false;
  // The CRC of data packets covers all of them; false: only the link header, because the owner checks the rest.
  bool crc_of_data = true;

  // Target of the congestion window: number of packets per link that wait in queues on the path.
  size_t queue_target = settings::kQueueTarget.standard;

  // ---- Times.
  // Time from a rank's last sign of life to the failure of all operations.
  Nanos peer_timeout = settings::kPeerTimeout.standard;
  Nanos start_timeout = settings::kStartTimeout.standard;          // longest wait of an operation for the ring
  Nanos operation_timeout = settings::kOperationTimeout.standard;  // time from an operation's start to its failure
  Nanos min_rto = settings::kMinRto.standard;                      // shortest retransmission timeout
  // Longest time that an open packet with partial sums waits for more of them. A packet with results waits up to
  // `world` times as long. Both times are shorter if the RTT is short.
  Nanos max_hold = 10 * kMicrosecond;

  // Returns the length of the longest datagram.
  [[nodiscard]] size_t datagram() const noexcept { return segments == 1 ? mtu : mtu / segments + kSegmentHeader; }
};

}  // namespace gradlane
