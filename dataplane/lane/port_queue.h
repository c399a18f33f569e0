// port_queue.h - one queue pair of a port: bursts in, frames told apart, bursts out (worker thread only)
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/time.h"
#include "collectives/crc32c.h"
#include "collectives/operation.h"
#include "collectives/packet_io.h"
#include "dataplane/device/packet_pool.h"
#include "dataplane/device/port.h"
#include "dataplane/frame/frame.h"
#include "dataplane/frame/packet_auth.h"
#include "dataplane/lane/address_claim.h"
#include "dataplane/lane/address_table.h"
#include "dataplane/lane/fault_injector.h"
#include "dataplane/lane/probe_board.h"
#include "dataplane/lane/queue_counters.h"
#include "dataplane/lane/source_watch.h"

namespace gradlane {

class Lane;

// A node that packets are exchanged with directly. Its address is learnt by whichever worker hears it.
struct Neighbour {
  unsigned node = 0;
  uint32_t ip = 0;
  bool configured = false;       // the address is, and what ARP says of it is ignored
  std::atomic<uint64_t> mac{0};  // 48 bits in the order of the wire, and kMacKnown; any worker writes and reads
  // Packets from its address that were not made with the ring's key; any worker writes, others read.
  std::atomic<uint64_t> forged{0};
  std::atomic<uint64_t> arp_tries{0};  // requests for its address; any worker writes, others read
  // Who says by ARP, too, that the address is its own, and when; any worker writes and reads.
  std::atomic<uint64_t> claimant{0};
  std::atomic<Nanos> claimed_at{0};
  // Two machines take themselves for it: their MAC addresses, and until when its packets are refused for that; any
  // worker writes and reads.
  std::array<std::atomic<uint64_t>, 2> sources{};
  std::atomic<Nanos> doubled_until{0};
  // What its packets tell of a wrong configuration; any worker writes, others read.
  std::atomic<uint64_t> untagged{0};    // of the forged ones: whole, but without a tag
  std::atomic<uint64_t> wrong_tos{0};   // with a ToS byte that no class has,
  std::atomic<uint8_t> last_tos{0};     //   the last of them this one
  std::atomic<uint16_t> other_port{0};  // UDP port of ours that it sends to, which is not; 0: it does not
  // The settings in a hello of its that is for none of our ranks (Told), and when it came last.
  std::atomic<uint64_t> told{0};
  std::atomic<Nanos> told_at{0};
  std::atomic<uint32_t> asks_for{0};  // address that it asks for by ARP and no node has here; 0: it does not
  ProbeBoard probes;
  ProbeBoard lengths;  // probes of the way's MTU
  // Of IP: the longest packets that get there and back, if not all do; 0: they do, or it is not known. The control
  // thread writes, any worker reads.
  std::atomic<uint32_t> path_bytes{0};
};
struct Told {
  uint16_t nodes = 0;
  uint16_t trainers = 0;
  uint16_t lanes = 0;
  uint16_t local_reduce = 0;
};
inline constexpr uint64_t kMacKnown = kMacSource;
// None, or why a neighbour must not take part.
[[nodiscard]] Failure doubled_failure(const Neighbour& neighbour, unsigned rank, Nanos now) noexcept;
[[nodiscard]] uint64_t pack_mac(const MacAddress& mac) noexcept;
[[nodiscard]] MacAddress unpack_mac(uint64_t packed) noexcept;
// Of whoever sent it, packed.
[[nodiscard]] uint64_t frame_source(const uint8_t* frame) noexcept;

class PortQueue {
 public:
  struct Setup {
    LocalAddress local;
    unsigned ranks_per_node = 1;
    AddressClaim* claim = nullptr;    // of its port
    bool first = false;               // of its port: asks for addresses, sends probes
    std::vector<uint32_t> addresses;  // of all nodes
    std::vector<MacAddress> macs;     // of all ports of this node
    ProbeIdentity identity{};
    InjectedFaults faults;
    uint64_t fault_stream = 0;  // another one for each queue
  };
  // `key`: for tags; null: packets have none. Not kept.
  PortQueue(Port& port, unsigned queue, PacketPool& pool, const Classifier& classifier, const Setup& setup,
            const RingKey* key, std::span<Neighbour* const> neighbours);
  PortQueue(const PortQueue&) = delete;
  PortQueue& operator=(const PortQueue&) = delete;

