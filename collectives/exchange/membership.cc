// membership.cc - hellos, sessions, and giving up on silent neighbours (worker thread, seldom)
#include "collectives/exchange/membership.h"

#include <algorithm>
#include <cstring>

#include "collectives/codec_value.h"
#include "collectives/diagnosis.h"

namespace gradlane {
namespace {

constexpr Nanos kFirstInterval = kMillisecond;
constexpr Nanos kLeastSpacing = 200 * kMicrosecond;  // least time between hellos to one neighbour
constexpr uint64_t kFirstGeneration = uint64_t{1} << 32;

// Limit of how far a session's generation may be above the own one: no rank can have missed more. Programs that retry
// while a rank is absent end some hundreds of generations per second. The numbers must not wrap.
constexpr uint64_t kMostGenerations = uint64_t{1} << 30;

uint64_t generation_of(uint64_t session) { return session >> 32; }
uint16_t root_of(uint64_t session) { return static_cast<uint16_t>(session >> 16); }

// Returns the lesser number; ignores a number that is 0.
uint32_t lesser(uint32_t a, uint32_t b) { return a == 0 || (b != 0 && b < a) ? b : a; }

bool ends_generations(FailureCode code) {
  return code == FailureCode::kSilent || code == FailureCode::kRestarted || code == FailureCode::kRefused ||
         code == FailureCode::kNoRing || code == FailureCode::kClosed || code == FailureCode::kDuplicateRank;
}

}  // namespace

Membership::Membership(const ExchangeConfig& config, size_t ring_links, std::span<Link> links, Counters& counters)
    : world_(config.world),
      rank_(config.rank),
      around_(config.around),
      datagram_(config.datagram()),
      // The last quarter of the time is for informing the other ranks.
      silence_(config.peer_timeout - config.peer_timeout / 4),
      max_interval_(std::max(config.peer_timeout / 64, kFirstInterval)),
      ring_links_(ring_links),
      links_(links),
      counters_(counters),
      peers_(links.size()),
      random_(config.incarnation),
      ready_(config.world == 1) {
  self_.incarnation = config.incarnation;
  self_.rank_table = config.rank_table;
  self_.world = static_cast<uint16_t>(config.world);
  self_.rank = static_cast<uint16_t>(config.rank);
  self_.mtu = static_cast<uint16_t>(datagram_ | (config.segments > 1 ? kInSegments : 0));
  self_.codec = static_cast<uint8_t>(config.codec.id());
  self_.param = config.codec.param();
  self_.arguments = more_arguments(config.codec.arguments());
  self_.settings = config.settings;
  self_.strategies = pack_strategies(config.strategies);
  self_.auto_scope = auto_scope_value(config.auto_scope);
  (void)enter(kFirstGeneration | (random_.next() >> 32), {});
}

// ---- Hellos received.

void Membership::compare(Peer& peer, unsigned peer_rank, const Hello& hello) const noexcept {
  const RingSettings& ours = self_.settings;
  const RingSettings& theirs = hello.settings;
  const auto value = [](const Hello& of) { return codec_value(of.codec, read_arguments(of.param, of.arguments)); };
  const struct {
    Field field;
    uint64_t ours;
    uint64_t theirs;
    bool setting;
  } fields[] = {
      // Settings that people choose come first: ranks and digests follow from them.
      {Field::kNodes, ours.nodes, theirs.nodes, true},
      {Field::kTrainers, ours.trainers, theirs.trainers, true},
      {Field::kLocalReduce, ours.local_reduce, theirs.local_reduce, true},
      {Field::kLanes, ours.lanes, theirs.lanes, true},
      {Field::kUdpPort, ours.udp_port, theirs.udp_port, true},
      {Field::kTosCompressed, ours.tos_compressed, theirs.tos_compressed, true},
      {Field::kTosRaw, ours.tos_raw, theirs.tos_raw, true},
      {Field::kTosControl, ours.tos_control, theirs.tos_control, true},
      {Field::kAddresses, ours.addresses, theirs.addresses, true},
      {Field::kWorld, self_.world, hello.world, false},
      {Field::kRank, peer_rank, hello.rank, false},
      {Field::kRank, rank_, hello.target, false},
      {Field::kRankTable, self_.rank_table, hello.rank_table, false},
      {Field::kMtu, self_.mtu + around_, hello.mtu + around_, false},
      {Field::kCodec, value(self_), value(hello), false},
      {Field::kStrategies, self_.strategies, hello.strategies, false},
      {Field::kAutoScope, self_.auto_scope, hello.auto_scope, false},
  };
  const bool told = ours.nodes != 0 && theirs.nodes != 0;
  peer.refused = {};
  for (const auto& each : fields) {
    if (each.ours == each.theirs || (each.setting && !told)) continue;
    peer.refused = {FailureCode::kRefused, static_cast<uint16_t>(peer_rank), each.field, each.ours, each.theirs};
    return;
  }
}

void Membership::refuse_version(size_t link, uint8_t version) noexcept {
  peers_[link].refused = {FailureCode::kRefused, static_cast<uint16_t>(links_[link].peer()), Field::kVersion,
                          kProtocolVersion, version};
}

Membership::Event Membership::refuse(size_t link, const Failure& why) noexcept {
  if (peers_[link].refused == why) return Event::kNone;
  const Event event = ready_ || links_[link].up() ? propose_generation(session_, why) : Event::kNone;
  peers_[link].refused = why;
  return event;
}

const Failure& Membership::refused() const noexcept {
  static constexpr Failure kNobody;
  for (const Peer& peer : peers_) {
    if (peer.refused) return peer.refused;
  }
  return kNobody;
}

Membership::Event Membership::receive(size_t link, const LinkHeader& header, std::span<const uint8_t> bytes,
                                      Nanos now) noexcept {
  due_ = 0;
  if (bytes.size() < kLeastHello) {
    counters_.add(Counter::kTooShort);
    return Event::kNone;
  }
  Hello hello{};
  std::memcpy(&hello, bytes.data(), std::min(bytes.size(), sizeof(hello)));
  Peer& peer = peers_[link];
  peer.lacks_since = bytes.size() < offsetof(Hello, strategies);
  const Failure before = peer.refused;
  compare(peer, links_[link].peer(), hello);
  if (peer.refused) {
    counters_.add(Counter::kHelloRefused);
    if (peer.refused != before) tell(peer, now);
    return Event::kNone;
  }
  // A complaint counts in any session, because it may be the reason why the two never meet in one.
  if (static_cast<Field>(hello.complaint) == Field::kArrivedTos) {
    peer.complained_tos = static_cast<uint8_t>(hello.complaint_value);
    peer.complained_at = now;
  }
  peer.challenge = hello.challenge;
  const bool echoes = hello.echo == challenge_;
  const bool absurd = generation_of(header.session) > generation_of(session_) + kMostGenerations;
  if (absurd || (!echoes && !(peer.known && hello.incarnation == peer.incarnation))) {
    // Either the sender is new, or the hello is late. The answer to our next hello will show which.
    counters_.add(Counter::kHelloStale);
    tell(peer, now);
    return Event::kNone;
  }
  counters_.add(Counter::kHelloReceived);
  return meet(link, header, hello, now);
}

// Handles a hello whose sender is known to be alive.
Membership::Event Membership::meet(size_t link, const LinkHeader& header, const Hello& hello, Nanos now) noexcept {
  Peer& peer = peers_[link];
  const auto rank = static_cast<uint16_t>(links_[link].peer());
  const bool restarted = peer.known && hello.incarnation != peer.incarnation && links_[link].up();
  // The incarnation of a life that has ended never returns. If the previous one answers again, two nodes have this
  // rank.
  const bool doubled = restarted && hello.incarnation == peer.previous;
  if (hello.incarnation != peer.incarnation) {
    peer.met = peer.knows_us = false;
    peer.previous = peer.incarnation;
  }
  peer.known = true;
  peer.incarnation = hello.incarnation;
  if (restarted) counters_.add(Counter::kPeerRestarted);
  // A restart ends the generation. If the hello is of a later generation, others have noticed the restart already.
  if (doubled) {
    const auto [less, more] = std::minmax({peer.previous & ~kMacSource, peer.incarnation & ~kMacSource});
    return propose_generation(header.session,
                              {.code = FailureCode::kDuplicateRank, .rank = rank, .ours = less, .theirs = more});
  }
  if (restarted && generation_of(header.session) <= generation_of(session_)) {
    return propose_generation(header.session, {.code = FailureCode::kRestarted, .rank = rank});
  }
  Event event = Event::kNone;
  if (header.session > session_) {
    Failure cause{.code = static_cast<FailureCode>(hello.cause_code),
                  .rank = hello.cause_rank,
                  .field = static_cast<Field>(hello.cause_field),
                  .ours = hello.cause_ours,
                  .theirs = hello.cause_theirs};
    if (!ends_generations(cause.code)) cause = {.code = FailureCode::kRestarted, .rank = rank};
    // If the live prefix is the world size, all ranks are in that session. This life has not been in it, so an earlier
    // life was.
    const bool has_earlier_life = hello.live_prefix == world_;
    if (has_earlier_life) cause = {.code = FailureCode::kRestarted, .rank = static_cast<uint16_t>(rank_)};
    const bool has_other_root = ready_ && !roots_[root_of(header.session)];
    event = has_earlier_life || has_other_root
                ? propose_generation(header.session, cause, has_earlier_life ? header.session : session_)
                : enter(header.session, cause);
  }
  if (header.session == session_) {
    links_[link].set_up(now);
    links_[link].acknowledge(header, now);
    if (!peer.met) peer.hello_at = 0;
    peer.met = true;
    // Hellos may arrive late. So `knows_us` and `live_prefix` never decrease within a session.
    peer.knows_us |= hello.met == self_.incarnation;
    peer.live_prefix = std::max(peer.live_prefix, hello.live_prefix);
    peer.since = lesser(peer.since, hello.since);
    learn_since(hello.since);
    update_live_prefix();
  }
  if (hello.unsettled != 0 && settled(link)) tell(peer, now);
  return event;
}

void Membership::announce_since(uint32_t since) noexcept {
  own_since_ = lesser(own_since_, since);
  learn_since(since);
}

// since_ only decreases within a session. So late and repeated hellos do no harm, and neighbours agree in the end.
void Membership::learn_since(uint32_t since) noexcept {
  const uint32_t least = lesser(since_, since);
  if (least != since_) tell(0, peers_.size());
  since_ = least;
}

void Membership::update_live_prefix() noexcept {
  const size_t predecessor = ring_links_ - 1;
  unsigned live_prefix = 1;
  if (links_[predecessor].up()) live_prefix = std::min<unsigned>(world_, peers_[predecessor].live_prefix + 1U);
  const auto knows_us = [](const Peer& peer) { return peer.knows_us; };
  const bool complete = std::all_of(peers_.begin() + static_cast<ptrdiff_t>(ring_links_), peers_.end(), knows_us);
  const bool ready = live_prefix == world_ && std::ranges::all_of(peers_, knows_us);
  if (live_prefix > live_prefix_ || (complete && !complete_) || (ready && !ready_)) tell(0, ring_links_);
  complete_ = complete;
  live_prefix_ = std::max(live_prefix_, live_prefix);
  ready_ |= ready;
  if (ready_ && first_generation_ == 0) first_generation_ = generation();
}

// ---- Sessions.

// Proposes the generation after the later one of session_ and `above`, with the root of `from`.
Membership::Event Membership::propose_generation(uint64_t above, const Failure& cause, uint64_t from) noexcept {
  const uint64_t next = generation_of(std::max(session_, above)) + 1;
  return enter(next << 32 | uint64_t{root_of(from)} << 16 | random_.next() >> 48, cause);
}

Membership::Event Membership::propose_generation(uint64_t above, const Failure& cause) noexcept {
  return propose_generation(above, cause, session_);
}

Membership::Event Membership::give_up(const Failure& cause) noexcept {
  (void)propose_generation(session_, cause);
  return Event::kEnded;
}

Membership::Event Membership::enter(uint64_t session, const Failure& cause) noexcept {
  // If this node's own restart is the cause, operations that wait here were submitted after it, and do not end.
  const bool own_restart = cause.code == FailureCode::kRestarted && cause.rank == rank_;
  const bool raised = generation_of(session) != generation_of(session_);
  const bool ended = ready_ || (raised && roots_[root_of(session)] && !own_restart);
  roots_.set(root_of(session));
  if (raised) own_since_ = 0;
  session_ = session;
  since_ = own_since_;
  if (ended || generation_of(session) != 1) cause_ = cause;
  challenge_ = Random(self_.incarnation ^ session).next() | 1;
  live_prefix_ = 1;
  complete_ = peers_.size() == ring_links_;
  ready_ = world_ == 1;
  for (size_t i = 0; i < peers_.size(); ++i) {
    links_[i].reset(session);
    peers_[i].live_prefix = 0;
    peers_[i].refused = {};  // a neighbour that still differs is refused again at its next hello
    peers_[i].met = false;
    peers_[i].knows_us = false;
    peers_[i].since = 0;
  }
  tell(0, peers_.size());
  counters_.add(Counter::kSessions);
  return ended ? Event::kEnded : Event::kMerged;
}

// ---- Hellos sent.

// Schedules the next hello to a neighbour: soon, but at least kLeastSpacing after the latest one.
void Membership::tell(Peer& peer, Nanos now) noexcept {
  const Nanos at = peer.sent_at == 0 ? now : std::max(now, peer.sent_at + kLeastSpacing);
  peer.hello_at = std::min(peer.hello_at, at);
  due_ = 0;
}

// Schedules hellos to the neighbours of the first `links` links, and sets their intervals to the shortest one.
void Membership::tell(Nanos at, size_t links) noexcept {
  due_ = 0;
  for (Peer& peer : std::span(peers_).first(links)) {
    peer.hello_at = at;
    peer.interval = kFirstInterval;
  }
}

// Returns whether the neighbour needs no more hellos.
bool Membership::settled(size_t link) const noexcept {
  const Peer& peer = peers_[link];
  const bool met = links_[link].up() && peer.knows_us && (peer.lacks_since || peer.since == since_);
  return met && (link >= ring_links_ || (ready_ && peer.live_prefix == world_));
}

bool Membership::send_hello(size_t link, Nanos now) noexcept {
  const Peer& peer = peers_[link];
  Hello hello = self_;
  hello.challenge = challenge_;
  hello.echo = peer.challenge;
  hello.target = static_cast<uint16_t>(links_[link].peer());
  hello.live_prefix = static_cast<uint16_t>(complete_ ? live_prefix_ : 0);
  hello.cause_code = static_cast<uint8_t>(cause_.code);
  hello.cause_rank = cause_.rank;
  // The values of other causes are not sent. In a difference of configuration, "here" and "there" mean nothing on other
  // ranks.
  if (cause_.code == FailureCode::kSilent || cause_.code == FailureCode::kDuplicateRank) {
    hello.cause_field = static_cast<uint8_t>(cause_.field);
    hello.cause_ours = cause_.ours;
    hello.cause_theirs = cause_.theirs;
  }
  if (lately(peer.arrived_at, now)) {
    hello.complaint = static_cast<uint8_t>(Field::kArrivedTos);
    hello.complaint_value = peer.arrived_tos;
  }
  hello.unsettled = settled(link) ? 0 : 1;
  hello.met = peer.met ? peer.incarnation : 0;
  hello.since = since_;
  uint8_t bytes[sizeof(Hello)];
  store(bytes, hello);
  const size_t plain = hello.strategies == 0 ? offsetof(Hello, strategies) : offsetof(Hello, arguments);
  const size_t coded = hello.arguments == 0 ? plain : offsetof(Hello, auto_scope);
  const size_t length = hello.auto_scope == 0 ? coded : sizeof(hello);
  return links_[link].send_bare(PacketKind::kHello, std::span(bytes).first(length), now);
}

Membership::Event Membership::poll(Nanos now) noexcept {
  Event event = Event::kNone;
  // A node that did not run received nothing, and cannot say who was silent. Without this, a machine that stood still
  // for a while would take all its neighbours for dead. Links that are up are polled every keep-alive, which is half of
  // this time.
  const Nanos asleep = now - polled_at_;
  if (polled_at_ != 0 && asleep > silence_ / 6) {
    for (Link& link : links_) link.extend_deadlines(asleep, now);
  }
  polled_at_ = now;
  if (now < due_) return event;
  for (size_t i = 0; i < links_.size(); ++i) {
    const Link& link = links_[i];
    const bool silent = link.up() && now - link.last_heard() >= silence_;
    // If the neighbour is dead, its oldest unacknowledged packet is slightly older than its silence. Such a neighbour
    // is silent, not stuck.
    const bool heard = now - link.last_heard() < silence_ - silence_ / 4;
    const bool stuck = heard && link.stuck_since() != kNever && now - link.stuck_since() >= silence_;
    if (!silent && !stuck) continue;
    counters_.add(silent ? Counter::kPeerSilent : Counter::kPeerStuck);
    event = propose_generation(session_, diagnosis(i, !silent, now));
    break;
  }
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if (now < peer.hello_at) continue;
    if (!send_hello(i, now)) {
      peer.hello_at = now + kLeastSpacing;
      continue;
    }
    peer.sent_at = now;
    peer.hello_at = settled(i) ? kNever : now + peer.interval;
    peer.interval = std::min(2 * peer.interval, max_interval_);
  }
  // Packets that arrive before due_ only postpone the time when a neighbour counts as silent. But a packet may become
  // stuck in the meantime, so the links are checked again after silence_ / 8 at the latest.
  due_ = now + silence_ / 8;
  for (size_t i = 0; i < peers_.size(); ++i) {
    due_ = std::min(due_, peers_[i].hello_at);
    if (links_[i].up()) due_ = std::min(due_, links_[i].last_heard() + silence_);
    if (links_[i].stuck_since() == kNever) continue;
    const Nanos stuck = links_[i].stuck_since() + silence_;
    if (stuck > now) due_ = std::min(due_, stuck);
  }
  return event;
}

}  // namespace gradlane
