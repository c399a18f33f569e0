// testbed.cc - a ring with a trainer for each rank, for faults while operations are in flight
#include "tests/stack/testbed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

namespace gradlane::test {
namespace {

constexpr size_t kCount = 10'000;              // floats of an operation in flight
constexpr Nanos kPump = 10 * kMicrosecond;     // interval in which trainers test their operations
constexpr Nanos kPatience = 40 * kSecond;      // longer than any time-out of the daemons
constexpr Nanos kAgain = 20 * kMillisecond;    // pause of a trainer before it tries again
constexpr Nanos kSpread = 500 * kMillisecond;  // range of the start times of trainers that recover alone

StackConfig config_for(const RingSetup& setup, uint64_t seed) {
  return {.nodes = setup.nodes,
          .spare = 0,
          .strategies = setup.strategies,
          .seed = seed,
          .change = [setup](NodeConfig& it) {
            it.lanes = setup.lanes;
            it.trainers = setup.trainers;
            it.local_reduce = setup.local_reduce;
            it.peer_timeout = Testbed::kPeer;
            it.start_timeout = 20 * kSecond;
            it.operation_timeout = 15 * kSecond;
          }};
}

}  // namespace

Ranks named_ranks(const std::string& text) {
  static const std::regex name("\\brank (\\d+)\\b");
  Ranks ranks;
  for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it) {
    ranks.insert(static_cast<unsigned>(std::stoul((*it)[1])));
  }
  return ranks;
}

Testbed::Testbed(const RingSetup& setup, uint64_t seed)
    : setup_(setup),
      random_(seed),
      stack_(config_for(setup, seed)),
      trainers_(stack_.world()),
      must_open_(stack_.world(), true),
      number_(1 + random_.below(1000)) {
  stack_.network().set_faults(setup.faults);
  all_right();
}

Ranks Testbed::everyone() const {
  Ranks all;
  for (unsigned rank = 0; rank < stack_.world(); ++rank) all.insert(rank);
  return all;
}

Ranks Testbed::ranks_of(unsigned node) const {
  Ranks ranks;
  for (const unsigned rank : everyone()) {
    if (stack_.node_of(rank) == node) ranks.insert(rank);
  }
  return ranks;
}

Ranks Testbed::names_of(const Ranks& ranks) const {
  if (!setup_.local_reduce) return ranks;
  Ranks nodes;
  for (const unsigned rank : ranks) nodes.insert(stack_.node_of(rank));
  return nodes;
}

// ---- Trainers

void Testbed::new_trainer(unsigned rank) {
  trainers_[rank].reset();
  must_open_[rank] = true;
}

void Testbed::open() {
  for (unsigned rank = 0; rank < trainers_.size(); ++rank) {
    if (!must_open_[rank]) continue;
    trainers_[rank].reset();
    trainers_[rank] = std::make_unique<Trainer>(stack_, rank);
    ASSERT_TRUE(trainers_[rank]->is_open()) << trainers_[rank]->error();
    must_open_[rank] = false;
  }
}

void Testbed::check(unsigned rank, uint64_t step, const Data& data, std::span<const float> sum, bool exact) {
  if (exact) {
    EXPECT_EQ(data.wrong(step, sum), 0U) << "rank " << rank << ": elements of step " << step << " are wrong";
  }
  const uint64_t digest = digest_of(sum);
  const auto [first, is_first] = digests_.try_emplace(step, digest);
  EXPECT_EQ(first->second, digest) << "rank " << rank << ": step " << step
                                   << " is another one than on the ranks before";
}

// ---- Streams

void Testbed::new_streams(bool one) {
  ++number_;
  data_ = std::make_unique<Data>(stack_.world(), number_, kCount);
  ahead_ = one ? 1 : 2 + static_cast<unsigned>(number_ % 3);
  stop_at_.reset();
  digests_.clear();
  streams_.clear();
}

