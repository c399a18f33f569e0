// small_test.cc - tests that the smallest windows, packets and buffers cause no deadlock while nodes pause at random
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/random.h"
#include "tests/collectives/exchange/exchange_fixture.h"

namespace gradlane::test::small_test {
namespace {

// The least number of buffers of a node: one per neighbour for acknowledgements and hellos, and one for everything
// else.
constexpr size_t kFewestBuffers = 3;

struct Shape {
  unsigned world;
  size_t count;  // elements of a tensor; `share`: elements of each rank's share
  size_t share;
};

SimConfig smallest(unsigned world) {
  SimConfig config;
  config.nodes = world;
  config.seed = world;
  config.buffers = kFewestBuffers;
  config.exchange.window = kMinWindow;
  config.exchange.mtu = kMinPacket;
  config.exchange.max_bytes = size_t{256} << 10;
  // Pauses are no failure here, however many there are.
  config.exchange.start_timeout = config.exchange.operation_timeout = 36'000 * kSecond;
  return config;
}

// Pauses nodes at random until everything is done. Mostly a few nodes pause for a short time, sometimes many. A few
// pauses are long, but shorter than half of the peer timeout. After a long pause a node gets some rest, so that its
// keep-alives arrive.
void run_with_pauses(SimNet& net, uint64_t seed) {
  const unsigned world = net.nodes();
  Random random(seed);
  struct Node {
    Nanos resume = 0;
    Nanos rest = 0;
  };
  std::vector<Node> nodes(world);
  const Nanos limit = net.now() + 3000 * kSecond;
  while (!net.idle() && net.now() < limit) {
    net.run_until(net.now() + 1 + random.below(kMillisecond));
    const double chance = random.chance(0.1) ? 0.5 : 0.3 / world;
    for (unsigned i = 0; i < world; ++i) {
      Node& node = nodes[i];
      if (net.node(i).paused()) {
        if (net.now() >= node.resume) net.resume(i);
      } else if (net.now() >= node.rest && random.chance(chance)) {
        net.pause(i);
        const bool is_long = random.chance(0.01);
        node.resume = net.now() + 1 + random.below(is_long ? 750 * kMillisecond : 2 * kMillisecond);
        if (is_long) node.rest = node.resume + 250 * kMillisecond;
      }
    }
  }
  for (unsigned i = 0; i < world; ++i) net.resume(i);
}

enum class Pauses : bool { kNo, kYes };

void run_all_kinds(const SimConfig& config, const Shape& shape, const std::string& codec, Pauses pauses,
                   size_t kinds = ~size_t{0}) {
  SCOPED_TRACE(testing::Message() << "world " << shape.world << ", window " << config.exchange.window << ", "
                                  << config.buffers << " buffers, loss " << config.faults.loss << ", " << codec
                                  << (pauses == Pauses::kYes ? ", pauses" : ""));
  SimNet net(config);
  auto specs = all_kinds(shape.world, shape.count, shape.share, codec);
  specs.resize(std::min(specs.size(), kinds));
  std::vector<Job> jobs = make_jobs(specs, shape.world, shape.world);
  for (Job& job : jobs) {
    for (unsigned i = 0; i < shape.world; ++i) (void)net.submit(i, job.operation(i));
  }
  if (pauses == Pauses::kYes) run_with_pauses(net, 17 * shape.world);
  ASSERT_TRUE(net.run_until_idle(net.now() + 3000 * kSecond));
  ASSERT_TRUE(all_succeeded(net));
  for (const Job& job : jobs) EXPECT_TRUE(job.right());
  EXPECT_TRUE(all_given_back(net));
  for (unsigned i = 0; i < shape.world; ++i) {
    EXPECT_LE(net.node(i).buffers_peak(), Exchange::buffers(net.node(i).config()));
  }
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.world << " nodes"; }

class Small : public testing::TestWithParam<Shape> {};

TEST_P(Small, Calm) {
  run_all_kinds(smallest(GetParam().world), GetParam(), "raw", Pauses::kNo);
  run_all_kinds(smallest(GetParam().world), GetParam(), "fixed:10", Pauses::kNo);
}

TEST_P(Small, Pauses) { run_all_kinds(smallest(GetParam().world), GetParam(), "fixed:10", Pauses::kYes); }

TEST_P(Small, Loss) {
  SimConfig config = smallest(GetParam().world);
  config.faults = {.loss = 0.05, .duplicate = 0.01, .reorder = 0.05, .corrupt = 0.01};
  run_all_kinds(config, GetParam(), "raw", Pauses::kNo);
}

TEST_P(Small, LossAndPauses) {
  SimConfig config = smallest(GetParam().world);
  config.faults = {.loss = 0.02, .duplicate = 0.01, .reorder = 0.05, .corrupt = 0.01, .busy = 0.05};
  run_all_kinds(config, GetParam(), "inceptionn:10", Pauses::kYes);
}

// The number of buffers is the limit, not the window.
TEST_P(Small, FewBuffers) {
  for (const size_t window : {size_t{4}, size_t{64}}) {
    for (const size_t more : {size_t{0}, size_t{1}, size_t{5}}) {
      SimConfig config = smallest(GetParam().world);
      config.exchange.window = window;
      config.buffers = kFewestBuffers + more;
      config.faults.loss = 0.01;
      run_all_kinds(config, GetParam(), "raw", Pauses::kNo);
    }
  }
}

std::string small_name(const testing::TestParamInfo<Shape>& info) { return std::to_string(info.param.world); }

const std::vector<Shape> kShapes =
    thorough() ? std::vector<Shape>{{2, 3000, 500},  {3, 3000, 500},  {4, 3000, 500}, {5, 3000, 500},
                                    {6, 3000, 500},  {7, 3000, 500},  {8, 4000, 400}, {9, 4000, 400},
                                    {12, 4000, 300}, {16, 4000, 300}, {64, 5000, 40}}
               : std::vector<Shape>{{2, 3000, 500}, {3, 3000, 500}, {5, 3000, 500}, {8, 4000, 400}};
INSTANTIATE_TEST_SUITE_P(Exchange, Small, testing::ValuesIn(kShapes), small_name);

// In a world of 256, all nodes have something to send. Tests that are not thorough run one operation of each kind
// except broadcast.
TEST(Small, LargestWorld) {
  const Shape shape = {kMaxWorld, size_t{thorough() ? 10'000U : 1'000U}, size_t{thorough() ? 33U : 3U}};
  run_all_kinds(smallest(shape.world), shape, "raw", Pauses::kNo, thorough() ? ~size_t{0} : 4);
  if (!thorough()) return;
  SimConfig config = smallest(shape.world);
  config.faults.loss = 0.01;
  config.buffers = 8;  // nodes that lack a buffer ask for it all the time, which takes long to simulate
  run_all_kinds(config, shape, "fixed:10", Pauses::kYes);
}

}  // namespace
}  // namespace gradlane::test::small_test
