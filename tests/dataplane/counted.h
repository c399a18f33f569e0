// counted.h - lookup of a port queue's counters by name
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "dataplane/lane/port_queue.h"

namespace gradlane::test {

// Returns the value of the counter with that name; std::nullopt if there is none.
template <class Enum>
std::optional<uint64_t> find_counter(const CounterSet<Enum>& counters, const std::string& name) {
  std::optional<uint64_t> value;
  for_each_counter<Enum>([&](const CounterRow<Enum>& row) {
    if (name == row.name) value = counters[row.counter];
  });
  return value;
}

// Searches events, verdicts and classes, in this order. So if a verdict and a class have the same name, it returns the
// verdict's counter.
inline std::optional<uint64_t> find_counter(const PortQueue& queue, const std::string& name) {
  const QueueCounters& counters = queue.counters();
  if (const auto event = find_counter(counters.events, name)) return event;
  if (const auto verdict = find_counter(counters.verdicts, name)) return verdict;
  return find_counter(counters.classes, name);
}

inline uint64_t counted_by(const PortQueue& queue, const std::string& name) {
  const auto value = find_counter(queue, name);
  EXPECT_TRUE(value) << "there is no counter " << name;
  return value.value_or(0);
}

}  // namespace gradlane::test