void Testbed::submit(unsigned rank, Stream& stream) {
  Trainer& trainer = *trainers_[rank];
  while (stream.pending.size() < ahead_ && !(stop_at_ && stream.begun >= *stop_at_)) {
    const auto array = trainer.array(static_cast<unsigned>(stream.begun % ahead_), kCount);
    data_->fill(rank, stream.begun, array);
    const std::optional<uint64_t> tag = setup_.own_tags ? std::optional((number_ << 20) + stream.begun) : std::nullopt;
    const gradlane_request request = trainer.all_reduce(array, {.codec = setup_.codec, .tag = tag});
    if (request == 0) {
      note(rank, stream, {GRADLANE_DAEMON_GONE, trainer.error(), stack_.now()});
      return;
    }
    stream.pending.push_back(request);
    ++stream.begun;
  }
}

void Testbed::note(unsigned rank, Stream& stream, const Outcome& ended) {
  stream.failed = true;
  stream.failures.push_back(ended);
  if (ended.code == GRADLANE_DAEMON_GONE || ended.code == GRADLANE_NO_DAEMON) must_open_[rank] = true;
}

void Testbed::pump(unsigned rank) {
  Stream& stream = streams_.at(rank);
  Trainer* const trainer = trainers_[rank].get();
  if (trainer == nullptr) return;
  if (!stream.failed && !stream.one) submit(rank, stream);
  while (!stream.pending.empty()) {
    const Outcome ended = trainer->test(stream.pending.front());
    if (ended.code == GRADLANE_PENDING) return;
    stream.pending.pop_front();
    if (ended.code != GRADLANE_OK) {
      note(rank, stream, ended);
      continue;
    }
    if (!stream.failed) {
      const auto array = trainer->array(static_cast<unsigned>(stream.done % ahead_), kCount);
      check(rank, stream.done, *data_, array, setup_.exact);
    }
    ++stream.done;
    if (stream.ended_at != 0) stream.pause = std::max(stream.pause, ended.at - stream.ended_at);
    stream.ended_at = ended.at;
    if (!stream.failed && !stream.one) submit(rank, stream);
  }
}

void Testbed::pump() {
  if (stack_.now() < pump_at_) return;
  pump_at_ = stack_.now() + kPump;
  for (const auto& [rank, stream] : streams_) pump(rank);
}

bool Testbed::pumped_until(const std::function<bool()>& is_so, Nanos time) {
  return stack_.run_until(
      [&] {
        pump();
        return is_so();
      },
      time);
}

void Testbed::expect_steps(unsigned count) {
  std::map<unsigned, uint64_t> until;
  for (const auto& [rank, stream] : streams_) until[rank] = stream.done + count;
  EXPECT_TRUE(pumped_until(
      [&] { return std::ranges::all_of(streams_, [&](const auto& it) { return it.second.done >= until[it.first]; }); },
      kPatience))
      << "no steps";
}

void Testbed::stream() {
  new_streams(false);
  for (const unsigned rank : everyone()) streams_[rank];
  expect_steps(2);
  const Nanos end = stack_.now() + random_.below(300 * kMicrosecond);
  (void)pumped_until([&] { return stack_.now() >= end; }, kSecond);
}

Nanos Testbed::stop_stream() {
  uint64_t most = 0;
  for (const auto& [rank, stream] : streams_) most = std::max(most, stream.begun);
  stop_at_ = most;
  const auto is_over = [&](const auto& it) { return it.second.failed || it.second.done == most; };
  EXPECT_TRUE(pumped_until([&] { return std::ranges::all_of(streams_, is_over); }, kPatience));
  Nanos pause = 0;
  for (const auto& [rank, stream] : streams_) {
    EXPECT_FALSE(stream.failed) << "rank " << rank << ": " << stream.failures.front().text;
    pause = std::max(pause, stream.pause);
  }
  return pause;
}

void Testbed::begin(const Ranks& ranks) {
  new_streams(true);
  for (const unsigned rank : ranks) {
    Stream& stream = streams_[rank];
    submit(rank, stream);
    stream.one = true;
  }
}

