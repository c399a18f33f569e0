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
  // port number of the netlink socket that owns the table; the kernel removes the table when that socket is closed
  std::optional<uint32_t> owner;
  std::string comment;
  size_t rules = 0;
};
// Returns nothing if there is no table of that name. Throws SetupError if nftables cannot be read.
[[nodiscard]] std::optional<NftTable> find_nft_table(const std::string& name);

// A batch of changes. Either all of them take effect, at once, or none.
class NftBatch {
 public:
  // Builds one rule. Each function adds an expression; the kernel evaluates them in this order for each packet.
  class Rule {
   public:
    explicit Rule(NetlinkMessage& message) : message_(message) {}
    void only_ipv4();
    // Lets the rule continue only if these bytes of the IP header (kIp), or of the UDP or TCP payload (kCarried), are
    // `value` under `mask`.
    enum class Part { kIp, kCarried };
    void only(Part part, uint32_t offset, const std::vector<uint8_t>& mask, const std::vector<uint8_t>& value);
    void drop();
    void forward_to(unsigned interface);  // sends the packet out of the interface with this index, unchanged

   private:
    void step(const char* name, const std::function<void()>& attributes);
    NetlinkMessage& message_;
  };

  NftBatch();
  // Removes a table of that name, if there is one, and adds an empty table. `owned`: the kernel removes the table when
  // the socket that sends the batch is closed, and nobody else can change it.
  void replace_table(const std::string& name, bool owned, const std::string& comment);
  // Removes the table if it exists.
  void remove_table(const std::string& name);
  void add_chain(const std::string& table, const std::string& chain, const std::string& device, int priority,
                 bool drops);
  void add_rule(const std::string& table, const std::string& chain, const std::function<void(Rule&)>& steps);

  // Sends the batch. Returns 0 or errno.
  [[nodiscard]] int send(NetlinkSocket& socket);

 private:
  NetlinkMessage& add(unsigned type, unsigned flags);
  void add_table(const std::string& name, uint32_t flags, const std::string& comment);
  std::vector<NetlinkMessage> messages_;
};

}  // namespace gradlane
