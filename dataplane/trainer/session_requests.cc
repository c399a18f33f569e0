// session_requests.cc - requests of a trainer, and the answers (control thread)
#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/error.h"
#include "collectives/exchange/coder.h"
#include "compress/codec.h"
#include "dataplane/trainer/session.h"

namespace gradlane {
namespace {

static_assert(GL_NAME == kLongestCodecName + 1);

// Messages of one trainer per step. The limit keeps a flood of them from delaying the other trainers.
constexpr int kMessagesPerStep = 8;

}  // namespace

void Session::refuse(const std::string& why, uint32_t world, bool no_codec) {
  spdlog::debug("{} is refused: {}", who(), why);
  if (!send_text(socket_.get(), GL_MSG_REFUSED, why, 0, world, no_codec)) cut_off(kDoesNotRead);
}

void Session::receive(Nanos now) {
  for (int i = 0; i < kMessagesPerStep && socket_; ++i) {
    const Incoming message = receive_message(socket_);
    switch (message.kind) {
      case Incoming::Kind::kNothing:
        return;
      case Incoming::Kind::kEnd:
        if (slot_) {
          log_.log(spdlog::level::info, who() + " has left" + unfinished());
        } else {
          spdlog::debug("{} has left", who());
        }
        return disconnect();
      case Incoming::Kind::kFiles:
        return cut_off("message with files, which a client must not send");
      case Incoming::Kind::kMessage:
        handle(message, now);
    }
  }
}

void Session::handle(const Incoming& message, Nanos now) {
  const std::string fault = fault_of(message);
  if (!fault.empty()) return cut_off(fault);
  const std::string name(message_name(message.type()));
  if (busy()) return cut_off(name + " before the answer to the previous message");
  const bool is_hello = message.type() == GL_MSG_HELLO;
  if (state_ == State::kNew && !is_hello) return cut_off(name + " before HELLO");
  if (state_ == State::kReady && is_hello) return cut_off("a second HELLO");
  switch (message.type()) {
    case GL_MSG_HELLO:
      return hello(message.as<gl_hello>(), now);
    case GL_MSG_ALLOCATE:
      return allocate(message.as<gl_allocate>());
    case GL_MSG_FREE:
      return free(message.as<gl_segment>());
    default:
      return find(message.as<gl_codec_name>());
  }
}

void Session::hello(const gl_hello& message, Nanos now) {
  if (message.version != GL_ABI_VERSION) {
    const std::string why = "client library has version " + std::to_string(message.version) +
                            ", the daemon has version " + std::to_string(GL_ABI_VERSION) +
                            ": install the library of its release";
    (void)send_text(socket_.get(), GL_MSG_REFUSED, why, GL_ABI_VERSION);
    return cut_off(why);
  }
  wanted_ = message.rank;
  deadline_ = now + kHelloTime;
  state_ = State::kHello;
}

void Session::allocate(const gl_allocate& message) {
  const size_t bytes = message.bytes;
  const size_t page = page_bytes();
  const size_t padding = (page - bytes % page) % page;
  HeldMemory& held = slots_[*slot_].held;
  held.look();
  const size_t left = config_.trainer_memory - std::min(config_.trainer_memory, used_ + held.bytes());
  const auto free = std::find_if(segments_.begin(), segments_.end(), [](const Segment& segment) { return !segment; });
  if (bytes == 0) return refuse("a segment of 0 bytes");
  if (free == segments_.end()) {
    return refuse("there are " + std::to_string(GL_MAX_SEGMENTS) + " segments already, which is the limit");
  }
  if (held.count() >= GL_MAX_SEGMENTS) {
    return refuse("pid " + std::to_string(held.pid()) + " or its children still hold " + std::to_string(held.count()) +
                  " segments that were freed, which is the limit");
  }
  if (bytes > left || left - bytes < padding) {
    const std::string why = std::to_string(bytes) +
                            " bytes, rounded up to whole pages, are too many: " + std::to_string(left) + " of " +
                            std::to_string(config_.trainer_memory) + " are left";
    if (held.count() == 0) return refuse(why + " for this trainer (raise memory.per_trainer of the daemon)");
    return refuse(why + ", because pid " + std::to_string(held.pid()) + " or its children still hold " +
                  std::to_string(held.bytes()) + " that were freed");
  }
  try {
    *free = Segment("gradlane-segment", bytes + padding);
  } catch (const SetupError& error) {
    return refuse(error.what());
  }
  current_ = static_cast<unsigned>(free - segments_.begin());
  used_ += free->bytes();
  state_ = State::kFilling;
}

void Session::free(const gl_segment& message) {
  if (message.id >= GL_MAX_SEGMENTS || !segments_[message.id]) {
    return refuse("there is no segment " + std::to_string(message.id));
  }
  current_ = message.id;
  begin(State::kRemoving, Command::Kind::kRemoveSegment, current_);
}

void Session::find(const gl_codec_name& message) {
  const size_t length = strnlen(message.name, GL_NAME);
  if (length == GL_NAME) return cut_off("FIND_CODEC with a name that does not end");
  try {
    const Codec codec = find_codec(std::string_view(message.name, length));
    if (!fits_packet(codec, packets_.mtu)) {
      return refuse(std::string(packet_fault(codec, packets_.mtu, packets_.around).view()));
    }
    if (config_.local_reduce && codec.row().rounds_once) {
      return refuse(
          codec.name() +
          " would round sums twice, because local_reduce adds up the trainers of a node first: use another "
          "codec, or set `local_reduce: false` on all nodes; GRADLANE_CODEC=exact does so where PyTorch starts "
          "the daemons");
    }
    gl_codec_name found{};
    found.type = GL_MSG_CODEC;
    found.id = static_cast<uint8_t>(codec.id());
    found.states = static_cast<uint8_t>(codec.states());
    found.flags = capabilities(codec);
    found.arguments = std::bit_cast<uint64_t>(codec.arguments());
    copy_text(found.name, codec.name());
    answer(found);
  } catch (const SetupError& error) {
    // The first line is enough: the others explain how names are written, and trainers have a table for that.
    std::string text = error.what();
    text.resize(std::min(text.find('\n'), text.size()));
    refuse(text, 0, true);
  }
}

}  // namespace gradlane
