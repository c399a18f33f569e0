// port_queue.h - one queue pair of a port: receives bursts, sorts frames, sends bursts (worker thread only)
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
#include "dataplane/lane/address_claim.h"
#include "dataplane/lane/address_table.h"
#include "dataplane/lane/fault_injector.h"
#include "dataplane/lane/probe_board.h"
#include "dataplane/lane/queue_counters.h"
#include "dataplane/lane/source_watch.h"
#include "dataplane/secure/secure_link.h"

namespace gradlane {

class Lane;

// A node with which this node exchanges packets directly. Any worker that learns the node's MAC address stores it here.
struct Neighbour {
  unsigned node = 0;
  uint32_t ip = 0;
  bool configured = false;       // the MAC address is configured, and ARP is ignored
  std::atomic<uint64_t> mac{0};  // 48 bits in wire order, and kMacKnown; any worker writes and reads
  // Number of packets from its address that were not made with the ring's key; any worker writes, others read.
  std::atomic<uint64_t> forged{0};
  std::atomic<uint64_t> arp_tries{0};  // ARP requests for its address; any worker writes, others read
  // Another MAC address that claims the IP address by ARP, and the time of the claim; any worker writes and reads.
  std::atomic<uint64_t> claimant{0};
  std::atomic<Nanos> claimed_at{0};
  // MAC addresses of two machines that both act as this node, and the end of the time in which its packets are refused;
  // any worker writes and reads.
  std::array<std::atomic<uint64_t>, 2> sources{};
  std::atomic<Nanos> doubled_until{0};
  const KeyRing* keys = nullptr;      // keys that this node shares with it; null without security
  std::atomic<uint16_t> used_key{0};  // id of the key that sealed its latest hello; any worker writes and reads
  // Signs of a wrong configuration in its packets; any worker writes, others read.
  std::atomic<uint64_t> untagged{0};    // forged packets that are intact but have no tag
  std::atomic<uint64_t> wrong_tos{0};   // packets with a ToS byte that no class has
  std::atomic<uint8_t> last_tos{0};     // ToS byte of the latest such packet
  std::atomic<uint16_t> other_port{0};  // UDP port that it sends to although this node does not use it; 0: none
  // Settings (PeerSettings) in its latest hello that was for none of our ranks, and the time of that hello.
  std::atomic<uint64_t> told{0};
  std::atomic<Nanos> peer_settings_at{0};
  std::atomic<uint32_t> asks_for{0};  // address that it asks for by ARP although no node has it; 0: none
  ProbeBoard probes;
  ProbeBoard lengths;  // probes of the path MTU
  // Length of the longest IP packets that get there and back, if not all do; 0: all do, or it is not known. The control
  // thread writes, any worker reads.
  std::atomic<uint32_t> path_bytes{0};
};
struct PeerSettings {
  uint16_t nodes = 0;
  uint16_t trainers = 0;
  uint16_t lanes = 0;
  uint16_t local_reduce = 0;
};
inline constexpr uint64_t kMacKnown = kMacSource;
// Returns why a neighbour must not take part; empty if it may.
[[nodiscard]] Failure doubled_failure(const Neighbour& neighbour, unsigned rank, Nanos now) noexcept;
[[nodiscard]] uint64_t pack_mac(const MacAddress& mac) noexcept;
[[nodiscard]] MacAddress unpack_mac(uint64_t packed) noexcept;
// Returns the packed MAC address of the sender.
[[nodiscard]] uint64_t frame_source(const uint8_t* frame) noexcept;

class PortQueue {
 public:
  struct Setup {
    LocalAddress local;
    unsigned ranks_per_node = 1;
    Nanos peer_timeout = settings::kPeerTimeout.standard;
    AddressClaim* claim = nullptr;    // claim of the port
    bool first = false;               // first queue of the port: asks for addresses, sends probes
    std::vector<uint32_t> addresses;  // IP addresses of all nodes
    std::vector<MacAddress> macs;     // MAC addresses of all ports of this node
    ProbeIdentity identity{};
    InjectedFaults faults;
    uint64_t fault_stream = 0;  // different for each queue
    Security security = Security::kNone;
    const KeyRing* keys = nullptr;  // keys of hellos from nodes that are no neighbours; null: they are not looked at
  };
  PortQueue(Port& port, unsigned queue, PacketPool& pool, const Classifier& classifier, const Setup& setup,
            std::span<Neighbour* const> neighbours);
  PortQueue(const PortQueue&) = delete;
  PortQueue& operator=(const PortQueue&) = delete;

  // Connects the lane for packets to UDP port local.udp_port + `index`: `index` is lane number * ranks_per_node + rank
  // in the node.
  void connect(unsigned index, Lane& lane);

  // Receives one burst. Returns true if there was anything.
  bool receive(Nanos now) noexcept;

