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
// most calls for one superpacket; without a limit, calls whose packets are all dropped could go on forever
constexpr size_t kMostFetches = 8;
constexpr unsigned kInARow = 8;  // superpackets of shorter packets in a row, after which shorter packets are expected

uint8_t* payload_of(rte_mbuf* mbuf) noexcept { return fresh_packet(mbuf).data; }

}  // namespace

UdpQueue::UdpQueue(const Setup& setup, std::span<const uint16_t> ports, rte_mempool* pool)
    : setup_(setup), pool_(pool), spill_(std::make_unique<uint8_t[]>(kSpillBytes)) {
  for (const uint16_t port : ports) {
    const Endpoint own = setup.nodes.endpoint_of({setup.local.ip, port});
    sockets_.push_back(
        {std::make_unique<SuperpacketSocket>(own, setup.receive_bytes, setup.any_address), port, setup.payload});
  }
  path_.destination_ip = setup.local.ip;
}

UdpQueue::~UdpQueue() {
  for (size_t i = 0; i < posted_count_; ++i) rte_pktmbuf_free(posted_[i]);
  for (size_t i = 0; i < ready_count_; ++i) rte_pktmbuf_free(ready_[ready_first_ + i]);
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
  for (size_t empty = 0, fetched = 0; ready_count_ == 0; ++fetched) {
    if (empty == sockets_.size() || fetched == kMostFetches || !post()) return 0;
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
  const size_t needed =
      std::min(kPosted, SuperpacketSocket::kMostBytes / std::max(sockets_[next_].expected, size_t{1}) + 1);
  while (posted_count_ < needed) {
    rte_mbuf* const mbuf = rte_pktmbuf_alloc(pool_);
    if (mbuf == nullptr) break;
    posted_[posted_count_++] = mbuf;
  }
  return posted_count_ != 0;
}

// Receives once from a socket. All packets of earlier calls must have been handed over. Returns false if nothing has
// come.
bool UdpQueue::fetch(Socket& from) noexcept {
  std::array<iovec, kPosted + 1> room;
  const size_t part = from.expected;
  for (size_t i = 0; i < posted_count_; ++i) room[i] = {payload_of(posted_[i]), part};
  room[posted_count_] = {spill_.get(), kSpillBytes};
  const SuperpacketSocket::Arrival arrival = from.socket->receive(room.data(), posted_count_ + 1);
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
  split(arrival, part);
  if (arrival.each <= setup_.payload) expect(from, arrival);
  return true;
}

// Adapts the expected length. Single short packets, such as acknowledgements, do not reduce it.
void UdpQueue::expect(Socket& from, const SuperpacketSocket::Arrival& arrival) noexcept {
  const bool shorter = arrival.each < from.expected;
  if (shorter && arrival.bytes > arrival.each) ++from.shorter;
  if (!shorter || from.shorter == kInARow) {
    from.expected = arrival.each;
    from.shorter = 0;
  }
}

// Makes packets of what was received. A packet that lies in one posted buffer alone stays there; others are copied.
void UdpQueue::split(const SuperpacketSocket::Arrival& arrival, size_t part) noexcept {
  size_t used = 0;
  const size_t held = posted_count_;
  std::array<rte_mbuf*, kPosted> kept = posted_;
  for (size_t at = 0; at < arrival.bytes && ready_count_ < kMostFrames; at += arrival.each) {
    const size_t bytes = std::min(arrival.each, arrival.bytes - at);
    if (bytes > setup_.payload) {
      note(Problem::kUnfit);
      continue;
    }
    const size_t number = at / part;
    if (at % part == 0 && bytes <= part && number < held) {
      add(std::exchange(kept[number], nullptr), bytes);
      continue;
    }
    rte_mbuf* const copy = rte_pktmbuf_alloc(pool_);
    if (copy == nullptr) {
      note(Problem::kNoBuffer);
      break;
    }
    copy_out(at, bytes, part, payload_of(copy));
    add(copy, bytes);
  }
  for (size_t i = 0; i < held; ++i) {
    if (kept[i] != nullptr) posted_[used++] = kept[i];
  }
  posted_count_ = used;
}

void UdpQueue::copy_out(size_t from, size_t bytes, size_t part, uint8_t* to) const noexcept {
  while (bytes != 0) {
    const size_t number = from / part;
    const bool spilled = number >= posted_count_;
    const size_t inside = spilled ? from - posted_count_ * part : from % part;
    const size_t count = spilled ? bytes : std::min(bytes, part - inside);
    std::memcpy(to, (spilled ? spill_.get() : payload_of(posted_[number])) + inside, count);
    from += count;
    to += count;
    bytes -= count;
  }
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
  std::array<iovec, SuperpacketSocket::kMostPackets> packets;
  std::array<size_t, SuperpacketSocket::kMostPackets> places;
  // Entries of sent packets are null until the end.
  size_t gone = 0;
  std::array<rte_mbuf*, kMostFrames> done;
  for (size_t first = 0; first < count; ++first) {
    if (burst[first] == nullptr) continue;
    size_t each = 0;
    const size_t grouped = gather(burst, paths, count, first, packets.data(), places.data(), each);
    size_t sent = 0;
    const auto result = send_group(paths[first], packets.data(), grouped, each, sent);
    for (size_t i = 0; i < sent; ++i) done[gone++] = std::exchange(burst[places[i]], nullptr);
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

// Collects the packet at `first` and later ones that may go with it. They have the same path and length; only the last
// one may be shorter. So packets of one path keep their order.
size_t UdpQueue::gather(rte_mbuf** burst, const DatagramPath* paths, size_t count, size_t first, iovec* packets,
                        size_t* places, size_t& each) noexcept {
  const size_t length = burst[first]->data_len - kFrameBytes;
  const size_t most = goes_singly(paths[first].destination_ip)
                          ? 1
                          : std::min<size_t>(setup_.group, SuperpacketSocket::kMostBytes / std::max<size_t>(length, 1));
  size_t grouped = 0;
  for (size_t i = first; i < count && grouped < most; ++i) {
    if (burst[i] == nullptr || paths[i] != paths[first]) continue;
    const size_t bytes = burst[i]->data_len - kFrameBytes;
    if (bytes > length) break;
    packets[grouped] = {rte_pktmbuf_mtod_offset(burst[i], uint8_t*, kFrameBytes), bytes};
    places[grouped++] = i;
    if (bytes < length) break;
  }
  each = grouped > 1 ? length : 0;
  return grouped;
}

// Sends packets of one path. `sent` becomes the number of packets that are done with, whether they were sent or
// lost.
SuperpacketSocket::Sent UdpQueue::send_group(const DatagramPath& path, iovec* packets, size_t count, size_t each,
                                             size_t& sent) noexcept {
  using Sent = SuperpacketSocket::Sent;
  Socket* const from = socket_of(path.source_port);
  sent = count;
  if (from == nullptr) return Sent::kLost;
  const Endpoint to = setup_.nodes.endpoint_of({path.destination_ip, path.destination_port});
  const Sent result = from->socket->send(to, path.tos, packets, count, each);
  if (each != 0 && (result == Sent::kSingly || result == Sent::kTooLong)) {
    size_t good = 0;
    for (sent = 0; sent < count; ++sent) {
      const Sent one = from->socket->send(to, path.tos, packets + sent, 1, 0);
      if (one == Sent::kLater) break;
      note(one);
      if (one == Sent::kYes) ++good;
    }
    // All packets went one by one, so their length is not the problem. If it were, at most a last, shorter one would
    // go.
    if (good != 0 && good == sent) send_singly(path.destination_ip);
    return sent == count ? Sent::kYes : Sent::kLater;
  }
  note(result, count);
  if (result == Sent::kLater) sent = 0;
  return result;
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
