// counted.h - what a port queue has counted, by name
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "dataplane/lane/port_queue.h"

namespace gradlane::test {

// None: there is no counter of that name.
template <class Enum>
std::optional<uint64_t> find_counter(const CounterSet<Enum>& counters, const std::string& name) {
  std::optional<uint64_t> value;
  for_each_counter<Enum>([&](const CounterRow<Enum>& row) {
    if (name == row.name) value = counters[row.counter];
  });
  return value;
}

// A verdict and a class have one name: it is the verdict's here.
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
