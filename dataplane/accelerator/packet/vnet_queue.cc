// vnet_queue.cc - superpackets in and out of a packet socket (worker thread only; the constructor: control thread)
#include "dataplane/accelerator/packet/vnet_queue.h"

#include <fmt/format.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <rte_mbuf.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "dataplane/device/packet_socket.h"
#include "dataplane/frame/internet.h"

namespace gradlane {
namespace {

constexpr int kSocketBytes = 2 << 20;  // socket buffer for frames that are not fetched yet; the kernel doubles it
constexpr size_t kMacBytes = 12;       // length of both addresses

bool set(int socket, int level, int option, int value) noexcept {
  return setsockopt(socket, level, option, &value, sizeof(value)) == 0;
}

std::span<const uint8_t> bytes_of(const rte_mbuf* mbuf) noexcept {
  return {rte_pktmbuf_mtod(mbuf, const uint8_t*), mbuf->data_len};
}

// Makes a part of a message to send. System calls do not write to data that they send.
iovec part_of(std::span<const uint8_t> bytes) noexcept { return {const_cast<uint8_t*>(bytes.data()), bytes.size()}; }

}  // namespace

VnetQueue::VnetQueue(unsigned interface, rte_mempool* pool)
    : pool_(pool), memory_(std::make_unique_for_overwrite<uint8_t[]>(kFetched * kSlotBytes)) {
  // The socket has no protocol yet, so no frame arrives before everything is set.
  socket_ = FileDescriptor(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_) throw SetupError(fmt::format("cannot create a packet socket: {}", std::strerror(errno)));
  prepare(interface);
  for (size_t i = 0; i < kFetched; ++i) {
    Slot& slot = slots_[i];
    slot.parts = {{{&slot.header, sizeof(slot.header)},
                   {memory_.get() + i * kSlotBytes + kTagBytes, SuperpacketCutter::kMostBytes}}};
    messages_[i].msg_hdr.msg_iov = slot.parts.data();
    messages_[i].msg_hdr.msg_iovlen = slot.parts.size();
    messages_[i].msg_hdr.msg_control = slot.beside.data();
  }
}

VnetQueue::~VnetQueue() = default;

void VnetQueue::prepare(unsigned interface) {
  const int fd = socket_.get();
  if (!set(fd, SOL_PACKET, PACKET_VNET_HDR, 1) || !set(fd, SOL_PACKET, PACKET_AUXDATA, 1)) {
    throw SetupError(
        fmt::format("this kernel does not support superpackets for packet sockets: {}", std::strerror(errno)));
  }
  (void)ignore_outgoing(fd);
  for (const int option : {SO_RCVBUFFORCE, SO_SNDBUFFORCE}) (void)set(fd, SOL_SOCKET, option, kSocketBytes);
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(interface);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    throw SetupError(fmt::format("cannot bind the packet socket: {}", std::strerror(errno)));
  }
}

