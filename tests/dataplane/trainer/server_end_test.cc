// server_end_test.cc - trainers that die, break the rules or are disconnected, at every stage
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>

#include "tests/dataplane/trainer/server_fixture.h"

namespace gradlane::test::server_end_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Kind = Command::Kind;

constexpr size_t kBytes = size_t{3} << 20;
const gl_allocate kAllocate = {GL_MSG_ALLOCATE, 0, kBytes};
const gl_segment kFree = {GL_MSG_FREE, 0, 0};

std::string pid() { return std::to_string(getpid()); }

class ServerEndTest : public ServerTest {
 protected:
  void SetUp() override {
    start();
    other_.emplace(welcomed(5));
  }
  void TearDown() override {
    // The other trainer has noticed nothing.
    EXPECT_EQ(ask(*other_, find_message("raw")).type(), GL_MSG_CODEC);
    other_->close();
    EXPECT_TRUE(until([this] { return server_->attached() == 0 && !server_->busy(); }));
    finish();
  }
  // Waits until the server has read the message. The server then waits for the lanes.
  void wait_until_busy() {
    EXPECT_TRUE(until([this] { return server_->busy(); }));
  }
  void steps() {
    for (int i = 0; i < 20; ++i) step();
  }
  void expect_free(int rank) {
    const RawClient client = connect();
    EXPECT_EQ(ask(client, hello_message(rank)).type(), GL_MSG_WELCOME);
  }

  std::optional<RawClient> other_;
};

// ---- Death

// If a generation ends on some lanes, the server ends it on all lanes.
TEST_F(ServerEndTest, WithSomethingInFlightOnSomeLanes) {
  for (const unsigned lanes : {0U, 1U, 2U, 3U}) {
    const size_t before = lanes_->count(Kind::kEndGeneration);
    lanes_->end_generation(lanes);
    welcomed(4).close();
    EXPECT_TRUE(until([&] { return server_->attached() == 1 && !server_->busy(); }));
    EXPECT_EQ(lanes_->count(Kind::kEndGeneration) - before, lanes == 1 || lanes == 2 ? 2U : 0U);
    expect_free(4);
    EXPECT_TRUE(until([&] { return server_->attached() == 1 && !server_->busy(); }));
  }
  lanes_->end_generation(0);
}

TEST_F(ServerEndTest, BeforeHello) {
  connect().close();
  steps();
  EXPECT_FALSE(server_->busy());
  EXPECT_EQ(log_count("\n"), 1U);  // about the other trainer; clients without a HELLO leave no line
}

TEST_F(ServerEndTest, WhileAttaching) {
  lanes_->hold(true);
  RawClient client = connect();
  ASSERT_TRUE(client.send(hello_message(3)));
  wait_until_busy();
  steps();
  client.close();
  steps();
  EXPECT_TRUE(server_->busy());  // the lanes still have its memory
  lanes_->hold(false);
  expect_free(3);
  EXPECT_EQ(lanes_->count(Kind::kDetach), 2U);
}

TEST_F(ServerEndTest, WhenReady) {
  RawClient client = welcomed(3);
  client.close();
  EXPECT_TRUE(until([&] { return lanes_->count(Kind::kDetach) == 2; }));
  expect_free(3);
  EXPECT_THAT(log(),
              HasSubstr("trainer of rank 3 (pid " + pid() + ", uid " + std::to_string(getuid()) + ") has left\n"));
}

TEST_F(ServerEndTest, WithOperationsInFlight) {
  RawClient client = welcomed(4);
  lanes_->channel(0, 1).in_flight = 2;
  lanes_->channel(1, 1).in_flight = 3;
  client.close();
  expect_free(4);
  EXPECT_THAT(log(), HasSubstr("has left with 3 operations in flight\n"));
  lanes_->channel(0, 1).in_flight = lanes_->channel(1, 1).in_flight = 0;
}