  // Queues the link header and what follows it, `bytes` bytes in all, as a frame. Returns false if that is not possible
  // now. If it will stay impossible for some time, returns true, and the packet counts as sent and lost: repeated tries
  // would keep the CPU busy. `packet` has its own buffer, with space for the headers before it. `secure` puts it into
  // an envelope; null: it has none.
  [[nodiscard]] bool send(const Packet& packet, size_t bytes, Flow& flow, const Neighbour& neighbour,
                          SecureLink* secure) noexcept;
  // Queues a hello without content.
  void send_hello(SecureLink& link, Flow& flow, const Neighbour& neighbour, Nanos now) noexcept;
  // Returns whether the device may still read this buffer. Returns false if the buffer is still queued here: then its
  // headers can still be replaced.
  [[nodiscard]] bool is_read(const rte_mbuf* mbuf) const noexcept;

  // Returns whether there is something to send that the port has not taken yet.
  [[nodiscard]] bool waits() const noexcept { return queued_count_ != 0; }

  // Returns the time at which the next frame that was held back on purpose is due, or poll() has something to do.
  [[nodiscard]] Nanos deadline() const noexcept {
    return std::min(overdue_at_, injector_ ? injector_->deadline() : kNever);
  }

  // Asks for addresses and for missing parts of packets, sends probes of the path, and deals with devices that take
  // nothing.
  void poll(Nanos now) noexcept;
  // Hands what is queued to the device.
  void flush() noexcept;
  // Tells the other side not to touch the link for a while, because this end is about to go.
  void say_goodbye() noexcept;
  // Frees queued frames.
  void drop_queued() noexcept;
  // Frees frames that were held back.
  void drop_held() noexcept;

  // Returns whether probes are being exchanged now. A worker that sleeps between them would measure long round trips.
  [[nodiscard]] bool probing(Nanos now) const noexcept { return now < probing_until_; }

  [[nodiscard]] const QueueCounters& counters() const noexcept { return counters_; }
  // Publishes the counters for other threads. It runs every 100 ms, and at the end, when the worker is stopped.
  void publish() noexcept;
  // ---- Any thread, as of about 100 ms ago
  [[nodiscard]] uint64_t published(QueueCounter counter) const noexcept { return events_[counter]; }
  // Calls visit(CounterValue) for all counters.
  template <class Visit>
  void for_each_published(Visit visit) const {
    events_.for_each(visit);
    verdicts_.for_each(visit);
    classes_.for_each(visit);
  }
  [[nodiscard]] const Port& port() const noexcept { return port_; }

  // The latest sender of a hello that is not a neighbour. `at` is 0 if there was none. Any thread.
  struct Stranger {
    uint32_t ip = 0;
    uint16_t rank = 0;  // rank that it says it is
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
  static constexpr unsigned kMostCalls = 32;  // most superpackets of one burst, which may be single packets
  static constexpr size_t kLeastFrame = 60;   // shortest Ethernet frame without FCS

