// udp_port.h - a port of UDP sockets, with the kernel's own addresses and without privileges (control thread; bursts:
// worker threads)
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/device/port.h"
#include "dataplane/udp/udp_queue.h"

namespace gradlane {

class UdpPort final : public Port {
 public:
  // Makes sockets at the node's address and UDP ports. Queue k has the sockets of lane k. Throws SetupError: "port e0:
  // ...".
  UdpPort(const PortConfig& config, const NodeConfig& node, rte_mempool* pool);
  ~UdpPort() override;

  void maintain() override;
  [[nodiscard]] size_t most_waiting() const noexcept override;
  [[nodiscard]] std::vector<int> fds(unsigned queue) const override { return queue_.at(queue)->fds(); }
  [[nodiscard]] uint16_t receive(uint16_t queue, rte_mbuf** burst, uint16_t count) noexcept override;
  [[nodiscard]] uint16_t receive_datagrams(uint16_t queue, rte_mbuf** burst, uint16_t count,
                                           DatagramPath& path) noexcept override;
  [[nodiscard]] uint16_t send_datagrams(uint16_t queue, rte_mbuf** burst, DatagramPath* paths,
                                        uint16_t count) noexcept override;
  [[nodiscard]] Nanos report_overdue(uint16_t queue, Nanos now) noexcept override {
    return queue_[queue]->report_overdue(now);
  }

 private:
  [[nodiscard]] std::string refusal_text() const;
  [[nodiscard]] std::string problem_text(UdpQueue::Problem trouble) const;

  std::vector<std::unique_ptr<UdpQueue>> queue_;
  const size_t mtu_;
  const size_t segments_;
  const IpAddress address_;
  unsigned interface_ = 0;  // interface that has the address; 0: any, or not known
  std::array<bool, static_cast<size_t>(UdpQueue::Problem::kCount)> logged_{};
};

}  // namespace gradlane
