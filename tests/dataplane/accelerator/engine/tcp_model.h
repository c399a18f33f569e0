// tcp_model.h - a model of TCP connections through an accelerator. Hosts, wire and receivers do at random what TCP
// allows
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/time.h"
#include "compress/codec.h"
#include "dataplane/accelerator/engine/tcp_streams.h"
#include "tests/compress/test_floats.h"

namespace gradlane::accel::test {

using gradlane::test::Rng;

// Defects that the modelled accelerator has on purpose. The model must find each of them.
enum class Flaw : uint8_t {
  kNone,
  kNoOverwrite,  // retransmissions with other boundaries are sent exact
  kNoLead,       // floats are taken to start at the segment's first byte
  kAcksEarly     // acknowledgements are taken to cover some bytes more
};

// A packet as a receiver gets it.
struct Packet {
  uint32_t seq = 0;
  uint8_t flags = 0;
  std::vector<uint8_t> payload;
};

// The accelerators of the sender and the receiver. They use the streams as the engine does.
class Box {
 public:
  Box(const Codec& codec, const TcpStreams::Setup& setup, Flaw flaw);
  [[nodiscard]] Packet pass(const Segment& segment, std::vector<uint8_t> payload, bool marked);
  void acknowledge(const FlowKey& key, uint32_t ack);
  [[nodiscard]] TcpStreams& streams() { return streams_; }
  [[nodiscard]] const Codec& codec() const { return codec_; }

 private:
  void restore(size_t record_bytes, std::vector<uint8_t>& payload);

  Codec codec_;
  Flaw flaw_;
  TcpStreams streams_;
  std::vector<uint8_t> record_;
  Nanos now_ = kSecond;
};

struct Tally {
  size_t connections = 0;
  size_t floats = 0;
  size_t lossy = 0;  // number of floats with other bits than the sent ones
  size_t mixed = 0;  // number of floats with neither the sent bits nor those of decode(encode())
  size_t stuck = 0;
  Tally& operator+=(const Tally& other);
};

// One connection: the host with its send queue, the wire, and the receiver. Positions count from the first data byte.
class Connection {
 public:
  Connection(Box& box, Rng& random, const FlowKey& key, uint32_t isn, size_t bytes);
  // Lets one thing happen. Returns false if all is sent, received and acknowledged, or if the host has reset the
  // connection.
  [[nodiscard]] bool step();
  [[nodiscard]] Tally tally() const;

 private:
  // Host
  void open();
  void send_new();
  void send_again_otherwise();
  void send_again_likewise();
  void probe();
  void reset_connection();
  void emit(size_t begin, size_t bytes, uint8_t flags);
  void pass(uint32_t seq, uint8_t flags, std::vector<uint8_t> payload);
  [[nodiscard]] size_t some_bytes(size_t begin);
  // Wire and receiver
  void deliver();
  void receive(const Packet& packet);
  void hear();

  Box& box_;
  Rng& random_;
  const FlowKey key_;
  const uint32_t base_;
  const size_t most_, window_;
  const bool options_;                  // the host sends IP options now and then
  std::vector<uint8_t> exact_, lossy_;  // the stream's bytes: as sent, and as the codec returns them
  // Host
  size_t una_ = 0, nxt_ = 0;
  bool fin_sent_ = false, broken_ = false;
  std::vector<std::pair<size_t, size_t>> sent_;  // begin and number of bytes of each sent segment
  // Wire
  std::vector<Packet> wire_;
  std::vector<size_t> acks_;
  // Receiver
  std::vector<uint8_t> got_, have_;
  size_t rcv_ = 0;
  bool fin_received_ = false;
  size_t steps_ = 0;
};

// The connections of one run, all through one Box. On each of `slots` address pairs, one connection follows the other.
struct Plan {
  TcpStreams::Setup setup{};
  size_t slots = 6;
  size_t connections = 15;
  Flaw flaw = Flaw::kNone;
};
struct Outcome {
  Tally tally;
  size_t steps = 0;
  size_t records_left = 0, streams_left = 0;
  std::vector<uint64_t> figures;  // by StreamFigure
};
[[nodiscard]] Outcome play(const Codec& codec, const Plan& plan, uint64_t seed);

}  // namespace gradlane::accel::test
