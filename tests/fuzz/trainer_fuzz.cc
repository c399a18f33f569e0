// trainer_fuzz.cc - libFuzzer target: a trainer that writes anything into its shared memory, and others that do not
//
// Aborts if a lane does not release a trainer's memory, or if a job of new trainers does not work afterwards. All
// shared memory lies between guard pages. Input: byte 0 chooses the number of nodes, of trainers per node, and of
// lanes. Actions follow, each a byte and its arguments.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "tests/dataplane/trainer/trainer_fixture.h"

namespace gradlane::test::trainer_fuzz {
namespace {

constexpr size_t kSegmentBytes = 8192;
constexpr Nanos kTimeout = 2 * kMillisecond;
constexpr int kMostActions = 200;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "trainer_fuzz: %s\n", what);
  std::abort();
}

class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  template <class T>
  T take() {
    T value{};
    const size_t length = std::min(sizeof(value), bytes_.size());
    if (length != 0) std::memcpy(&value, bytes_.data(), length);
    bytes_ = bytes_.subspan(length);
    return value;
  }

 private:
  std::span<const uint8_t> bytes_;
};

class Play {
 public:
  Play(const TrainerConfig& config, Input input) : world_(config), input_(input) {
    for (unsigned rank = 0; rank < world_.ranks(); ++rank) {
      trainers_.push_back(std::make_unique<Trainer>(world_, rank / config.trainers, rank % config.trainers));
      come(rank);
    }
  }

  void run() {
    for (int i = 0; i < kMostActions && !input_.empty(); ++i) act();
    for (const auto& it : trainers_) {
      if (!world_.run_until([&] { return it->done(); }, kSecond)) fail("a command is not done");
      it->detach();
      it->forget_faults();
    }
    if (!world_.idle()) fail("operations of trainers that have gone are in flight");
    world_.run_for(kMillisecond);  // ranks receive each other's last packets
    full_job();
  }

 private:
  void come(unsigned rank) {
    trainers_[rank]->attach();
    trainers_[rank]->add_segment(0, kSegmentBytes);
  }

  void act() {
    Trainer& bad = *trainers_[0];
    switch (input_.take<uint8_t>() % 10) {
      case 0:  // random bytes anywhere in the shared memory
        spoil();
        break;
      case 1: {  // a random submission
        bad.put(input_.take<uint8_t>() % world_.config().lanes, input_.take<gl_submission>());
        break;
      }
      case 2:  // a valid submission
        bad.submit(submission());
        break;
      case 3:
        bad.submit(encoded());
        break;
      case 4:
        bad.cancel(input_.take<uint8_t>());
        break;
      case 5:  // an action of another trainer
        polite();
        break;
      case 6:
        world_.run_for(input_.take<uint8_t>() * kMicrosecond);
        break;
      case 7:
        bad.read();
        break;
      case 8:
        change_segments();
        break;
      case 9:
        if (!bad.done()) break;
        bad.detach();
        bad.forget_faults();
        come(0);
        std::ranges::fill(has_, false);
        break;
    }
    if (!bad.done()) world_.step();
  }

  void spoil() {
    const size_t at = input_.take<uint16_t>() % gl_control_bytes(world_.config().lanes);
    auto* const memory = reinterpret_cast<uint8_t*>(&trainers_[0]->control());
    const size_t length = std::min<size_t>(input_.take<uint8_t>() % 64, gl_control_bytes(world_.config().lanes) - at);
    for (size_t i = 0; i < length; ++i) memory[at + i] = input_.take<uint8_t>();
  }

  gl_submission submission() {
    const bool shares = world_.config().trainers == 1;
    const auto kind = static_cast<OpKind>(input_.take<uint8_t>() % 5);
    gl_submission it = submission_of(kind, static_cast<ElementType>(input_.take<uint8_t>() % 7), 0);
    if (!shares && (kind == OpKind::kReduceScatter || kind == OpKind::kAllGather)) it.kind = GL_ALL_REDUCE;
    it.count = input_.take<uint16_t>() % 256;
    it.offset = input_.take<uint8_t>();
    const unsigned more = input_.take<uint8_t>();
    if (kind == OpKind::kBroadcast) it.root = more % world_.ranks();
    const std::vector<StrategyId>& strategies = world_.config().strategies;
    const StrategyId& strategy = strategies[more / 4 % strategies.size()];
    const auto submitted = static_cast<OpKind>(it.kind);
    if (more >= 128 && supports(strategy, submitted)) it.strategy = strategy.code();
    if (reduces(submitted)) it.flags = more % 8 == 7 ? GL_FLAG_MIN : more % 8 == 6 ? GL_FLAG_MAX : 0;
    return it;
  }