  // Where packets to UDP port local.udp_port + `index` go: lane number * ranks_per_node + rank in the node.
  void connect(unsigned index, Lane& lane);

  // One burst. True if there was anything.
  bool receive(Nanos now) noexcept;

  // Queues the link header and what is behind it, `bytes` bytes in all, as a frame; false if that is not possible now.
  // Where it will not be for longer, the packet counts as sent and lost: asking again and again would keep the CPU
  // busy. `packet` has its own buffer, in front of which the headers have room.
  [[nodiscard]] bool send(const Packet& packet, size_t bytes, Flow& flow, const Neighbour& neighbour) noexcept;
  // The device may still read this buffer. One that it has not been given yet can have another header.
  [[nodiscard]] bool is_read(const rte_mbuf* mbuf) const noexcept;
  // The same as send() with this ToS, whatever the packet is.
  [[nodiscard]] bool send(const Packet& packet, size_t bytes, Flow& flow, const Neighbour& neighbour,
                          uint8_t tos) noexcept;

  // There is something to send that the port has not taken yet.
  [[nodiscard]] bool waits() const noexcept { return queued_count_ != 0; }

  // When frames that were held back on purpose must be looked at.
  [[nodiscard]] Nanos deadline() const noexcept { return injector_ ? injector_->deadline() : kNever; }

  // Asks for addresses, sends probes, looks after devices that take nothing.
  void poll(Nanos now) noexcept;
  // Hands what is queued to the device.
  void flush() noexcept;
  // Tells the other side not to touch the link for a while, as it will end.
  void say_goodbye() noexcept;
  // Gives back what is queued.
  void drop_queued() noexcept;
  // Gives back what is held back.
  void drop_held() noexcept;

  // Probes come and go just now: who sleeps between them finds long round trips.
  [[nodiscard]] bool probing(Nanos now) const noexcept { return now < probing_until_; }

  [[nodiscard]] const QueueCounters& counters() const noexcept { return counters_; }
  // Others may read the counters as they are now: every 100 ms, and at the end, when the worker is stopped.
  void publish() noexcept;
  // ---- Any thread, as of some 100 ms ago
  [[nodiscard]] uint64_t published(QueueCounter counter) const noexcept { return events_[counter]; }
  // visit(CounterValue) for all counters.
  template <class Visit>
  void for_each_published(Visit visit) const {
    events_.for_each(visit);
    verdicts_.for_each(visit);
    classes_.for_each(visit);
  }
  [[nodiscard]] const Port& port() const noexcept { return port_; }

  // Any thread: who sent a hello last that is no neighbour; at: 0: nobody has.
  struct Stranger {
    uint32_t ip = 0;
    uint16_t rank = 0;  // as it says
    Nanos at = 0;
  };
  [[nodiscard]] Stranger stranger() const noexcept {
    const uint64_t packed = stranger_.load(std::memory_order_relaxed);
    return {static_cast<uint32_t>(packed >> 32), static_cast<uint16_t>(packed),
            stranger_at_.load(std::memory_order_relaxed)};
  }

 private:
  static constexpr size_t kBurst = 64;
  static constexpr size_t kQueued = 64;
  static constexpr size_t kLeastFrame = 60;  // of Ethernet, without FCS

