// trainers.cc - trainers on a stack: contexts of the library, operations whose results are known, and streams of them
#include "tests/stack/trainers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>

#include "base/random.h"

namespace gradlane::test {
namespace {

constexpr int kConnectMs = 60'000;
constexpr uint64_t kSteps = 16;

}  // namespace

gradlane_how how_of(const How& how) {
  gradlane_how it = GRADLANE_HOW_INIT;
  it.codec = how.codec;
  it.strategy = how.strategy;
  it.has_tag = how.tag ? 1 : 0;
  it.tag = how.tag.value_or(0);
  it.timeout_ms = how.timeout_ms;
  return it;
}

// ---- A trainer

Trainer::Trainer(Stack& stack, unsigned rank) : stack_(stack), rank_(rank) {
  gradlane_options options = GRADLANE_OPTIONS_INIT;
  options.socket = stack.config(stack.node_of(rank)).socket.c_str();
  options.rank = static_cast<int>(rank);
  options.timeout_ms = kConnectMs;
  options.keep_warnings = 1;
  if (gradlane_open(&gl_, &options) != GRADLANE_OK) error_ = gradlane_error(nullptr);
}

Trainer::~Trainer() {
  gradlane_close(gl_);
  stack_.wake_all();
}

std::span<float> Trainer::zeros(size_t count) {
  void* buffer = nullptr;
  if (gradlane_alloc(gl_, count * sizeof(float), &buffer) != GRADLANE_OK) {
    ADD_FAILURE() << "rank " << rank_ << ": " << gradlane_error(gl_);
    return {};
  }
  return {static_cast<float*>(buffer), count};
}

std::span<float> Trainer::array(unsigned number, size_t count) {
  if (!arrays_.contains(number)) arrays_[number] = zeros(count);
  EXPECT_EQ(arrays_[number].size(), count);
  return arrays_[number];
}

gradlane_request Trainer::begun(gradlane_code code, gradlane_request request) {
  stack_.wake_all();
  if (code == GRADLANE_OK) return request;
  error_ = gradlane_error(gl_);
  return 0;
}

gradlane_request Trainer::all_reduce(std::span<float> data, const How& how) {
  const gradlane_how it = how_of(how);
  gradlane_request request = 0;
  const gradlane_code code = gradlane_all_reduce(gl_, data.data(), data.size(), GRADLANE_FLOAT32, &it, &request);
  return begun(code, request);
}

gradlane_request Trainer::barrier(const How& how) {
  const gradlane_how it = how_of(how);
  gradlane_request request = 0;
  const gradlane_code code = gradlane_barrier(gl_, &it, &request);
  return begun(code, request);
}

Outcome Trainer::ended(gradlane_code code) {
  const bool fine = code == GRADLANE_OK || code == GRADLANE_PENDING;
  return {code, fine ? "" : gradlane_error(gl_), stack_.now()};
}

Outcome Trainer::test(gradlane_request request) { return ended(gradlane_test(gl_, request)); }

Outcome Trainer::wait(gradlane_request request, Nanos time) {
  return ended(gradlane_wait(gl_, request, static_cast<int>(time / kMillisecond)));
}

void Trainer::resume(uint64_t tag) {
  EXPECT_EQ(gradlane_resume(gl_, tag), GRADLANE_OK) << "rank " << rank_ << ": " << gradlane_error(gl_);
  stack_.wake_all();
}

// ---- Data

Data::Data(unsigned world, uint64_t seed, size_t count) : count_(count), sums_(count) {
  for (unsigned rank = 0; rank < world; ++rank) {
    std::vector<float>& own = of_.emplace_back(count);
    Random random(Random::mix(seed, rank));
    float* sum = sums_.data();
    for (float& it : own) *sum++ += it = static_cast<float>(static_cast<int>(random.below(1024)) - 512) / 64;
  }
}

// Most of a test's time goes into these loops. They are not optimized by the compiler, so they use pointers.
void Data::fill(unsigned rank, uint64_t step, std::span<float> out) const {
  const auto more = static_cast<float>(step % kSteps);
  const float* own = of_[rank].data();
  for (float *it = out.data(), *end = it + count_; it != end; ++it, ++own) *it = *own + more;
}

size_t Data::wrong(uint64_t step, std::span<const float> sum) const {
  const auto more = static_cast<float>(of_.size() * (step % kSteps));
  const float* want = sums_.data();
  size_t wrong = 0;
  for (const float *it = sum.data(), *end = it + count_; it != end; ++it, ++want) wrong += *it != *want + more;
  return wrong;
}

uint64_t digest_of(std::span<const float> data) {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(data.data()), data.size_bytes()});
}

// ---- All ranks

TrainerGroup::TrainerGroup(Stack& stack) : stack_(stack), trainers_(stack.world()) {
  for (unsigned rank = 0; rank < stack.world(); ++rank) open(rank);
}

void TrainerGroup::open(unsigned rank) {
  trainers_[rank].reset();
  trainers_[rank] = std::make_unique<Trainer>(stack_, rank);
  ASSERT_TRUE(trainers_[rank]->is_open()) << trainers_[rank]->error();
}

TrainerGroup::Outcomes TrainerGroup::finish(const std::map<unsigned, gradlane_request>& requests) {
  Outcomes outcomes;
  for (const auto& [rank, request] : requests) {
    outcomes[rank] = request == 0 ? Outcome{GRADLANE_DAEMON_GONE, trainers_[rank]->error(), stack_.now()}
                                  : trainers_[rank]->wait(request);
  }
  return outcomes;
}

TrainerGroup::Outcomes TrainerGroup::all_reduce(size_t count, const How& how) {
  ++number_;
  const Data data(stack_.world(), number_, count);
  std::map<unsigned, gradlane_request> requests;
  for (const auto& it : trainers_) {
    if (it == nullptr) continue;
    const auto array = it->array(static_cast<unsigned>(count), count);
    data.fill(it->rank(), number_, array);
    requests[it->rank()] = it->all_reduce(array, how);
  }
  const Outcomes outcomes = finish(requests);
  for (const auto& [rank, ended] : outcomes) {
    if (ended.code != GRADLANE_OK) continue;
    EXPECT_EQ(data.wrong(number_, trainers_[rank]->array(static_cast<unsigned>(count), count)), 0U) << "rank " << rank;
  }
  return outcomes;
}

TrainerGroup::Outcomes TrainerGroup::barrier() {
  std::map<unsigned, gradlane_request> requests;
  for (const auto& it : trainers_) {
    if (it != nullptr) requests[it->rank()] = it->barrier();
  }
  return finish(requests);
}

void TrainerGroup::resume(uint64_t tag) {
  for (const auto& it : trainers_) {
    if (it != nullptr) it->resume(tag);
  }
  stack_.run_for(kMillisecond);  // time for all ranks to learn of a generation that resume() has ended
}

bool all_succeeded(const TrainerGroup::Outcomes& outcomes) {
  return std::ranges::all_of(outcomes, [](const auto& it) { return it.second.code == GRADLANE_OK; });
}

void TrainerGroup::expect_works(size_t count, Nanos time) {
  const Nanos end = stack_.now() + time;
  do {
    resume();
    if (all_succeeded(all_reduce(count))) return;
    stack_.run_for(10 * kMillisecond);
  } while (stack_.now() < end);
  ADD_FAILURE() << "operations do not succeed again";
}

}  // namespace gradlane::test
