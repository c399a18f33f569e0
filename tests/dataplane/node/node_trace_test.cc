// node_trace_test.cc - traces of a node: one at a time, their records and their end, on a ring in virtual time
#include "dataplane/node/node_trace.h"

#include <gtest/gtest.h>

#include "tests/dataplane/cluster.h"

namespace gradlane::test::node_trace_test {
namespace {

constexpr size_t kElements = 50'000;

// Two nodes with a trainer each. Node 0 is traced.
class NodeTraceTest : public testing::Test {
 protected:
  NodeTraceTest() : trainers_{{cluster_, 0}, {cluster_, 1}} {
    for (Trainer& it : trainers_) {
      it.attach();
      it.add_segment(0, kElements * sizeof(float));
    }
  }

  void exchange() {
    uint64_t cookies[2];
    for (size_t i = 0; i < 2; ++i) {
      cookies[i] = trainers_[i].submit(submission_of(OpKind::kAllReduce, ElementType::kFloat32, kElements));
    }
    EXPECT_TRUE(cluster_.run_until([&] { return trainers_[0].over(cookies[0]) && trainers_[1].over(cookies[1]); }));
  }
  // Stops the trace. Workers notice that in their next round.
  void stop() {
    trace_.stop();
    EXPECT_FALSE(trace_.on());
    EXPECT_TRUE(cluster_.run_until([this] { return trace_.over(); }));
  }
  // Takes all records of the trace. Returns their number of words.
  size_t take_words() {
    size_t words = 0;
    for (bool more = true; more;) {
      for (const NodeTrace::Part& it : trace_.take(more)) words += it.words.size();
    }
    return words;
  }

  Cluster cluster_;
  Trainer trainers_[2];
  NodeTrace& trace_ = cluster_.node(0).trace();
};

TEST_F(NodeTraceTest, OneIsTakenAtATime) {
  const uint64_t one = trace_.start(cluster_.now());
  EXPECT_NE(one, 0U);
  EXPECT_TRUE(trace_.on());
  EXPECT_EQ(trace_.start(cluster_.now()), 0U) << "somebody else takes one";
  exchange();
  EXPECT_GT(take_words(), 0U);
  exchange();
  stop();
  EXPECT_EQ(trace_.start(cluster_.now()), 0U) << "its client has not fetched all of it";
  EXPECT_TRUE(trace_.renew(one, cluster_.now()));
  EXPECT_GT(take_words(), 0U);
  const uint64_t other = trace_.start(cluster_.now());
  EXPECT_EQ(other, one + 1);
  EXPECT_FALSE(trace_.renew(one, cluster_.now())) << "it is over";
  EXPECT_TRUE(trace_.renew(other, cluster_.now()));
  EXPECT_FALSE(trace_.renew(0, cluster_.now()));
}

TEST_F(NodeTraceTest, WhatNobodyFetchesIsKeptForALease) {
  ASSERT_NE(trace_.start(cluster_.now()), 0U);
  const Nanos asked = cluster_.now();
  exchange();
  stop();
  EXPECT_EQ(trace_.start(asked + NodeTrace::kLease - 1), 0U);
  EXPECT_NE(trace_.start(asked + NodeTrace::kLease), 0U);
  exchange();
  EXPECT_GT(take_words(), 0U);
}

TEST_F(NodeTraceTest, EndsWhenItsClientHasGone) {
  const Nanos began = cluster_.now();
  const uint64_t id = trace_.start(began);
  trace_.maintain(began + NodeTrace::kLease);
  EXPECT_TRUE(trace_.on());
  EXPECT_TRUE(trace_.renew(id, began + NodeTrace::kLease));
  trace_.maintain(began + 2 * NodeTrace::kLease);
  EXPECT_TRUE(trace_.on());
  trace_.maintain(began + 2 * NodeTrace::kLease + 1);
  EXPECT_FALSE(trace_.on());
}

TEST_F(NodeTraceTest, EndsAfterTheLongestTime) {
  const Nanos began = cluster_.now();
  const uint64_t id = trace_.start(began);
  for (Nanos time = 0; time <= NodeTrace::kLongest; time += kSecond) {
    EXPECT_TRUE(trace_.renew(id, began + time));
    trace_.maintain(began + time);
    EXPECT_TRUE(trace_.on());
  }
  trace_.maintain(began + NodeTrace::kLongest + 1);
  EXPECT_FALSE(trace_.on());
}

}  // namespace
}  // namespace gradlane::test::node_trace_test
