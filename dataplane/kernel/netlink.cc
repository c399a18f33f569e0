// netlink.cc - messages to the kernel by netlink, and its answers (control thread only; no DPDK)
#include "dataplane/kernel/netlink.h"

#include <arpa/inet.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"

namespace gradlane {
namespace {

constexpr size_t kNetlinkBytes = 65536;  // the kernel sends no longer message

constexpr size_t padded(size_t bytes) { return (bytes + 3) & ~size_t{3}; }

// Returns the error in an acknowledgement or at the end of a list: 0 or errno.
int error_in(std::span<const uint8_t> payload) { return -load_at<int>(payload); }

}  // namespace

NetlinkMessage::NetlinkMessage(unsigned type, unsigned flags) {
  nlmsghdr header{};
  header.nlmsg_type = static_cast<uint16_t>(type);
  header.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
  put(header);
}

NetlinkMessage& NetlinkMessage::put_bytes(std::span<const uint8_t> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  bytes_.resize(padded(bytes_.size()));
  return *this;
}

NetlinkMessage& NetlinkMessage::attribute(unsigned type, std::span<const uint8_t> value) {
  put(nlattr{.nla_len = static_cast<uint16_t>(sizeof(nlattr) + value.size()), .nla_type = static_cast<uint16_t>(type)});
  return put_bytes(value);
}

NetlinkMessage& NetlinkMessage::text(unsigned type, const std::string& value) {
  return attribute(type, {reinterpret_cast<const uint8_t*>(value.c_str()), value.size() + 1});
}

NetlinkMessage& NetlinkMessage::number(unsigned type, uint32_t value) {
  return attribute(type, {reinterpret_cast<const uint8_t*>(&value), sizeof(value)});
}

NetlinkMessage& NetlinkMessage::network_number(unsigned type, uint32_t value) { return number(type, htonl(value)); }

NetlinkMessage& NetlinkMessage::nest(unsigned type, const std::function<void()>& in) {
  const size_t at = bytes_.size();
  attribute(type | NLA_F_NESTED, {});
  in();
  const auto length = static_cast<uint16_t>(bytes_.size() - at);
  std::memcpy(bytes_.data() + at, &length, sizeof(length));
  return *this;
}

std::span<const uint8_t> NetlinkMessage::bytes(uint32_t sequence) {
  auto header = load_at<nlmsghdr>(bytes_);
  header.nlmsg_len = static_cast<uint32_t>(bytes_.size());
  header.nlmsg_seq = sequence;
  std::memcpy(bytes_.data(), &header, sizeof(header));
  return bytes_;
}

void for_each_attribute(std::span<const uint8_t> attributes,
                        const std::function<void(unsigned, std::span<const uint8_t>)>& visit) {
  while (attributes.size() >= sizeof(nlattr)) {
    const auto head = load_at<nlattr>(attributes);
    if (head.nla_len < sizeof(nlattr) || head.nla_len > attributes.size()) return;
    visit(head.nla_type & NLA_TYPE_MASK, attributes.subspan(sizeof(nlattr), head.nla_len - sizeof(nlattr)));
    attributes = attributes.subspan(std::min(padded(head.nla_len), attributes.size()));
  }
}

std::span<const uint8_t> netlink_attribute(std::span<const uint8_t> attributes, unsigned type) {
  std::span<const uint8_t> found;
  for_each_attribute(attributes, [&](unsigned each, std::span<const uint8_t> value) {
    if (each == type && found.data() == nullptr) found = value;
  });
  return found;
}

NetlinkSocket::NetlinkSocket(int protocol) : fd_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol)) {
  // bind() gives the socket a port number. The kernel would take a member of a group without a port number for the
  // sender, and the sender gets no copy.
  sockaddr_nl any{};
  any.nl_family = AF_NETLINK;
  if (fd_ && bind(fd_.get(), reinterpret_cast<sockaddr*>(&any), sizeof(any)) == 0) return;
  const bool missing = errno == EPROTONOSUPPORT && protocol == NETLINK_NETFILTER;
  throw SetupError(std::string("cannot open a netlink socket: ") + std::strerror(errno) +
                   (missing ? "; the kernel has no nftables: modprobe nf_tables" : ""));
}

// The kernel has answered when send() returns. If the answer is a list, receiving one part makes the kernel add the
// next.
int NetlinkSocket::exchange(std::span<NetlinkMessage> messages, const Visit& visit) {
  std::vector<uint8_t> all;
  for (NetlinkMessage& message : messages) {
    const auto bytes = message.bytes(++sequence_);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  if (send(fd_.get(), all.data(), all.size(), 0) != static_cast<ssize_t>(all.size())) return errno;
  int error = 0;
  const int lost = receive([&](unsigned type, std::span<const uint8_t> payload) {
    if (type == NLMSG_ERROR || type == NLMSG_DONE) {
      if (error == 0) error = error_in(payload);
    } else if (visit) {
      visit(type, payload);
    }
  });
  return error != 0 ? error : lost;
}

int NetlinkSocket::join(int group) {
  return setsockopt(fd_.get(), SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) == 0 ? 0 : errno;
}

int NetlinkSocket::receive(const Visit& visit) {
  std::vector<uint8_t> buffer(kNetlinkBytes);
  for (;;) {
    const ssize_t got = recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN ? 0 : errno;
    std::span<const uint8_t> rest(buffer.data(), static_cast<size_t>(got));
    while (rest.size() >= sizeof(nlmsghdr)) {
      const auto head = load_at<nlmsghdr>(rest);
      if (head.nlmsg_len < sizeof(head) || head.nlmsg_len > rest.size()) break;
      visit(head.nlmsg_type, rest.subspan(sizeof(head), head.nlmsg_len - sizeof(head)));
      rest = rest.subspan(std::min(padded(head.nlmsg_len), rest.size()));
    }
  }
}

}  // namespace gradlane
