// nft_batch.h - tables of nftables at the ingress of network devices, without nft(8) (control thread only)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/kernel/netlink.h"

namespace gradlane {

// A table of the family netdev.
struct NftTable {
  uint32_t flags = 0;
  std::optional<uint32_t> owner;  // port number of the netlink socket that it goes with
  std::string comment;
  size_t rules = 0;
};
// Nothing: there is none of that name. Throws SetupError if the kernel does not tell.
[[nodiscard]] std::optional<NftTable> find_nft_table(const std::string& name);

// All or none of what is added takes effect, at once.
class NftBatch {
 public:
  // What a rule does with a packet, step by step.
  class Rule {
   public:
    explicit Rule(NetlinkMessage& message) : message_(message) {}
    void only_ipv4();
    // Goes on if these bytes of the IP header, or of what UDP or TCP carry, are `value` under `mask`.
    enum class Part { kIp, kCarried };
    void only(Part part, uint32_t offset, const std::vector<uint8_t>& mask, const std::vector<uint8_t>& value);
    void drop();
    void forward_to(unsigned interface);  // by index: out there, as it came

   private:
    void step(const char* name, const std::function<void()>& attributes);
    NetlinkMessage& message_;
  };

  NftBatch();
  // Whatever is in a table of that name is gone. `owned`: the table goes with the socket that the batch is sent by, and
  // nobody else can change it.
  void replace_table(const std::string& name, bool owned, const std::string& comment);
  // If there is one.
  void remove_table(const std::string& name);
  void add_chain(const std::string& table, const std::string& chain, const std::string& device, int priority,
                 bool drops);
  void add_rule(const std::string& table, const std::string& chain, const std::function<void(Rule&)>& steps);

  // 0 or errno.
  [[nodiscard]] int send(NetlinkSocket& socket);

 private:
  NetlinkMessage& add(unsigned type, unsigned flags);
  void add_table(const std::string& name, uint32_t flags, const std::string& comment);
  std::vector<NetlinkMessage> messages_;
};

}  // namespace gradlane