TEST_F(ServerEndTest, WhileMemoryIsBeingGot) {
  RawClient client = welcomed(3);
  ASSERT_TRUE(client.send(gl_allocate{GL_MSG_ALLOCATE, 0, config_.trainer_memory}));
  step();
  EXPECT_TRUE(server_->busy());
  client.close();
  expect_free(3);
  EXPECT_EQ(lanes_->count(Kind::kAddSegment), 0U);
}

TEST_F(ServerEndTest, WhileSegmentsComeAndGo) {
  for (const Kind kind : {Kind::kAddSegment, Kind::kRemoveSegment}) {
    RawClient client = welcomed(3);
    if (kind == Kind::kRemoveSegment) {
      EXPECT_EQ(ask(client, kAllocate).type(), GL_MSG_SEGMENT);
    }
    const size_t before = lanes_->count(kind);
    lanes_->hold(true);
    ASSERT_TRUE(kind == Kind::kAddSegment ? client.send(kAllocate) : client.send(kFree));
    wait_until_busy();
    steps();
    client.close();
    steps();
    EXPECT_TRUE(server_->busy());
    EXPECT_EQ(lanes_->count(kind), before);
    lanes_->hold(false);
    expect_free(3);
    EXPECT_EQ(lanes_->count(kind), before + 2);
  }
}

TEST_F(ServerEndTest, RankIsWaitedForWhileLanesAreBusy) {
  RawClient first = welcomed(3);
  const RawClient second = welcomed(4);
  EXPECT_EQ(ask(first, kAllocate).type(), GL_MSG_SEGMENT);
  lanes_->hold(true);
  first.close();
  steps();
  // Lanes write to all memory that they know when they execute a command. So the memory must still be there.
  const RawClient same = connect();
  const RawClient any = connect();
  ASSERT_TRUE(same.send(hello_message(3)));
  ASSERT_TRUE(any.send(hello_message(-1)));
  steps();
  Reply reply;
  EXPECT_FALSE(same.receive(reply));
  EXPECT_FALSE(any.receive(reply));
  lanes_->hold(false);
  EXPECT_EQ(receive(same).as<gl_welcome>().rank, 3U);
  EXPECT_EQ(receive(any).text(), "all trainers of this node are connected already (ranks 3 to 5)");
}

TEST_F(ServerEndTest, RankIsNotWaitedForForever) {
  welcomed(3).close();
  lanes_->hold(true);
  steps();
  const RawClient same = connect();
  ASSERT_TRUE(same.send(hello_message(3)));
  steps();
  skip(5 * kSecond);
  const Reply reply = receive(same);
  EXPECT_EQ(reply.type(), GL_MSG_REFUSED);
  EXPECT_EQ(reply.text(),
            "rank 3 was pid " + pid() + ", which has left, but its operations have not ended yet; try again");
  lanes_->hold(false);
  EXPECT_EQ(ask(same, hello_message(3)).type(), GL_MSG_WELCOME);
}

TEST_F(ServerEndTest, KilledProcess) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const RawClient client(config_.socket);
    bool fine = client.send(hello_message(3)) && write(ready[1], "x", 1) == 1;
    while (fine) pause();
    _exit(1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  EXPECT_TRUE(until([&] { return server_->attached() == 2; }));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  expect_free(3);
  EXPECT_THAT(log(), HasSubstr("trainer of rank 3 (pid " + std::to_string(child)));
}

// ---- Breaking the rules

