// vnet_port.cc - creation and regular work of a packet socket with superpackets (control thread)
#include "dataplane/accelerator/packet/vnet_port.h"

#include <net/if.h>
#include <spdlog/spdlog.h>

#include "config/devices.h"
#include "dataplane/device/packet_socket.h"
#include "dataplane/kernel/host_claim.h"
#include "dataplane/kernel/kernel_interface.h"

namespace gradlane {

VnetPort::VnetPort(const PortConfig& config, size_t mtu, rte_mempool* pool) : Port(config, nullptr) {
  const std::string name = interface_name(config_);
  try {
    const std::string warning = check_kernel_interface(config_, mtu);
    if (!warning.empty()) spdlog::warn("port {}: {}", name_, warning);
    claim_on_host("interface " + name, "stop it, or give this one another interface");
    interface_ = if_nametoindex(name.c_str());
    queue_.emplace(interface_, pool);
    listening_ = make_promiscuous(interface_);
  } catch (const SetupError& error) {
    fail(error);
  }
  link_up_.store(interface_running(interface_), std::memory_order_relaxed);
  started_.store(true, std::memory_order_release);
}

VnetPort::~VnetPort() = default;

void VnetPort::maintain() {
  link_up_.store(interface_running(interface_), std::memory_order_relaxed);
  if (!interface_there(interface_)) {
    throw DeviceLost("port " + name_ + ": interface " + interface_name(config_) +
                     " is gone: deleted, created again, or moved to another network namespace");
  }
  lost_in_socket_ += take_missed(queue_->fd());
  missed_ = lost_in_socket_ + queue_->times(Event::kUnfit) + queue_->times(Event::kTooLong);
  if (logged_up_ != link_up()) {
    logged_up_ = !logged_up_;
    spdlog::info("port {}: the link is {}", name_, logged_up_ ? "up" : "down");
  }
  // Each trouble is logged only once, because it may happen thousands of times.
  for (size_t i = 0; i < logged_.size(); ++i) {
    const char* const text = problem_text(static_cast<Event>(i));
    if (text == nullptr || logged_[i] || queue_->times(static_cast<Event>(i)) == 0) continue;
    logged_[i] = true;
    spdlog::warn("port {}: {}", name_, text);
  }
}

// Returns the warning for an event, or null if the event needs none.
const char* VnetPort::problem_text(Event event) const noexcept {
  switch (event) {
    case Event::kUnfit:
      return "dropped superpackets that are not TCP: switch them off with gradlane accelerator up";
    case Event::kTooLong:
      return "dropped packets that are longer than the MTU: is the MTU of the host's interface larger?";
    case Event::kRefused:
      return "the kernel refuses packets, which are lost";
    case Event::kSeparately:
      return "the kernel refuses superpackets, so their packets are sent one by one, which costs time";
    default:
      return nullptr;
  }
}

Port::Superpackets VnetPort::superpackets() const noexcept {
  return {.received = queue_->times(Event::kCut), .sent = queue_->times(Event::kJoined)};
}

}  // namespace gradlane
