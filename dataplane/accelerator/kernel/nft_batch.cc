// nft_batch.cc - tables of nftables at the ingress of network devices, without nft(8) (control thread only)
#include "dataplane/accelerator/kernel/nft_batch.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace gradlane {
namespace {

constexpr uint32_t kRegister = NFT_REG_1;
// Type of a comment in user data. nft(8) has the same format: type, length, text with its final zero.
constexpr uint8_t kCommentType = 0;
constexpr uint16_t kIpv4 = 0x0800;

constexpr unsigned nft_type(unsigned message) { return NFNL_SUBSYS_NFTABLES << 8 | message; }

nfgenmsg family(uint8_t number, uint16_t resource = 0) {
  nfgenmsg part{};
  part.nfgen_family = number;
  part.version = NFNETLINK_V0;
  part.res_id = htons(resource);
  return part;
}

NetlinkMessage netdev_message(unsigned type, unsigned flags) {
  NetlinkMessage message(nft_type(type), flags);
  message.put(family(NFPROTO_NETDEV));
  return message;
}

std::span<const uint8_t> attributes_of(std::span<const uint8_t> payload) {
  return payload.size() < sizeof(nfgenmsg) ? std::span<const uint8_t>() : payload.subspan(sizeof(nfgenmsg));
}

uint32_t network_number(std::span<const uint8_t> value) { return ntohl(load_at<uint32_t>(value)); }

}  // namespace

std::optional<NftTable> find_nft_table(const std::string& name) {
  NetlinkSocket socket(NETLINK_NETFILTER);
  std::optional<NftTable> table;
  const int error = socket.exchange(
      netdev_message(NFT_MSG_GETTABLE, NLM_F_ACK).text(NFTA_TABLE_NAME, name),
      [&](unsigned, std::span<const uint8_t> payload) {
        const auto attributes = attributes_of(payload);
        table.emplace();
        table->flags = network_number(netlink_attribute(attributes, NFTA_TABLE_FLAGS));
        const auto owner = netlink_attribute(attributes, NFTA_TABLE_OWNER);
        if (!owner.empty()) table->owner = network_number(owner);
        const auto data = netlink_attribute(attributes, NFTA_TABLE_USERDATA);
        if (data.size() > 2 && data[0] == kCommentType && data[1] != 0 && size_t{data[1]} + 2 <= data.size()) {
          table->comment.assign(reinterpret_cast<const char*>(data.data()) + 2, data[1] - 1U);
        }
      });
  if (error == ENOENT) return std::nullopt;
  const auto count = [&](unsigned, std::span<const uint8_t>) { ++table->rules; };
  const int failed =
      error != 0 || !table
          ? error
          : socket.exchange(netdev_message(NFT_MSG_GETRULE, NLM_F_DUMP).text(NFTA_RULE_TABLE, name), count);
  if (failed != 0) throw SetupError(std::string("cannot read nftables: ") + std::strerror(failed));
  return table;
}

// ---- A rule

void NftBatch::Rule::step(const char* name, const std::function<void()>& attributes) {
  message_.nest(NFTA_LIST_ELEM, [&] {
    message_.text(NFTA_EXPR_NAME, name);
    message_.nest(NFTA_EXPR_DATA, attributes);
  });
}

void NftBatch::Rule::only_ipv4() {
  step("meta",
       [&] { message_.network_number(NFTA_META_KEY, NFT_META_PROTOCOL).network_number(NFTA_META_DREG, kRegister); });
  step("cmp", [&] {
    const uint16_t value = htons(kIpv4);
    message_.network_number(NFTA_CMP_SREG, kRegister).network_number(NFTA_CMP_OP, NFT_CMP_EQ);
    message_.nest(NFTA_CMP_DATA, [&] {
      message_.attribute(NFTA_DATA_VALUE, {reinterpret_cast<const uint8_t*>(&value), sizeof(value)});
    });
  });
}

