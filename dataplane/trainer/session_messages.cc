// session_messages.cc - messages of the Unix socket: receiving, checking and sending them, and their texts (control
// thread)
#include "dataplane/trainer/session_messages.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

#include "collectives/strategy/strategy_id.h"

namespace gradlane {
namespace {

constexpr size_t kMaxFds = 2 + GL_MAX_LANES;

size_t bytes_of(uint32_t type) noexcept {
  switch (type) {
    case GL_MSG_HELLO:
      return sizeof(gl_hello);
    case GL_MSG_ALLOCATE:
      return sizeof(gl_allocate);
    case GL_MSG_FREE:
      return sizeof(gl_segment);
    case GL_MSG_FIND_CODEC:
      return sizeof(gl_codec_name);
    default:
      return 0;  // clients send no other types
  }
}

// Returns whether the connection has ended. recv() returns 0 for an empty message, too.
bool has_ended(int fd) noexcept {
  pollfd entry{fd, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) != 0;
}

std::string word_of(uint64_t codec) {
  for (const CodecRow& row : codec_table()) {
    if (static_cast<uint64_t>(row.id) == codec) return row.word;
  }
  return "codec " + std::to_string(codec);
}

std::string count_of(uint64_t count, const char* what) { return std::to_string(count) + " " + what; }

}  // namespace

uint32_t Incoming::type() const noexcept { return as<uint32_t>(); }

Incoming receive_message(const SharedSocket& socket) noexcept {
  Incoming message;
  const ssize_t got = socket.receive(message.data, MSG_TRUNC);
  if (got > 0) {
    message.kind = Incoming::Kind::kMessage;
    message.bytes = static_cast<size_t>(got);
  } else if (got == 0) {
    message.kind = has_ended(socket.get()) ? Incoming::Kind::kEnd : Incoming::Kind::kMessage;
  } else if (errno == EPERM) {
    message.kind = Incoming::Kind::kFiles;
  } else if (errno != EAGAIN && errno != EINTR) {
    message.kind = Incoming::Kind::kEnd;
  }
  return message;
}

std::string_view message_name(uint32_t type) noexcept {
  switch (type) {
    case GL_MSG_HELLO:
      return "HELLO";
    case GL_MSG_ALLOCATE:
      return "ALLOCATE";
    case GL_MSG_FREE:
      return "FREE";
    case GL_MSG_FIND_CODEC:
      return "FIND_CODEC";
    default:
      return "message";
  }
}

std::string fault_of(const Incoming& message) {
  if (message.bytes < sizeof(uint32_t)) return "message of " + count_of(message.bytes, "bytes, too short for a type");
  const uint32_t type = message.type();
  const size_t wanted = bytes_of(type);
  if (wanted == 0) {
    return "message of type " + std::to_string(type) + " (" + count_of(message.bytes, "bytes") +
           "), which a client must not send";
  }
  if (type == GL_MSG_HELLO && message.bytes >= offsetof(gl_hello, rank)) {
    const gl_hello hello = message.as<gl_hello>();
    if (hello.magic != GL_MAGIC) return "HELLO with magic " + std::to_string(hello.magic) + ", which is not gradlane's";
    // The answer will name both versions. Another version may have another size.
    if (hello.version != GL_ABI_VERSION) return {};
  }
  if (message.bytes != wanted) {
    return std::string(message_name(type)) + " of " + count_of(message.bytes, "bytes, not ") + std::to_string(wanted);
  }
  return {};
}

bool send_bytes(int fd, std::span<const uint8_t> bytes, std::span<const int> fds) noexcept {
  assert(fds.size() <= kMaxFds);
  iovec part{const_cast<uint8_t*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<uint8_t, CMSG_SPACE(kMaxFds * sizeof(int))> control{};
  if (!fds.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  return sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

void copy_text(std::span<char> out, std::string_view text) noexcept {
  const size_t bytes = std::min(text.size(), out.size() - 1);
  std::memcpy(out.data(), text.data(), bytes);
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(bytes), out.end(), '\0');
}

bool send_text(int fd, gl_message_type type, std::string_view text, uint32_t version, uint32_t world,
               bool no_codec) noexcept {
  gl_text message{};
  message.type = type;
  message.version = version;
  message.world = world;
  message.no_codec = no_codec ? 1 : 0;
  copy_text(message.text, text);
  return send_message(fd, message);
}

uint32_t capabilities(const CodecRow& codec) noexcept {
  const std::pair<bool, uint32_t> all[] = {
      {codec.exact(), GL_CODEC_EXACT},
      {codec.feedback, GL_CODEC_FEEDBACK},
      {codec.exact_sums, GL_CODEC_EXACT_SUMS},
      {codec.adaptive, GL_CODEC_ADAPTIVE},
      {!codec.is_additive, GL_CODEC_OWNED},
      {codec.agreement != Agreement::kNone, GL_CODEC_AGREES},
      {codec.passes != 0, GL_CODEC_LOOKS},
      {codec.has_rate, GL_CODEC_RATE},
      {codec.takes_lattice, GL_CODEC_LATTICE},
      {codec.unbiased, GL_CODEC_UNBIASED},
      {codec.serves != Serves::kFloat32, GL_CODEC_HALVES},
      {codec.rounds_once, GL_CODEC_ROUNDS_ONCE},
  };
  uint32_t flags = 0;
  for (const auto& [has, flag] : all) flags |= has ? flag : 0;
  return flags;
}

uint32_t capabilities(const Codec& codec) noexcept {
  const uint32_t flags = capabilities(codec.row()) & ~(GL_CODEC_FEEDBACK | GL_CODEC_EXACT_SUMS);
  return flags | (codec.has_feedback() ? GL_CODEC_FEEDBACK : 0) | (codec.exact_sums() ? GL_CODEC_EXACT_SUMS : 0);
}

std::string fault_text(const FaultReport& report, TrainerFault fault, unsigned lane) {
  const std::string a = std::to_string(report.a);
  const std::string b = std::to_string(report.b);
  const std::string c = std::to_string(report.c);
  const std::string where = " (ring of lane " + std::to_string(lane) + ")";
  switch (fault) {
    case TrainerFault::kNone:
      break;
    case TrainerFault::kRingCounts:
      return "head " + a + " and tail " + b + " are more than the " + std::to_string(GL_SLOTS) +
             " entries of a ring apart" + where;
    case TrainerFault::kBadKind:
      return "no operation has kind " + a + " and type " + b + where;
    case TrainerFault::kBadCodec:
      return "no codec has id " + a + " and arguments " + b + where;
    case TrainerFault::kBadSegment:
      return "operation names segment " + a + ", which does not exist" + where;
    case TrainerFault::kOutOfBounds:
      return "operation on " + b + " bytes at offset " + a + " of a segment of " + c + where;
    case TrainerFault::kTooLarge:
      return "tensor of " + a + " bytes, at most " + b + " are allowed (exchange.max_tensor)" + where;
    case TrainerFault::kBadStrategy: {
      const auto id = strategy_of(static_cast<uint32_t>(report.a));
      const std::string name = id ? std::string(id->name().view()) : "of code " + a;
      return "strategy " + name + " is not allowed (strategies), or cannot do operations of kind " + b + where;
    }
    case TrainerFault::kDoesNotAdd: {
      const auto id = strategy_of(static_cast<uint32_t>(report.b));
      return word_of(report.a) + " does not add: use strategy direct or aggregator, not " +
             (id ? std::string(id->name().view()) : "of code " + b) + where;
    }
    case TrainerFault::kNoLinks:
      return "codec " + word_of(report.a) + " needs links between all nodes: add `direct` to `strategies`" + where;
    case TrainerFault::kBadOperation:
      return "bad operation, one of: average of integers, minimum without sum, unknown root, unused residual, "
             "way back without aggregator, overlapping data, not for local_reduce" +
             where;
  }
  return "unknown fault " + std::to_string(static_cast<uint32_t>(fault)) + where;
}

}  // namespace gradlane
