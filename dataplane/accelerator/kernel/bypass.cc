// bypass.cc - nftables at an accelerator's interfaces. While the accelerator runs, they keep the kernel off the packets
// that arrive. At other times, they make the kernel forward packets between the interfaces (control thread)
#include "dataplane/accelerator/kernel/bypass.h"

#include <linux/netfilter/nf_tables.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <spdlog/fmt/fmt.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "config/devargs.h"
#include "config/devices.h"
#include "dataplane/accelerator/engine/wire_format.h"
#include "dataplane/accelerator/kernel/bypass_tables.h"
#include "dataplane/accelerator/kernel/nft_batch.h"
#include "dataplane/frame/internet.h"
#include "dataplane/kernel/kernel_interface.h"

namespace gradlane {
namespace {

// Priorities of the two tables. The tables get a frame before all other tables of the host, which have no use for it.
constexpr int kHeldPriority = -500;
constexpr int kBypassPriority = -490;

constexpr const char* kWireChain = "wire";
constexpr const char* kHostChain = "host";

Bypass::End end_of(const PortConfig& port) {
  if (!is_af_packet(port) && !is_af_xdp(port)) return {};
  std::string name = interface_name(port);
  const unsigned index = if_nametoindex(name.c_str());
  return {std::move(name), index};
}

// Returns the comment by which the table of these interfaces is recognized. An interface that is created again has
// another index.
std::string comment_of(const Bypass& bypass) {
  const auto text = [](const Bypass::End& end) {
    return end.name.empty() ? std::string("-") : fmt::format("{} ({})", end.name, end.index);
  };
  return fmt::format("without an accelerator between {} and {}, ToS {:#04x}", text(bypass.wire), text(bypass.host),
                     bypass.tos_wire);
}

// Returns the number of rules in `table`: one drops compressed packets, and one forwards in each direction.
size_t rules_of(const Bypass& bypass) { return bypass.joins() ? 3 : 0; }

// Adds a rule that drops compressed packets. Like the accelerator, it recognizes them by the wire's code point, no
// escape, and a payload that begins like a bundle.
void drop_compressed(NftBatch& batch, const Bypass& bypass) {
  using Part = NftBatch::Rule::Part;
  batch.add_rule(bypass.table, kWireChain, [&](NftBatch::Rule& rule) {
    rule.only_ipv4();
    rule.only(Part::kIp, internet::kIpTos, {0xfc}, {bypass.tos_wire});
    rule.only(Part::kIp, internet::kIpFragment, {0x80}, {0});
    rule.only(Part::kCarried, 0, {0xff, 0xf0}, {accel::kGroupMagic, accel::kGroupVersion << 4});
    rule.drop();
  });
}

}  // namespace

std::string Bypass::ends() const {
  if (!joins()) return wire.name + host.name;
  return wire.name + " and " + host.name;
}

Bypass bypass_of(const AcceleratorConfig& config) {
  Bypass bypass{
      .host = end_of(config.host), .wire = end_of(config.wire), .tos_wire = config.tos_wire, .table = "", .held = ""};
  const std::string& name = bypass.wire.name.empty() ? bypass.host.name : bypass.wire.name;
  if (name.empty()) return bypass;
  bypass.table = "gradlane-" + name;
  bypass.held = bypass.table + "-held";
  return bypass;
}

void add_held(NftBatch& batch, const Bypass& bypass) {
  batch.replace_table(bypass.held, true, "");
  const auto add = [&](const char* chain, const Bypass::End& end) {
    if (!end.name.empty()) batch.add_chain(bypass.held, chain, end.name, kHeldPriority, true);
  };
  add(kWireChain, bypass.wire);
  add(kHostChain, bypass.host);
}

void add_bypass(NftBatch& batch, const Bypass& bypass) {
  batch.replace_table(bypass.table, false, comment_of(bypass));
  const auto add = [&](const char* chain, const Bypass::End& end, const Bypass::End& other) {
    if (end.name.empty()) return;
    batch.add_chain(bypass.table, chain, end.name, kBypassPriority, !bypass.joins());
    if (!bypass.joins()) return;
    if (&end == &bypass.wire) drop_compressed(batch, bypass);
    batch.add_rule(bypass.table, chain, [&](NftBatch::Rule& rule) { rule.forward_to(other.index); });
  };
  add(kWireChain, bypass.wire, bypass.host);
  add(kHostChain, bypass.host, bypass.wire);
}

std::string nft_fault(int error) {
  const std::string text = std::strerror(error);
  if (error == EPERM) return text + ": this needs root, or CAP_NET_ADMIN";
  if (error != EOPNOTSUPP && error != ENOENT && error != EPROTONOSUPPORT && error != EINVAL) return text;
  return text +
         ": nftables of this kernel lacks netdev tables with owners and fwd; use Linux 5.16 or later with "
         "CONFIG_NF_TABLES_NETDEV and CONFIG_NFT_FWD_NETDEV";
}

void install_bypass(const Bypass& bypass) {
  if (bypass.table.empty()) return;
  NetlinkSocket socket(NETLINK_NETFILTER);
  NftBatch batch;
  add_bypass(batch, bypass);
  const int error = batch.send(socket);
  if (error == 0) return;
  throw SetupError(fmt::format("nftables: cannot make table {}: {}", bypass.table, nft_fault(error)));
}

void remove_bypass(const Bypass& bypass) {
  if (bypass.table.empty()) return;
  NetlinkSocket socket(NETLINK_NETFILTER);
  NftBatch batch;
  batch.remove_table(bypass.table);
  const int error = batch.send(socket);
  if (error == 0) return;
  throw SetupError(fmt::format("nftables: cannot remove table {}: {}", bypass.table, nft_fault(error)));
}

BypassState bypass_state(const Bypass& bypass) {
  try {
    const auto table = find_nft_table(bypass.table);
    const bool right = table && bypass.complete() && (table->flags & NFT_TABLE_F_DORMANT) == 0 &&
                       table->comment == comment_of(bypass) && table->rules == rules_of(bypass);
    return right ? BypassState::kInPlace : BypassState::kMissing;
  } catch (const SetupError&) {
    return BypassState::kUnknown;
  }
}

}  // namespace gradlane
