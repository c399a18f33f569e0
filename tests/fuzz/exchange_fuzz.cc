// exchange_fuzz.cc - libFuzzer target: injects foreign packets into a ring that is in the middle of operations
//
// Aborts if a packet that was refused changes a result, a failure or a session. Also aborts if an operation does not
// end in time, or if the ring does not work in the next session. Input:
//   byte 0     world, operations, window, padding, loss, strategy
//   then records that each inject one packet:
//   byte 0     enum Flags below
//   byte 1     victim, the neighbour that seems to send it, the age of the real packet that it is made from
//   byte 2     number of steps of the ring since the last packet
//   byte 3     number of bytes that follow: changes to the real packet (kReal), or the packet from the link header on
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collectives/crc32c.h"
#include "collectives/descriptor.h"
#include "collectives/strategy/codec_needs.h"
#include "tests/fuzz/fuzz_plans.h"
#include "tests/fuzz/fuzz_ring.h"

namespace gradlane::test {
namespace {

enum Flags : uint8_t {
  kSealed = 1,       // magic, version and CRC are right
  kSession = 2,      // the session is right
  kReal = 4,         // it is a changed copy of a real packet from the neighbour
  kHonestAck = 8,    // it has the acknowledgement of that neighbour's latest real packet
  kNextPacket = 16,  // it has the next sequence number
  kNextRun = 32,     // its first run belongs to one of the operations
  kData = 64,        // it is a data packet
};

constexpr size_t kMtu = 300;
constexpr size_t kLongest = kMtu + 20;
constexpr size_t kRemembered = 8;  // number of packets that are kept per link direction
constexpr size_t kMostRecords = 40;
constexpr Nanos kLimit = kSecond;

[[noreturn]] void fail(const char* what, unsigned node, size_t operation) {
  std::fprintf(stderr, "exchange_fuzz: %s: node %u, operation %zu\n", what, node, operation);
  std::abort();
}

// ---- Settings

struct DefaultOptions {
  explicit DefaultOptions(uint8_t byte)
      : world(byte / 64 == 3 ? 4 : 2 + byte % 2),
        plan(byte / 2 % 4),
        window(byte / 8 % 2 == 0 ? 32 : 2),
        pad(byte / 16 % 2 == 1),
        loss_percent(byte / 16 % 4 == 3 ? 5 : 0),
        strategy(byte / 64) {}
  [[nodiscard]] std::array<unsigned, 3> results() const { return {world, plan, strategy}; }  // results depend on these
  [[nodiscard]] const StrategyId& id() const {
    static const std::array<StrategyId, 4> all = {find_strategy("ring"), find_strategy("direct"),
                                                  find_strategy("aggregator:1"), find_strategy("rings:2")};
    return all[strategy];
  }

  unsigned world;
  unsigned plan;
  size_t window;
  bool pad;
  unsigned loss_percent;
  unsigned strategy;
};

std::vector<Tensors> tensors_of(const DefaultOptions& setting) {
  std::vector<Tensors> tensors;
  for (Plan plan : plans()[setting.plan]) {
    if (!carries(setting.id(), plan.codec.row(), setting.world)) plan.codec = find_codec("raw");
    tensors.emplace_back(plan, setting.world, tensors.size());
  }
  return tensors;
}

ExchangeConfig config_of(const DefaultOptions& setting) {
  static const ExchangeConfig common;
  ExchangeConfig config = common;
  config.world = setting.world;
  config.strategies.front() = setting.id();
  config.mtu = kMtu;
  config.window = setting.window;
  config.pad = setting.pad;
  config.operations = 4;
  config.max_bytes = 20480;
  config.peer_timeout = 10 * kMillisecond;
  config.start_timeout = 15 * kMillisecond;
  config.operation_timeout = 15 * kMillisecond;
  return config;
}

// ---- A run

// The real packets of one direction of a link, from one node to another.
struct Heard {
  std::deque<Bytes> packets;  // the latest packets, the newest one last
  uint32_t next = 0;          // next sequence number of data packets
  // Acknowledgements and hellos of all real packets.
  std::vector<std::array<uint64_t, 3>> acks;
  std::vector<std::pair<uint64_t, Bytes>> hellos;  // sessions, and the bytes after the header
};

std::array<uint64_t, 3> ack_of(const LinkHeader& header) { return {header.ack, header.sack, header.sack_from}; }

class Run {
 public:
  explicit Run(const DefaultOptions& setting)
      : ring_(config_of(setting), setting.loss_percent,
              [this](unsigned from, unsigned to, std::span<const uint8_t> packet) { hear(from, to, packet); }),
        strategy_(setting.id()),
        tensors_(tensors_of(setting)) {
    for (Tensors& each : tensors_) {
      for (unsigned rank = 0; rank < setting.world; ++rank) ring_.submit(rank, each.operation(rank));
    }
  }

