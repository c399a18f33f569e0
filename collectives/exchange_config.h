// exchange_config.h - what an exchange is made with
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "collectives/left_open.h"
#include "collectives/settings.h"
#include "collectives/strategy/strategy_id.h"
#include "collectives/wire.h"
#include "compress/codec.h"

namespace gradlane {

struct ExchangeConfig {
  // ---- Equal on all ranks; neighbours compare these.
  unsigned world = 1;                       // 1 to kMaxWorld
  size_t mtu = 1472;                        // longest packet in bytes, from the link header on; kMinPacket to kMaxMtu
  uint64_t rank_table = 0;                  // digest of who is which rank; 0 will do where that cannot differ
  Codec codec = find_codec(kDefaultCodec);  // of fp32 operations that name none
  // Those that operations may name; the first one is that of operations that name none. The ring always works, named or
  // not.
  std::vector<StrategyId> strategies = {StrategyId{}};
  LeftOpen left_open;     // what operations leave to trainers' libraries: they choose by what all ranks agree on
  RingSettings settings;  // what `rank_table` is made of, for naming what differs; zeros: not told

  // Bytes of IP around a packet: users know MTUs of IP, and texts speak of those.
  size_t around = 0;

  // ---- Of this rank.
  unsigned rank = 0;
  uint64_t incarnation = 0;  // random, another one each time the node starts; not 0

  // ---- Memory, fixed at construction; see Exchange.
  size_t window = settings::kWindow.standard;  // packets in flight to one neighbour: a power of two
  // In flight, waiting and unread; of small tensors four times as many.
  size_t operations = settings::kOperations.standard;
  size_t max_bytes = settings::kMaxTensor.standard;  // of one operation's tensor

  unsigned ack_every = 4;  // data packets, or fewer after some time
  // Data packets that are nearly full are made as long as full ones: for ports that take many of one length in one
  // call.
  bool pad = false;

  // Packets of each link that the congestion window lets wait in queues on the way.
  size_t queue_target = settings::kQueueTarget.standard;

  // ---- Times.
  // From a rank's last sign of life to the failure of all operations.
  Nanos peer_timeout = settings::kPeerTimeout.standard;
  Nanos start_timeout = settings::kStartTimeout.standard;  // how long an operation waits for the ring to come up
  Nanos operation_timeout = settings::kOperationTimeout.standard;  // from an operation's start to its failure
  Nanos min_rto = settings::kMinRto.standard;                      // shortest retransmission time-out
  // Longest wait of sums for others that fill up their packet, of results `world` times that; less where the RTT is
  // short.
  Nanos max_hold = 10 * kMicrosecond;
};

}  // namespace gradlane
