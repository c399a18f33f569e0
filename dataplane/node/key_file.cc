// key_file.cc - the file with the key that all nodes of a ring share (control thread only)
#include "dataplane/node/key_file.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <spdlog/fmt/fmt.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/error.h"
#include "base/file_descriptor.h"

namespace gradlane {
namespace {

// Bytes that are erased from memory at the end.
template <typename T, size_t kSize>
struct Secret : std::array<T, kSize> {
  ~Secret() { OPENSSL_cleanse(this->data(), kSize * sizeof(T)); }
};

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw SetupError(fmt::format("{}: {}", name, why));
}

void check_owner(const FileDescriptor& key, const std::string& name) {
  struct stat status {};
  if (!key || fstat(key.get(), &status) != 0) {
    refuse(name, fmt::format("cannot be read: {}; to make one: gradlane key new FILE", std::strerror(errno)));
  }
  if (!S_ISREG(status.st_mode)) refuse(name, "is not a regular file");
  if ((status.st_mode & 077) != 0) {
    refuse(name, fmt::format("its mode is {:04o}, so other users may access the key, allowed: 0600 and less; "
                             "chmod 600 it, and make a new key if someone may have read it",
                             status.st_mode & 07777));
  }
  if (status.st_uid != 0 && status.st_uid != geteuid()) {
    refuse(name, fmt::format("belongs to uid {}, allowed: uid 0 (root), or uid {}, which runs this program",
                             status.st_uid, geteuid()));
  }
}

int digit_of(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_space(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

RingKey read_key_file(const std::string& path, const std::string& name) {
  return read_key_file(FileDescriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)), name);
}

RingKey read_key_file(const FileDescriptor& file, const std::string& name) {
  check_owner(file, name);
  Secret<char, 2 * RingKey::kMostBytes + 16> buffer{};
  const ssize_t count = pread(file.get(), buffer.data(), buffer.size(), 0);
  if (count < 0) refuse(name, fmt::format("cannot be read: {}", std::strerror(errno)));

  // Messages must not show any of the text.
  std::span<const char> text(buffer.data(), static_cast<size_t>(count));
  while (!text.empty() && is_space(text.back())) text = text.first(text.size() - 1);
  constexpr const char* kAllowed =
      "allowed: 64 to 1024 hexadecimal digits, two for each byte, as gradlane key new writes";
  if (!std::ranges::all_of(text, [](char c) { return digit_of(c) >= 0; })) {
    refuse(name, fmt::format("has characters that are not hexadecimal digits, {}", kAllowed));
  }
  if (text.size() % 2 != 0 || text.size() < 2 * RingKey::kLeastBytes || text.size() > 2 * RingKey::kMostBytes) {
    refuse(name, fmt::format("has {} digits, {}", text.size(), kAllowed));
  }
  Secret<uint8_t, RingKey::kMostBytes> secret{};
  for (size_t i = 0; i < text.size() / 2; ++i) {
    secret[i] = static_cast<uint8_t>(digit_of(text[2 * i]) << 4 | digit_of(text[2 * i + 1]));
  }
  return RingKey(std::span<const uint8_t>(secret).first(text.size() / 2));
}

RingKey make_key_file(const std::string& path) {
  Secret<uint8_t, RingKey::kLeastBytes> key{};
  while (getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
  }
  Secret<char, 2 * RingKey::kLeastBytes + 1> text{};
  for (size_t i = 0; i < key.size(); ++i) {
    text[2 * i] = "0123456789abcdef"[key[i] >> 4];
    text[2 * i + 1] = "0123456789abcdef"[key[i] & 15];
  }
  text.back() = '\n';
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file && errno == EEXIST) refuse(path, "is there already; a key is never overwritten");
  if (!file || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      fsync(file.get()) != 0) {
    refuse(path, fmt::format("cannot be written: {}", std::strerror(errno)));
  }
  return RingKey(std::span<const uint8_t>(key));
}

}  // namespace gradlane
