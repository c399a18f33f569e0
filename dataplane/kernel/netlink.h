// netlink.h - messages to the kernel by netlink, and its answers (control thread only; no DPDK)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"

namespace gradlane {

// A message under construction: a header, a fixed part and attributes.
class NetlinkMessage {
 public:
  NetlinkMessage(unsigned type, unsigned flags);

  template <class Part>
  NetlinkMessage& put(const Part& part) {
    return put_bytes({reinterpret_cast<const uint8_t*>(&part), sizeof(Part)});
  }
  NetlinkMessage& put_bytes(std::span<const uint8_t> bytes);

  NetlinkMessage& attribute(unsigned type, std::span<const uint8_t> value);
  NetlinkMessage& text(unsigned type, const std::string& value);         // adds a zero at its end
  NetlinkMessage& number(unsigned type, uint32_t value);                 // in the CPU's byte order, for rtnetlink
  NetlinkMessage& network_number(unsigned type, uint32_t value);         // big-endian, for nftables
  NetlinkMessage& nest(unsigned type, const std::function<void()>& in);  // contains the attributes that `in` adds

  // Returns the complete message, with this sequence number.
  [[nodiscard]] std::span<const uint8_t> bytes(uint32_t sequence);

 private:
  std::vector<uint8_t> bytes_;
};

// Returns the value of the first attribute of that type. The value is empty if there is none or if it has no bytes.
[[nodiscard]] std::span<const uint8_t> netlink_attribute(std::span<const uint8_t> attributes, unsigned type);
// Calls visit(type, value) for each attribute.
void for_each_attribute(std::span<const uint8_t> attributes,
                        const std::function<void(unsigned, std::span<const uint8_t>)>& visit);

// Returns the value at offset `at`, or zeros if there are not enough bytes.
template <class T>
[[nodiscard]] T load_at(std::span<const uint8_t> bytes, size_t at = 0) {
  T value{};
  if (at + sizeof(T) <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

class NetlinkSocket {
 public:
  // A function that takes the type of a kernel message and the bytes after its header.
  using Visit = std::function<void(unsigned type, std::span<const uint8_t> payload)>;

  // Throws SetupError.
  explicit NetlinkSocket(int protocol);

  // Sends all messages at once, and calls `visit` for each answer except acknowledgements. Returns 0, or the errno of
  // the first message that failed.
  [[nodiscard]] int exchange(std::span<NetlinkMessage> messages, const Visit& visit = nullptr);
  [[nodiscard]] int exchange(NetlinkMessage message, const Visit& visit = nullptr) {
    return exchange({&message, 1}, visit);
  }
  // join() subscribes to a group. receive() passes the messages of the group that have arrived to `visit`. Both return
  // 0 or errno; ENOBUFS means that some messages were lost.
  [[nodiscard]] int join(int group);
  [[nodiscard]] int receive(const Visit& visit);

 private:
  FileDescriptor fd_;
  uint32_t sequence_ = 0;
};

}  // namespace gradlane
