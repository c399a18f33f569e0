// server_test.cc - requests of trainers to a node's server, and its answers
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/trainer/candidate_predictor.h"
#include "tests/dataplane/trainer/server_fixture.h"

namespace gradlane::test::server_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

gl_allocate allocate_message(uint64_t bytes) { return {GL_MSG_ALLOCATE, 0, bytes}; }
gl_segment free_message(uint32_t id) { return {GL_MSG_FREE, id, 0}; }

size_t bytes_of_file(int fd) {
  struct stat status {};
  EXPECT_EQ(fstat(fd, &status), 0);
  return static_cast<size_t>(status.st_size);
}

void expect_sealed(int fd) {
  EXPECT_EQ(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  const auto bytes = static_cast<off_t>(bytes_of_file(fd));
  for (const off_t other : {off_t{0}, bytes / 2, bytes * 2}) {
    EXPECT_EQ(ftruncate(fd, other), -1);
    EXPECT_EQ(errno, EPERM);
  }
  EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
}

// ---- HELLO

TEST_F(ServerTest, Welcome) {
  config_.codec = find_codec("inceptionn:9,truncate");
  config_.max_tensor = size_t{123} << 20;
  start();
  const RawClient client = connect();
  const Reply reply = ask(client, hello_message(4));
  const auto welcome = reply.as<gl_welcome>();
  EXPECT_EQ(welcome.type, GL_MSG_WELCOME);
  EXPECT_EQ(welcome.rank, 4U);
  EXPECT_EQ(welcome.world, 6U);
  EXPECT_EQ(welcome.lanes, 2U);
  const size_t ways = CandidatePredictor(config_, {}).ways().size();
  EXPECT_GT(ways, 1U);
  const size_t control_bytes = gl_control_bytes(2) + codec_table().size() * sizeof(gl_codec_row) +
                               sizeof(gl_strategy_row) + ways * sizeof(gl_way_row) +
                               GL_MAX_REPORTS * sizeof(gl_report_row);
  EXPECT_EQ(welcome.control_bytes, control_bytes);
  EXPECT_EQ(welcome.max_bytes, config_.max_tensor);
  EXPECT_EQ(welcome.pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(welcome.flags, 0U);
  EXPECT_STREQ(welcome.codec, "inceptionn:9,truncate");
  EXPECT_EQ(server_->attached(), 1U);

  ASSERT_EQ(reply.fds.size(), 4U);
  const int control_fd = reply.fds[0].get();
  EXPECT_EQ(bytes_of_file(control_fd), control_bytes);
  expect_sealed(control_fd);
  const Mapping mapping(control_fd, gl_control_bytes(2));
  const auto* const control = reinterpret_cast<const gl_control*>(mapping.base());
  EXPECT_EQ(control->magic, GL_MAGIC);
  EXPECT_EQ(control->version, GL_ABI_VERSION);
  EXPECT_EQ(control->lanes, 2U);
  EXPECT_EQ(control->waiting, 0U);

  // The other descriptors are the trainer's bell and the lanes' own doorbells.
  for (size_t i = 1; i < 4; ++i) gl_ring(reply.fds[i].get());
  EXPECT_TRUE(until([&] { return lanes_->rings() >= 4; }));  // kAttach has rung two more
}

TEST_F(ServerTest, WelcomeSaysLocalReduce) {
  config_.local_reduce = true;
  start();
  const RawClient first = connect();
  EXPECT_EQ(ask(first, hello_message()).as<gl_welcome>().flags, GL_WELCOME_LOCAL_REDUCE);
  const RawClient second = connect();
  const auto welcome = ask(second, hello_message()).as<gl_welcome>();
  EXPECT_EQ(welcome.rank, 4U);
  EXPECT_EQ(welcome.world, 6U);
  // The two trainers share a ControlChannel. Each command names its trainer.
  const std::vector<Told> told = lanes_->told();
  ASSERT_EQ(told.size(), 4U);
  EXPECT_EQ(told[0].trainer, 0U);
  EXPECT_EQ(told[3].trainer, 1U);
  const Reply reply = ask(first, find_message("exact"));
  EXPECT_EQ(reply.type(), GL_MSG_REFUSED);
  EXPECT_EQ(reply.text().substr(0, 31), "exact would round sums twice, b");
}

TEST_F(ServerTest, WelcomeComesAfterAllLanesHaveAttached) {
  start();
  lanes_->hold(true);
  const RawClient client = connect();
  ASSERT_TRUE(client.send(hello_message()));
  EXPECT_TRUE(until([&] { return lanes_->rings() == 2; }));
  Reply reply;
  for (int i = 0; i < 20; ++i) step();
  EXPECT_FALSE(client.receive(reply));
  EXPECT_TRUE(server_->busy());
  EXPECT_EQ(server_->attached(), 0U);
  lanes_->hold(false);
  EXPECT_EQ(receive(client).type(), GL_MSG_WELCOME);
  EXPECT_EQ(lanes_->count(Command::Kind::kAttach), 2U);
  EXPECT_FALSE(server_->busy());
}

TEST_F(ServerTest, Ranks) {
  start();
  const RawClient second = welcomed(4);
  const RawClient other = connect();
  EXPECT_EQ(ask(other, hello_message(4)).text(), "rank 4 is taken by pid " + std::to_string(getpid()));
  for (const int foreign : {0, 2, 6, 1000, -2, -2147483647 - 1}) {
    const Reply reply = ask(other, hello_message(foreign));
    EXPECT_EQ(reply.type(), GL_MSG_REFUSED);
    EXPECT_EQ(reply.text(),
              "rank " + std::to_string(foreign) + " is not on this node: node 1 has ranks 3 to 5, of 6 ranks");
    EXPECT_EQ(reply.as<gl_text>().world, 6U);
  }
  // The client may still send a valid HELLO after these refusals.
  EXPECT_EQ(ask(other, hello_message(-1)).as<gl_welcome>().rank, 3U);
  const RawClient third = connect();
  EXPECT_EQ(ask(third, hello_message(-1)).as<gl_welcome>().rank, 5U);
  const RawClient fourth = connect();
  EXPECT_EQ(ask(fourth, hello_message(-1)).text(), "all trainers of this node are connected already (ranks 3 to 5)");
  EXPECT_EQ(server_->attached(), 3U);
}

TEST_F(ServerTest, OtherVersionIsRefused) {
  start();
  for (const size_t bytes : {12U, 16U, 64U}) {
    const RawClient client = connect();
    std::array<uint32_t, 16> message{GL_MSG_HELLO, GL_MAGIC, 99};
    ASSERT_TRUE(client.send(std::span(reinterpret_cast<const uint8_t*>(message.data()), bytes)));
    const Reply reply = receive(client);
    EXPECT_EQ(reply.type(), GL_MSG_REFUSED);
    EXPECT_EQ(reply.as<gl_text>().version, GL_ABI_VERSION);
    EXPECT_THAT(reply.text(), HasSubstr("version 99"));
    EXPECT_THAT(goodbye(client), HasSubstr("version 99"));
  }
}

// ---- Segments

TEST_F(ServerTest, AllocateAndFree) {
  start();
  const RawClient client = welcomed();
  const size_t page = static_cast<size_t>(getpagesize());
  for (const size_t bytes : {size_t{1}, page, 5 * page + 1, size_t{50} << 20}) {
    const Reply reply = ask(client, allocate_message(bytes));
    const auto segment = reply.as<gl_segment>();
    EXPECT_EQ(segment.type, GL_MSG_SEGMENT);
    EXPECT_EQ(segment.id, 0U);
    EXPECT_EQ(segment.bytes, (bytes + page - 1) / page * page);
    ASSERT_EQ(reply.fds.size(), 1U);
    EXPECT_EQ(bytes_of_file(reply.fds[0].get()), segment.bytes);
    expect_sealed(reply.fds[0].get());
    const Told told = lanes_->told().back();
    EXPECT_EQ(told.kind, Command::Kind::kAddSegment);
    EXPECT_EQ(told.bytes, segment.bytes);
    // The memory is allocated already.
    struct stat status {};
    fstat(reply.fds[0].get(), &status);
    EXPECT_GE(static_cast<size_t>(status.st_blocks) * 512, segment.bytes);
    const Mapping mapping(reply.fds[0].get(), segment.bytes);
    EXPECT_EQ(mapping.base()[segment.bytes - 1], 0);
    mapping.base()[segment.bytes - 1] = 1;
    const auto freed = ask(client, free_message(0)).as<gl_segment>();
    EXPECT_EQ(freed.type, GL_MSG_FREED);
    EXPECT_EQ(freed.id, 0U);
  }
  EXPECT_EQ(lanes_->count(Command::Kind::kAddSegment), 8U);
  EXPECT_EQ(lanes_->count(Command::Kind::kRemoveSegment), 8U);
}

// Memory counts as long as a descriptor or a mapping of it exists anywhere, and keeps its contents.
TEST_F(ServerTest, FreedMemoryThatIsHeldCounts) {
  config_.trainer_memory = size_t{4} << 20;
  start();
  const size_t page = static_cast<size_t>(getpagesize());
  const size_t bytes = config_.trainer_memory / 4 * 3;
  const std::string refusal =
      std::to_string(bytes) +
      " bytes, rounded up to whole pages, are too many: " + std::to_string(config_.trainer_memory - bytes) + " of " +
      std::to_string(config_.trainer_memory) + " are left, because pid " + std::to_string(getpid()) +
      " or its children still hold " + std::to_string(bytes) + " that were freed";
  const RawClient client = welcomed();
  std::optional<Reply> reply = ask(client, allocate_message(bytes));
  std::optional<Mapping> mapping(std::in_place, reply->fds[0].get(), page);
  mapping->base()[1] = 1;  // lanes here write to the first byte
  EXPECT_EQ(ask(client, free_message(0)).type(), GL_MSG_FREED);
  EXPECT_EQ(ask(client, allocate_message(bytes)).text(), refusal);
  reply.reset();  // the mapping is left
  EXPECT_EQ(ask(client, allocate_message(bytes)).text(), refusal);
  EXPECT_EQ(mapping->base()[1], 1);
  EXPECT_EQ(ask(welcomed(), allocate_message(bytes)).type(), GL_MSG_SEGMENT);  // another rank
  mapping.reset();
  reply = ask(client, allocate_message(bytes));
  EXPECT_EQ(reply->type(), GL_MSG_SEGMENT);
}

TEST_F(ServerTest, MemoryOfATrainerThatHasLeftCounts) {
  config_.trainers = 1;
  config_.trainer_memory = size_t{4} << 20;
  start();
  const size_t bytes = config_.trainer_memory / 4 * 3;
  RawClient client = welcomed();
  std::optional<Reply> reply = ask(client, allocate_message(bytes));
  client.close();
  client = welcomed();
  EXPECT_THAT(ask(client, allocate_message(bytes)).text(), HasSubstr("still hold " + std::to_string(bytes)));
  EXPECT_EQ(ask(client, allocate_message(bytes / 3)).type(), GL_MSG_SEGMENT);
  EXPECT_EQ(ask(client, free_message(0)).type(), GL_MSG_FREED);
  reply.reset();
  EXPECT_EQ(ask(client, allocate_message(bytes)).type(), GL_MSG_SEGMENT);
}

TEST_F(ServerTest, NumberOfSegmentsThatAreHeld) {
  config_.trainers = 1;
  start();
  std::vector<Reply> held;
  RawClient client = welcomed();
  for (uint32_t i = 0; i < GL_MAX_SEGMENTS; ++i) {
    held.push_back(ask(client, allocate_message(1)));
    EXPECT_EQ(ask(client, free_message(0)).type(), GL_MSG_FREED);
  }
  const std::string pid = "pid " + std::to_string(getpid());
  EXPECT_EQ(ask(client, allocate_message(1)).text(),
            pid + " or its children still hold 64 segments that were freed, which is the limit");
  client.close();
  client = connect();
  for (const int rank : {-1, 1}) {
    EXPECT_EQ(ask(client, hello_message(rank)).text(),
              pid + ", which has left rank 1, or its children still hold 64 segments of shared memory: end them");
  }
  held.pop_back();
  EXPECT_EQ(ask(client, hello_message(1)).type(), GL_MSG_WELCOME);
}

// Nobody but the daemon's user and root can open the memory once more, which the daemon would not see.
TEST_F(ServerTest, MemoryHasNoAccessRights) {
  start();
  const RawClient client = connect();
  const Reply welcome = ask(client, hello_message());
  const Reply segment = ask(client, allocate_message(1));
  for (const int fd : {welcome.fds[0].get(), segment.fds[0].get()}) {
    struct stat status {};
    ASSERT_EQ(fstat(fd, &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0U);
    EXPECT_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
  }
}

TEST_F(ServerTest, AllocateStaysWithinTheLimit) {
  start();
  const RawClient client = welcomed();
  const size_t all = config_.trainer_memory;
  const size_t page = static_cast<size_t>(getpagesize());
  for (const uint64_t bytes : {uint64_t{0}, all + 1, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - page + 2}) {
    EXPECT_EQ(ask(client, allocate_message(bytes)).type(), GL_MSG_REFUSED) << bytes;
  }
  EXPECT_EQ(ask(client, allocate_message(all - page)).type(), GL_MSG_SEGMENT);
  EXPECT_EQ(ask(client, allocate_message(page + 1)).text(),
            std::to_string(page + 1) + " bytes, rounded up to whole pages, are too many: " + std::to_string(page) +
                " of " + std::to_string(all) + " are left for this trainer (raise memory.per_trainer of the daemon)");
  EXPECT_EQ(ask(client, allocate_message(page)).as<gl_segment>().id, 1U);
  EXPECT_EQ(ask(client, allocate_message(1)).type(), GL_MSG_REFUSED);
  EXPECT_EQ(ask(client, free_message(0)).type(), GL_MSG_FREED);
  EXPECT_EQ(ask(client, allocate_message(all - page)).as<gl_segment>().id, 0U);
  // Each trainer has its own limit.
  const RawClient other = welcomed();
  EXPECT_EQ(ask(other, allocate_message(page)).type(), GL_MSG_SEGMENT);
}

TEST_F(ServerTest, LimitOfOddBytesIsNotExceededByRounding) {
  config_.trainer_memory = 10000;
  start();
  const RawClient client = welcomed();
  EXPECT_EQ(ask(client, allocate_message(10000)).type(), GL_MSG_REFUSED);
  EXPECT_EQ(ask(client, allocate_message(8192)).type(), GL_MSG_SEGMENT);
}

TEST_F(ServerTest, MemoryThatIsNotThereIsRefused) {
  config_.trainer_memory = ~size_t{0};
  start();
  const RawClient client = welcomed();
  const uint64_t bytes = uint64_t{1} << 50;  // more than the address space
  EXPECT_THAT(ask(client, allocate_message(bytes)).text(),
              StartsWith("cannot get shared memory of 1125899906842624 bytes: "));
  EXPECT_EQ(ask(client, allocate_message(~uint64_t{0})).type(), GL_MSG_REFUSED);
  EXPECT_EQ(ask(client, allocate_message(4096)).as<gl_segment>().id, 0U);
}

TEST_F(ServerTest, NumberOfSegments) {
  start();
  const RawClient client = welcomed();
  for (uint32_t id = 0; id < GL_MAX_SEGMENTS; ++id) {
    ASSERT_EQ(ask(client, allocate_message(1)).as<gl_segment>().id, id);
  }
  EXPECT_THAT(ask(client, allocate_message(1)).text(), HasSubstr("64 segments already"));
  EXPECT_EQ(ask(client, free_message(17)).as<gl_segment>().id, 17U);
  EXPECT_EQ(ask(client, free_message(17)).text(), "there is no segment 17");
  EXPECT_EQ(ask(client, free_message(GL_MAX_SEGMENTS)).text(), "there is no segment 64");
  EXPECT_EQ(ask(client, free_message(~0U)).type(), GL_MSG_REFUSED);
  EXPECT_EQ(ask(client, allocate_message(1)).as<gl_segment>().id, 17U);
}

TEST_F(ServerTest, FullMailboxesAreTriedAgain) {
  start();
  const RawClient client = welcomed();
  lanes_->stall(true);
  uint8_t byte = 0;
  std::vector<std::unique_ptr<Command>> others;
  for (;;) {
    auto command = std::make_unique<Command>();
    command->kind = Command::Kind::kAddSegment;
    command->segment = 63;
    command->base = &byte;
    command->bytes = 1;
    if (!lanes_->channel(1, 0).mailbox.post(command.get())) break;
    others.push_back(std::move(command));
  }
  ASSERT_TRUE(client.send(allocate_message(4096)));
  for (int i = 0; i < 20; ++i) step();
  EXPECT_TRUE(server_->busy());
  lanes_->stall(false);
  EXPECT_EQ(receive(client).type(), GL_MSG_SEGMENT);
  EXPECT_EQ(lanes_->count(Command::Kind::kAddSegment), others.size() + 2);
  finish();
}

// ---- Codecs

TEST_F(ServerTest, TableOfCodecs) {
  start();
  const RawClient client = connect();
  const Reply reply = ask(client, hello_message());
  const Mapping mapping(reply.fds[0].get(), reply.as<gl_welcome>().control_bytes);
  const auto* const control = reinterpret_cast<const gl_control*>(mapping.base());
  ASSERT_EQ(control->codecs, codec_table().size());
  EXPECT_LE(control->codecs, GL_MAX_CODECS);
  EXPECT_EQ(control->codec_row_bytes, sizeof(gl_codec_row));
  for (size_t i = 0; i < control->codecs; ++i) {
    const CodecRow& row = codec_table()[i];
    gl_codec_row told;
    std::memcpy(&told, mapping.base() + gl_control_bytes(2) + i * sizeof told, sizeof told);
    EXPECT_STREQ(told.word, row.word);
    EXPECT_STREQ(told.usage, row.usage);
    EXPECT_STREQ(told.example, row.example);
    EXPECT_STREQ(told.option, row.option != nullptr ? row.option : "");
    EXPECT_EQ(told.id, static_cast<uint8_t>(row.id));
    EXPECT_EQ(told.least, row.min_bits);
    EXPECT_EQ(told.most, row.max_bits);
    EXPECT_EQ((told.flags & GL_CODEC_EXACT) != 0, row.exact());
    EXPECT_EQ((told.flags & GL_CODEC_FEEDBACK) != 0, row.feedback);
    EXPECT_EQ((told.flags & GL_CODEC_EXACT_SUMS) != 0, row.exact_sums);
    EXPECT_EQ((told.flags & GL_CODEC_ADAPTIVE) != 0, row.adaptive);
    EXPECT_EQ((told.flags & GL_CODEC_OWNED) != 0, !row.is_additive);
    EXPECT_EQ((told.flags & GL_CODEC_AGREES) != 0, row.agreement != Agreement::kNone);
    EXPECT_EQ((told.flags & GL_CODEC_LOOKS) != 0, row.passes != 0);
    EXPECT_EQ((told.flags & GL_CODEC_RATE) != 0, row.has_rate);
    EXPECT_EQ((told.flags & GL_CODEC_LATTICE) != 0, row.takes_lattice);
    EXPECT_EQ((told.flags & GL_CODEC_UNBIASED) != 0, row.unbiased);
    EXPECT_EQ((told.flags & GL_CODEC_HALVES) != 0, row.serves != Serves::kFloat32);
    EXPECT_EQ((told.flags & GL_CODEC_ROUNDS_ONCE) != 0, row.rounds_once);
    EXPECT_EQ(told.flags >> 12, 0U);
    EXPECT_EQ(told.states, row.feedback ? row.states : 0);
    EXPECT_STREQ(told.prefix, row.prefix);
    EXPECT_STREQ(told.variant, row.variant != nullptr ? row.variant : "");
    EXPECT_STREQ(told.promise, row.promise) << "too long for GL_LINE";
    EXPECT_STREQ(told.source, row.source) << "too long for GL_LINE";
  }
}

// ---- Strategies

// The table has the strategies of the configuration in their order, then the ring if it is not one of them.
TEST_F(ServerTest, TableOfStrategies) {
  const struct {
    const char* name;
    uint32_t kinds;
    uint32_t flags;
  } rows[] = {{"aggregator:1,stream", 1U << GL_ALL_REDUCE | 1U << GL_BARRIER,
               GL_STRATEGY_BACK | GL_STRATEGY_OWNERS | GL_STRATEGY_LINKS},
              {"direct", 511, GL_STRATEGY_OWNERS | GL_STRATEGY_LINKS},
              {"rings:2", 1U << GL_ALL_REDUCE | 1U << GL_BARRIER, GL_STRATEGY_LINKS},
              {"ring", 31, GL_STRATEGY_LINKS}};
  config_.strategies = find_strategies("aggregator:1,stream,direct,rings:2");
  start();
  const RawClient client = connect();
  const Reply reply = ask(client, hello_message());
  const Mapping mapping(reply.fds[0].get(), reply.as<gl_welcome>().control_bytes);
  const auto* const control = reinterpret_cast<const gl_control*>(mapping.base());
  ASSERT_EQ(control->strategies, std::size(rows));
  EXPECT_EQ(control->strategy_row_bytes, sizeof(gl_strategy_row));
  const size_t table = gl_control_bytes(2) + control->codecs * sizeof(gl_codec_row);
  for (size_t i = 0; i < std::size(rows); ++i) {
    gl_strategy_row told;
    std::memcpy(&told, mapping.base() + table + i * sizeof told, sizeof told);
    EXPECT_STREQ(told.name, rows[i].name);
    EXPECT_EQ(told.code, find_strategy(rows[i].name).code());
    EXPECT_EQ(told.kinds, rows[i].kinds);
    EXPECT_EQ(told.flags, rows[i].flags);
  }
}

TEST_F(ServerTest, FindCodec) {
  start();
  const RawClient client = welcomed();
  const struct {
    std::string name, canonical;
    CodecId id;
    uint64_t arguments;
    uint8_t states;
  } codecs[] = {{"raw", "raw", CodecId::kRaw, 0, 0},
                {"fixed:07", "fixed:7", CodecId::kFixed, 7, 1},
                {"fixed:7", "fixed:7", CodecId::kFixed, 7, 1},
                {"qsgd:2", "qsgd:2", CodecId::kQsgd, 2 | 512 << 16, 2},
                {"qsgd:1", "qsgd:1", CodecId::kQsgd, 1 | 512 << 16, 0},
                {"inceptionn:14,truncate", "inceptionn:14,truncate", CodecId::kInceptionn, 14 | kOptionBit, 0}};
  for (const auto& each : codecs) {
    const auto found = ask(client, find_message(each.name)).as<gl_codec_name>();
    EXPECT_EQ(found.type, GL_MSG_CODEC);
    EXPECT_EQ(found.id, static_cast<uint8_t>(each.id));
    EXPECT_EQ(found.arguments, each.arguments);
    EXPECT_EQ(found.states, each.states);
    EXPECT_EQ((found.flags & GL_CODEC_FEEDBACK) != 0, each.states != 0);
    EXPECT_EQ((found.flags & GL_CODEC_EXACT) != 0, each.id == CodecId::kRaw);
    EXPECT_EQ(found.name, each.canonical);
  }
  for (const auto& [name, exact] : {std::pair{"topk:1%", false}, {"topk:1%+fixed:10", true}, {"fixed:7", true}}) {
    const auto found = ask(client, find_message(name)).as<gl_codec_name>();
    EXPECT_EQ((found.flags & GL_CODEC_EXACT_SUMS) != 0, exact) << name;
  }
  const std::string longest = "dgc:12.3456%,m=0.899,clip=25.4+fixed:30";
  EXPECT_EQ(ask(client, find_message(longest)).as<gl_codec_name>().name, longest);
  for (const std::string name : {"", "zip", "fixed:99", "fixed:7,truncate", "\x80\xff"}) {
    const Reply reply = ask(client, find_message(name));
    EXPECT_EQ(reply.type(), GL_MSG_REFUSED);
    EXPECT_FALSE(reply.text().empty());
  }
  ASSERT_TRUE(client.send(find_message(std::string(GL_NAME, 'x'))));
  EXPECT_EQ(goodbye(client), "FIND_CODEC with a name that does not end");
}

// Blocks of these codecs do not fit into packets. The error text always fits into its message, even with a long name.
TEST_F(ServerTest, CodecsThatDoNotFitPackets) {
  packets_ = {.mtu = 548, .around = 28};
  start();
  const RawClient client = welcomed();
  for (const std::string name : {"int8:1024", "topk:1%", "dgc:12.3456%,m=0.899,clip=25.4+fixed:30"}) {
    const Reply reply = ask(client, find_message(name));
    EXPECT_EQ(reply.type(), GL_MSG_REFUSED);
    EXPECT_TRUE(reply.text().starts_with("codec " + name + ": ")) << reply.text();
    EXPECT_NE(reply.text().find("bytes, but MTU 576 has room for 484: choose "), std::string::npos) << reply.text();
    EXPECT_TRUE(reply.text().ends_with(", or raise `mtu` on all nodes")) << reply.text();
  }
  EXPECT_EQ(ask(client, find_message("int8")).type(), GL_MSG_CODEC);
}

}  // namespace
}  // namespace gradlane::test::server_test
