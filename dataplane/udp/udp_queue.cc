// udp_queue.cc - superpackets to packets or frames, and back (worker thread only)
#include "dataplane/udp/udp_queue.h"

#include <rte_mbuf.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dataplane/device/port_kinds.h"
#include "dataplane/frame/internet.h"

namespace gradlane {
namespace {

using namespace internet;

constexpr size_t kSpillBytes = 65536;
// receive_datagrams() makes this many calls for each segment of the longest packet. Without a limit, calls whose
// packets are all dropped could go on forever.
constexpr size_t kMostFetches = 8;
constexpr unsigned kInARow = 8;  // mismatches after which other packets are expected
// A packet is overdue if no new segment of it has come between two looks at this interval. The longest packet takes 130
// us at 1 Gb/s. On slower paths, the sender knows from the round-trip time that the rest is still on the way.
constexpr Nanos kOverdue = 200 * kMicrosecond;

uint8_t* payload_of(rte_mbuf* mbuf) noexcept { return fresh_packet(mbuf).data; }

// A neighbour, and the own port that it uses, as one key.
uint64_t neighbour_key(uint32_t ip, uint16_t port, uint16_t own_port) noexcept {
  return uint64_t{ip} << 32 | uint64_t{port} << 16 | own_port;
}

}  // namespace

UdpQueue::UdpQueue(const Setup& setup, std::span<const uint16_t> ports, rte_mempool* pool)
    : setup_(setup),
      pool_(pool),
      spill_(std::make_unique<uint8_t[]>(kSpillBytes)),
      unexpected_(std::make_unique<uint8_t[]>(kSpillBytes)) {
  for (const uint16_t port : ports) {
    const Endpoint own = setup.nodes.endpoint_of({setup.local.ip, port});
    Socket& it = sockets_.emplace_back();
    it.socket = std::make_unique<SuperpacketSocket>(own, setup.receive_bytes, setup.any_address);
    it.port = port;
    it.expected = setup.payload;
    it.expects_segments = setup.segments.part != 0;
    if (it.expects_segments) it.partial = std::make_unique<PartialPackets>();
  }
  path_.destination_ip = setup.local.ip;
}

UdpQueue::~UdpQueue() {
  for (size_t i = 0; i < posted_count_; ++i) rte_pktmbuf_free(posted_[i]);
  for (size_t i = 0; i < ready_count_; ++i) rte_pktmbuf_free(ready_[ready_first_ + i]);
  for (const Socket& socket : sockets_) {
    if (socket.partial == nullptr) continue;
    for (const PartialPacket& it : socket.partial->all()) rte_pktmbuf_free(static_cast<rte_mbuf*>(it.buffer));
  }
}

std::vector<int> UdpQueue::fds() const {
  std::vector<int> fds;
  for (const Socket& it : sockets_) fds.push_back(it.socket->fd());
  return fds;
}

size_t UdpQueue::receive_bytes() const noexcept { return sockets_.front().socket->receive_bytes(); }

UdpQueue::Socket* UdpQueue::socket_of(uint16_t port) noexcept {
  const auto it = std::ranges::find(sockets_, port, &Socket::port);
  return it == sockets_.end() ? nullptr : &*it;
}

// ---- Receiving

// Returns packets of one superpacket, or of the rest of one. Returns 0 if no socket has anything left.
uint16_t UdpQueue::receive_datagrams(rte_mbuf** burst, uint16_t most, DatagramPath& path) noexcept {
  const size_t most_fetches = kMostFetches * setup_.segments.count;
  for (size_t empty = 0, fetched = 0; ready_count_ == 0; ++fetched) {
    if (empty == sockets_.size() || fetched == most_fetches || !post()) return 0;
    empty = fetch(sockets_[next_]) ? 0 : empty + 1;
    // the next socket, so that a busy one does not keep others waiting
    next_ = next_ + 1 == sockets_.size() ? 0 : next_ + 1;
  }
  const size_t given = std::min<size_t>(most, ready_count_);
  std::copy_n(ready_.begin() + static_cast<ptrdiff_t>(ready_first_), given, burst);
  ready_first_ += given;
  ready_count_ -= given;
  path = path_;
  return static_cast<uint16_t>(given);
}

// Receives until the burst is full or no socket has anything left.
uint16_t UdpQueue::receive(rte_mbuf** burst, uint16_t most) noexcept {
  size_t given = 0;
  DatagramPath path;
  while (given != most) {
    const size_t taken = receive_datagrams(burst + given, static_cast<uint16_t>(most - given), path);
    if (taken == 0) break;
    for (const size_t end = given + taken; given != end; ++given) make_frame(burst[given], path);
  }
  return static_cast<uint16_t>(given);
}

// Allocates buffers for the kernel to write to: no more than the longest superpacket fills. Returns false if there are
// none.
bool UdpQueue::post() noexcept {
  const Socket& from = sockets_[next_];
  const size_t needed = from.expects_segments
                            ? kPosted / setup_.segments.count + 1
                            : std::min(kPosted, SuperpacketSocket::kMostBytes / std::max(from.expected, size_t{1}) + 1);
  while (posted_count_ < needed) {
    rte_mbuf* const mbuf = rte_pktmbuf_alloc(pool_);
    if (mbuf == nullptr) break;
    posted_[posted_count_++] = mbuf;
  }
  return posted_count_ != 0;
}

// Lists the buffers in the order in which the kernel fills them. Datagram i of a superpacket of segments is expected to
// have its header in heads_[i].
void UdpQueue::lay_out(Socket& from, ReceiveBuffers& buffers) noexcept {
  if (!from.expects_segments) {
    for (size_t i = 0; i < posted_count_; ++i) buffers.add(payload_of(posted_[i]), from.expected);
  } else {
    const size_t part = setup_.segments.part;
    const size_t count = setup_.segments.count;
    size_t datagrams = 0;
    const auto add_segments = [&](uint8_t* packet, size_t first) {
      for (size_t i = first; i < count && datagrams < kPosted; ++i) {
        buffers.add(&heads_[datagrams++], kSegmentHeader);
        buffers.add(packet + i * part, part);
      }
    };
    if (from.current != nullptr) add_segments(from.current->data, from.next_index);
    for (size_t i = 0; i < posted_count_; ++i) add_segments(payload_of(posted_[i]), 0);
  }
  buffers.add(spill_.get(), kSpillBytes);
}

// Receives once from a socket. All packets of earlier calls must have been handed over. Returns false if nothing has
// come.
bool UdpQueue::fetch(Socket& from) noexcept {
  ReceiveBuffers buffers;
  lay_out(from, buffers);
  const SuperpacketSocket::Arrival arrival = from.socket->receive(buffers.iovecs.data(), buffers.count);
  from.empty = !arrival.came;
  if (!arrival.came) return false;
  if (arrival.bytes == 0) {
    note(Problem::kUnfit);
    return true;
  }
  const FrameEndpoint source = setup_.nodes.in_frames(arrival.from);
  path_.source_ip = source.ip;
  path_.source_port = source.port;
  path_.destination_port = from.port;
  path_.tos = arrival.tos;
  ready_first_ = 0;
  if (from.expects_segments) {
    reassemble(from, arrival, buffers);
  } else {
    split(from, arrival, buffers);
    if (arrival.each <= setup_.payload) expect(from, arrival);
  }
  return true;
}

// Adapts the expected length. Single short packets, such as acknowledgements, do not reduce it.
void UdpQueue::expect(Socket& from, const SuperpacketSocket::Arrival& arrival) noexcept {
  const bool shorter = arrival.each < from.expected;
  if (shorter && arrival.bytes > arrival.each) ++from.mismatches;
  if (!shorter || from.mismatches == kInARow) {
    from.expected = arrival.each;
    from.mismatches = 0;
  }
}

// Makes packets of datagrams that have one buffer each. All others are copied.
void UdpQueue::split(Socket& from, const SuperpacketSocket::Arrival& arrival, const ReceiveBuffers& buffers) noexcept {
  size_t at = 0;
  size_t used = 0;
  const bool alone = arrival.bytes == arrival.each && arrival.bytes <= from.expected;
  if (alone || arrival.each == from.expected) {
    for (; at < arrival.bytes && used < posted_count_ && !is_segment(payload_of(posted_[used])); ++used) {
      const size_t bytes = std::min(arrival.each, arrival.bytes - at);
      add(posted_[used], bytes);
      at += bytes;
    }
  }
  const size_t left = copy_rest(arrival, buffers, at);
  remove_posted(used);
  take_copies(from, arrival, left);
}

// Reassembles packets. The kernel has written expected segments to their places; all other datagrams are copied.
void UdpQueue::reassemble(Socket& from, const SuperpacketSocket::Arrival& arrival,
                          const ReceiveBuffers& buffers) noexcept {
  const SegmentSizes& sizes = setup_.segments;
  const size_t datagrams = buffers.count / 2;
  PartialPacket fresh;  // packet in a posted buffer
  PartialPacket* packet = from.current != nullptr ? from.current : &fresh;
  size_t index = from.current != nullptr ? from.next_index : 0;
  size_t at = 0;
  size_t used = 0;
  for (size_t i = 0; at < arrival.bytes && i < datagrams; ++i) {
    const size_t bytes = std::min(arrival.each, arrival.bytes - at);
    const SegmentHeader it = unpack_segment(heads_[i]);
    const bool fits = bytes > kSegmentHeader && it.valid && !it.report && it.index == index &&
                      sizes.is_valid(it, bytes - kSegmentHeader);
    if (!fits) break;
    if (index == 0) {
      if (path_.source_port == 0 || from.partial->find(sender(), it) != nullptr) break;
      report_before(from, it);
      fresh = started(it, posted_[used]);
      ++used;
    } else if (packet->from != sender() || !packet->name.same_packet(it)) {
      break;
    }
    at += bytes;
    packet->record(it, bytes - kSegmentHeader, sizes);
    ++index;
    const bool complete = packet->complete();
    if (complete) {
      add(static_cast<rte_mbuf*>(packet->buffer), packet->bytes);
      if (packet != &fresh) from.partial->end(*packet);
    } else if (!it.last) {
      continue;
    }
    const bool full = index == sizes.count && bytes == sizes.datagram_bytes();
    packet = &fresh;
    fresh = {};
    index = 0;
    if (!full) break;  // the kernel has written the next datagrams to wrong places
  }
  // Datagrams are copied before any buffer is used for something else.
  const size_t left = copy_rest(arrival, buffers, at);
  remove_posted(used);
  if (fresh.buffer != nullptr) {
    from.current = nullptr;
    packet = &begin(from, fresh);
  }
  from.current = index == 0 ? nullptr : packet;
  from.next_index = index;
  if (at != 0) {
    if (!from.partial->empty()) look_soon(from);
    from.mismatches = 0;
  } else if (arrival.bytes > arrival.each && !is_segment(unexpected_.get()) && ++from.mismatches == kInARow) {
    from.expects_segments = false;
    from.mismatches = 0;
  }
  take_copies(from, arrival, left);
}

void UdpQueue::remove_posted(size_t count) noexcept {
  std::copy(posted_.begin() + static_cast<ptrdiff_t>(count), posted_.begin() + static_cast<ptrdiff_t>(posted_count_),
            posted_.begin());
  posted_count_ -= count;
}

// Copies what was received from byte `at` on, and returns how many bytes that is.
size_t UdpQueue::copy_rest(const SuperpacketSocket::Arrival& arrival, const ReceiveBuffers& buffers,
                           size_t at) noexcept {
  size_t before = at;
  size_t left = arrival.bytes - at;
  uint8_t* to = unexpected_.get();
  for (size_t i = 0; i < buffers.count && left != 0; ++i) {
    const iovec& part = buffers.iovecs[i];
    if (before >= part.iov_len) {
      before -= part.iov_len;
      continue;
    }
    const size_t bytes = std::min(left, part.iov_len - before);
    std::memcpy(to, static_cast<const uint8_t*>(part.iov_base) + before, bytes);
    before = 0;
    to += bytes;
    left -= bytes;
  }
  return arrival.bytes - at;
}

// Handles the first `bytes` bytes of the copies, datagram by datagram.
void UdpQueue::take_copies(Socket& from, const SuperpacketSocket::Arrival& arrival, size_t bytes) noexcept {
  for (size_t at = 0; at < bytes && ready_count_ < kMostFrames; at += arrival.each) {
    const uint8_t* const datagram = unexpected_.get() + at;
    const size_t length = std::min(arrival.each, bytes - at);
    // Segments from unknown addresses could replace packets of neighbours.
    const bool segment = setup_.segments.part != 0 && length > kSegmentHeader && is_segment(datagram);
    if (segment && path_.source_port != 0) {
      take_segment(from, datagram, length);
      continue;
    }
    if (length > setup_.payload) {
      note(Problem::kUnfit);
    } else {
      hand_over(datagram, length);
    }
  }
}

// Hands over a copy of a datagram as a packet.
void UdpQueue::hand_over(const uint8_t* datagram, size_t bytes) noexcept {
  rte_mbuf* const copy = rte_pktmbuf_alloc(pool_);
  if (copy == nullptr) return note(Problem::kNoBuffer);
  std::memcpy(payload_of(copy), datagram, bytes);
  add(copy, bytes);
}

void UdpQueue::take_segment(Socket& from, const uint8_t* datagram, size_t bytes) noexcept {
  const SegmentSizes& sizes = setup_.segments;
  const SegmentHeader it = unpack_segment(load<uint64_t>(datagram));
  const size_t part = bytes - kSegmentHeader;
  if (it.report) {
    if (bytes != kReportBytes) return;
    reports_.add(sender(), it, load<uint64_t>(datagram + kSegmentHeader));
    hand_over(datagram, bytes);  // the link sends the packet again
    return;
  }
  if (!sizes.is_valid(it, part)) return note(Problem::kUnfit);
  from.expects_segments = true;
  PartialPacket* packet = from.partial->find(sender(), it);
  if (packet == nullptr) {
    report_before(from, it);
    rte_mbuf* const mbuf = rte_pktmbuf_alloc(pool_);
    if (mbuf == nullptr) return note(Problem::kNoBuffer);
    packet = &begin(from, started(it, mbuf));
  }
  const bool repeated = it.index == 0 && (packet->arrived & 1) != 0;
  packet->add(it, {datagram + kSegmentHeader, part}, sizes);
  // A repeated first segment begins a complete retransmission. Reports may be needed after it as if nothing was
  // reported before.
  if (repeated) packet->reported = packet->looks = 0;
  look_soon(from);
  // The kernel may write to the rest of the buffer only if no later segment has arrived.
  from.next_index = it.index + 1U;
  from.current = !it.last && packet->arrived >> from.next_index == 0 ? packet : nullptr;
  if (!packet->complete()) return;
  from.current = nullptr;
  add(static_cast<rte_mbuf*>(packet->buffer), packet->bytes);
  from.partial->end(*packet);
}

PartialPacket UdpQueue::started(const SegmentHeader& name, rte_mbuf* mbuf) const noexcept {
  return {.from = sender(), .name = name, .buffer = mbuf, .data = payload_of(mbuf), .tos = path_.tos};
}

// Gives a packet that is not complete a place in the table.
PartialPacket& UdpQueue::begin(Socket& from, const PartialPacket& packet) noexcept {
  void* replaced = nullptr;
  PartialPacket& it = from.partial->begin(packet, replaced);
  rte_pktmbuf_free(static_cast<rte_mbuf*>(replaced));  // accepts null
  if (from.current == &it) from.current = nullptr;
  return it;
}

// Reports incomplete packets of this sender that have slightly lower sequence numbers.
void UdpQueue::report_before(Socket& from, const SegmentHeader& name) noexcept {
  while (PartialPacket* const it = from.partial->unreported_before(sender(), name)) report(from, *it, false);
}

void UdpQueue::look_soon(Socket& from) noexcept {
  if (from.look_at == kNever) from.look_at = kSoon;
}

// Segments may wait in a socket that is not empty.
Nanos UdpQueue::report_overdue(Nanos now) noexcept {
  Nanos next = kNever;
  for (Socket& from : sockets_) {
    if (from.look_at == kNever) continue;
    if (from.look_at == kSoon) {
      from.look_at = now + kOverdue;
    } else if (now >= from.look_at && from.empty) {
      const bool more = from.partial->look([&](PartialPacket& it) { report(from, it, true); });
      from.look_at = more ? now + kOverdue : kNever;
    }
    next = std::min(next, from.look_at);
  }
  return next;
}

void UdpQueue::report(Socket& from, PartialPacket& packet, bool overdue) noexcept {
  packet.reported = packet.arrived;
  std::array<uint64_t, 2> words = {
      pack({.sequence = packet.name.sequence, .session = packet.name.session, .last = overdue, .report = true}),
      packet.arrived};
  iovec part = {words.data(), sizeof(words)};
  const auto ip = static_cast<uint32_t>(packet.from >> 32);
  const Endpoint to = setup_.nodes.endpoint_of({ip, static_cast<uint16_t>(packet.from >> 16)});
  (void)from.socket->send(to, packet.tos, &part, 1, 0);  // a report that gets lost costs some bytes only
}

// The sender of what was received, and the own port, as one key.
uint64_t UdpQueue::sender() const noexcept {
  return neighbour_key(path_.source_ip, path_.source_port, path_.destination_port);
}

void UdpQueue::add(rte_mbuf* mbuf, size_t bytes) noexcept {
  const auto* const frame = payload_of(mbuf) - kFrameBytes;
  mbuf->data_off = static_cast<uint16_t>(frame - static_cast<const uint8_t*>(mbuf->buf_addr));
  mbuf->data_len = static_cast<uint16_t>(kFrameBytes + bytes);
  mbuf->pkt_len = mbuf->data_len;
  mbuf->ol_flags = 0;
  ready_[ready_count_++] = mbuf;
}

// ---- Sending

uint16_t UdpQueue::send_datagrams(rte_mbuf** burst, DatagramPath* paths, uint16_t all) noexcept {
  const size_t count = std::min<size_t>(all, kMostFrames);
  // Entries of sent packets are null until the end.
  size_t gone = 0;
  std::array<rte_mbuf*, kMostFrames> done;
  for (size_t first = 0; first < count; ++first) {
    if (burst[first] == nullptr) continue;
    Group group;
    gather(burst, paths, count, first, group);
    size_t sent = 0;
    const auto result = send_group(paths[first], group, sent);
    for (size_t i = 0; i < sent; ++i) done[gone++] = std::exchange(burst[group.indices[i]], nullptr);
    if (result == SuperpacketSocket::Sent::kLater) break;
  }
  for (size_t i = 0; i < gone; ++i) rte_pktmbuf_free(done[i]);
  // The packets that were not sent move to the end, in order.
  for (size_t from = count, to = count; from-- != 0;) {
    if (burst[from] == nullptr) continue;
    burst[--to] = burst[from];
    paths[to] = paths[from];
  }
  return static_cast<uint16_t>(gone);
}

// Collects the packet at `first` and later ones that may go with it. They have the same path, and all datagrams have
// the same length; only the last one may be shorter. It stops at the first packet of this path that does not fit, so
// packets of one path keep their order.
void UdpQueue::gather(rte_mbuf** burst, const DatagramPath* paths, size_t count, size_t first, Group& group) noexcept {
  const size_t length = burst[first]->data_len - kFrameBytes;
  const bool segments = setup_.segments.part != 0 && length > setup_.payload;
  const size_t datagram = segments ? setup_.segments.datagram_bytes() : length;
  const size_t most = std::min<size_t>(setup_.group, SuperpacketSocket::kMostBytes / std::max<size_t>(datagram, 1));
  group.iovecs_each = segments ? 2 : 1;
  group.singly = goes_singly(paths[first].destination_ip);
  size_t last = datagram;  // length of the last datagram
  for (size_t i = first; i < count && last == datagram && (group.packets == 0 || !group.singly); ++i) {
    if (burst[i] == nullptr || paths[i] != paths[first]) continue;
    const size_t bytes = burst[i]->data_len - kFrameBytes;
    if (segments ? bytes <= setup_.payload : bytes > length) break;
    const size_t more = segments ? setup_.segments.count_for(bytes) : 1;
    if (group.packets != 0 && group.datagrams + more > most) break;
    last = segments ? add_segments(burst[i], paths[i], bytes, group) : bytes;
    if (!segments) group.iovecs[group.datagrams++] = {rte_pktmbuf_mtod_offset(burst[i], uint8_t*, kFrameBytes), bytes};
    group.indices[group.packets] = i;
    group.ends[group.packets++] = group.datagrams;
  }
  group.each = group.datagrams > 1 && !group.singly ? datagram : 0;
}

// Adds the segments of a packet to the group: the first, and those that are not reported to have arrived. Returns the
// length of the last datagram.
size_t UdpQueue::add_segments(rte_mbuf* mbuf, const DatagramPath& path, size_t bytes, Group& group) noexcept {
  auto* const packet = rte_pktmbuf_mtod_offset(mbuf, uint8_t*, kFrameBytes);
  SegmentHeader it = first_segment(packet);
  const size_t part = setup_.segments.part;
  const size_t count = setup_.segments.count_for(bytes);
  const uint64_t arrived =
      reports_.take_arrived(neighbour_key(path.destination_ip, path.destination_port, path.source_port), it);
  size_t last = 0;
  for (size_t i = 0; i < count; ++i) {
    if (i != 0 && (arrived >> i & 1) != 0) continue;
    it.index = static_cast<uint8_t>(i);
    it.last = i + 1 == count;
    last = std::min(part, bytes - i * part);
    group.heads[group.datagrams] = pack(it);
    iovec* const to = &group.iovecs[2 * group.datagrams];
    to[0] = {&group.heads[group.datagrams], kSegmentHeader};
    to[1] = {packet + i * part, last};
    ++group.datagrams;
  }
  return last + kSegmentHeader;
}

// Sends packets of one path. `sent` becomes the number of packets that need no other try: they were sent, or
// lost.
SuperpacketSocket::Sent UdpQueue::send_group(const DatagramPath& path, Group& group, size_t& sent) noexcept {
  using Sent = SuperpacketSocket::Sent;
  Socket* const from = socket_of(path.source_port);
  sent = group.packets;
  if (from == nullptr) return Sent::kLost;
  const Endpoint to = setup_.nodes.endpoint_of({path.destination_ip, path.destination_port});
  if (group.singly) return send_each(*from, to, path.tos, group, sent);
  const Sent result =
      from->socket->send(to, path.tos, group.iovecs.data(), group.datagrams * group.iovecs_each, group.each);
  if (group.each != 0 && (result == Sent::kSingly || result == Sent::kTooLong)) {
    const Sent each = send_each(*from, to, path.tos, group, sent);
    // All packets went one by one, so their length is not the problem. If it were, at most a last, shorter one would
    // go.
    if (each == Sent::kYes) send_singly(path.destination_ip);
    return each == Sent::kLater ? each : Sent::kYes;
  }
  note(result, group.packets);
  if (result == Sent::kLater) sent = 0;
  return result;
}

// Sends each datagram alone. Returns kYes if all went, and kLater if one must wait. A packet of which only some
// segments went is not tried again, because it would be cut off again. Its receiver reports what has arrived.
SuperpacketSocket::Sent UdpQueue::send_each(Socket& from, const Endpoint& to, uint8_t tos, Group& group,
                                            size_t& sent) noexcept {
  using Sent = SuperpacketSocket::Sent;
  Sent all = Sent::kYes;
  sent = 0;
  for (size_t i = 0; i < group.datagrams; ++i) {
    const Sent one = from.socket->send(to, tos, &group.iovecs[i * group.iovecs_each], group.iovecs_each, 0);
    if (one == Sent::kLater) {
      if (i != (sent == 0 ? 0 : group.ends[sent - 1])) ++sent;
      return one;
    }
    note(one);
    if (one != Sent::kYes) all = one;
    while (sent < group.packets && group.ends[sent] == i + 1) ++sent;
  }
  return all;
}

// Makes the next kSinglyPackets packets to this neighbour go one by one. After them, superpackets are tried again. They
// are tried sooner if there are more such neighbours than entries in singly_.
void UdpQueue::send_singly(uint32_t ip) noexcept {
  note(Problem::kSingly);
  const auto known = std::ranges::find(singly_, ip, &Singly::ip);
  Singly& it = known != singly_.end() ? *known : singly_[next_singly_++ % singly_.size()];
  it = {ip, kSinglyPackets};
}

bool UdpQueue::goes_singly(uint32_t ip) noexcept {
  if (times(Problem::kSingly) == 0) return false;
  const auto it = std::ranges::find(singly_, ip, &Singly::ip);
  if (it == singly_.end() || it->left == 0) return false;
  --it->left;
  return true;
}

void UdpQueue::note(SuperpacketSocket::Sent result, size_t packets) noexcept {
  if (result == SuperpacketSocket::Sent::kLost) {
    refusal_.store(errno, std::memory_order_relaxed);
    note(Problem::kRefused, packets);
  }
  if (result == SuperpacketSocket::Sent::kTooLong) note(Problem::kTooLong, packets);
}

void UdpQueue::note(Problem trouble, size_t packets) noexcept {
  troubles_[static_cast<size_t>(trouble)].store(times(trouble) + packets, std::memory_order_relaxed);
}

}  // namespace gradlane
