// http_client.h - documents of daemons elsewhere, by HTTP, from whoever it is that answers (one thread)
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "config/config.h"

namespace gradlane {

class HttpClient {
 public:
  static constexpr size_t kMostBody = size_t{4} << 20;

  // `host`: an address or a name.
  HttpClient(std::string host, uint16_t port);

  // For people: 10.77.0.1:9400, [fd00::1]:9400, node-a:9400.
  [[nodiscard]] const std::string& place() const noexcept { return place_; }

  // The body of what is at `path`. Throws SetupError, in a few words without the place, if there is none: whatever the
  // other end does, within `patience` and with at most kMostBody bytes; but a name is looked up for 5 s at most, when
  // nobody has answered before. `stop`: ends it within 100 ms, except a look-up.
  [[nodiscard]] std::string get(const std::string& path, std::chrono::milliseconds patience,
                                const std::stop_token& stop);

 private:
  const std::string host_;
  const uint16_t port_;
  const std::string place_;
  std::vector<IpAddress> ips_;  // of a name; empty: to be looked up
};

}  // namespace gradlane