  void inject(uint8_t flags, uint8_t who, std::span<const uint8_t> bytes);
  void wait(unsigned instants) {
    for (; instants != 0 && ring_.step(kLimit); --instants) {
    }
  }
  // Runs until all operations have ended, then checks them.
  void finish(const std::vector<Tensors>* reference);

  [[nodiscard]] const std::vector<Tensors>& tensors() const { return tensors_; }

 private:
  void hear(unsigned from, unsigned to, std::span<const uint8_t> packet);
  Bytes make(const Heard& heard, uint8_t flags, uint8_t age, std::span<const uint8_t> bytes, unsigned victim);
  static void change(Bytes& packet, std::span<const uint8_t> changes);
  void aim_run(Bytes& packet, unsigned victim);
  void judge(const Heard& heard, const Bytes& packet, unsigned victim, bool whole);
  void check_results(const std::vector<Tensors>& reference);
  void check_recovery();

  FuzzRing ring_;
  StrategyId strategy_;
  std::vector<Tensors> tensors_;
  std::map<std::pair<unsigned, unsigned>, Heard> heard_;
  std::array<uint64_t, kCounters> before_{};
  // Kinds of injected packets that the ring has accepted:
  bool session_ = false;  // hellos, or packets that keep the ring from becoming ready: operations may fail
  bool content_ = false;  // elements, aborts or acknowledgements: a tensor may have any content
};

void Run::hear(unsigned from, unsigned to, std::span<const uint8_t> packet) {
  Heard& heard = heard_[{from, to}];
  heard.packets.emplace_back(packet.begin(), packet.end());
  if (heard.packets.size() > kRemembered) heard.packets.pop_front();
  const auto header = load<LinkHeader>(packet.data());
  if (header.kind == PacketKind::kData) heard.next = std::max(heard.next, header.sequence + 1);
  heard.acks.push_back(ack_of(header));
  if (header.kind == PacketKind::kHello) {
    heard.hellos.emplace_back(header.session, Bytes(packet.begin() + sizeof(header), packet.end()));
  }
}

// ---- Packets

// Applies changes of three bytes each: place, kind of change, and value.
void Run::change(Bytes& packet, std::span<const uint8_t> changes) {
  for (; changes.size() >= 3; changes = changes.subspan(3)) {
    const size_t at = changes[0] | size_t{changes[1] & 1U} << 8;
    if (changes[1] >> 5 == 1) packet.resize(std::min<size_t>(at + changes[2], kLongest));
    if (at >= packet.size()) continue;
    switch (changes[1] >> 6) {
      case 0:
        packet[at] ^= changes[2];
        break;
      case 1:
        packet[at] = changes[2];
        break;
      default:
        packet[at] = static_cast<uint8_t>(packet[at] + changes[2]);
    }
  }
}

// Makes the first run belong to an operation of the plan, with its digest and codec.
void Run::aim_run(Bytes& packet, unsigned victim) {
  const size_t at = sizeof(LinkHeader);
  if (packet.size() < at + sizeof(RunHeader)) return;
  auto run = load<RunHeader>(&packet[at]);
  run.operation %= static_cast<uint32_t>(tensors_.size());
  const Operation operation = tensors_[run.operation].operation(victim);
  Descriptor descriptor{};
  descriptor.count = operation.kind == kBarrier ? 1 : operation.count;
  descriptor.kind = static_cast<uint8_t>(operation.kind);
  descriptor.type = static_cast<uint8_t>(operation.type);
  descriptor.reduction = static_cast<uint8_t>(operation.reduction);
  if (operation.type == kFloat32) {
    descriptor.codec = static_cast<uint8_t>(operation.codec->id());
    descriptor.param = operation.codec->param();
  }
  if (strategy_ != StrategyId{} && supports(strategy_, operation.kind)) descriptor.strategy = strategy_.code();
  run.digest = digest_of(descriptor);
  run.codec = descriptor.codec;
  run.param = descriptor.param;
  store(&packet[at], run);
}

Bytes Run::make(const Heard& heard, uint8_t flags, uint8_t age, std::span<const uint8_t> bytes, unsigned victim) {
  Bytes packet(bytes.begin(), bytes.end());
  if ((flags & kReal) != 0 && !heard.packets.empty()) {
    packet = heard.packets[heard.packets.size() - 1 - age % heard.packets.size()];
    change(packet, bytes);
  }
  if (packet.size() > kLongest) packet.resize(kLongest);
  if ((flags & kNextRun) != 0) aim_run(packet, victim);
  if (packet.size() < sizeof(LinkHeader)) return packet;
  auto header = load<LinkHeader>(packet.data());
  if ((flags & kData) != 0) header.kind = PacketKind::kData;
  if ((flags & kSession) != 0) header.session = ring_.exchange(victim).ring_status().session;
  if ((flags & kNextPacket) != 0) header.sequence = heard.next;
  if ((flags & kHonestAck) != 0 && !heard.acks.empty()) {
    header.ack = static_cast<uint32_t>(heard.acks.back()[0]);
    header.sack = heard.acks.back()[1];
    header.sack_from = static_cast<uint16_t>(heard.acks.back()[2]);
  }
  if ((flags & kSealed) != 0) {
    header.magic = kMagic;
    if ((flags & kReal) == 0) header.version = kProtocolVersion;
    store(packet.data(), header);
    const uint32_t state = crc32c(kCrcStart, packet.data() + sizeof(header), packet.size() - sizeof(header));
    header.crc = ~crc32c(state, packet.data(), kCrcOffset);
  }
  store(packet.data(), header);
  return packet;
}

void Run::inject(uint8_t flags, uint8_t who, std::span<const uint8_t> bytes) {
  const unsigned world = ring_.world();
  const unsigned victim = who % 4 % world;
  // With four ranks, `back` leads to the opposite rank, which is no neighbour in any ring.
  const unsigned back = world == 4 ? 2 : world - 1;
  const unsigned from = (victim + ((who >> 2 & 1) == 0 ? 1 : back)) % world;
  const Heard& heard = heard_[{from, victim}];
  const Bytes packet = make(heard, flags, who >> 3 & 7, bytes, victim);
  Exchange& exchange = ring_.exchange(victim);
  for (size_t i = 0; i < kCounters; ++i) before_[i] = exchange.counters()[static_cast<Counter>(i)];
  const bool whole = exchange.ring_status().ready;
  ring_.inject(victim, who == 0xff ? 77 : from, packet);
  judge(heard, packet, victim, whole);
}

// Notes what an injected packet may have changed, by the counters that it increased.
void Run::judge(const Heard& heard, const Bytes& packet, unsigned victim, bool whole) {
  const Counters& counters = ring_.exchange(victim).counters();
  const auto counted = [&](Counter counter) { return counters[counter] - before_[static_cast<size_t>(counter)] != 0; };
  uint64_t received = 0;
  for (size_t i = 0; i < static_cast<size_t>(Counter::kBadAck); ++i) {
    received += counters[static_cast<Counter>(i)] - before_[i];
  }
  if (received != 1) fail("a packet counts not once", victim, received);
  if (counted(Counter::kDelivered)) content_ = true;
  if (!whole && (counted(Counter::kHelloRefused) || counted(Counter::kBadVersion))) session_ = true;
  if (packet.size() < sizeof(LinkHeader)) return;
  const auto header = load<LinkHeader>(packet.data());
  if (counted(Counter::kHelloReceived)) {
    const std::pair hello(header.session, Bytes(packet.begin() + sizeof(header), packet.end()));
    if (std::find(heard.hellos.begin(), heard.hellos.end(), hello) == heard.hellos.end()) session_ = true;
  }
  // The ring uses the acknowledgement of each packet of this session that is not damaged.
  const bool unread = counted(Counter::kTooShort) || counted(Counter::kBadMagic) || counted(Counter::kBadCrc) ||
                      counted(Counter::kBadVersion) || counted(Counter::kBadKind) || counted(Counter::kStaleSession) ||
                      counted(Counter::kUnknownPeer) || counted(Counter::kBadAck) || counted(Counter::kHelloStale) ||
                      counted(Counter::kHelloRefused);
  const bool honest = std::find(heard.acks.begin(), heard.acks.end(), ack_of(header)) != heard.acks.end();
  if (!unread && !honest) content_ = true;
}

// ---- Results

void Run::finish(const std::vector<Tensors>* reference) {
  if (!ring_.run_until_idle(kLimit)) fail("does not end", 0, 0);
  if (reference == nullptr) {
    for (unsigned rank = 0; rank < ring_.world(); ++rank) {
      for (const Completion& each : ring_.completions(rank)) {
        if (each.failure) fail("fails of itself", rank, each.id);
      }
    }
    return;
  }
  if (!content_) check_results(*reference);
  if (content_ || session_) check_recovery();
}

// Every success must have the right result. Every operation must succeed unless an injected packet has disturbed the
// session.
void Run::check_results(const std::vector<Tensors>& reference) {
  for (unsigned rank = 0; rank < ring_.world(); ++rank) {
    for (const Completion& each : ring_.completions(rank)) {
      const Tensors& is = tensors_[each.id];
      const Tensors& should = reference[each.id];
      if (each.failure) {
        if (!session_) fail(failure_text(each.failure).c_str(), rank, each.id);
        continue;
      }
      if (!std::ranges::equal(is.outcome(rank), should.outcome(rank)) || is.residuals[rank] != should.residuals[rank]) {
        fail("another result", rank, each.id);
      }
    }
  }
}

// Checks that the next session works, no matter what has happened.
void Run::check_recovery() {
  ring_.exchange(0).close();
  ring_.run_until(ring_.now() + 10 * kMillisecond);
  Tensors sum({kAllReduce, kInt32, 300, plans()[0][0].codec}, ring_.world(), 1);
  Bytes want(sum.data[0].size());
  for (size_t at = 0; at < want.size(); at += sizeof(uint32_t)) {
    uint32_t total = 0;
    for (const Bytes& each : sum.data) total += load<uint32_t>(&each[at]);
    store(&want[at], total);
  }
  for (unsigned rank = 0; rank < ring_.world(); ++rank) {
    Operation operation = sum.operation(rank);
    operation.timeout = kLimit;  // packets may still be lost, again and again
    ring_.submit(rank, operation);
  }
  if (!ring_.run_until_idle(ring_.now() + kLimit)) fail("the next session does not end", 0, 0);
  for (unsigned rank = 0; rank < ring_.world(); ++rank) {
    const Failure failure = ring_.completions(rank).back().failure;
    if (failure) fail(("in the next session: " + failure_text(failure)).c_str(), rank, 0);
    if (sum.data[rank] != want) fail("another result in the next session", rank, 0);
  }
}

// Returns the tensors after the operations of this setting have run without injected packets.
const std::vector<Tensors>& reference_of(const DefaultOptions& setting) {
  static std::map<std::array<unsigned, 3>, std::vector<Tensors>> all;
  const auto found = all.find(setting.results());
  if (found != all.end()) return found->second;
  Run run(setting);
  run.finish(nullptr);
  return all.emplace(setting.results(), run.tensors()).first->second;
}

void execute(std::span<const uint8_t> input) {
  const DefaultOptions setting(input[0]);
  const std::vector<Tensors>& reference = reference_of(setting);
  input = input.subspan(1);
  Run run(setting);
  for (size_t records = 0; input.size() >= 4 && records < kMostRecords; ++records) {
    const size_t bytes = std::min<size_t>(input[3], input.size() - 4);
    run.wait(input[2]);
    run.inject(input[0], input[1], input.subspan(4, bytes));
    input = input.subspan(4 + bytes);
  }
  run.finish(&reference);
}

}  // namespace
}  // namespace gradlane::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size != 0) gradlane::test::execute({data, size});
  return 0;
}
