// kernel_network.cc - addresses and routes of an interface, which move to another interface (main thread only)
#include "dataplane/accelerator/commands/kernel_network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/error.h"

namespace gradlane {
namespace {

using Bytes = std::span<const uint8_t>;

template <class Head>
Bytes attributes_of(Bytes payload) {
  return payload.subspan(std::min(sizeof(Head), payload.size()));
}

std::string address_text(int family, Bytes address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  std::array<uint8_t, 16> padded{};
  std::copy_n(address.begin(), std::min(address.size(), padded.size()), padded.begin());
  return inet_ntop(family, padded.data(), text.data(), text.size()) == nullptr ? "?" : text.data();
}

uint32_t address_flags(Bytes payload) {
  const Bytes flags = netlink_attribute(attributes_of<ifaddrmsg>(payload), IFA_FLAGS);
  return flags.empty() ? load_at<ifaddrmsg>(payload).ifa_flags : load_at<uint32_t>(flags);
}

bool is_for_moving(const ifaddrmsg& head, uint32_t flags) {
  if (head.ifa_family == AF_INET) return true;
  return head.ifa_family == AF_INET6 && head.ifa_scope != RT_SCOPE_LINK && (flags & IFA_F_PERMANENT) != 0;
}

std::string text_of_address(Bytes payload) {
  const auto head = load_at<ifaddrmsg>(payload);
  const Bytes local = netlink_attribute(attributes_of<ifaddrmsg>(payload), IFA_LOCAL);
  const Bytes address = netlink_attribute(attributes_of<ifaddrmsg>(payload), IFA_ADDRESS);
  return fmt::format("{}/{}", address_text(head.ifa_family, local.empty() ? address : local), head.ifa_prefixlen);
}

// Makes a message that adds or deletes an address at interface `to`, from an address as the kernel lists it for `from`.
// Leaves out flags that only the kernel sets, and the lifetime of a permanent address.
NetlinkMessage address_message(unsigned type, unsigned flags, Bytes payload, const Link& from, const Link& to) {
  constexpr uint32_t kGiven = IFA_F_NOPREFIXROUTE | IFA_F_MCAUTOJOIN | IFA_F_HOMEADDRESS;
  const bool lasting = (address_flags(payload) & IFA_F_PERMANENT) != 0;
  auto head = load_at<ifaddrmsg>(payload);
  head.ifa_index = to.index;
  head.ifa_flags = 0;
  NetlinkMessage message(type, NLM_F_ACK | flags);
  message.put(head);
  for_each_attribute(attributes_of<ifaddrmsg>(payload), [&](unsigned each, Bytes value) {
    if (each == IFA_FLAGS) {
      message.number(IFA_FLAGS, load_at<uint32_t>(value) & kGiven);
    } else if (each == IFA_LABEL) {
      const std::string label = reinterpret_cast<const char*>(value.data());
      // "eth1:backup" is a label of eth1.
      if (label.starts_with(from.name)) message.text(IFA_LABEL, to.name + label.substr(from.name.size()));
    } else if (each != IFA_CACHEINFO || !lasting) {
      message.attribute(each, value);
    }
  });
  return message;
}

bool goes_over(Bytes attributes, unsigned index) {
  if (load_at<uint32_t>(netlink_attribute(attributes, RTA_OIF)) == index) return true;
  Bytes hops = netlink_attribute(attributes, RTA_MULTIPATH);
  while (hops.size() >= sizeof(rtnexthop)) {
    const auto hop = load_at<rtnexthop>(hops);
    if (hop.rtnh_len < sizeof(hop) || hop.rtnh_len > hops.size()) break;
    if (hop.rtnh_ifindex == static_cast<int>(index)) return true;
    hops = hops.subspan(hop.rtnh_len);
  }
  return false;
}

bool is_for_moving(const rtmsg& head) {
  const bool made_by_kernel =
      head.rtm_protocol == RTPROT_KERNEL || head.rtm_protocol == RTPROT_RA || head.rtm_protocol == RTPROT_REDIRECT;
  return !made_by_kernel && head.rtm_table != RT_TABLE_LOCAL && (head.rtm_flags & RTM_F_CLONED) == 0;
}

std::string text_of_route(Bytes payload) {
  const auto head = load_at<rtmsg>(payload);
  const Bytes to = netlink_attribute(attributes_of<rtmsg>(payload), RTA_DST);
  return to.empty() ? "default" : fmt::format("{}/{}", address_text(head.rtm_family, to), head.rtm_dst_len);
}

std::vector<uint8_t> hops_over(Bytes hops, unsigned from, unsigned to) {
  std::vector<uint8_t> all(hops.begin(), hops.end());
  for (size_t at = 0; at + sizeof(rtnexthop) <= all.size();) {
    auto hop = load_at<rtnexthop>(all, at);
    if (hop.rtnh_len < sizeof(hop)) break;
    if (hop.rtnh_ifindex == static_cast<int>(from)) hop.rtnh_ifindex = static_cast<int>(to);
    hop.rtnh_flags &= RTNH_F_ONLINK;
    std::memcpy(all.data() + at, &hop, sizeof(hop));
    at += hop.rtnh_len;
  }
  return all;
}

NetlinkMessage route_message(unsigned type, unsigned flags, Bytes payload, const Link& from, const Link& to) {
  auto head = load_at<rtmsg>(payload);
  head.rtm_flags &= RTNH_F_ONLINK;
  NetlinkMessage message(type, NLM_F_ACK | flags);
  message.put(head);
  for_each_attribute(attributes_of<rtmsg>(payload), [&](unsigned each, Bytes value) {
    if (each == RTA_OIF) {
      message.number(RTA_OIF, to.index);
    } else if (each == RTA_MULTIPATH) {
      message.attribute(RTA_MULTIPATH, hops_over(value, from.index, to.index));
    } else if (each != RTA_CACHEINFO) {
      message.attribute(each, value);
    }
  });
  return message;
}

}  // namespace

KernelNetwork KernelNetwork::of(RtNetlink& kernel, const Link& link) {
  KernelNetwork network;
  network.link_ = link;
  network.read_addresses(kernel);
  network.read_routes(kernel);
  return network;
}

void KernelNetwork::read_addresses(RtNetlink& kernel) {
  NetlinkMessage ask(RTM_GETADDR, NLM_F_DUMP);
  kernel.list(ask.put(ifaddrmsg{}), [this](unsigned, Bytes payload) {
    const auto head = load_at<ifaddrmsg>(payload);
    if (head.ifa_index != link_.index || !is_for_moving(head, address_flags(payload))) return;
    addresses_.emplace_back(payload.begin(), payload.end());
  });
}

void KernelNetwork::read_routes(RtNetlink& kernel) {
  NetlinkMessage ask(RTM_GETROUTE, NLM_F_DUMP);
  kernel.list(ask.put(rtmsg{}), [this](unsigned, Bytes payload) {
    if (!is_for_moving(load_at<rtmsg>(payload)) || !goes_over(attributes_of<rtmsg>(payload), link_.index)) return;
    routes_.emplace_back(payload.begin(), payload.end());
  });
  std::stable_partition(routes_.begin(), routes_.end(), [](const Payload& route) {
    return netlink_attribute(attributes_of<rtmsg>(route), RTA_GATEWAY).empty();
  });
}

std::string KernelNetwork::text() const {
  std::vector<std::string> addresses;
  for (const Payload& address : addresses_) addresses.push_back(text_of_address(address));
  const std::string text = addresses.empty() ? "no address" : fmt::format("{}", fmt::join(addresses, ", "));
  return fmt::format("{} and {} route{}", text, routes_.size(), routes_.size() == 1 ? "" : "s");
}

void KernelNetwork::erase(RtNetlink& kernel, const Link& at) const {
  for (const Payload& route : routes_) {
    kernel.change(route_message(RTM_DELROUTE, 0, route, link_, at),
                  fmt::format("cannot remove route {} over {}", text_of_route(route), at.name), {ESRCH});
  }
  // When the first address of a network is removed, the kernel may remove the other ones of that network. So a missing
  // address is no error.
  for (const Payload& address : addresses_) {
    kernel.change(address_message(RTM_DELADDR, 0, address, link_, at),
                  fmt::format("cannot remove address {} of {}", text_of_address(address), at.name), {EADDRNOTAVAIL});
  }
}

std::vector<std::string> KernelNetwork::give(RtNetlink& kernel, const Link& to) const {
  for (const Payload& address : addresses_) {
    kernel.change(address_message(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, address, link_, to),
                  fmt::format("cannot add address {} to {}", text_of_address(address), to.name), {EEXIST});
  }
  std::vector<std::string> refused;
  for (const Payload& route : routes_) {
    try {
      kernel.change(route_message(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, route, link_, to),
                    fmt::format("cannot add route {} over {}", text_of_route(route), to.name), {EEXIST});
    } catch (const SetupError& error) {
      refused.emplace_back(error.what());
    }
  }
  return refused;
}

}  // namespace gradlane
