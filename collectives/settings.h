// settings.h - defaults and ranges of the settings of an exchange, which configuration files may change
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/time.h"
#include "collectives/wire.h"

namespace gradlane {

inline constexpr size_t kMinWindow = 2;
inline constexpr size_t kMaxWindow = 4096;
inline constexpr size_t kMaxOperations = 256;

// The default and the range of a setting, for ExchangeConfig and for the configuration file.
template <class T>
struct SettingRange {
  T standard;
  T least;
  T most;
};
namespace settings {

inline constexpr SettingRange<size_t> kWindow = {256, kMinWindow, kMaxWindow};
inline constexpr SettingRange<size_t> kOperations = {16, 1, kMaxOperations};
inline constexpr SettingRange<size_t> kMaxTensor = {size_t{256} << 20, kGranuleBytes, size_t{1} << 38};
inline constexpr SettingRange<size_t> kQueueTarget = {16, 1, kMaxWindow};
inline constexpr SettingRange<Nanos> kPeerTimeout = {2 * kSecond, 10 * kMillisecond, 3600 * kSecond};
inline constexpr SettingRange<Nanos> kStartTimeout = {10 * kSecond, kMillisecond, 36000 * kSecond};
inline constexpr SettingRange<Nanos> kOperationTimeout = {60 * kSecond, kMillisecond, 36000 * kSecond};
// Shortest retransmission timeout. docs/exchange.md, "Tuning", says when to change it.
inline constexpr SettingRange<Nanos> kMinRto = {5 * kMillisecond, 10 * kMicrosecond, kSecond};

}  // namespace settings

}  // namespace gradlane
