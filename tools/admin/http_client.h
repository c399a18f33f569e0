// http_client.h - HTTP client for documents of daemons on other hosts; it does not trust what answers (one thread)
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

  // Returns the host and its port as text for messages: 10.77.0.1:9400, [fd00::1]:9400, node-a:9400.
  [[nodiscard]] const std::string& place() const noexcept { return place_; }

  // Returns the body of the document at `path`. Throws SetupError if that fails; its text is a few words, without host
  // and port. The call ends within `patience`, and the body has at most kMostBody bytes, no matter what the peer does.
  // The first call, and a call after a failed one, look the name up, which takes up to 5 s more. `stop` ends the call
  // within 100 ms, except during a look-up.
  [[nodiscard]] std::string get(const std::string& path, std::chrono::milliseconds patience,
                                const std::stop_token& stop);

 private:
  const std::string host_;
  const uint16_t port_;
  const std::string place_;
  std::vector<IpAddress> ips_;  // addresses of the host; empty if the next call must look them up
};

}  // namespace gradlane
