// netlink.h - messages to the kernel's netlink, and what it answers (control thread only; no DPDK)
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

// One that is being put together: header, a fixed part, attributes.
class NetlinkMessage {
 public:
  NetlinkMessage(unsigned type, unsigned flags);

  template <class Part>
  NetlinkMessage& put(const Part& part) {
    return put_bytes({reinterpret_cast<const uint8_t*>(&part), sizeof(Part)});
  }
  NetlinkMessage& put_bytes(std::span<const uint8_t> bytes);

  NetlinkMessage& attribute(unsigned type, std::span<const uint8_t> value);
  NetlinkMessage& text(unsigned type, const std::string& value);         // with a zero behind it
  NetlinkMessage& number(unsigned type, uint32_t value);                 // as the CPU has it: rtnetlink
  NetlinkMessage& network_number(unsigned type, uint32_t value);         // big-endian: nftables
  NetlinkMessage& nest(unsigned type, const std::function<void()>& in);  // what `in` adds is inside

  // Whole, with that sequence number.
  [[nodiscard]] std::span<const uint8_t> bytes(uint32_t sequence);

 private:
  std::vector<uint8_t> bytes_;
};

// The value of the first attribute of that type; empty: there is none, or nothing in it.
[[nodiscard]] std::span<const uint8_t> netlink_attribute(std::span<const uint8_t> attributes, unsigned type);
// Each of them: visit(type, value).
void for_each_attribute(std::span<const uint8_t> attributes,
                        const std::function<void(unsigned, std::span<const uint8_t>)>& visit);

// At the beginning of bytes; zeros where there are not enough.
template <class T>
[[nodiscard]] T load_at(std::span<const uint8_t> bytes, size_t at = 0) {
  T value{};
  if (at + sizeof(T) <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

class NetlinkSocket {
 public:
  // What a message of the kernel's has behind its header.
  using Visit = std::function<void(unsigned type, std::span<const uint8_t> payload)>;

  // Throws SetupError.
  explicit NetlinkSocket(int protocol);

  // Sends all at once, and hands over what comes back but acknowledgements. 0, or why the first of them failed (errno).
  [[nodiscard]] int exchange(std::span<NetlinkMessage> messages, const Visit& visit = nullptr);
  [[nodiscard]] int exchange(NetlinkMessage message, const Visit& visit = nullptr) {
    return exchange({&message, 1}, visit);
  }
  // Joins a group whose messages receive() hands over, as far as they have come. errno; ENOBUFS: some were lost.
  [[nodiscard]] int join(int group);
  [[nodiscard]] int receive(const Visit& visit);

 private:
  FileDescriptor fd_;
  uint32_t sequence_ = 0;
};

}  // namespace gradlane
