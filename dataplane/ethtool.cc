// ethtool.cc - asking the kernel by ethtool's ioctl and by rtnetlink (control thread only; no DPDK)
#include "dataplane/ethtool.h"

#include <linux/ethtool.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "dataplane/server_fd.h"

namespace gradlane {
namespace {

constexpr size_t kNameBytes = ETH_GSTRING_LEN;
constexpr size_t kMostFeatures = 1024;
constexpr size_t kAnswerBytes = 32768;  // of a kernel about one interface

template <class T>
T load(std::span<const uint8_t> from, size_t at = 0) {
  T value{};
  if (at + sizeof(T) <= from.size()) std::memcpy(&value, from.data() + at, sizeof(T));
  return value;
}

bool ask(const std::string& interface, void* command) {
  const FileDescriptor fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  if (interface.size() >= sizeof(request.ifr_name)) return false;
  interface.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  request.ifr_data = static_cast<char*>(command);
  return fd && ioctl(fd.get(), SIOCETHTOOL, &request) == 0;
}

// A command of ethtool, `Head`, and behind it what it answers.
template <class Head>
std::vector<uint8_t> with_room(const Head& head, size_t behind) {
  std::vector<uint8_t> command(sizeof(Head) + behind);
  std::memcpy(command.data(), &head, sizeof(Head));
  return command;
}

size_t count_features(const std::string& interface) {
  ethtool_sset_info head{};
  head.cmd = ETHTOOL_GSSET_INFO;
  head.sset_mask = uint64_t{1} << ETH_SS_FEATURES;
  std::vector<uint8_t> command = with_room(head, sizeof(uint32_t));
  if (!ask(interface, command.data()) || load<ethtool_sset_info>(command).sset_mask == 0) return 0;
  const size_t count = load<uint32_t>(command, sizeof(head));
  return count > kMostFeatures ? 0 : count;
}

// The payload of an attribute, or nothing.
std::span<const uint8_t> attribute(std::span<const uint8_t> attributes, unsigned short type) {
  while (attributes.size() >= sizeof(rtattr)) {
    const auto head = load<rtattr>(attributes);
    if (head.rta_len < sizeof(rtattr) || head.rta_len > attributes.size()) break;
    if (head.rta_type == type) return attributes.subspan(sizeof(rtattr), head.rta_len - sizeof(rtattr));
    const size_t next = (head.rta_len + size_t{3}) & ~size_t{3};
    attributes = attributes.subspan(next < attributes.size() ? next : attributes.size());
  }
  return {};
}

// The attributes of an interface, as the kernel tells them; empty if it does not.
std::vector<uint8_t> link_attributes(unsigned index) {
  struct {
    nlmsghdr head;
    ifinfomsg info;
  } request{};
  request.head.nlmsg_len = sizeof(request);
  request.head.nlmsg_type = RTM_GETLINK;
  request.head.nlmsg_flags = NLM_F_REQUEST;
  request.info.ifi_index = static_cast<int>(index);
  const FileDescriptor fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd || send(fd.get(), &request, sizeof(request), 0) != sizeof(request)) return {};
  std::vector<uint8_t> answer(kAnswerBytes);
  const ssize_t got = recv(fd.get(), answer.data(), answer.size(), 0);
  if (got < static_cast<ssize_t>(sizeof(request))) return {};
  answer.resize(static_cast<size_t>(got));
  const auto head = load<nlmsghdr>(answer);
  if (head.nlmsg_type != RTM_NEWLINK || head.nlmsg_len > answer.size()) return {};
  return {answer.begin() + sizeof(request), answer.begin() + static_cast<ptrdiff_t>(head.nlmsg_len)};
}

bool is_veth(std::span<const uint8_t> attributes) {
  static constexpr char kVeth[] = "veth";
  const auto kind = attribute(attribute(attributes, IFLA_LINKINFO), IFLA_INFO_KIND);
  return kind.size() >= sizeof(kVeth) && std::memcmp(kind.data(), kVeth, sizeof(kVeth)) == 0;
}

}  // namespace

std::set<std::string> active_features(const std::string& interface) {
  const size_t count = count_features(interface);
  ethtool_gstrings names{};
  names.cmd = ETHTOOL_GSTRINGS;
  names.string_set = ETH_SS_FEATURES;
  names.len = static_cast<uint32_t>(count);
  std::vector<uint8_t> strings = with_room(names, count * kNameBytes);
  const size_t blocks = (count + 31) / 32;
  // ethtool_gfeatures, without the array of no size at its end.
  struct {
    uint32_t cmd = ETHTOOL_GFEATURES;
    uint32_t size = 0;
  } features;
  features.size = static_cast<uint32_t>(blocks);
  std::vector<uint8_t> states = with_room(features, blocks * sizeof(ethtool_get_features_block));
  std::set<std::string> active;
  if (count == 0 || !ask(interface, strings.data()) || !ask(interface, states.data())) return active;
  for (size_t i = 0; i < count; ++i) {
    const size_t at = sizeof(features) + i / 32 * sizeof(ethtool_get_features_block);
    if ((load<ethtool_get_features_block>(states, at).active >> i % 32 & 1) == 0) continue;
    std::array<char, kNameBytes + 1> name{};
    std::memcpy(name.data(), strings.data() + sizeof(names) + i * kNameBytes, kNameBytes);
    active.insert(name.data());
  }
  return active;
}

std::optional<std::string> veth_peer(const std::string& interface) {
  const unsigned index = if_nametoindex(interface.c_str());
  if (index == 0) return std::nullopt;
  const std::vector<uint8_t> attributes = link_attributes(index);
  // An index of another namespace may be that of any interface here.
  if (!is_veth(attributes) || !attribute(attributes, IFLA_LINK_NETNSID).empty()) return std::nullopt;
  std::array<char, IF_NAMESIZE> name{};
  const auto peer = load<uint32_t>(attribute(attributes, IFLA_LINK));
  if (peer == 0 || if_indextoname(peer, name.data()) == nullptr) return std::nullopt;
  return name.data();
}

}  // namespace gradlane
