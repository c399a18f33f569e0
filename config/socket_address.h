// socket_address.h - an address and a port in the form that the kernel needs (any thread)
#pragma once

#include <sys/socket.h>

#include "config/config.h"

namespace gradlane {

class SocketAddress {
 public:
  explicit SocketAddress(const IpPort& address) noexcept;

  [[nodiscard]] int family() const noexcept { return storage_.ss_family; }
  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage_); }
  [[nodiscard]] socklen_t bytes() const noexcept { return bytes_; }

 private:
  sockaddr_storage storage_{};
  socklen_t bytes_ = 0;
};

}  // namespace gradlane