  // Returns a packet's index in queued_; queued_count_ if it is not there.
  [[nodiscard]] size_t place_of(const rte_mbuf* mbuf) const noexcept {
    const auto end = queued_.begin() + static_cast<ptrdiff_t>(queued_count_);
    return static_cast<size_t>(std::find(queued_.begin(), end, mbuf) - queued_.begin());
  }
  [[nodiscard]] bool receive_datagrams(Nanos now) noexcept;
  // The ends of a packet's path.
  struct Ends {
    size_t neighbour = AddressTable::kNone;  // kNone: a stranger, or ports of different lanes
    unsigned rank = 0;                       // rank of the sender
    Lane* lane = nullptr;                    // null: another worker has the lane
  };
  [[nodiscard]] Ends ends_of(uint32_t source_ip, uint16_t source_port, uint16_t destination_port) const noexcept;
  [[nodiscard]] Lane* usual_receiver(const DatagramPath& path, const Ends& ends, Nanos now) const noexcept;
  void arrive(rte_mbuf* mbuf, Nanos now) noexcept;
  void inject(rte_mbuf* mbuf, Nanos now) noexcept;
  void duplicate(const rte_mbuf& mbuf, Nanos now) noexcept;
  bool handle_held(Nanos now) noexcept;
  void handle(rte_mbuf* mbuf, Nanos now) noexcept;
  [[nodiscard]] bool look_at_claim(const ParsedFrame& parsed) noexcept;
  [[nodiscard]] bool is_stranger(size_t neighbour, rte_mbuf* mbuf, Nanos now) noexcept;
  void mark_doubled(Neighbour& neighbour, const SourceWatch& watch, Nanos now) noexcept;
  // Returns whether frames to this neighbour may be queued now, and fills in its MAC address. Otherwise counts why.
  [[nodiscard]] bool can_send(const Neighbour& neighbour, Flow& flow) noexcept;
  [[nodiscard]] bool has_place() noexcept;
  [[nodiscard]] bool send_plain(const Packet& packet, size_t bytes, Flow& flow, const Neighbour& neighbour,
                                uint8_t tos) noexcept;
  // A frame for a packet that is sealed into it. `mbuf` is null if there is none, and `lost` is what send() returns
  // then.
  struct BlankFrame {
    rte_mbuf* mbuf = nullptr;
    bool lost = true;
  };
  [[nodiscard]] BlankFrame blank_frame(const Neighbour& neighbour, Flow& flow) noexcept;
  // Queues a blank frame whose payload has `bytes` bytes; 0: it is not sent.
  void send_blank(rte_mbuf* mbuf, size_t bytes, const Flow& flow, uint8_t tos) noexcept;
  void finish(size_t place, size_t bytes, const Flow& flow, uint8_t tos) noexcept;
  // ---- port_queue_secure.cc
  void handle_sealed(rte_mbuf* mbuf, ParsedFrame& parsed, Nanos now) noexcept;
  // Counts why a sealed packet is dropped, unless it is good.
  [[nodiscard]] bool is_good(SecureLink::Verdict verdict, Neighbour& neighbour) noexcept;
  [[nodiscard]] bool open_loose(const KeyRing& keys, const Envelope& envelope, rte_mbuf* mbuf,
                                ParsedFrame& parsed) noexcept;
  [[nodiscard]] bool open_on(SecureLink& link, const Envelope& envelope, rte_mbuf* mbuf, ParsedFrame& parsed,
                             Neighbour& neighbour, Nanos now) noexcept;
  void answer_on(SecureLink& link, const ParsedFrame& parsed, const Neighbour& neighbour, Nanos now) noexcept;
  void deliver(rte_mbuf* mbuf, const ParsedFrame& parsed, Nanos now) noexcept;
  void handle_probe(rte_mbuf* mbuf, const ParsedFrame& parsed, Nanos now) noexcept;
  [[nodiscard]] bool queue_probe(const Packet& packet, size_t bytes, Flow& flow, const Neighbour& neighbour,
                                 uint8_t tos) noexcept;
  void send_probe(const Neighbour& neighbour, const ProbeHeader& header, size_t bytes, uint16_t to) noexcept;
  void send_probes(Nanos now) noexcept;
  void learn(uint32_t ip, const MacAddress& mac, Nanos now) noexcept;
  // ---- port_queue_drops.cc
  [[nodiscard]] Neighbour* neighbour_at(uint32_t ip) const noexcept;
  void note_misconfigured(const rte_mbuf* mbuf, const ParsedFrame& parsed, Nanos now) noexcept;
  void note_wrong_tos(const ParsedFrame& parsed, Neighbour& neighbour, Nanos now) noexcept;
  void note_stranger(const rte_mbuf* mbuf, const ParsedFrame& parsed, Nanos now) noexcept;
  static void note_untagged(const rte_mbuf* mbuf, const ParsedFrame& parsed, Neighbour& neighbour) noexcept;
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
  const AddressTable numbers_;        // index into neighbours_ by IP address
  std::vector<SourceWatch> sources_;  // MAC addresses of each neighbour's packets
  std::vector<Nanos> arp_due_;        // earliest time of the next ARP request to each neighbour
  std::vector<Lane*> lanes_;          // by index; null: another worker has the lane
  // The kinds of UDP checksums in sent packets. Links inside this machine need none. For sockets, the kernel adds them.
  enum class Checksum : uint8_t { kNone, kSoftware, kDevice };
  const Checksum checksum_;
  const bool sockets_;  // packets go to the port with their paths
  const bool frames_;   // packets arrive with headers, because something here needs them
  std::unique_ptr<FaultInjector> injector_;
  Nanos overdue_at_ = kNever;          // when to look again for packets that have not come completely
  Nanos stranger_opened_at_ = 0;       // when a sealed hello of a stranger was opened last
  std::optional<LooseCipher> secure_;  // there is one if packets have envelopes
  std::array<rte_mbuf*, kQueued> queued_{};
  std::array<DatagramPath, kQueued> paths_{};  // of queued packets, with sockets_
  size_t queued_count_ = 0;
  Nanos quiet_until_ = 0;
  // `refused_`: the device took nothing of the latest burst. `refused_at_`: time since which it has taken nothing; 0:
  // it takes packets. `stalled_until_`: nothing is sent to it before this time.
  bool refused_ = false;
  Nanos refused_at_ = 0;
  Nanos stalled_until_ = 0;
  Nanos arp_at_ = 0;  // earliest of arp_due_
  Nanos probes_at_ = 0;
  Nanos probing_until_ = 0;
  QueueCounters counters_;
  CounterSnapshot<QueueCounter> events_;  // published together with the other two
  CounterSnapshot<FrameVerdict> verdicts_;
  CounterSnapshot<TrafficClass> classes_;
  // A Stranger: the worker writes it, others read it.
  std::atomic<uint64_t> stranger_{0};
  std::atomic<Nanos> stranger_at_{0};
};

// Returns whether these bytes are a packet of the exchange with a right CRC.
[[nodiscard]] bool is_whole(std::span<const uint8_t> packet) noexcept;

}  // namespace gradlane
