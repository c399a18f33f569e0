// rtnetlink.cc - network interfaces of the kernel: reads, makes and changes them as ip(8) does (main thread only)
#include "dataplane/accelerator/commands/rtnetlink.h"

#include <fmt/format.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace gradlane {
namespace {

ifinfomsg about(unsigned index) {
  ifinfomsg part{};
  part.ifi_index = static_cast<int>(index);
  return part;
}

std::string text_of(std::span<const uint8_t> value) {
  return value.empty() ? "" : std::string(reinterpret_cast<const char*>(value.data()), value.size() - 1);
}

Link link_of(std::span<const uint8_t> payload) {
  const auto head = load_at<ifinfomsg>(payload);
  const auto attributes = payload.subspan(std::min(sizeof(ifinfomsg), payload.size()));
  const auto address = netlink_attribute(attributes, IFLA_ADDRESS);
  return {.index = static_cast<unsigned>(head.ifi_index),
          .name = text_of(netlink_attribute(attributes, IFLA_IFNAME)),
          .flags = head.ifi_flags,
          .mtu = load_at<uint32_t>(netlink_attribute(attributes, IFLA_MTU)),
          .master = load_at<uint32_t>(netlink_attribute(attributes, IFLA_MASTER)),
          .address = {address.begin(), address.end()},
          .alias = text_of(netlink_attribute(attributes, IFLA_IFALIAS))};
}

NetlinkMessage change_of(const Link& link) {
  NetlinkMessage message(RTM_NEWLINK, NLM_F_ACK);
  message.put(about(link.index));
  return message;
}

}  // namespace

RtNetlink::RtNetlink() : socket_(NETLINK_ROUTE) {}

void RtNetlink::change(NetlinkMessage message, const std::string& what, const std::vector<int>& fine) {
  const int error = socket_.exchange(std::move(message));
  if (error == 0 || std::ranges::find(fine, error) != fine.end()) return;
  throw SetupError(fmt::format("{}: {}", what, std::strerror(error)));
}

void RtNetlink::list(NetlinkMessage message, const NetlinkSocket::Visit& visit) {
  const int error = socket_.exchange(std::move(message), visit);
  if (error != 0)
    throw SetupError(fmt::format("cannot read the kernel's addresses and routes: {}", std::strerror(error)));
}

std::optional<Link> RtNetlink::find(const std::string& name) {
  std::optional<Link> link;
  NetlinkMessage message(RTM_GETLINK, NLM_F_ACK);
  message.put(about(0)).text(IFLA_IFNAME, name);
  const int error = socket_.exchange(std::move(message),
                                     [&](unsigned, std::span<const uint8_t> payload) { link = link_of(payload); });
  if (error != 0 && error != ENODEV) {
    throw SetupError(fmt::format("cannot read the state of interface {}: {}", name, std::strerror(error)));
  }
  return link;
}

void RtNetlink::add_veth(const std::string& name, const std::string& peer, size_t mtu,
                         const std::vector<uint8_t>& address) {
  NetlinkMessage message(RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL);
  message.put(about(0)).text(IFLA_IFNAME, name).number(IFLA_MTU, static_cast<uint32_t>(mtu));
  message.attribute(IFLA_ADDRESS, address);
  message.nest(IFLA_LINKINFO, [&] {
    message.text(IFLA_INFO_KIND, "veth");
    message.nest(IFLA_INFO_DATA, [&] {
      message.nest(VETH_INFO_PEER,
                   [&] { message.put(about(0)).text(IFLA_IFNAME, peer).number(IFLA_MTU, static_cast<uint32_t>(mtu)); });
    });
  });
  change(std::move(message), fmt::format("cannot make the veth pair {} and {}", name, peer));
}

void RtNetlink::set_flag(const Link& link, unsigned flag, bool on) {
  NetlinkMessage message(RTM_NEWLINK, NLM_F_ACK);
  ifinfomsg part = about(link.index);
  part.ifi_flags = on ? flag : 0;
  part.ifi_change = flag;
  message.put(part);
  change(std::move(message), fmt::format("cannot change flag {:#x} of interface {}", flag, link.name));
}

void RtNetlink::set_mtu(const Link& link, size_t mtu) {
  change(change_of(link).number(IFLA_MTU, static_cast<uint32_t>(mtu)),
         fmt::format("cannot set MTU {} of interface {}", mtu, link.name));
}

void RtNetlink::set_alias(const Link& link, const std::string& alias) {
  NetlinkMessage message = change_of(link);
  message.attribute(IFLA_IFALIAS, {reinterpret_cast<const uint8_t*>(alias.data()), alias.size()});
  change(std::move(message), fmt::format("cannot set the alias of interface {}", link.name));
}

void RtNetlink::set_address(const Link& link, const std::vector<uint8_t>& address) {
  change(change_of(link).attribute(IFLA_ADDRESS, address),
         fmt::format("cannot set the MAC address of interface {}", link.name));
}

void RtNetlink::remove(const Link& link) {
  NetlinkMessage message(RTM_DELLINK, NLM_F_ACK);
  message.put(about(link.index));
  change(std::move(message), fmt::format("cannot remove interface {}", link.name), {ENODEV});
}

}  // namespace gradlane
