// vnet_port.h - the host port of an accelerator: a packet socket that exchanges superpackets with the kernel (control
// thread; receive() and send(): worker)
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/file_descriptor.h"
#include "dataplane/accelerator/packet/vnet_queue.h"
#include "dataplane/device/port.h"

struct rte_mempool;

namespace gradlane {

// Replaces DPDK's AF_PACKET device on the same interface. The kernel can leave TCP segmentation to this port (TSO), and
// receives superpackets from it.
class VnetPort final : public Port {
 public:
  // `config` is of an AF_PACKET device; only its interface matters. Throws SetupError: "port host: ...".
  VnetPort(const PortConfig& config, size_t mtu, rte_mempool* pool);
  ~VnetPort() override;

  void maintain() override;
  [[nodiscard]] uint64_t missed() const noexcept override { return missed_; }
  [[nodiscard]] Superpackets superpackets() const noexcept override;
  [[nodiscard]] uint16_t receive(uint16_t, rte_mbuf** burst, uint16_t count) noexcept override {
    return queue_->receive(burst, count);
  }
  [[nodiscard]] uint16_t send(uint16_t, rte_mbuf** burst, uint16_t count) noexcept override {
    return queue_->send(burst, count);
  }

 private:
  using Event = VnetQueue::Event;
  [[nodiscard]] const char* problem_text(Event event) const noexcept;

  unsigned interface_ = 0;    // the kernel's index of the interface
  FileDescriptor listening_;  // socket that keeps the interface promiscuous
  std::optional<VnetQueue> queue_;
  uint64_t lost_in_socket_ = 0;
  uint64_t missed_ = 0;  // frames missed until the last maintain()
  bool logged_up_ = false;
  std::array<bool, static_cast<size_t>(Event::kCount)> logged_{};
};

}  // namespace gradlane