void NftBatch::Rule::only(Part part, uint32_t offset, const std::vector<uint8_t>& mask,
                          const std::vector<uint8_t>& value) {
  const auto length = static_cast<uint32_t>(mask.size());
  const std::vector<uint8_t> nothing(mask.size());
  const auto data = [&](unsigned type, const std::vector<uint8_t>& bytes) {
    message_.nest(type, [&] { message_.attribute(NFTA_DATA_VALUE, bytes); });
  };
  step("payload", [&] {
    message_.network_number(NFTA_PAYLOAD_DREG, kRegister);
    message_.network_number(NFTA_PAYLOAD_BASE,
                            part == Part::kIp ? NFT_PAYLOAD_NETWORK_HEADER : NFT_PAYLOAD_INNER_HEADER);
    message_.network_number(NFTA_PAYLOAD_OFFSET, offset).network_number(NFTA_PAYLOAD_LEN, length);
  });
  step("bitwise", [&] {
    message_.network_number(NFTA_BITWISE_SREG, kRegister).network_number(NFTA_BITWISE_DREG, kRegister);
    message_.network_number(NFTA_BITWISE_LEN, length);
    data(NFTA_BITWISE_MASK, mask);
    data(NFTA_BITWISE_XOR, nothing);
  });
  step("cmp", [&] {
    message_.network_number(NFTA_CMP_SREG, kRegister).network_number(NFTA_CMP_OP, NFT_CMP_EQ);
    data(NFTA_CMP_DATA, value);
  });
}

void NftBatch::Rule::drop() {
  step("immediate", [&] {
    message_.network_number(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
    message_.nest(NFTA_IMMEDIATE_DATA, [&] {
      message_.nest(NFTA_DATA_VERDICT, [&] { message_.network_number(NFTA_VERDICT_CODE, NF_DROP); });
    });
  });
}

void NftBatch::Rule::forward_to(unsigned interface) {
  step("immediate", [&] {
    message_.network_number(NFTA_IMMEDIATE_DREG, kRegister);
    message_.nest(NFTA_IMMEDIATE_DATA, [&] { message_.number(NFTA_DATA_VALUE, interface); });
  });
  step("fwd", [&] { message_.network_number(NFTA_FWD_SREG_DEV, kRegister); });
}

// ---- A batch

NftBatch::NftBatch() { messages_.emplace_back(NFNL_MSG_BATCH_BEGIN, 0U).put(family(AF_UNSPEC, NFNL_SUBSYS_NFTABLES)); }

NetlinkMessage& NftBatch::add(unsigned type, unsigned flags) {
  return messages_.emplace_back(netdev_message(type, flags | NLM_F_ACK));
}

void NftBatch::add_table(const std::string& name, uint32_t flags, const std::string& comment) {
  NetlinkMessage& table = add(NFT_MSG_NEWTABLE, NLM_F_CREATE).text(NFTA_TABLE_NAME, name);
  table.network_number(NFTA_TABLE_FLAGS, flags);
  if (comment.empty()) return;
  std::vector<uint8_t> data = {kCommentType, static_cast<uint8_t>(comment.size() + 1)};
  data.insert(data.end(), comment.begin(), comment.end());
  data.push_back(0);
  table.attribute(NFTA_TABLE_USERDATA, data);
}

void NftBatch::replace_table(const std::string& name, bool owned, const std::string& comment) {
  const uint32_t flags = owned ? NFT_TABLE_F_OWNER : 0;
  add_table(name, flags, "");
  add(NFT_MSG_DELTABLE, 0).text(NFTA_TABLE_NAME, name);
  add_table(name, flags, comment);
}

void NftBatch::remove_table(const std::string& name) {
  add_table(name, 0, "");
  add(NFT_MSG_DELTABLE, 0).text(NFTA_TABLE_NAME, name);
}

void NftBatch::add_chain(const std::string& table, const std::string& chain, const std::string& device, int priority,
                         bool drops) {
  NetlinkMessage& message =
      add(NFT_MSG_NEWCHAIN, NLM_F_CREATE).text(NFTA_CHAIN_TABLE, table).text(NFTA_CHAIN_NAME, chain);
  message.nest(NFTA_CHAIN_HOOK, [&] {
    message.network_number(NFTA_HOOK_HOOKNUM, NF_NETDEV_INGRESS);
    message.network_number(NFTA_HOOK_PRIORITY, static_cast<uint32_t>(priority));
    message.text(NFTA_HOOK_DEV, device);
  });
  message.network_number(NFTA_CHAIN_POLICY, drops ? NF_DROP : NF_ACCEPT).text(NFTA_CHAIN_TYPE, "filter");
}

void NftBatch::add_rule(const std::string& table, const std::string& chain, const std::function<void(Rule&)>& steps) {
  NetlinkMessage& message = add(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND);
  message.text(NFTA_RULE_TABLE, table).text(NFTA_RULE_CHAIN, chain);
  message.nest(NFTA_RULE_EXPRESSIONS, [&] {
    Rule rule(message);
    steps(rule);
  });
}

int NftBatch::send(NetlinkSocket& socket) {
  messages_.emplace_back(NFNL_MSG_BATCH_END, 0U).put(family(AF_UNSPEC, NFNL_SUBSYS_NFTABLES));
  return socket.exchange(messages_);
}

}  // namespace gradlane