  void arrive(rte_mbuf* mbuf, Nanos now) noexcept;
  void inject(rte_mbuf* mbuf, Nanos now) noexcept;
  void duplicate(const rte_mbuf& mbuf, Nanos now) noexcept;
  bool handle_held(Nanos now) noexcept;
  void handle(rte_mbuf* mbuf, Nanos now) noexcept;
  [[nodiscard]] bool look_at_claim(const ParsedFrame& parsed) noexcept;
  [[nodiscard]] bool is_stranger(size_t neighbour, rte_mbuf* mbuf, Nanos now) noexcept;
  void mark_doubled(Neighbour& neighbour, const SourceWatch& watch, Nanos now) noexcept;
  [[nodiscard]] bool authenticate(rte_mbuf* mbuf, ParsedFrame& parsed, Nanos now) noexcept;
  void finish(rte_mbuf* mbuf, size_t bytes, const Flow& flow, uint8_t tos) noexcept;
  [[nodiscard]] bool is_queued(const rte_mbuf* mbuf) const noexcept {
    const auto end = queued_.begin() + static_cast<ptrdiff_t>(queued_count_);
    return std::find(queued_.begin(), end, mbuf) != end;
  }
  void deliver(rte_mbuf* mbuf, const ParsedFrame& parsed, Nanos now) noexcept;
  void handle_probe(rte_mbuf* mbuf, const ParsedFrame& parsed, Nanos now) noexcept;
  void send_probe(const Neighbour& neighbour, const ProbeHeader& header, size_t bytes, uint16_t to) noexcept;
  void send_probes(Nanos now) noexcept;
  void learn(uint32_t ip, const MacAddress& mac, Nanos now) noexcept;
  // ---- port_queue_misfits.cc
  [[nodiscard]] Neighbour* neighbour_at(uint32_t ip) const noexcept;
  void note_misfit(rte_mbuf* mbuf, ParsedFrame& parsed, Nanos now) noexcept;
  void note_stranger(const rte_mbuf* mbuf, const ParsedFrame& parsed, Nanos now) noexcept;
  static void note_forged(const rte_mbuf* mbuf, const ParsedFrame& parsed, Neighbour& neighbour) noexcept;
  void note_question(const ParsedFrame& parsed) noexcept;
  [[nodiscard]] bool queue(rte_mbuf* mbuf) noexcept;
  [[nodiscard]] bool send_arp(const LocalAddress& from, uint32_t ip) noexcept;
  void claim_address(Nanos now) noexcept;
  void ask_for_addresses(Nanos now) noexcept;
  void look_after_stall(Nanos now) noexcept;

  Port& port_;
  const uint16_t queue_;
  PacketPool& pool_;
  const Classifier& classifier_;
  const Setup setup_;
  std::vector<Neighbour*> neighbours_;
  const AddressTable numbers_;        // of neighbours_, by IP address
  std::vector<SourceWatch> sources_;  // as neighbours_: MAC addresses
  std::vector<Nanos> arp_due_;        // as neighbours_: not asked for before
  std::vector<Lane*> lanes_;          // by index; null: another worker has it
  // What leaves this machine has UDP checksums.
  enum class Checksum : uint8_t { kNone, kSoftware, kDevice };
  const Checksum checksum_;
  std::unique_ptr<FaultInjector> injector_;
  std::optional<PacketSealer> sealer_;
  std::vector<PacketOpener> openers_;  // as neighbours_; none: without authentication
  std::array<rte_mbuf*, kQueued> queued_{};
  size_t queued_count_ = 0;
  Nanos quiet_until_ = 0;
  // The device took nothing of the last burst; since when (0: it takes packets); until when it is left alone.
  bool refused_ = false;
  Nanos refused_at_ = 0;
  Nanos stalled_until_ = 0;
  Nanos arp_at_ = 0;  // the earliest of arp_due_
  Nanos probes_at_ = 0;
  Nanos probing_until_ = 0;
  QueueCounters counters_;
  CounterSnapshot<QueueCounter> events_;  // when they are due, so are the others
  CounterSnapshot<FrameVerdict> verdicts_;
  CounterSnapshot<TrafficClass> classes_;
  // Worker writes, others read: a Stranger.
  std::atomic<uint64_t> stranger_{0};
  std::atomic<Nanos> stranger_at_{0};
};

// Whether these bytes are a packet of the exchange with a right CRC.
[[nodiscard]] bool is_whole(std::span<const uint8_t> packet) noexcept;

}  // namespace gradlane
