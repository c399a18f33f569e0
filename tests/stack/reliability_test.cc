// reliability_test.cc - the fault matrix: faults while operations are in flight, the errors that follow and their
// times, recovery
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/stack/testbed.h"

namespace gradlane::test::reliability_test {
namespace {

// Time after which a trainer gives up a daemon that does nothing.
constexpr Nanos kHang = 10 * kSecond + 1100 * kMillisecond;
constexpr Nanos kBlink = 500 * kMillisecond;  // an interruption without errors: less than 3/4 of the peer timeout
constexpr Nanos kCableDown = 10 * kSecond;
constexpr Nanos kHold = 2 * kSecond;

using FailuresByRank = std::map<unsigned, Failures>;

struct Row {
  const char* name;
  void (*play)(Testbed& testbed, unsigned victim);  // `victim` is a node
};

Ranks without(Ranks all, const Ranks& some) {
  for (const unsigned it : some) all.erase(it);
  return all;
}

std::vector<unsigned> start_counts(Testbed& testbed) {
  std::vector<unsigned> counts;
  for (unsigned node = 0; node < testbed.setup().nodes; ++node) counts.push_back(testbed.stack().start_count(node));
  return counts;
}

// Expects, when it is destroyed, that all daemons run, and that all but those in `but` are still the same processes.
class Alive {
 public:
  explicit Alive(Testbed& testbed, std::set<unsigned> but = {})
      : testbed_(testbed), but_(std::move(but)), start_counts_(start_counts(testbed)) {}
  ~Alive() {
    for (unsigned node = 0; node < start_counts_.size(); ++node) {
      EXPECT_TRUE(testbed_.stack().is_running(node)) << "daemon " << node << " has ended";
      if (!but_.contains(node)) {
        EXPECT_EQ(testbed_.stack().start_count(node), start_counts_[node]) << "daemon " << node;
      }
    }
  }
  Alive(const Alive&) = delete;
  Alive& operator=(const Alive&) = delete;

