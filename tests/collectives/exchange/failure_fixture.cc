// failure_fixture.cc - a ring with faults: operations are submitted rank by rank, and the end of each is checked
#include "tests/collectives/exchange/failure_fixture.h"

#include <algorithm>

#include "collectives/crc32c.h"

namespace gradlane::test {
namespace {

bool contains(std::span<const unsigned> ranks, unsigned rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

bool matches(const Failure& failure, const Expected& expected) {
  return failure.code == expected.code && (expected.ranks.empty() || contains(expected.ranks, failure.rank));
}

}  // namespace

TestRing::TestRing(const SimConfig& config)
    : net_(config),
      first_(config.exchange.strategies.front()),
      seed_(config.seed),
      by_id_(config.nodes),
      noted_(config.nodes) {}

TestRing::~TestRing() {
  for (const Entry& entry : jobs_) {
    for (const Share& share : entry.shares) {
      if (share.left.empty()) continue;
      EXPECT_EQ(tensor(*entry.job, share.operation), share.left) << "written to after it had ended";
    }
  }
}

size_t TestRing::make(JobSpec spec) {
  if (spec.strategy.empty() && supports(first_, spec.kind)) spec.strategy = first_.name().view();
  jobs_.push_back({std::make_unique<Job>(spec, world(), seed_ + jobs_.size()), std::vector<Share>(world())});
  return jobs_.size() - 1;
}

void TestRing::submit(size_t job, unsigned rank) { submit(job, rank, jobs_[job].job->operation(rank)); }

void TestRing::submit_other(size_t job, unsigned rank, const std::function<void(Operation&)>& change) {
  Operation operation = jobs_[job].job->operation(rank);
  change(operation);
  submit(job, rank, operation);
}

void TestRing::submit(size_t job, unsigned rank, const Operation& operation) {
  const uint64_t id = net_.submit(rank, operation);
  jobs_[job].shares[rank] = {id, operation, {}, {}};
  by_id_[rank].resize(id + 1);
  by_id_[rank][id] = job;
}

size_t TestRing::start(const JobSpec& spec) {
  const size_t job = make(spec);
  for (unsigned rank = 0; rank < world(); ++rank) submit(job, rank);
  return job;
}

std::vector<size_t> TestRing::start(std::span<const JobSpec> specs) {
  std::vector<size_t> jobs;
  for (const JobSpec& spec : specs) jobs.push_back(start(spec));
  return jobs;
}

void TestRing::abort(size_t job, unsigned rank) { net_.abort(rank, jobs_[job].shares[rank].id); }

void TestRing::run_until(Nanos time) {
  while (net_.step(time)) note_completions();
}

bool TestRing::finish(std::span<const size_t> jobs, Nanos time, std::initializer_list<unsigned> away) {
  const auto all_ended = [&] {
    for (const size_t job : jobs) {
      for (unsigned rank = 0; rank < world(); ++rank) {
        if (!contains(away, rank) && end_of(job, rank) == nullptr) return false;
      }
    }
    return true;
  };
  const Nanos limit = net_.now() + time;
  // Checking everything after every instant would take longer than simulating the instants.
  constexpr Nanos kGlance = 20 * kMicrosecond;
  while (!all_ended()) {
    if (net_.now() >= limit) return false;
    run_until(std::min(net_.now() + kGlance, limit));
  }
  return true;
}

void TestRing::restart(unsigned rank) {
  note_completions();
  net_.restart_node(rank);
  by_id_[rank].clear();
  noted_[rank] = 0;
  for (Entry& entry : jobs_) entry.shares[rank].completion.reset();
}

Bytes TestRing::tensor(const Job& job, const Operation& operation) {
  const auto* const data = static_cast<const uint8_t*>(operation.data);
  return data == nullptr ? Bytes() : Bytes(data, data + job.bytes());
}

void TestRing::note_completions() {
  for (unsigned rank = 0; rank < world(); ++rank) {
    const auto completions = net_.node(rank).completions();
    for (; noted_[rank] != completions.size(); ++noted_[rank]) {
      Entry& entry = jobs_[by_id_[rank].at(completions[noted_[rank]].id)];
      Share& share = entry.shares[rank];
      EXPECT_FALSE(share.completion) << "a second completion";
      share.completion = noted_[rank];
      share.left = tensor(*entry.job, share.operation);
    }
  }
}

const SimCompletion* TestRing::end_of(size_t job, unsigned rank) const {
  const auto place = jobs_[job].shares[rank].completion;
  return place ? &net_.node(rank).completions()[*place] : nullptr;
}

// ---- How jobs ended

testing::AssertionResult TestRing::succeeded(std::span<const size_t> jobs) const {
  for (const size_t job : jobs) {
    for (unsigned rank = 0; rank < world(); ++rank) {
      const auto end = ended(job, rank, {});
      if (!end) return end;
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult TestRing::ended(size_t job, unsigned rank, const Expected& expected) const {
  const SimCompletion* const end = end_of(job, rank);
  const auto fault = [&] {
    return testing::AssertionFailure() << "job " << job << " (" << jobs_[job].job->spec() << ") on rank " << rank
                                       << " of " << world() << ", at " << net_.now() << " ns: ";
  };
  if (end == nullptr) return fault() << "has not ended";
  if (!end->failure) {
    const auto right = jobs_[job].job->right(rank);
    return right ? right : fault() << right.message();
  }
  if (matches(end->failure, expected)) return testing::AssertionSuccess();
  return fault() << failure_text(end->failure) << " (code " << static_cast<unsigned>(end->failure.code) << ", at "
                 << end->time << " ns)";
}

testing::AssertionResult TestRing::failed(size_t job, unsigned rank, const Expected& expected) const {
  const SimCompletion* const end = end_of(job, rank);
  if (end != nullptr && !end->failure) {
    return testing::AssertionFailure() << "job " << job << " has succeeded on rank " << rank;
  }
  return ended(job, rank, expected);
}

testing::AssertionResult TestRing::ended(std::span<const size_t> jobs, const Expected& expected,
                                         std::initializer_list<unsigned> away) const {
  bool any = false;
  for (unsigned rank = 0; rank < world(); ++rank) {
    if (contains(away, rank)) continue;
    for (const size_t job : jobs) {
      const auto end = ended(job, rank, expected);
      if (!end) return end;
      any |= static_cast<bool>(end_of(job, rank)->failure);
    }
  }
  return any ? testing::AssertionSuccess() : testing::AssertionFailure() << "no job has failed";
}

testing::AssertionResult TestRing::failed(size_t job, const Expected& expected) const {
  for (unsigned rank = 0; rank < world(); ++rank) {
    const auto end = failed(job, rank, expected);
    if (!end) return end;
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult TestRing::works(Nanos limit) {
  const auto jobs = start(busy_jobs(world()));
  (void)finish(jobs, limit);
  return succeeded(jobs);
}

bool TestRing::wait_whole(Nanos time) {
  return net_.run_until(
      [this] {
        for (unsigned rank = 0; rank < world(); ++rank) {
          if (!net_.node(rank).exchange().ring_status().ready) return false;
        }
        return true;
      },
      net_.now() + time);
}

std::vector<JobSpec> busy_jobs(unsigned world) {
  return {{.kind = OpKind::kAllReduce, .count = 12'000, .codec = "fixed:10"},
          {.kind = OpKind::kAllReduce, .count = 8'011, .type = ElementType::kInt32},
          {.kind = OpKind::kReduceScatter, .count = 8'000 / world, .codec = "raw"},
          {.kind = OpKind::kAllGather, .count = 8'003 / world, .codec = "fp16"},
          {.kind = OpKind::kBarrier},
          {.kind = OpKind::kBroadcast, .count = 12'000, .codec = "raw", .root = world - 1}};
}

SimConfig slow_switch(const std::string& strategies, unsigned nodes, uint64_t seed, double loss) {
  SimConfig config = slow_ring(nodes, seed, loss);
  config.topology = SimTopology::kSwitch;
  config.exchange.strategies = find_strategies(strategies);
  config.exchange.operations = 8;  // fewer operations need less memory to be cleared
  return config;
}

SimConfig slow_ring(unsigned nodes, uint64_t seed, double loss) {
  SimConfig config;
  config.nodes = nodes;
  config.seed = seed;
  config.link.bits_per_second = 400'000'000;
  config.faults.loss = loss;
  config.exchange.max_bytes = size_t{256} << 10;
  return config;
}

// ---- Handmade packets

void seal(Bytes& packet) {
  auto header = load<LinkHeader>(packet.data());
  const uint32_t state = crc32c(kCrcStart, packet.data() + sizeof(header), packet.size() - sizeof(header));
  header.crc = ~crc32c(state, packet.data(), kCrcOffset);
  store(packet.data(), header);
}

Bytes make_packet(LinkHeader header, std::span<const uint8_t> payload) {
  header.magic = kMagic;
  header.version = kProtocolVersion;
  Bytes packet(sizeof(header));
  store(packet.data(), header);
  packet.insert(packet.end(), payload.begin(), payload.end());
  seal(packet);
  return packet;
}

void append_run(Bytes& payload, RunHeader run, std::span<const uint8_t> block) {
  run.bytes = static_cast<uint16_t>(block.size());
  const size_t at = payload.size();
  payload.resize(at + sizeof(run));
  store(payload.data() + at, run);
  payload.insert(payload.end(), block.begin(), block.end());
}

}  // namespace gradlane::test
