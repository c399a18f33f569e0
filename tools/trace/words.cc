// words.cc - texts for parts of a trace (pure functions)
#include "tools/trace/words.h"

#include <fmt/format.h>

#include "collectives/operation.h"
#include "compress/codec.h"
#include "compress/isa.h"
#include "tools/stats/parts.h"

namespace gradlane {

std::string bytes_text(uint64_t bytes) {
  constexpr uint64_t kKibi = 1024;
  if (bytes >= kKibi * kKibi) return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / (kKibi * kKibi));
  if (bytes >= kKibi) return fmt::format("{:.4g} KiB", static_cast<double>(bytes) / kKibi);
  return fmt::format("{} B", bytes);
}

std::string operation_text(const TraceOperation& operation) {
  const auto kind = static_cast<OpKind>(operation.what & 0xff);
  if (kind > kLastKind) return "operation";
  if (kind == OpKind::kBarrier) return op_name(kind);
  const auto codec = find_codec(static_cast<CodecId>(operation.what >> 16 & 0xff),
                                static_cast<uint8_t>(operation.what >> 24 & 0xff), Isa::kScalar);
  const auto type = static_cast<ElementType>(operation.what >> 8 & 0xff);
  std::string text = fmt::format("{} {}", op_name(kind), bytes_text(operation.bytes));
  if (type == ElementType::kFloat32 && codec) return text + " " + codec->name();
  if (type > ElementType::kBytes) return text;
  text = text + " " + element_name(type);
  return codec && codec->id() != kNoCodec ? text + " " + codec->name() : text;
}

std::string duration_text(double nanos) {
  if (nanos < 1e6) return digits(nanos / 1e3) + " us";
  return nanos < 1e9 ? digits(nanos / 1e6) + " ms" : digits(nanos / 1e9) + " s";
}

std::string rank_text(unsigned rank, unsigned ranks_per_node) {
  return fmt::format("{} {}", ranks_per_node == 1 ? "node" : "rank", rank);
}

const char* cause_name(TraceCause cause) {
  switch (cause) {
    case TraceCause::kRing:
      return "ring";
    case TraceCause::kScan:
      return "look";
    case TraceCause::kStart:
      return "start";
    case TraceCause::kLink:
      return "link";
    case TraceCause::kPackets:
      return "packets";
    case TraceCause::kWork:
      return "work";
    case TraceCause::kCount:
      break;
  }
  return "other";
}

std::string cause_text(TraceCause cause, const std::string& whom) {
  switch (cause) {
    case TraceCause::kRing:
      return "the ring is not ready: " + whom;
    case TraceCause::kScan:
      return "the codec scans the tensor";
    case TraceCause::kStart:
      return whom + " has not started it";
    case TraceCause::kLink:
      return "the link to " + whom + " is full";
    case TraceCause::kPackets:
      return "packets of " + whom;
    case TraceCause::kWork:
      return "this node's worker";
    case TraceCause::kCount:
      break;
  }
  return "other";
}

}  // namespace gradlane
