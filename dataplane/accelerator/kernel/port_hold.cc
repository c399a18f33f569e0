// port_hold.cc - PortHold, which keeps the kernel off packets that arrive at an accelerator's interfaces (control
// thread only)
#include "dataplane/accelerator/kernel/port_hold.h"

#include <arpa/inet.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <spdlog/spdlog.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "dataplane/accelerator/kernel/bypass_tables.h"

namespace gradlane {
namespace {

// Returns the present name of an interface, which may have been renamed. Empty: the interface is gone.
std::string name_of(unsigned index) {
  std::array<char, IF_NAMESIZE> name{};
  return if_indextoname(index, name.data()) == nullptr ? "" : name.data();
}

// Returns a text about the other process that owns the table already. Empty: there is none.
std::string owner_text(const Bypass& bypass) {
  const auto table = find_nft_table(bypass.held);
  if (!table || !table->owner) return "";
  return fmt::format(
      "another accelerator uses {}: its netlink port is {}, usually its process number; stop it, or use other "
      "interfaces",
      bypass.ends(), *table->owner);
}

std::string who_holds(const Bypass& bypass) {
  try {
    return owner_text(bypass);
  } catch (const SetupError&) {
    return "";
  }
}

bool is_removal(unsigned type) {
  for (const unsigned each : {NFT_MSG_DELTABLE, NFT_MSG_DELCHAIN, NFT_MSG_DELRULE}) {
    if (type == (NFNL_SUBSYS_NFTABLES << 8 | each)) return true;
  }
  return false;
}

}  // namespace

PortHold::PortHold(const AcceleratorConfig& config) : file_(config.file), bypass_(bypass_of(config)) {
  if (bypass_.table.empty()) return;
  owner_.emplace(NETLINK_NETFILTER);
  events_.emplace(NETLINK_NETFILTER);
  if (!bypass_.complete()) return;
  // Events are received from here on. So changes of the tables before the first call of look() are noticed, too.
  int error = events_->join(NFNLGRP_NFTABLES);
  if (error == 0) {
    NftBatch batch;
    add_held(batch, bypass_);
    add_bypass(batch, bypass_);
    error = batch.send(*owner_);
  }
  if (error == 0) {
    spdlog::info(
        "the kernel does not process packets of {} while this process runs, and then {} (nftables: {}, {})",
        bypass_.ends(),
        bypass_.joins() ? "forwards packets between them, except compressed ones" : "drops packets that arrive there",
        bypass_.held, bypass_.table);
    return;
  }
  const std::string other = error == EPERM ? who_holds(bypass_) : "";
  throw SetupError(fmt::format("cannot prevent the kernel from processing packets of {}, compressed ones too: {}",
                               bypass_.ends(), other.empty() ? nft_fault(error) : other));
}

void PortHold::look(Nanos now) {
  if (bypass_.table.empty()) return;
  hear();
  follow_names();
  if (!held_ || !bypassed_) mend(now);
}

// In some kernels, rules do not apply to an interface any more after it has got another name.
void PortHold::follow_names() {
  for (Bypass::End* const end : {&bypass_.host, &bypass_.wire}) {
    const std::string name = end->index == 0 ? "" : name_of(end->index);
    if (name.empty() || name == end->name) continue;
    end->name = name;
    held_ = bypassed_ = false;
    logged_at_ = 0;
  }
}

void PortHold::hear() {
  const int error = events_->receive([this](unsigned type, std::span<const uint8_t> payload) {
    if (payload.size() < sizeof(nfgenmsg)) return;
    const auto attributes = payload.subspan(sizeof(nfgenmsg));
    // Messages about tables, chains and rules all begin with the table's name.
    const auto name = netlink_attribute(attributes, NFTA_TABLE_NAME);
    if (name.empty() || bypass_.table != reinterpret_cast<const char*>(name.data())) return;
    if (is_removal(type)) bypassed_ = false;
    if (type != (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWTABLE)) return;
    const auto flags = load_at<uint32_t>(netlink_attribute(attributes, NFTA_TABLE_FLAGS));
    bypassed_ = (ntohl(flags) & NFT_TABLE_F_DORMANT) == 0;
  });
  if (error == ENOBUFS) bypassed_ = false;  // events were lost, so the state is unknown
}

void PortHold::mend(Nanos now) {
  NftBatch batch;
  if (!held_) add_held(batch, bypass_);
  if (!bypassed_) add_bypass(batch, bypass_);
  const std::string what = cause();
  error_ = batch.send(*owner_);
  if (error_ == 0) {
    held_ = bypassed_ = true;
    logged_at_ = 0;
    spdlog::warn("{}: repaired", what);
  } else if (logged_at_ == 0 || now - logged_at_ >= kAgain) {
    logged_at_ = now;
    spdlog::error("{}", fault());
  }
}

std::string PortHold::cause() const {
  if (!held_) return fmt::format("an interface of {} was renamed", bypass_.ends());
  return fmt::format("table netdev {} of nftables was removed or changed", bypass_.table);
}

std::string PortHold::fault() const {
  if (held_ && bypassed_) return "";
  const std::string what = fmt::format("{}, and this process cannot repair it ({})", cause(),
                                       error_ == 0 ? "not tried yet" : std::strerror(error_));
  if (!held_) {
    return fmt::format(
        "{}: the kernel processes its packets too, so programs may get packets twice, and compressed ones as data: "
        "write the new name into {}, and start gradlaned again",
        what, file_);
  }
  return fmt::format(
      "{}: if this process ends, the host loses its network, and programs may get compressed packets as data: run "
      "gradlane accelerator up --config {}",
      what, file_);
}

}  // namespace gradlane