std::map<unsigned, Failures> Testbed::failures(const Ranks& ranks) {
  const auto is_over = [&](unsigned rank) { return streams_.at(rank).failed && streams_.at(rank).pending.empty(); };
  EXPECT_TRUE(pumped_until([&] { return std::ranges::all_of(ranks, is_over); }, kPatience)) << "no errors";
  std::map<unsigned, Failures> all;
  for (const unsigned rank : ranks) all[rank] = {streams_.at(rank).failures};
  return all;
}

// ---- After the error

void Testbed::one_of_each(const char* codec) {
  ++number_;
  digests_.clear();
  const Data data(stack_.world(), number_, kCount);
  std::vector<gradlane_request> requests;
  for (const auto& it : trainers_) {
    const auto array = it->array(0, kCount);
    data.fill(it->rank(), number_, array);
    requests.push_back(
        it->all_reduce(array, {.codec = codec, .tag = setup_.own_tags ? std::optional(number_ << 20) : std::nullopt}));
    ASSERT_NE(requests.back(), 0U) << it->error();
  }
  for (const auto& it : trainers_) {
    const Outcome ended = it->wait(requests[it->rank()]);
    EXPECT_EQ(ended.code, GRADLANE_OK) << "rank " << it->rank() << ": " << codec << ": " << ended.text;
    if (ended.code == GRADLANE_OK) check(it->rank(), number_, data, it->array(0, kCount), true);
  }
}

void Testbed::all_right() {
  open();
  if (testing::Test::HasFatalFailure()) return;
  ++number_;
  for (const auto& it : trainers_) it->resume(number_ << 20);
  stack_.run_for(kMillisecond);  // time for all ranks to learn of a generation that resume() has ended
  for (const char* const codec : {"raw", "fixed:10"}) one_of_each(codec);
}

void Testbed::recover_alone(std::optional<unsigned> late) {
  struct Try {
    Nanos at = 0;
    gradlane_request request = 0;
    bool done = false;
  };
  ++number_;
  digests_.clear();
  const Data data(stack_.world(), number_, kCount);
  std::vector<Try> tries(trainers_.size());
  for (unsigned rank = 0; rank < tries.size(); ++rank) {
    tries[rank].at = stack_.now() + (rank == late ? kSecond + kSpread : random_.below(kSpread));
  }
  const auto begin = [&](unsigned rank, Try& it) {
    if (must_open_[rank] || trainers_[rank] == nullptr) {
      trainers_[rank].reset();
      trainers_[rank] = std::make_unique<Trainer>(stack_, rank);
      ASSERT_TRUE(trainers_[rank]->is_open()) << trainers_[rank]->error();
      must_open_[rank] = false;
    }
    Trainer& trainer = *trainers_[rank];
    if (!setup_.own_tags) trainer.resume(number_ << 20);
    const auto array = trainer.array(0, kCount);
    data.fill(rank, number_, array);
    it.request = trainer.all_reduce(
        array, {.codec = "raw", .tag = setup_.own_tags ? std::optional(number_ << 20) : std::nullopt});
    if (it.request == 0) must_open_[rank] = true;
  };
  const auto look = [&](unsigned rank, Try& it) {
    if (it.done || stack_.now() < it.at) return;
    if (it.request == 0) return begin(rank, it);
    const Outcome ended = trainers_[rank]->test(it.request);
    if (ended.code == GRADLANE_PENDING) return;
    it.request = 0;
    it.done = ended.code == GRADLANE_OK;
    it.at = stack_.now() + kAgain;
    if (it.done) check(rank, number_, data, trainers_[rank]->array(0, kCount), true);
    must_open_[rank] = ended.code == GRADLANE_DAEMON_GONE;
  };
  EXPECT_TRUE(stack_.run_until(
      [&] {
        if (stack_.now() >= pump_at_) {
          pump_at_ = stack_.now() + kPump;
          for (unsigned rank = 0; rank < tries.size(); ++rank) look(rank, tries[rank]);
        }
        return std::ranges::all_of(tries, &Try::done);
      },
      60 * kSecond))
      << "trainers do not recover";
}

void Testbed::recover() {
  if (setup_.alone || setup_.own_tags) recover_alone();
  all_right();
}

}  // namespace gradlane::test
