// operation.cc - names of types and kinds, and failures in words (logs and error texts, not per packet)
#include "collectives/operation.h"

#include <cinttypes>
#include <cstdio>

#include "collectives/diagnosis.h"

namespace gradlane {

namespace {

const char* field_name(Field field) noexcept {
  switch (field) {
    case Field::kNone:
      break;
    case Field::kVersion:
      return "protocol version";
    case Field::kWorld:
      return "number of ranks";
    case Field::kRank:
      return "rank";
    case Field::kRankTable:
      return "rank table";
    case Field::kMtu:
      return "mtu";
    case Field::kCodec:
      return "codec";
    case Field::kKind:
      return "kind";
    case Field::kType:
      return "type";
    case Field::kCount:
      return "count";
    case Field::kRoot:
      return "root";
    case Field::kAverage:
      return "average";
    case Field::kTag:
      return "tag";
    case Field::kNodes:
      return "nodes";
    case Field::kTrainers:
      return "trainers";
    case Field::kLocalReduce:
      return "local_reduce";
    case Field::kLanes:
      return "workers.lanes";
    case Field::kUdpPort:
      return "udp_port";
    case Field::kTosCompressed:
      return "tos.compressed";
    case Field::kTosRaw:
      return "tos.raw";
    case Field::kTosControl:
      return "tos.control";
    case Field::kAddresses:
      return "addresses in `nodes`, as a digest";
    case Field::kArrivedTos:
    case Field::kPacketSize:
    case Field::kNoAnswer:
      break;
  }
  return "?";
}

std::string unknown(const std::string& value) { return "unknown (" + value + ")"; }

std::string codec_text(uint64_t value) {
  const uint64_t id = value >> 8;
  const auto param = static_cast<uint8_t>(value);
  if (id <= UINT8_MAX) {
    if (const auto codec = find_codec(static_cast<CodecId>(id), param, Isa::kScalar)) return codec->name();
  }
  return unknown("id " + std::to_string(id) + ", parameter " + std::to_string(param));
}

std::string hex_text(uint64_t value) {
  char text[2 + 16 + 1];
  std::snprintf(text, sizeof text, "0x%016" PRIx64, value);
  return text;
}

std::string tos_text(uint64_t value) {
  char text[2 + 2 + 1];
  std::snprintf(text, sizeof text, "0x%02x", static_cast<unsigned>(value & 0xff));
  return text;
}

// Of a neighbour that does not answer: why, and what to do.
std::string silence_text(const Failure& failure) {
  constexpr const char* kCheck = "; run gradlane check on both";
  const Way way = way_of(failure.ours);
  const std::string from = "rank " + std::to_string(way.from);
  const std::string to = "rank " + std::to_string(way.to);
  switch (failure.field) {
    case Field::kArrivedTos:
      return "packets of " + from + " arrive at " + to + " with ToS " + tos_text(failure.theirs) +
             ", which is none of `tos`: a switch between them rewrites DSCP" + kCheck;
    case Field::kPacketSize: {
      const std::string most = std::to_string(failure.theirs) + " bytes do";
      return "packets of " + std::to_string(way.bytes) + " bytes from " + from + " do not arrive at " + to +
             (failure.theirs != 0 ? ", those of " + most : ", short ones do") +
             ": the MTU of an interface or a switch port between them is less" + kCheck;
    }
    case Field::kNoAnswer:
      return to + " is heard, but packets of " + from + " do not arrive there: something on the way drops them" +
             kCheck;
    default:
      return "rank " + std::to_string(failure.rank) +
             " has been silent for too long: it has died, hangs, or cannot be reached";
  }
}

// Values may come from another rank: any number must do.
std::string value_text(Field field, uint64_t value) {
  switch (field) {
    case Field::kCodec:
      return codec_text(value);
    case Field::kRankTable:
      return hex_text(value);
    case Field::kKind:
      if (value <= static_cast<uint64_t>(OpKind::kBarrier)) return op_name(static_cast<OpKind>(value));
      return unknown(std::to_string(value));
    case Field::kType:
      if (value <= static_cast<uint64_t>(ElementType::kBytes)) return element_name(static_cast<ElementType>(value));
      return unknown(std::to_string(value));
    case Field::kTosCompressed:
    case Field::kTosRaw:
    case Field::kTosControl:
      return tos_text(value);
    case Field::kAddresses:
      return hex_text(value).erase(2, 8);
    case Field::kLocalReduce:
      return value != 0 ? "true" : "false";
    case Field::kAverage:
      return value != 0 ? "yes" : "no";
    default:
      return std::to_string(value);
  }
}

}  // namespace

std::string difference_text(const Failure& failure, const std::string& here, const std::string& there) {
  if (failure.field == Field::kNone) return "";
  return std::string(": ") + field_name(failure.field) + ": " + value_text(failure.field, failure.ours) + " " + here +
         ", " + value_text(failure.field, failure.theirs) + " " + there;
}

size_t element_bytes(ElementType type) noexcept {
  switch (type) {
    case ElementType::kFloat64:
    case ElementType::kInt64:
      return 8;
    case ElementType::kFloat32:
    case ElementType::kInt32:
      return 4;
    case ElementType::kFloat16:
    case ElementType::kBfloat16:
      return 2;
    case ElementType::kBytes:
      break;
  }
  return 1;
}

const char* element_name(ElementType type) noexcept {
  switch (type) {
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kFloat64:
      return "float64";
    case ElementType::kFloat16:
      return "float16";
    case ElementType::kBfloat16:
      return "bfloat16";
    case ElementType::kInt32:
      return "int32";
    case ElementType::kInt64:
      return "int64";
    case ElementType::kBytes:
      return "bytes";
  }
  return "?";
}

const char* op_name(OpKind kind) noexcept {
  switch (kind) {
    case OpKind::kAllReduce:
      return "all-reduce";
    case OpKind::kReduceScatter:
      return "reduce-scatter";
    case OpKind::kAllGather:
      return "all-gather";
    case OpKind::kBroadcast:
      return "broadcast";
    case OpKind::kBarrier:
      return "barrier";
  }
  return "?";
}

namespace {

// "02:00:00:00:00:01", "life 0x1234".
std::string source_text(uint64_t source) {
  char text[32];
  const auto byte = [source](unsigned i) { return static_cast<unsigned>(source >> 8 * i & 0xff); };
  if ((source & kMacSource) == 0) {
    std::snprintf(text, sizeof(text), "life %#llx", static_cast<unsigned long long>(source));
  } else {
    std::snprintf(text, sizeof(text), "%02x:%02x:%02x:%02x:%02x:%02x", byte(0), byte(1), byte(2), byte(3), byte(4),
                  byte(5));
  }
  return text;
}

// Of whom they are not known where an older version is on the way.
std::string sources_text(const Failure& failure) {
  return failure.ours == 0 ? "" : ", " + source_text(failure.ours) + " and " + source_text(failure.theirs);
}

}  // namespace

std::string failure_text(const Failure& failure) {
  const std::string rank = "rank " + std::to_string(failure.rank);
  switch (failure.code) {
    case FailureCode::kNone:
      return "no failure";
    case FailureCode::kSilent:
      return silence_text(failure);
    case FailureCode::kRestarted:
      return rank + " has restarted, and knows nothing of the operations that were in flight";
    case FailureCode::kRefused:
      return rank + " is configured differently" + difference_text(failure, "here", "there");
    case FailureCode::kMismatch:
      return rank + " runs another operation" + difference_text(failure, "on the rank that noticed", "on " + rank);
    case FailureCode::kAborted:
      return "cancelled on " + rank;
    case FailureCode::kNoRing:
      return "the ring did not come up in time: " +
             (failure.field == Field::kNone ? "nothing was heard of " + rank : silence_text(failure));
    case FailureCode::kStuck:
      return "the operation took too long: it was waiting for " + rank;
    case FailureCode::kClosed:
      return rank + " has left, or was shut down";
    case FailureCode::kDoubled:
      return rank + " is two machines at once" + sources_text(failure) +
             ": has one of them the configuration of another node?";
  }
  // What another rank sent.
  return "unknown failure " + std::to_string(static_cast<unsigned>(failure.code)) + ", " + rank;
}

}  // namespace gradlane