TEST_F(ServerEndTest, MalformedMessages) {
  std::vector<uint8_t> bytes(300);
  const auto with_type = [&](uint32_t type, size_t size) {
    std::memcpy(bytes.data(), &type, sizeof(type));
    return std::span<const uint8_t>(bytes).first(size);
  };
  const struct {
    uint32_t type;
    size_t size;
    std::string text;
  } cases[] = {
      {0, 0, "message of 0 bytes, too short for a type"},
      {GL_MSG_HELLO, 3, "message of 3 bytes, too short for a type"},
      {0, 4, "message of type 0 (4 bytes), which a client must not send"},
      {GL_MSG_WELCOME, sizeof(gl_welcome), "message of type 2 (104 bytes), which a client must not send"},
      {4711, 300, "message of type 4711 (300 bytes), which a client must not send"},
      {GL_MSG_HELLO, 4, "HELLO of 4 bytes, not 16"},
      {GL_MSG_HELLO, 16, "HELLO with magic 0, which is not gradlane's"},
      {GL_MSG_ALLOCATE, 15, "ALLOCATE of 15 bytes, not 16"},
      {GL_MSG_FREE, 17, "FREE of 17 bytes, not 16"},
      {GL_MSG_FIND_CODEC, 300, "FIND_CODEC of 300 bytes, not 88"},
  };
  for (const bool with_rank : {false, true}) {
    for (const auto& each : cases) {
      const size_t lines = log_count("\n");
      const RawClient client = with_rank ? welcomed(3) : connect();
      ASSERT_TRUE(client.send(with_type(each.type, each.size)));
      EXPECT_EQ(goodbye(client), each.text);
      EXPECT_THAT(log(), HasSubstr(" was disconnected: " + each.text + "\n"));
      EXPECT_EQ(log_count("\n"), lines + (with_rank ? 2 : 1));
    }
  }
}

TEST_F(ServerEndTest, HelloOfAnotherSize) {
  const struct {
    gl_hello hello;
    uint32_t more;
  } message = {hello_message(), 0};
  const RawClient client = connect();
  ASSERT_TRUE(client.send(message));
  EXPECT_EQ(goodbye(client), "HELLO of 20 bytes, not 16");
}

TEST_F(ServerEndTest, MessagesOutOfTurn) {
  for (const auto& [send, text] : {std::pair{+[](const RawClient& to) { return to.send(kAllocate); }, "ALLOCATE"},
                                   {+[](const RawClient& to) { return to.send(kFree); }, "FREE"},
                                   {+[](const RawClient& to) { return to.send(find_message("raw")); }, "FIND_CODEC"}}) {
    const RawClient client = connect();
    ASSERT_TRUE(send(client));
    EXPECT_EQ(goodbye(client), std::string(text) + " before HELLO");
  }
  const RawClient twice = welcomed(3);
  ASSERT_TRUE(twice.send(hello_message(4)));
  EXPECT_EQ(goodbye(twice), "a second HELLO");
  const RawClient hasty = connect();
  ASSERT_TRUE(hasty.send(hello_message(3)) && hasty.send(kAllocate));
  EXPECT_EQ(goodbye(hasty), "ALLOCATE before the answer to the previous message");
  expect_free(3);
}

TEST_F(ServerEndTest, FloodThatReadsNoAnswers) {
  const RawClient client = welcomed(3);
  EXPECT_TRUE(until([&] {
    while (client.send(find_message("raw"))) {
    }
    return server_->attached() == 1;
  }));
  EXPECT_EQ(log_count("it does not read the answers to its messages"), 1U);
  expect_free(3);
}

TEST_F(ServerEndTest, CrowdThatSaysNothing) {
  std::vector<RawClient> crowd;
  std::vector<RawClient> trainers;
  for (int i = 0; i < 150; ++i) {
    crowd.push_back(connect());
    step();
  }
  trainers.push_back(welcomed(3));
  for (int i = 0; i < 150; ++i) {
    crowd.push_back(connect());
    step();
  }
  trainers.push_back(welcomed(4));
  EXPECT_EQ(server_->attached(), 3U);
  EXPECT_EQ(goodbye(crowd[0]), "too many connections (64)");
  // The latest connections still have time left. After that they must end, too.
  skip(5 * kSecond);
  EXPECT_EQ(goodbye(crowd.back()), "no HELLO within 5 s");
  for (const RawClient& trainer : trainers) EXPECT_EQ(ask(trainer, find_message("raw")).type(), GL_MSG_CODEC);
}

