// pair_keys.cc - keys for pairs of nodes, agreed on through the program that starts the daemons (set-up only)
#include "dataplane/node/pair_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"
#include "config/values.h"
#include "dataplane/secure/key_agreement.h"

namespace gradlane {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLongestLine = 80;

[[noreturn]] void fail_pairs(const std::string& what) {
  throw SetupError(fmt::format("auth.key_file {}: {}", kPairKeyFile, what));
}

// Returns the next line of `in` without its newline. `rest` has what was read of later lines.
std::string read_line(int in, std::string& rest, Clock::time_point until) {
  while (true) {
    if (const size_t end = rest.find('\n'); end != std::string::npos) {
      std::string line = rest.substr(0, end);
      rest.erase(0, end + 1);
      return line;
    }
    if (rest.size() > kLongestLine) fail_pairs("a line of standard input is too long, allowed: NODE KEY");
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd watched{in, POLLIN, 0};
    if (left <= 0) fail_pairs("the public keys of all nodes have not come on standard input in time");
    if (poll(&watched, 1, static_cast<int>(left)) <= 0) continue;
    std::array<char, 4096> bytes;
    const ssize_t got = read(in, bytes.data(), bytes.size());
    if (got == 0) fail_pairs("standard input has ended before the public keys of all nodes have come");
    if (got < 0 && errno != EINTR) fail_pairs(fmt::format("standard input: {}", std::strerror(errno)));
    if (got > 0) rest.append(bytes.data(), static_cast<size_t>(got));
  }
}

std::optional<PublicKey> public_key_of(std::string_view hex) {
  PublicKey key;
  if (hex.size() != 2 * key.size()) return std::nullopt;
  for (size_t i = 0; i < key.size(); ++i) {
    const char* const from = hex.data() + 2 * i;
    if (std::from_chars(from, from + 2, key[i], 16).ptr != from + 2) return std::nullopt;
  }
  return key;
}

}  // namespace

PairKeys agree_on_keys(const NodeConfig& config, int in, int out, std::chrono::seconds patience) {
  const KeyAgreement own;
  const std::string line = fmt::format("key {:02x}\n", fmt::join(own.public_key(), ""));
  if (write(out, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    fail_pairs(fmt::format("standard output: {}", std::strerror(errno)));
  }
  PairKeys keys(config.nodes.size());
  std::string rest;
  const Clock::time_point until = Clock::now() + patience;
  for (size_t missing = keys.size() - 1; missing != 0;) {
    const std::string text = read_line(in, rest, until);
    const size_t space = std::min(text.find(' '), text.size());
    const auto node = parse_whole(text.substr(0, space));
    const auto key = public_key_of(std::string_view(text).substr(std::min(space + 1, text.size())));
    if (!node || !key || *node >= keys.size()) {
      fail_pairs(fmt::format("a line of standard input is not NODE KEY, with a node below {} and 64 hexadecimal digits",
                             keys.size()));
    }
    if (*node == config.rank) {
      if (*key != own.public_key())
        fail_pairs(fmt::format("standard input has another public key for this node, {}", *node));
      continue;
    }
    if (*key == own.public_key())
      fail_pairs(fmt::format("standard input has this node's public key for node {}", *node));
    if (keys[*node]) fail_pairs(fmt::format("standard input has two public keys for node {}", *node));
    keys[*node].emplace(own.key_with(*key));
    --missing;
  }
  return keys;
}

}  // namespace gradlane
