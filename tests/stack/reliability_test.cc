// reliability_test.cc - the fault matrix: what breaks while operations are in flight, who is told what and when,
// recovery
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/stack/stage.h"

namespace gradlane::test::reliability_test {
namespace {

constexpr Nanos kHang = 10 * kSecond + 1100 * kMillisecond;  // a trainer gives up a daemon that does nothing
constexpr Nanos kBlink = 500 * kMillisecond;                 // less than 3/4 of the peer timeout
constexpr Nanos kCableDown = 10 * kSecond;
constexpr Nanos kHold = 2 * kSecond;

using Failed = std::map<unsigned, Failures>;

struct Row {
  const char* name;
  void (*play)(Stage& stage, unsigned victim);  // a node
};

Ranks without(Ranks all, const Ranks& some) {
  for (const unsigned it : some) all.erase(it);
  return all;
}

std::vector<unsigned> lives(Stage& stage) {
  std::vector<unsigned> lives;
  for (unsigned node = 0; node < stage.shape().nodes; ++node) lives.push_back(stage.stack().lives(node));
  return lives;
}

// All daemons but these are still the same processes.
class Alive {
 public:
  explicit Alive(Stage& stage, std::set<unsigned> but = {})
      : stage_(stage), but_(std::move(but)), lives_(lives(stage)) {}
  ~Alive() {
    for (unsigned node = 0; node < lives_.size(); ++node) {
      EXPECT_TRUE(stage_.stack().runs(node)) << "daemon " << node << " has ended";
      if (!but_.contains(node)) {
        EXPECT_EQ(stage_.stack().lives(node), lives_[node]) << "daemon " << node;
      }
    }
  }
  Alive(const Alive&) = delete;
  Alive& operator=(const Alive&) = delete;

