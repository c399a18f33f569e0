// egress.cc - the sending side: links, the packets that are being filled for them, and when these leave (packet path)
#include "collectives/exchange/egress.h"

#include <algorithm>

namespace gradlane {
namespace {

constexpr Nanos kRetry = 10 * kMicrosecond;  // delay after the owner had no buffer

// Returns an offer of about `elements` elements that is a multiple of the cut, and at most kMaxRunElements.
size_t whole_cuts(const OperationState& it, size_t elements) {
  const size_t cut = std::max(it.coder.cut(), it.result_coder.cut());
  return std::min((elements + cut - 1) / cut, kMaxRunElements / cut) * cut;
}

std::vector<Link> make_links(const ExchangeConfig& config, const Topology& topology, PacketIo& io, Counters& counters) {
  std::vector<Link> links;
  const size_t extra = extra_window(config.window, topology.extra_links());
  for (const unsigned rank : topology.neighbours()) {
    const size_t window = links.size() < topology.ring_links() ? config.window : extra;
    links.emplace_back(config, window, rank, io, counters);
  }
  return links;
}

}  // namespace

Egress::Egress(const ExchangeConfig& config, const Topology& topology, bool owners, PacketIo& io, Counters& counters,
               const Peers& peers, PollBudget& budget, Tracer& tracer, DecodedBlocks& decoded)
    : config_(config),
      counters_(counters),
      peers_(peers),
      budget_(budget),
      tracer_(tracer),
      decoded_(decoded),
      links_(make_links(config, topology, io, counters)),
      // Only a rank that has links to all others can own blocks.
      fanout_(owners && links_.size() + 1 == config.world ? std::span(links_) : std::span<Link>{}, io, counters,
              config),
      unsent_(links_.size()) {
  for (Link& link : links_) outboxes_.emplace_back(link, io, counters, config);
}

Egress::~Egress() {
  fanout_.reset();
  for (Outbox& outbox : outboxes_) outbox.reset();
  for (Link& link : links_) link.reset(0);
}

size_t Egress::buffers(const ExchangeConfig& config, const Topology& topology, bool owners) noexcept {
  constexpr size_t kOpen = Outbox::kChannels + 1;  // one more for acknowledgements
  const size_t extra = extra_window(config.window, topology.extra_links());
  const size_t links = topology.ring_links() * (config.window + kOpen) + topology.extra_links() * (extra + kOpen);
  return links + (owners ? Fanout::kPackets + 2 : 0) + 1;
}

void Egress::reset() noexcept {
  fanout_.reset();
  for (Outbox& outbox : outboxes_) outbox.reset();
  senders_ = 1;
}

void Egress::share(unsigned senders, unsigned blocks) noexcept {
  blocks_ = blocks;
  if (senders == senders_) return;
  senders_ = senders;
  for (Link& link : links_) link.share(senders);
}

void Egress::expect(const PerChannel& elements) noexcept {
  for (size_t i = 0; i < coming_.size(); ++i) coming_[i] += elements[i];
}

void Egress::forget(const PerChannel& elements) noexcept {
  for (size_t i = 0; i < coming_.size(); ++i) coming_[i] -= elements[i];
}

// ---- Runs

Egress::Piece Egress::encode(OperationState& it, const Step& step, const Source& from, Nanos now) noexcept {
  if (!peers_.takes(it, step) || !links_[step.link].can_send() || budget_.spent()) return {};
  const Outbox::Channel channel = channel_of(step);
  const Coder& coder = step.phase == Phase::kGather ? it.result_coder : it.coder;
  Piece piece{.header = it.run_header(coder, step.phase, from.block, from.first), .place = {}};
  Outbox& outbox = outboxes_[step.link];
  const ElementContext origin = it.context_of(from.block, from.first, from.contribution);
  EncodeResult encoded{};
  size_t count = from.count;
  const Nanos began = tracer_.begins();
  do {
    piece.place = outbox.reserve(channel, piece.header, coder, coder.cut(), step.sink, now, from.begins_run);
    if (piece.place.bytes.empty()) return {};
    count = std::min(count, piece.place.elements);
    if (!from.contribution) {
      encoded = coder.encode_sum(from.data, count, origin, piece.place.bytes);
      continue;
    }
    const uint8_t* const data = it.contribution(from.block, from.first, count, decoded_);
    if (data == nullptr) return {};
    encoded = coder.encode(data, count, origin, piece.place.bytes);
  } while (encoded.floats == 0 && outbox.begin_next(channel, now));
  tracer_.time(it, &TraceOperation::encode, began);
  budget_.spend(encoded.floats);
  piece.elements = encoded.floats;
  piece.bytes = encoded.bytes;
  // If the offer is too large, encoding takes longer. If it is too small, one more join is needed.
  const size_t fits = encoded.floats == it.offer ? 2 * it.offer : encoded.floats + encoded.floats / 8;
  if (encoded.floats != 0 && (encoded.floats == it.offer || encoded.floats < count)) it.offer = whole_cuts(it, fits);
  return piece;
}

void Egress::commit(OperationState& it, const Step& step, const Piece& piece) noexcept {
  const Coder& coder = step.phase == Phase::kGather ? it.result_coder : it.coder;
  const size_t bytes =
      outboxes_[step.link].commit(channel_of(step), piece.place, piece.header, coder, piece.elements, piece.bytes);
  count_sent(it, step.phase, piece.header.block, step.link, bytes, piece.elements);
}

// ---- A poll

void Egress::begin_poll() noexcept {
  for (Outbox& outbox : outboxes_) outbox.try_again();
  fanout_.outbox().try_again();
  std::ranges::fill(unsent_, uint8_t{0});
}

void Egress::end_poll(bool more, Nanos now) noexcept {
  flush_results(now);
  for (size_t link = 0; link < links_.size(); ++link) {
    const bool left = more || unsent_[link] != 0;
    if (left && !links_[link].can_send()) links_[link].count_stall();
    flush(link, left, now);
  }
}

Nanos Egress::deadline(Nanos polled_at) const noexcept {
  Nanos next = flush_results_at();
  for (size_t i = 0; i < links_.size(); ++i) {
    next = std::min(next, links_[i].deadline());
    if (outboxes_[i].starved()) next = std::min(next, polled_at + kRetry);
    if (!outboxes_[i].idle() && links_[i].can_pass()) {
      for (const auto channel : Outbox::kData) next = std::min(next, flush_at(i, channel));
    }
  }
  if (fanout_.starved()) next = std::min(next, polled_at + kRetry);
  return next;
}

// Sends the open packets of a link. A packet that is not full waits for elements that will arrive for it, or for own
// elements (`more`). It does not wait if nothing is in flight on the link, and never longer than flush_at().
void Egress::flush(size_t link, bool more, Nanos now) noexcept {
  Outbox& outbox = outboxes_[link];
  if (outbox.idle()) return;
  outbox.flush(Outbox::kControl, now);
  for (const auto channel : Outbox::kData) {
    if (!outbox.holds(channel)) continue;
    const bool waits = !outbox.full(channel) && links_[link].in_flight() != 0 && (more || coming_[channel] != 0);
    if (!waits || now >= flush_at(link, channel)) outbox.flush(channel, now);
  }
}

// Returns when an open packet has waited long enough; kNever if there is none. Only one in `blocks_` of the sums that
// arrive is completed on this rank. Packets of results fill that much more slowly, so they may wait `blocks_` times as
// long.
Nanos Egress::flush_at(size_t link, Outbox::Channel channel) const noexcept {
  const Nanos since = outboxes_[link].held_since(channel);
  if (since == kNever) return kNever;
  const RttEstimator& rtt = links_[link].rtt();
  const Nanos hold = rtt.known() ? std::min(config_.max_hold, rtt.smoothed() / 4) : config_.max_hold;
  return since + (channel == Outbox::kResults ? hold * blocks_ : hold);
}

// Sends the open packet of results to all ranks. It waits while it is not full, results are still expected, and the
// queue has packets, but never longer than flush_results_at().
void Egress::flush_results(Nanos now) noexcept {
  Outbox& outbox = fanout_.outbox();
  (void)fanout_.pump(now);
  if (!outbox.holds(Outbox::kResults)) return;
  const bool waits = !outbox.full(Outbox::kResults) && !fanout_.empty() && owned_ != 0;
  if (waits && now < flush_results_at()) return;
  fanout_.prepare();
  outbox.flush(Outbox::kResults, now);
  (void)fanout_.pump(now);
}

Nanos Egress::flush_results_at() const noexcept {
  const Outbox& outbox = fanout_.outbox();
  const Nanos since = outbox.held_since(Outbox::kResults);
  if (since == kNever || !fanout_.takes(false)) return kNever;
  return since + config_.max_hold * config_.world;
}

}  // namespace gradlane