  // Returns a submission with an encoded contribution of any bytes, a result as runs, or both.
  gl_submission encoded() {
    constexpr size_t kContribution = 1024, kRuns = 4096;  // places in segment 0
    gl_submission it = submission_of(OpKind::kAllReduce, ElementType::kFloat32, input_.take<uint16_t>() % 256);
    const unsigned more = input_.take<uint8_t>();
    if (more % 4 != 0) {
      it.flags |= GL_FLAG_ENCODED;
      it.residual_offset = kContribution;
      it.encoded_bytes = input_.take<uint16_t>() % (kRuns - kContribution);
      it.encoded_first = input_.take<uint8_t>();
      it.encoded_count = it.encoded_first + it.count + input_.take<uint8_t>();
      const size_t length = input_.take<uint8_t>();
      for (size_t i = 0; i < length; ++i) trainers_[0]->segment(0)[kContribution + i] = input_.take<uint8_t>();
    }
    if (more % 4 < 3) {
      it.flags |= GL_FLAG_RUNS;
      it.runs_offset = kRuns;
    }
    if (more >= 128) {
      const Codec codec = find_codec("fixed:10");
      it.flags |= GL_FLAG_CODEC;
      it.codec = static_cast<uint8_t>(codec.id());
      it.codec_arguments = std::bit_cast<uint64_t>(codec.arguments());
    }
    return it;
  }

  void polite() {
    const unsigned rank = 1 + input_.take<uint8_t>() % 3;
    if (rank >= world_.ranks()) return;
    Trainer& it = *trainers_[rank];
    it.read();
    // The client library has at most GL_SLOTS operations in flight, and queues the others itself.
    if (it.lane(0).submit_tail - it.lane(0).complete_head < GL_SLOTS) it.submit(submission());
  }

  void change_segments() {
    Trainer& bad = *trainers_[0];
    const unsigned segment = 1 + input_.take<uint8_t>() % 3;
    if (!bad.done()) return;
    if (has_[segment]) {
      bad.begin_remove_segment(segment);
    } else {
      bad.add_segment(segment, kSegmentBytes);
    }
    has_[segment] = !has_[segment];
  }

  void full_job() {
    std::vector<uint64_t> cookies;
    for (unsigned rank = 0; rank < world_.ranks(); ++rank) {
      come(rank);
      std::fill_n(trainers_[rank]->segment(0), 400, uint8_t{1});
      cookies.push_back(trainers_[rank]->submit(submission_of(OpKind::kAllReduce, ElementType::kBytes, 400)));
    }
    for (unsigned rank = 0; rank < world_.ranks(); ++rank) {
      Trainer& it = *trainers_[rank];
      if (!world_.run_until([&] { return it.over(cookies[rank]).has_value(); })) fail("a job does not end");
      if (it.over(cookies[rank])->failed != 0) fail(it.over(cookies[rank])->text.c_str());
      if (it.segment(0)[399] != world_.ranks()) fail("a sum is wrong");
    }
  }

  TrainerWorld world_;
  Input input_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
  bool has_[4] = {};
};

}  // namespace
}  // namespace gradlane::test::trainer_fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gradlane::test;
  using namespace gradlane::test::trainer_fuzz;
  if (size < 2) return 0;
  TrainerConfig config;
  config.nodes = 1 + data[0] % 2;
  config.trainers = 1 + data[0] / 2 % 2;
  config.lanes = 1 + data[0] / 4 % 2;
  config.strategies = gradlane::find_strategies("ring,direct,aggregator:0");
  config.operations = 8;
  config.max_bytes = kSegmentBytes;
  config.operation_timeout = kTimeout;
  Play(config, Input({data + 1, size - 1})).run();
  return 0;
}
