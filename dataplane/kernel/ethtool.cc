// ethtool.cc - asking the kernel by ethtool's ioctl and by rtnetlink (control thread only; no DPDK)
#include "dataplane/kernel/ethtool.h"

#include <linux/ethtool.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/file_descriptor.h"
#include "dataplane/kernel/netlink.h"

namespace gradlane {
namespace {

constexpr size_t kNameBytes = ETH_GSTRING_LEN;
constexpr size_t kMostFeatures = 1024;
constexpr size_t kAnswerBytes = 32768;  // bytes for the kernel's answer about one interface

bool ask(const std::string& interface, void* command) {
  const FileDescriptor fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  if (interface.size() >= sizeof(request.ifr_name)) return false;
  interface.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  request.ifr_data = static_cast<char*>(command);
  return fd && ioctl(fd.get(), SIOCETHTOOL, &request) >= 0;
}

// Returns a buffer with a command of ethtool, `Head`, followed by space for the answer.
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
  if (!ask(interface, command.data()) || load_at<ethtool_sset_info>(command).sset_mask == 0) return 0;
  const size_t count = load_at<uint32_t>(command, sizeof(head));
  return count > kMostFeatures ? 0 : count;
}

// Returns the attributes of an interface from the kernel; empty if the kernel does not answer.
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
  const auto head = load_at<nlmsghdr>(answer);
  if (head.nlmsg_type != RTM_NEWLINK || head.nlmsg_len > answer.size()) return {};
  return {answer.begin() + sizeof(request), answer.begin() + static_cast<ptrdiff_t>(head.nlmsg_len)};
}

// Returns the names of all features in the order of their bits; empty if the kernel does not answer.
std::vector<std::string> feature_names(const std::string& interface) {
  ethtool_gstrings head{};
  head.cmd = ETHTOOL_GSTRINGS;
  head.string_set = ETH_SS_FEATURES;
  head.len = static_cast<uint32_t>(count_features(interface));
  std::vector<uint8_t> strings = with_room(head, head.len * kNameBytes);
  std::vector<std::string> names;
  if (head.len == 0 || !ask(interface, strings.data())) return names;
  for (size_t i = 0; i < head.len; ++i) {
    std::array<char, kNameBytes + 1> name{};
    std::memcpy(name.data(), strings.data() + sizeof(head) + i * kNameBytes, kNameBytes);
    names.emplace_back(name.data());
  }
  return names;
}

// The beginning of ethtool_gfeatures and ethtool_sfeatures, without the flexible array at their end.
struct FeatureHead {
  uint32_t cmd;
  uint32_t size;
};
size_t blocks_for(const std::vector<std::string>& names) { return (names.size() + 31) / 32; }

bool is_veth(std::span<const uint8_t> attributes) {
  static constexpr char kVeth[] = "veth";
  const auto kind = netlink_attribute(netlink_attribute(attributes, IFLA_LINKINFO), IFLA_INFO_KIND);
  return kind.size() >= sizeof(kVeth) && std::memcmp(kind.data(), kVeth, sizeof(kVeth)) == 0;
}

}  // namespace

std::set<std::string> active_features(const std::string& interface) {
  const std::vector<std::string> names = feature_names(interface);
  const size_t blocks = blocks_for(names);
  std::vector<uint8_t> states = with_room(FeatureHead{ETHTOOL_GFEATURES, static_cast<uint32_t>(blocks)},
                                          blocks * sizeof(ethtool_get_features_block));
  std::set<std::string> active;
  if (names.empty() || !ask(interface, states.data())) return active;
  for (size_t i = 0; i < names.size(); ++i) {
    const size_t at = sizeof(FeatureHead) + i / 32 * sizeof(ethtool_get_features_block);
    if ((load_at<ethtool_get_features_block>(states, at).active >> i % 32 & 1) != 0) active.insert(names[i]);
  }
  return active;
}

int set_features(const std::string& interface, const std::set<std::string>& names, bool on) {
  const std::vector<std::string> all = feature_names(interface);
  const size_t blocks = blocks_for(all);
  std::vector<uint8_t> command = with_room(FeatureHead{ETHTOOL_SFEATURES, static_cast<uint32_t>(blocks)},
                                           blocks * sizeof(ethtool_set_features_block));
  bool any = false;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!names.contains(all[i])) continue;
    any = true;
    const size_t at = sizeof(FeatureHead) + i / 32 * sizeof(ethtool_set_features_block);
    auto block = load_at<ethtool_set_features_block>(command, at);
    block.valid |= 1U << i % 32;
    if (on) block.requested |= 1U << i % 32;
    std::memcpy(command.data() + at, &block, sizeof(block));
  }
  return !any || ask(interface, command.data()) ? 0 : errno;
}

std::optional<std::string> veth_peer(const std::string& interface) {
  const unsigned index = if_nametoindex(interface.c_str());
  if (index == 0) return std::nullopt;
  const std::vector<uint8_t> attributes = link_attributes(index);
  // The index of a peer in another namespace may also be the index of an unrelated interface here.
  if (!is_veth(attributes) || !netlink_attribute(attributes, IFLA_LINK_NETNSID).empty()) return std::nullopt;
  std::array<char, IF_NAMESIZE> name{};
  const auto peer = load_at<uint32_t>(netlink_attribute(attributes, IFLA_LINK));
  if (peer == 0 || if_indextoname(peer, name.data()) == nullptr) return std::nullopt;
  return name.data();
}

}  // namespace gradlane
