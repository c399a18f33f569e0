// counter_set.h - counters that an enum numbers: their names and help texts, the set in which one thread counts, and
// the snapshot that other threads read
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/snapshot.h"

namespace gradlane {

// A Prometheus metric. One or several counters are its samples.
struct MetricFamily {
  const char* name;
  const char* label;  // label that distinguishes its counters; "": the metric has one counter
  const char* help;
  double unit = 1;  // factor from counts to the metric's unit
};

// The values of a counter enum go from 0 to kCount - 1. A table next to the enum has one row per value, in the same
// order:
//   enum class Bird : uint8_t { kFinch, kOwl, kCount };
//   inline constexpr CounterRow<Bird> kBirdRows[] = {{Bird::kFinch, "finch", "finches seen"},
//                                                    {Bird::kOwl, "owl", "owls heard"}};
//   static_assert(is_complete(kBirdRows));
//   constexpr const auto& counter_rows(Bird) noexcept { return kBirdRows; }
template <class Enum>
struct CounterRow {
  Enum counter;
  const char* name;                      // name in JSON documents: short and stable
  const char* help;                      // text that says what is counted
  const MetricFamily* metric = nullptr;  // null: exported to Prometheus in another way, for example per codec
  const char* label_value = nullptr;     // value of the metric's label; null: `name`
};

// Returns whether the rows have all values in order, distinct names of small letters, digits and "_", and a help text
// each.
template <class Enum, size_t kRows>
consteval bool is_complete(const CounterRow<Enum> (&rows)[kRows]) {
  if (kRows != static_cast<size_t>(Enum::kCount)) return false;
  for (size_t i = 0; i < kRows; ++i) {
    const std::string_view name = rows[i].name;
    if (static_cast<size_t>(rows[i].counter) != i || name.empty() || *rows[i].help == '\0') return false;
    if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string_view::npos) return false;
    for (size_t other = 0; other < i; ++other) {
      if (name == rows[other].name) return false;
    }
  }
  return true;
}

template <class Enum>
concept CounterEnum = requires(Enum counter) {
  Enum::kCount;
  counter_rows(counter);
};

template <CounterEnum Enum>
inline constexpr size_t kCounterCount = static_cast<size_t>(Enum::kCount);

template <CounterEnum Enum>
[[nodiscard]] constexpr const char* counter_name(Enum counter) noexcept {
  return counter_rows(counter)[static_cast<size_t>(counter)].name;
}
template <CounterEnum Enum>
[[nodiscard]] constexpr const char* counter_help(Enum counter) noexcept {
  return counter_rows(counter)[static_cast<size_t>(counter)].help;
}

// Name, texts and value of one counter, for code that prints all counters.
struct CounterValue {
  const char* name;
  const char* help;
  uint64_t value;
  const MetricFamily* metric = nullptr;
  const char* label_value = nullptr;
};

template <CounterEnum Enum>
[[nodiscard]] constexpr CounterValue counter_value(Enum counter, uint64_t value) noexcept {
  const CounterRow<Enum>& row = counter_rows(counter)[static_cast<size_t>(counter)];
  return {row.name, row.help, value, row.metric, row.label_value != nullptr ? row.label_value : row.name};
}

// Calls visit(row) for each counter of an enum, in order.
template <CounterEnum Enum, class Visit>
void for_each_counter(Visit visit) {
  for (const CounterRow<Enum>& row : counter_rows(Enum{})) visit(row);
}

// The counters of one thread. Counting is a plain addition.
template <CounterEnum Enum>
class CounterSet {
 public:
  void add(Enum counter, uint64_t n = 1) noexcept { values_[static_cast<size_t>(counter)] += n; }
  void set(Enum counter, uint64_t value) noexcept { values_[static_cast<size_t>(counter)] = value; }
  [[nodiscard]] uint64_t operator[](Enum counter) const noexcept { return values_[static_cast<size_t>(counter)]; }

 private:
  std::array<uint64_t, kCounterCount<Enum>> values_{};
};

// A copy of a CounterSet that any thread may read. The owner of the set publishes its values from time to time.
template <CounterEnum Enum>
class CounterSnapshot {
 public:
  [[nodiscard]] bool due(Nanos now) noexcept { return values_.due(now); }
  void publish(const CounterSet<Enum>& counters) noexcept {
    for (size_t i = 0; i < kCounterCount<Enum>; ++i) values_.set(i, counters[static_cast<Enum>(i)]);
  }

  // ---- Any thread
  [[nodiscard]] uint64_t operator[](Enum counter) const noexcept { return values_[static_cast<size_t>(counter)]; }
  // Calls visit(CounterValue) for each counter, in order.
  template <class Visit>
  void for_each(Visit visit) const {
    for_each_counter<Enum>(
        [&](const CounterRow<Enum>& row) { visit(counter_value(row.counter, (*this)[row.counter])); });
  }

 private:
  Snapshot<kCounterCount<Enum>> values_;
};

}  // namespace gradlane
