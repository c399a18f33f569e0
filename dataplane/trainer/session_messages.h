// session_messages.h - messages of the Unix socket: receiving, checking, sending, and what to say (control thread)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "client/abi.h"
#include "compress/codec.h"
#include "dataplane/trainer/mailbox.h"

namespace gradlane {

struct Incoming {
  enum class Kind : uint8_t { kNothing, kMessage, kEnd };
  Kind kind = Kind::kNothing;
  size_t bytes = 0;  // of the message; more than there are in `data` if it was too long
  alignas(8) std::array<uint8_t, 256> data{};

  [[nodiscard]] uint32_t type() const noexcept;
  template <typename T>
  [[nodiscard]] T as() const noexcept {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(data));
    T message;
    std::memcpy(&message, data.data(), sizeof(T));
    return message;
  }
};

// Takes one message, if there is one. File descriptors that came with it are gone.
[[nodiscard]] Incoming receive_message(int fd) noexcept;

// What is wrong with a client's message in itself: type, size, magic. Empty: nothing.
[[nodiscard]] std::string fault_of(const Incoming& message);
[[nodiscard]] std::string_view message_name(uint32_t type) noexcept;

// False: the client does not read, or is gone.
[[nodiscard]] bool send_bytes(int fd, std::span<const uint8_t> bytes, std::span<const int> fds) noexcept;
template <typename T>
[[nodiscard]] bool send_message(int fd, const T& message, std::span<const int> fds = {}) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  return send_bytes(fd, {reinterpret_cast<const uint8_t*>(&message), sizeof(T)}, fds);
}
// What does not fit into a gl_text is cut off. version, world, no_codec: as gl_text's.
[[nodiscard]] bool send_text(int fd, gl_message_type type, std::string_view text, uint32_t version = 0,
                             uint32_t world = 0, bool no_codec = false) noexcept;

// Has the client read what was sent, then the end. (Closed with unread messages, its first read would be an error.)
void end_connection(int fd) noexcept;

// Copies what fits and ends it with 0.
void copy_text(std::span<char> out, std::string_view text) noexcept;

// What a codec can do, GL_CODEC_...
[[nodiscard]] uint32_t capabilities(const CodecRow& codec) noexcept;
// The same of one codec, where these depend on what its name says behind the word.
[[nodiscard]] uint32_t capabilities(const Codec& codec) noexcept;

// A lane's report in words.
[[nodiscard]] std::string fault_text(const FaultReport& report, TrainerFault fault, unsigned lane);

}  // namespace gradlane