void VnetQueue::note(Event event) noexcept {
  auto& times = events_[static_cast<size_t>(event)];
  times.store(times.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// ---- Receiving

uint16_t VnetQueue::receive(rte_mbuf** burst, uint16_t count) noexcept {
  uint16_t got = 0;
  drained_ = false;
  while (got < count) {
    if (cutter_.next_bytes() == 0 && !open_next()) break;
    rte_mbuf* const mbuf = cut();
    if (mbuf == nullptr) break;  // no buffers are left
    burst[got++] = mbuf;
  }
  return got;
}

// Gives the cutter the next frame whose packets fit into a buffer. Returns false if there is none.
bool VnetQueue::open_next() noexcept {
  const size_t room = rte_pktmbuf_data_room_size(pool_) - size_t{RTE_PKTMBUF_HEADROOM};
  while (opened_ < fetched_ || fetch()) {
    const size_t slot = opened_++;
    const std::span<uint8_t> frame = frame_of(slot);
    if (frame.empty() || !cutter_.begin(slots_[slot].header, frame)) {
      note(Event::kUnfit);
    } else if (cutter_.next_bytes() > room) {
      note(Event::kTooLong);
      cutter_ = {};
    } else {
      if (cutter_.several()) note(Event::kCut);
      return true;
    }
  }
  return false;
}

bool VnetQueue::fetch() noexcept {
  fetched_ = opened_ = 0;
  if (drained_) return false;
  for (mmsghdr& message : messages_) message.msg_hdr.msg_controllen = sizeof(Slot::beside);
  const int came = recvmmsg(socket_.get(), messages_.data(), kFetched, MSG_DONTWAIT, nullptr);
  if (came > 0) fetched_ = static_cast<size_t>(came);
  drained_ = fetched_ < kFetched;
  // The kernel has dropped a frame that VnetHeader cannot describe.
  if (came < 0 && errno == EINVAL) note(Event::kUnfit);
  return came > 0;
}

// Returns the frame of a slot. Returns an empty span if the frame was too long or too short. If the kernel has removed
// a VLAN tag, this inserts it again.
std::span<uint8_t> VnetQueue::frame_of(size_t slot) noexcept {
  msghdr& message = messages_[slot].msg_hdr;
  const size_t bytes = messages_[slot].msg_len;
  uint8_t* frame = memory_.get() + slot * kSlotBytes + kTagBytes;
  if ((message.msg_flags & MSG_TRUNC) != 0 || bytes < sizeof(VnetHeader) + kMacBytes + 2) return {};
  const size_t length = bytes - sizeof(VnetHeader);
  tpacket_auxdata beside{};
  for (cmsghdr* it = CMSG_FIRSTHDR(&message); it != nullptr; it = CMSG_NXTHDR(&message, it)) {
    if (it->cmsg_level == SOL_PACKET && it->cmsg_type == PACKET_AUXDATA) {
      std::memcpy(&beside, CMSG_DATA(it), sizeof(beside));
    }
  }
  if ((beside.tp_status & TP_STATUS_VLAN_VALID) == 0) return {frame, length};
  const bool named = (beside.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
  std::memmove(frame - kTagBytes, frame, kMacBytes);
  frame -= kTagBytes;
  internet::store16(frame + kMacBytes, named ? beside.tp_vlan_tpid : internet::kEtherVlan);
  internet::store16(frame + kMacBytes + 2, beside.tp_vlan_tci);
  VnetHeader& header = slots_[slot].header;
  if ((header.flags & VnetHeader::kNeedsChecksum) != 0) header.checksum_start += kTagBytes;
  return {frame, length + kTagBytes};
}

rte_mbuf* VnetQueue::cut() noexcept {
  rte_mbuf* const mbuf = rte_pktmbuf_alloc(pool_);
  if (mbuf == nullptr) return nullptr;
  const size_t bytes = cutter_.next_bytes();
  mbuf->data_len = static_cast<uint16_t>(bytes);
  mbuf->pkt_len = static_cast<uint32_t>(bytes);
  cutter_.next(rte_pktmbuf_mtod(mbuf, uint8_t*));
  return mbuf;
}

// ---- Sending

uint16_t VnetQueue::send(rte_mbuf** burst, uint16_t count) noexcept {
  uint16_t done = 0;
  size_t alone = 0;  // packets of a refused superpacket that are not sent yet; each is sent alone
  while (done < count) {
    size_t packets = 1;
    if (alone == 0 && joiner_.begin(bytes_of(burst[done]))) {
      while (done + packets < count && joiner_.add(bytes_of(burst[done + packets]))) ++packets;
    }
    Sent sent = packets > 1 ? send_joined() : Sent::kNo;
    if (packets > 1 && sent == Sent::kNo) {
      note(Event::kSeparately);
      alone = packets;
    }
    if (sent == Sent::kNo) {
      packets = 1;
      sent = send_alone(burst[done]);
      if (sent == Sent::kNo) note(Event::kRefused);
    }
    if (sent == Sent::kLater) break;
    if (alone != 0) --alone;
    for (size_t i = 0; i < packets; ++i) rte_pktmbuf_free(burst[done++]);
  }
  return done;
}

VnetQueue::Sent VnetQueue::send_joined() noexcept {
  joiner_.finish();
  std::array<iovec, 2 + SuperpacketJoiner::kMostPackets> parts;
  VnetHeader header = joiner_.header();
  parts[0] = {&header, sizeof(header)};
  parts[1] = part_of(joiner_.front());
  size_t count = 2;
  for (const auto& payload : joiner_.payload()) parts[count++] = part_of(payload);
  const Sent sent = hand_over(parts.data(), count);
  if (sent == Sent::kYes) note(Event::kJoined);
  return sent;
}

VnetQueue::Sent VnetQueue::send_alone(const rte_mbuf* mbuf) noexcept {
  VnetHeader header;
  std::array<iovec, 2> parts = {{{&header, sizeof(header)}, part_of(bytes_of(mbuf))}};
  return hand_over(parts.data(), parts.size());
}

VnetQueue::Sent VnetQueue::hand_over(iovec* parts, size_t count) noexcept {
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  if (sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Sent::kYes;
  switch (errno) {
    case EAGAIN:
    case ENOMEM:
    case EINTR:
      return Sent::kLater;
    case ENOBUFS:  // the device or a filter has dropped it: it would do so again, and delay later packets
      note(Event::kRefused);
      return Sent::kYes;
    case ENETDOWN:  // nothing to do: the state of the link is reported elsewhere
      return Sent::kYes;
    default:
      return Sent::kNo;
  }
}

}  // namespace gradlane
