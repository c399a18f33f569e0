// session_messages.h - messages of the Unix socket: receiving, checking and sending them, and their texts (control
// thread)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/shared_socket.h"
#include "client/abi.h"
#include "compress/codec.h"
#include "dataplane/trainer/mailbox.h"

namespace gradlane {

struct Incoming {
  enum class Kind : uint8_t { kNothing, kMessage, kFiles, kEnd };
  Kind kind = Kind::kNothing;
  size_t bytes = 0;  // length of the message; larger than `data` if the message was too long
  alignas(8) std::array<std::byte, 256> data{};

  [[nodiscard]] uint32_t type() const noexcept;
  template <typename T>
  [[nodiscard]] T as() const noexcept {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(data));
    T message;
    std::memcpy(&message, data.data(), sizeof(T));
    return message;
  }
};

// Receives one message, if there is one. One with files stays in the socket: Kind::kFiles.
[[nodiscard]] Incoming receive_message(const SharedSocket& socket) noexcept;

// Checks type, size and magic of a client's message. Returns a text that says what is wrong, or an empty one.
[[nodiscard]] std::string fault_of(const Incoming& message);
[[nodiscard]] std::string_view message_name(uint32_t type) noexcept;

// Sends a message without blocking. Returns false if the client does not read, or is gone.
[[nodiscard]] bool send_bytes(int fd, std::span<const uint8_t> bytes, std::span<const int> fds) noexcept;
template <typename T>
[[nodiscard]] bool send_message(int fd, const T& message, std::span<const int> fds = {}) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  return send_bytes(fd, {reinterpret_cast<const uint8_t*>(&message), sizeof(T)}, fds);
}
// Sends a gl_text. Text that does not fit is cut off. `version`, `world` and `no_codec` are fields of gl_text.
[[nodiscard]] bool send_text(int fd, gl_message_type type, std::string_view text, uint32_t version = 0,
                             uint32_t world = 0, bool no_codec = false) noexcept;

// Copies as much of `text` as fits and fills the rest with 0. The last byte is always 0.
void copy_text(std::span<char> out, std::string_view text) noexcept;

// Returns what a codec can do, as GL_CODEC_... flags.
[[nodiscard]] uint32_t capabilities(const CodecRow& codec) noexcept;
// Returns the flags of one codec; they may depend on the arguments in its name.
[[nodiscard]] uint32_t capabilities(const Codec& codec) noexcept;

// Returns the error text for a fault that a lane has reported.
[[nodiscard]] std::string fault_text(const FaultReport& report, TrainerFault fault, unsigned lane);

}  // namespace gradlane