 private:
  Stage& stage_;
  const std::set<unsigned> but_;
  const std::vector<unsigned> lives_;
};

// Each of these trainers was told of one of `names` in time, by all that it had in flight or submitted until then;
// those of `gone`, that their daemon is.
void expect_named(Stage& stage, const Failed& failed, Nanos since, const Ranks& names, const Ranks& gone = {},
                  Nanos bound = Stage::kBound) {
  const Ranks wanted = stage.names_of(names);
  for (const auto& [rank, failures] : failed) {
    for (const Ended& it : failures.all) {
      const std::string where = "rank " + std::to_string(rank) + ", " + std::to_string((it.at - since) / kMillisecond) +
                                " ms after the fault: " + it.text;
      EXPECT_LE(it.at - since, bound) << where;
      EXPECT_EQ(it.code, gone.contains(rank) ? GRADLANE_DAEMON_GONE : GRADLANE_FAILED) << where;
      if (it.code == GRADLANE_DAEMON_GONE) continue;
      const Ranks named = named_ranks(it.text);
      const bool right = std::ranges::any_of(named, [&](unsigned name) { return wanted.contains(name); });
      // With local_reduce, by whoever is of the same node.
      const bool own = stage.shape().local_reduce && it.text.find("trainer of this node has gone") != std::string::npos;
      EXPECT_TRUE(right || own) << where << ": names none of those that were hit";
    }
  }
}

Ranks ranks_of(const Stage& stage, const std::set<unsigned>& nodes) {
  Ranks ranks;
  for (const unsigned node : nodes) ranks.merge(stage.ranks_of(node));
  return ranks;
}

void expect_whole(Stage& stage) {
  EXPECT_TRUE(stage.stack().run_until([&] { return stage.stack().whole(); }, 5 * kSecond)) << "no ring";
}

// ---- Daemons

enum class Again {
  kAtOnce,  // before anybody can have noticed
  kSoon,    // when all have, and trainers go on before the ring is whole
  kLater,   // when all have, and trainers wait for the ring
};

void kill(Stage& stage, unsigned victim, unsigned victims, Again again = Again::kLater) {
  std::set<unsigned> nodes;
  for (unsigned i = 0; i < victims; ++i) nodes.insert((victim + i) % stage.shape().nodes);
  const Alive alive(stage, nodes);
  const Ranks gone = ranks_of(stage, nodes);
  stage.stream();
  const Nanos since = stage.stack().now();
  for (const unsigned node : nodes) stage.stack().kill(node);
  for (const unsigned node : nodes) {
    if (again == Again::kAtOnce) stage.stack().start(node);
  }
  expect_named(stage, stage.failures(stage.everyone()), since, gone, gone);
  for (const unsigned node : nodes) {
    if (again != Again::kAtOnce) stage.stack().start(node);
  }
  // New daemons that meet each other first tell their trainers of what was before them: they try again.
  if (again == Again::kSoon) stage.recover_alone();
  if (again == Again::kLater) expect_whole(stage);
  stage.recover();
}

void kill_one(Stage& stage, unsigned victim) { kill(stage, victim, 1); }
void restart(Stage& stage, unsigned victim) { kill(stage, victim, 1, Again::kAtOnce); }
void restart_soon(Stage& stage, unsigned victim) { kill(stage, victim, 1, Again::kSoon); }
void kill_two(Stage& stage, unsigned victim) { kill(stage, victim, 2); }
void kill_every(Stage& stage, unsigned victim) { kill(stage, victim, stage.shape().nodes); }

// The victim's own trainers hear of it when their daemon goes on, and then at once.
void stop(Stage& stage, unsigned victim) {
  const Alive alive(stage);
  const Ranks own = stage.ranks_of(victim);
  stage.stream();
  const Nanos since = stage.stack().now();
  stage.stack().stop(victim, true);
  expect_named(stage, stage.failures(without(stage.everyone(), own)), since, own);
  stage.stack().run_for(kHold);
  stage.stack().stop(victim, false);
  const Nanos continued = stage.stack().now();
  expect_named(stage, stage.failures(own), continued, stage.everyone());
  stage.recover();
}

// A daemon that hangs: its own trainers give it up.
void hang(Stage& stage, unsigned victim) {
  const Alive alive(stage);
  const Ranks own = stage.ranks_of(victim);
  stage.stream();
  const Nanos since = stage.stack().now();
  stage.stack().stop(victim, true);
  expect_named(stage, stage.failures(without(stage.everyone(), own)), since, own);
  expect_named(stage, stage.failures(own), since, own, own, kHang);
  stage.stack().stop(victim, false);
  stage.recover();
}

// Too short for an error: operations go on.
template <class Begin, class End>
void blink(Stage& stage, Begin begin, End end) {
  const Alive alive(stage);
  stage.stream();
  begin();
  stage.stack().run_for(kBlink);
  end();
  stage.expect_steps(3);
  EXPECT_GT(stage.stop_stream(), kBlink / 2) << "nothing was interrupted";
  stage.recover();
}

void pause(Stage& stage, unsigned victim) {
  blink(
      stage, [&] { stage.stack().stop(victim, true); }, [&] { stage.stack().stop(victim, false); });
}

// What is begun before anybody can have noticed.
void idle_kill(Stage& stage, unsigned victim) {
  const Alive alive(stage, {victim});
  const Ranks gone = stage.ranks_of(victim);
  const Nanos since = stage.stack().now();
  stage.stack().kill(victim);
  stage.begin(stage.everyone());
  expect_named(stage, stage.failures(stage.everyone()), since, gone, gone);
  stage.stack().start(victim);
  expect_whole(stage);
  stage.recover();
}

// ---- Cables

template <bool kNoticed>
void blink_cable(Stage& stage, unsigned victim) {
  Network& network = stage.stack().network();
  blink(
      stage, [&] { network.set_cable(victim, false, kNoticed); }, [&] { network.set_cable(victim, true, kNoticed); });
}

// A network that is broken for `down`; names_for(rank): whom its trainer may be told of.
template <class Break, class Mend, class Names>
void broken(Stage& stage, Break breaks, Mend mends, Names names_for, Nanos down) {
  const Alive alive(stage);
  stage.stream();
  const Nanos since = stage.stack().now();
  breaks();
  for (const auto& it : stage.failures(stage.everyone())) expect_named(stage, {it}, since, names_for(it.first));
  const Nanos now = stage.stack().now();
  if (now < since + down) stage.stack().run_for(since + down - now);
  mends();
  stage.recover();
}

// Whom a node that is cut off may name, as it cannot know that it is: those that it has links to.
Ranks linked(const Stage& stage, unsigned node) {
  const unsigned nodes = stage.shape().nodes;
  if (std::string(stage.shape().strategies) != "ring") return without(stage.everyone(), stage.ranks_of(node));
  return ranks_of(stage, {(node + 1) % nodes, (node + nodes - 1) % nodes});
}

template <bool kNoticed>
void cut_cable(Stage& stage, unsigned victim) {
  Network& network = stage.stack().network();
  const Ranks own = stage.ranks_of(victim);
  broken(
      stage, [&] { network.set_cable(victim, false, kNoticed); }, [&] { network.set_cable(victim, true, kNoticed); },
      [&](unsigned rank) { return own.contains(rank) ? linked(stage, victim) : own; }, kCableDown);
}

void partition(Stage& stage, unsigned victim) {
  const unsigned nodes = stage.shape().nodes;
  std::vector<unsigned> groups(nodes, 1);
  for (unsigned i = 0; i < nodes / 2; ++i) groups[(victim + i) % nodes] = 0;
  const auto other = [&](unsigned rank) {
    Ranks ranks;
    for (const unsigned each : stage.everyone()) {
      if (groups[stage.stack().node_of(each)] != groups[stage.stack().node_of(rank)]) ranks.insert(each);
    }
    return ranks;
  };
  broken(
      stage, [&] { stage.stack().network().part(groups); }, [&] { stage.stack().network().heal(); }, other, 0);
}

// What the victim sends to the next node gets lost, and nothing else. All name one of the two.
void one_way(Stage& stage, unsigned victim) {
  Network& network = stage.stack().network();
  const unsigned next = (victim + 1) % stage.shape().nodes;
  const Ranks both = ranks_of(stage, {victim, next});
  broken(
      stage, [&] { network.cut(victim, next, true); }, [&] { network.cut(victim, next, false); },
      [&](unsigned) { return both; }, kCableDown);
}

// ---- Trainers

unsigned rank_of(Stage& stage, unsigned victim) {
  return victim * stage.shape().trainers + static_cast<unsigned>(stage.random().below(stage.shape().trainers));
}

size_t errors_logged(Stage& stage) {
  size_t count = 0;
  for (unsigned node = 0; node < stage.shape().nodes; ++node) count += stage.stack().log_count(node, "^error ");
  return count;
}

void kill_trainer(Stage& stage, unsigned victim) {
  const Alive alive(stage);
  const unsigned rank = rank_of(stage, victim);
  const std::string left = "trainer of rank " + std::to_string(rank) + " .* has left";
  stage.stream();
  const Nanos since = stage.stack().now();
  stage.kill_trainer(rank);
  expect_named(stage, stage.failures(without(stage.everyone(), {rank})), since, {rank});
  stage.stack().run_for(kBlink);
  EXPECT_EQ(stage.stack().log_count(victim, left), 1U);
  EXPECT_EQ(errors_logged(stage), 0U) << "trainers may go as they like";
  stage.new_trainer(rank);
  stage.recover();
}

// The others wait for it when it dies.
void absent_trainer(Stage& stage, unsigned victim) {
  const Alive alive(stage);
  const unsigned rank = rank_of(stage, victim);
  const Ranks others = without(stage.everyone(), {rank});
  stage.begin(others);
  stage.stack().run_for(kBlink);
  const Nanos since = stage.stack().now();
  stage.kill_trainer(rank);
  expect_named(stage, stage.failures(others), since, {rank});
  stage.new_trainer(rank);
  stage.recover();
}

// Others are told whenever they try, until one has come that stays.
void early_trainer(Stage& stage, unsigned victim) {
  const Alive alive(stage);
  const unsigned rank = rank_of(stage, victim);
  stage.stream();
  const Nanos since = stage.stack().now();
  stage.kill_trainer(rank);
  expect_named(stage, stage.failures(without(stage.everyone(), {rank})), since, {rank});
  for (int i = 0; i < 2; ++i) {
    stage.new_trainer(rank);
    stage.open();
    stage.kill_trainer(rank);
  }
  stage.new_trainer(rank);
  stage.recover_alone(rank);
  stage.all_right();
}

constexpr Row kRows[] = {
    {"Kill", kill_one},
    {"Restart", restart},
    {"RestartSoon", restart_soon},
    {"Two", kill_two},
    {"Every", kill_every},
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

const Shape kShapes[] = {
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
};

struct Param {
  const Row* row;
  const Shape* shape;
};

class Matrix : public testing::TestWithParam<Param> {};

TEST_P(Matrix, AsPromised) {
  const auto [row, shape] = GetParam();
  const auto number = static_cast<uint64_t>((row - kRows) * 100 + (shape - kShapes));
  Stage stage(*shape, number);
  if (HasFatalFailure()) return;
  row->play(stage, static_cast<unsigned>(number % shape->nodes));
}

std::vector<Param> all() {
  std::vector<Param> params;
  for (const Row& row : kRows) {
    for (const Shape& shape : kShapes) params.push_back({&row, &shape});
  }
  return params;
}

INSTANTIATE_TEST_SUITE_P(Faults, Matrix, testing::ValuesIn(all()),
                         [](const auto& it) { return std::string(it.param.row->name) + "_" + it.param.shape->name; });

}  // namespace
}  // namespace gradlane::test::reliability_test