TEST_F(ServerEndTest, Faults) {
  const struct {
    TrainerFault fault;
    std::string text;
  } faults[] = {
      {TrainerFault::kRingCounts, "head 1 and tail 2 are more than the 64 entries of a ring apart (ring of lane 1)"},
      {TrainerFault::kBadKind, "no operation has kind 1 and type 2 (ring of lane 1)"},
      {TrainerFault::kBadCodec, "no codec has id 1 and arguments 2 (ring of lane 1)"},
      {TrainerFault::kBadSegment, "operation names segment 1, which does not exist (ring of lane 1)"},
      {TrainerFault::kOutOfBounds, "operation on 2 bytes at offset 1 of a segment of 3 (ring of lane 1)"},
      {TrainerFault::kTooLarge, "tensor of 1 bytes, at most 2 are allowed (exchange.max_tensor) (ring of lane 1)"},
      {TrainerFault::kBadStrategy,
       "strategy ring is not allowed (strategies), or cannot do operations of kind 2 (ring of lane 1)"},
      {TrainerFault::kBadOperation,
       "bad operation, one of: average of integers, minimum without sum, unknown root, unused residual, way back "
       "without aggregator, overlapping data, not for local_reduce (ring of lane 1)"},
      {TrainerFault::kDoesNotAdd, "bf16 does not add: use strategy direct or aggregator, not direct (ring of lane 1)"},
      {TrainerFault::kNoLinks,
       "codec bf16 needs links between all nodes: add `direct` to `strategies` (ring of lane 1)"},
  };
  for (const auto& each : faults) {
    const RawClient client = welcomed(4);
    const RawClient neighbour = welcomed(3);
    lanes_->channel(1, 1).in_flight = 1;
    FaultReport& report = lanes_->channel(1, 1).faults[1];
    report.a = 1;
    report.b = 2;
    report.c = 3;
    report.fault.store(each.fault, std::memory_order_release);
    EXPECT_EQ(goodbye(client), each.text);
    EXPECT_THAT(log(), HasSubstr("was disconnected with 1 operation in flight: " + each.text + "\n"));
    EXPECT_TRUE(until([&] { return !server_->busy(); }));
    EXPECT_EQ(report.fault.load(), TrainerFault::kNone);
    EXPECT_EQ(report.a, 0U);
    lanes_->channel(1, 1).in_flight = 0;
    expect_free(4);
    EXPECT_EQ(ask(neighbour, find_message("raw")).type(), GL_MSG_CODEC);
  }
}

// ---- The daemon ends

TEST_F(ServerTest, CloseAtEveryStage) {
  config_.trainers = 4;
  start();
  const RawClient silent = connect();
  const RawClient ready = welcomed();
  const RawClient adding = welcomed();
  lanes_->hold(true);
  const RawClient attaching = connect();
  ASSERT_TRUE(adding.send(kAllocate));
  ASSERT_TRUE(attaching.send(hello_message()));
  for (int i = 0; i < 20; ++i) step();
  const RawClient unseen = connect();
  EXPECT_FALSE(server_->finished());
  server_->close("the daemon on node 1 ends", now());
  for (const RawClient* client : {&silent, &ready, &adding, &attaching}) {
    EXPECT_EQ(goodbye(*client), "the daemon on node 1 ends");
  }
  EXPECT_EQ(server_->attached(), 0U);
  EXPECT_FALSE(server_->finished());
  EXPECT_TRUE(server_->busy());
  server_->close("again", now());
  lanes_->hold(false);
  EXPECT_TRUE(until([&] { return server_->finished(); }));
  EXPECT_EQ(lanes_->count(Kind::kDetach), 6U);
  uint8_t byte = 0;
  EXPECT_LE(recv(unseen.fd(), &byte, 1, 0), 0);  // an end or a reset
}

}  // namespace
}  // namespace gradlane::test::server_end_test