 private:
  Testbed& testbed_;
  const std::set<unsigned> but_;
  const std::vector<unsigned> start_counts_;
};

// Expects that all failed operations ended within `bound` of the fault at `since`, with an error that names a rank of
// `names`. Trainers of `gone`, whose daemon died, must get GRADLANE_DAEMON_GONE instead.
void expect_named(Testbed& testbed, const FailuresByRank& failed, Nanos since, const Ranks& names,
                  const Ranks& gone = {}, Nanos bound = Testbed::kBound) {
  const Ranks wanted = testbed.names_of(names);
  for (const auto& [rank, failures] : failed) {
    for (const Outcome& it : failures.all) {
      const std::string where = "rank " + std::to_string(rank) + ", " + std::to_string((it.at - since) / kMillisecond) +
                                " ms after the fault: " + it.text;
      EXPECT_LE(it.at - since, bound) << where;
      EXPECT_EQ(it.code, gone.contains(rank) ? GRADLANE_DAEMON_GONE : GRADLANE_FAILED) << where;
      if (it.code == GRADLANE_DAEMON_GONE) continue;
      const Ranks named = named_ranks(it.text);
      const bool right = std::ranges::any_of(named, [&](unsigned name) { return wanted.contains(name); });
      // With local_reduce the error of the same node's trainers has the rank of the trainer, not of the node.
      const bool is_local = it.text.find("a trainer of this node, has left") != std::string::npos;
      const bool own = is_local && std::ranges::any_of(named, [&](unsigned name) { return names.contains(name); });
      EXPECT_TRUE(right || own) << where << ": names none of those that were hit";
    }
  }
}

Ranks ranks_of(const Testbed& testbed, const std::set<unsigned>& nodes) {
  Ranks ranks;
  for (const unsigned node : nodes) ranks.merge(testbed.ranks_of(node));
  return ranks;
}

void expect_whole(Testbed& testbed) {
  EXPECT_TRUE(testbed.stack().run_until([&] { return testbed.stack().is_complete(); }, 5 * kSecond)) << "no ring";
}

// ---- Daemons

enum class Again {
  kAtOnce,  // the daemon is started again before any rank can have noticed
  // it is started after all operations have failed; trainers submit before the ring is ready, and do not fail again
  kSoon,
  kLater,  // it is started after all operations have failed; trainers wait for the ring
};

void kill(Testbed& testbed, unsigned victim, unsigned victims, Again again = Again::kLater) {
  std::set<unsigned> nodes;
  for (unsigned i = 0; i < victims; ++i) nodes.insert((victim + i) % testbed.setup().nodes);
  const Alive alive(testbed, nodes);
  const Ranks gone = ranks_of(testbed, nodes);
  testbed.stream();
  const Nanos since = testbed.stack().now();
  for (const unsigned node : nodes) testbed.stack().kill(node);
  for (const unsigned node : nodes) {
    if (again == Again::kAtOnce) testbed.stack().start(node);
  }
  expect_named(testbed, testbed.failures(testbed.everyone()), since, gone, gone);
  for (const unsigned node : nodes) {
    if (again != Again::kAtOnce) testbed.stack().start(node);
  }
  if (again == Again::kLater) expect_whole(testbed);
  testbed.recover();
}

void kill_one(Testbed& testbed, unsigned victim) { kill(testbed, victim, 1); }
void restart(Testbed& testbed, unsigned victim) { kill(testbed, victim, 1, Again::kAtOnce); }
void restart_soon(Testbed& testbed, unsigned victim) { kill(testbed, victim, 1, Again::kSoon); }
void kill_two(Testbed& testbed, unsigned victim) { kill(testbed, victim, 2); }
void restart_two_soon(Testbed& testbed, unsigned victim) { kill(testbed, victim, 2, Again::kSoon); }
void kill_every(Testbed& testbed, unsigned victim) { kill(testbed, victim, testbed.setup().nodes); }

// Stops a daemon (SIGSTOP) during operations, and expects that the trainers of all others name it. Returns the time of
// the stop.
Nanos stop_daemon(Testbed& testbed, unsigned victim) {
  const Ranks own = testbed.ranks_of(victim);
  testbed.stream();
  const Nanos since = testbed.stack().now();
  testbed.stack().stop(victim, true);
  expect_named(testbed, testbed.failures(without(testbed.everyone(), own)), since, own);
  return since;
}

// The victim's own trainers get an error as soon as their daemon continues.
void stop(Testbed& testbed, unsigned victim) {
  const Alive alive(testbed);
  const Ranks own = testbed.ranks_of(victim);
  (void)stop_daemon(testbed, victim);
  testbed.stack().run_for(kHold);
  testbed.stack().stop(victim, false);
  const Nanos continued = testbed.stack().now();
  expect_named(testbed, testbed.failures(own), continued, testbed.everyone());
  testbed.recover();
}

// The daemon does not continue: its own trainers give it up.
void hang(Testbed& testbed, unsigned victim) {
  const Alive alive(testbed);
  const Ranks own = testbed.ranks_of(victim);
  const Nanos since = stop_daemon(testbed, victim);
  expect_named(testbed, testbed.failures(own), since, own, own, kHang);
  testbed.stack().stop(victim, false);
  testbed.recover();
}

// The interruption is too short for an error, and operations continue.
template <class Begin, class End>
void blink(Testbed& testbed, Begin begin, End end) {
  const Alive alive(testbed);
  testbed.stream();
  begin();
  testbed.stack().run_for(kBlink);
  end();
  testbed.expect_steps(3);
  EXPECT_GT(testbed.stop_stream(), kBlink / 2) << "nothing was interrupted";
  testbed.recover();
}

void pause(Testbed& testbed, unsigned victim) {
  blink(
      testbed, [&] { testbed.stack().stop(victim, true); }, [&] { testbed.stack().stop(victim, false); });
}

// Operations start after a daemon was killed, before any rank can have noticed.
void idle_kill(Testbed& testbed, unsigned victim) {
  const Alive alive(testbed, {victim});
  const Ranks gone = testbed.ranks_of(victim);
  const Nanos since = testbed.stack().now();
  testbed.stack().kill(victim);
  testbed.begin(testbed.everyone());
  expect_named(testbed, testbed.failures(testbed.everyone()), since, gone, gone);
  testbed.stack().start(victim);
  expect_whole(testbed);
  testbed.recover();
}

// ---- Cables

template <bool kNoticed>
void blink_cable(Testbed& testbed, unsigned victim) {
  Network& network = testbed.stack().network();
  blink(
      testbed, [&] { network.set_cable(victim, false, kNoticed); }, [&] { network.set_cable(victim, true, kNoticed); });
}

// Breaks the network for the time `down`. names_for(rank) returns the ranks that errors on this rank may name.
template <class Break, class Mend, class Names>
void broken(Testbed& testbed, Break breaks, Mend mends, Names names_for, Nanos down) {
  const Alive alive(testbed);
  testbed.stream();
  const Nanos since = testbed.stack().now();
  breaks();
  for (const auto& it : testbed.failures(testbed.everyone())) expect_named(testbed, {it}, since, names_for(it.first));
  const Nanos now = testbed.stack().now();
  if (now < since + down) testbed.stack().run_for(since + down - now);
  mends();
  testbed.recover();
}

// The ranks that errors on an isolated node may name: its neighbours, because it cannot know that it is isolated.
Ranks linked(const Testbed& testbed, unsigned node) {
  const unsigned nodes = testbed.setup().nodes;
  if (std::string(testbed.setup().strategies) != "ring") return without(testbed.everyone(), testbed.ranks_of(node));
  return ranks_of(testbed, {(node + 1) % nodes, (node + nodes - 1) % nodes});
}

template <bool kNoticed>
void cut_cable(Testbed& testbed, unsigned victim) {
  Network& network = testbed.stack().network();
  const Ranks own = testbed.ranks_of(victim);
  broken(
      testbed, [&] { network.set_cable(victim, false, kNoticed); }, [&] { network.set_cable(victim, true, kNoticed); },
      [&](unsigned rank) { return own.contains(rank) ? linked(testbed, victim) : own; }, kCableDown);
}

void partition(Testbed& testbed, unsigned victim) {
  const unsigned nodes = testbed.setup().nodes;
  std::vector<unsigned> groups(nodes, 1);
  for (unsigned i = 0; i < nodes / 2; ++i) groups[(victim + i) % nodes] = 0;
  const auto other = [&](unsigned rank) {
    Ranks ranks;
    for (const unsigned each : testbed.everyone()) {
      if (groups[testbed.stack().node_of(each)] != groups[testbed.stack().node_of(rank)]) ranks.insert(each);
    }
    return ranks;
  };
  broken(
      testbed, [&] { testbed.stack().network().partition(groups); }, [&] { testbed.stack().network().heal(); }, other,
      0);
}

// Only the packets from the victim to the next node get lost. All errors name one of the two.
void one_way(Testbed& testbed, unsigned victim) {
  Network& network = testbed.stack().network();
  const unsigned next = (victim + 1) % testbed.setup().nodes;
  const Ranks both = ranks_of(testbed, {victim, next});
  broken(
      testbed, [&] { network.set_blocked(victim, next, true); }, [&] { network.set_blocked(victim, next, false); },
      [&](unsigned) { return both; }, kCableDown);
}

// ---- Trainers

unsigned rank_of(Testbed& testbed, unsigned victim) {
  return victim * testbed.setup().trainers + static_cast<unsigned>(testbed.random().below(testbed.setup().trainers));
}

size_t errors_logged(Testbed& testbed) {
  size_t count = 0;
  for (unsigned node = 0; node < testbed.setup().nodes; ++node) count += testbed.stack().log_count(node, "^error ");
  return count;
}

void kill_trainer(Testbed& testbed, unsigned victim) {
  const Alive alive(testbed);
  const unsigned rank = rank_of(testbed, victim);
  const std::string left = "trainer of rank " + std::to_string(rank) + " .* has left";
  testbed.stream();
  const Nanos since = testbed.stack().now();
  testbed.kill_trainer(rank);
  expect_named(testbed, testbed.failures(without(testbed.everyone(), {rank})), since, {rank});
  testbed.stack().run_for(kBlink);
  EXPECT_EQ(testbed.stack().log_count(victim, left), 1U);
  EXPECT_EQ(errors_logged(testbed), 0U) << "trainers may go as they like";
  testbed.new_trainer(rank);
  testbed.recover();
}

// A trainer dies while the other ranks wait for its operation.
void absent_trainer(Testbed& testbed, unsigned victim) {
  const Alive alive(testbed);
  const unsigned rank = rank_of(testbed, victim);
  const Ranks others = without(testbed.everyone(), {rank});
  testbed.begin(others);
  testbed.stack().run_for(kBlink);
  const Nanos since = testbed.stack().now();
  testbed.kill_trainer(rank);
  expect_named(testbed, testbed.failures(others), since, {rank});
  testbed.new_trainer(rank);
  testbed.recover();
}

// Two replacement trainers connect and die, the third one stays. Each attempt of the other ranks before that fails.
void early_trainer(Testbed& testbed, unsigned victim) {
  const Alive alive(testbed);
  const unsigned rank = rank_of(testbed, victim);
  testbed.stream();
  const Nanos since = testbed.stack().now();
  testbed.kill_trainer(rank);
  expect_named(testbed, testbed.failures(without(testbed.everyone(), {rank})), since, {rank});
  for (int i = 0; i < 2; ++i) {
    testbed.new_trainer(rank);
    testbed.open();
    testbed.kill_trainer(rank);
  }
  testbed.new_trainer(rank);
  testbed.recover_alone(rank);
  testbed.all_right();
}

constexpr Row kRows[] = {
    {"Kill", kill_one},
    {"Restart", restart},
    {"RestartSoon", restart_soon},
    {"KillTwo", kill_two},
    {"RestartTwoSoon", restart_two_soon},
    {"KillAll", kill_every},
    {"Stop", stop},
    {"Hang", hang},
    {"Pause", pause},
    {"IdleKill", idle_kill},
    {"Trainer", kill_trainer},
    {"AbsentTrainer", absent_trainer},
    {"EarlyTrainer", early_trainer},
    {"Blink", blink_cable<true>},
    {"BlinkAtSwitch", blink_cable<false>},
    {"Cable", cut_cable<true>},
    {"CableAtSwitch", cut_cable<false>},
    {"Partition", partition},
    {"OneWay", one_way},
};

const RingSetup kSetups[] = {
    {.name = "Usual"},
    {.name = "Alone", .alone = true},
    {.name = "OwnTags", .own_tags = true},
    {.name = "Lossy",
     .nodes = 3,
     .codec = "fixed:10",
     .faults = {.drop = 0.01, .duplicate = 0.01, .corrupt = 0.005, .reorder = 0.02}},
    {.name = "TwoNodes", .nodes = 2, .lanes = 2, .codec = "fixed:10"},
    {.name = "EightNodes", .nodes = 8},
    {.name = "Trainers", .nodes = 3, .lanes = 2, .trainers = 2, .codec = "bf16", .exact = false},
    {.name = "LocalReduce", .nodes = 3, .trainers = 2, .local_reduce = true, .codec = "fixed:10"},
    {.name = "LocalReduceLanes", .nodes = 2, .lanes = 2, .trainers = 3, .local_reduce = true, .alone = true},
    {.name = "Direct", .nodes = 4, .strategies = "direct"},
    {.name = "Selection", .nodes = 3, .strategies = "direct,ring", .codec = "topk:10%", .exact = false, .alone = true},
    {.name = "Rings", .nodes = 6, .strategies = "rings:2,ring"},
    {.name = "Aggregator", .nodes = 5, .strategies = "aggregator:1,ring", .codec = "fixed:10"},
    {.name = "TwoNodesLossy",
     .nodes = 2,
     .alone = true,
     .faults = {.drop = 0.02, .duplicate = 0.02, .corrupt = 0.01, .reorder = 0.05}},
    {.name = "FourLanes", .nodes = 2, .lanes = 4, .own_tags = true},
    {.name = "TwoTrainers", .nodes = 2, .trainers = 2},
    {.name = "Inceptionn", .nodes = 3, .codec = "inceptionn:10", .exact = false},
    {.name = "Ternary", .nodes = 2, .lanes = 2, .codec = "terngrad", .exact = false},
    {.name = "Votes", .nodes = 3, .codec = "signsgd", .exact = false, .own_tags = true},
    {.name = "DirectTwo", .nodes = 2, .lanes = 2, .strategies = "direct", .alone = true},
    {.name = "DirectLossy",
     .nodes = 3,
     .strategies = "direct,ring",
     .codec = "fixed:10",
     .faults = {.drop = 0.01, .duplicate = 0.01, .corrupt = 0.005, .reorder = 0.02}},
    {.name = "DirectInt8", .nodes = 3, .strategies = "direct,ring", .codec = "int8", .exact = false},
    {.name = "RingsOfTwo", .nodes = 4, .strategies = "rings:2,ring", .codec = "fixed:10", .alone = true},
    {.name = "Stream", .nodes = 3, .strategies = "aggregator:1,stream"},
};

struct Param {
  const Row* row;
  const RingSetup* setup;
};

class Matrix : public testing::TestWithParam<Param> {};

TEST_P(Matrix, AsPromised) {
  const auto [row, setup] = GetParam();
  const auto number = static_cast<uint64_t>((row - kRows) * 100 + (setup - kSetups));
  Testbed testbed(*setup, number);
  if (HasFatalFailure()) return;
  row->play(testbed, static_cast<unsigned>(number % setup->nodes));
}

std::vector<Param> all() {
  std::vector<Param> params;
  for (const Row& row : kRows) {
    for (const RingSetup& setup : kSetups) params.push_back({&row, &setup});
  }
  return params;
}

INSTANTIATE_TEST_SUITE_P(Faults, Matrix, testing::ValuesIn(all()),
                         [](const auto& it) { return std::string(it.param.row->name) + "_" + it.param.setup->name; });

}  // namespace
}  // namespace gradlane::test::reliability_test
