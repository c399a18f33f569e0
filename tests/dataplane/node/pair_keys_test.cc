// pair_keys_test.cc - keys for pairs of nodes: who gets the same ones, and what is refused
#include "dataplane/node/pair_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <future>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "dataplane/secure/key_agreement.h"

namespace gradlane::test::pair_keys_test {
namespace {

using testing::HasSubstr;

constexpr std::chrono::seconds kPatience{60};

NodeConfig node(unsigned rank, unsigned nodes) {
  NodeConfig config;
  config.rank = rank;
  config.nodes.resize(nodes);
  return config;
}

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    in = FileDescriptor(ends[0]);
    out = FileDescriptor(ends[1]);
  }
  FileDescriptor in;
  FileDescriptor out;
};

// A node that agrees on keys in a thread.
struct Agreeing {
  Agreeing(unsigned rank, unsigned nodes)
      : keys(std::async(std::launch::async, [this, rank, nodes] {
          return agree_on_keys(node(rank, nodes), told.in.get(), says.out.get(), kPatience);
        })) {}
  // Returns the public key in hexadecimal digits.
  std::string public_key() {
    std::string line(69, ' ');
    EXPECT_EQ(read(says.in.get(), line.data(), line.size()), 69);
    EXPECT_EQ(line.substr(0, 4), "key ");
    return line.substr(4, 64);
  }
  void tell(const std::string& text) {
    EXPECT_EQ(write(told.out.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // Returns the error when the node has been told this.
  std::string fault(const std::string& text) {
    tell(text);
    told.out.reset();
    try {
      (void)keys.get();
    } catch (const SetupError& error) {
      return error.what();
    }
    return "";
  }
  Pipe told;
  Pipe says;
  std::future<PairKeys> keys;
};

TEST(PairKeys, AreTheSameAtBothNodesAndDifferentForEachPair) {
  constexpr unsigned kNodes = 4;
  std::vector<std::unique_ptr<Agreeing>> nodes;
  std::string all;
  for (unsigned rank = 0; rank < kNodes; ++rank) nodes.push_back(std::make_unique<Agreeing>(rank, kNodes));
  for (unsigned rank = 0; rank < kNodes; ++rank) all += std::to_string(rank) + " " + nodes[rank]->public_key() + "\n";
  std::vector<PairKeys> keys;
  for (const auto& it : nodes) {
    // The lines come in pieces.
    it->tell(all.substr(0, 100));
    it->tell(all.substr(100));
    keys.push_back(it->keys.get());
  }
  for (unsigned one = 0; one < kNodes; ++one) {
    EXPECT_FALSE(keys[one][one].has_value());
    for (unsigned other = 0; other < one; ++other) {
      EXPECT_EQ(*keys[one][other], *keys[other][one]);
      for (unsigned third = 0; third < other; ++third) EXPECT_FALSE(*keys[one][other] == *keys[one][third]);
    }
  }
}

TEST(PairKeys, WrongLinesAreRefused) {
  const std::string zeros(64, '0');
  const std::string some = zeros.substr(2) + "09";
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "has ended before the public keys of all nodes have come"},
           {"1 " + some + "\n", "has ended before"},
           {"1 " + some, "has ended before"},
           {"x " + some + "\n", "is not NODE KEY, with a node below 3"},
           {"3 " + some + "\n", "is not NODE KEY"},
           {"1 " + some + "0\n", "is not NODE KEY"},
           {"1 g" + some.substr(1) + "\n", "is not NODE KEY"},
           {"1\n", "is not NODE KEY"},
           {std::string(200, '1'), "is too long"},
           {"1 " + zeros + "\n", "X25519 refuses a public key"},
           {"1 " + some + "\n1 " + some + "\n", "two public keys for node 1"},
           {"0 " + some + "\n", "another public key for this node, 0"}}) {
    Agreeing it(0, 3);
    EXPECT_THAT(it.fault(text), HasSubstr(why)) << text;
  }
  Agreeing reflected(0, 3);
  EXPECT_THAT(reflected.fault("1 " + reflected.public_key() + "\n"), HasSubstr("this node's public key for node 1"));
  Agreeing silent(0, 3);
  EXPECT_THROW((void)agree_on_keys(node(0, 2), silent.says.in.get(), silent.told.out.get(), std::chrono::seconds(0)),
               SetupError);
  silent.told.out.reset();
  EXPECT_THROW((void)silent.keys.get(), SetupError);
}

}  // namespace
}  // namespace gradlane::test::pair_keys_test
