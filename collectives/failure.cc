// failure.cc - texts of failures, for logs and error messages
#include "collectives/failure.h"

#include "base/time.h"
#include "collectives/auto_scope.h"
#include "collectives/codec_value.h"
#include "collectives/diagnosis.h"
#include "collectives/op_kind.h"
#include "collectives/strategy/strategy_id.h"

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
    case Field::kReduction:
      return "reduction";
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
      return "addresses or order of `nodes` (digest)";
    case Field::kStrategy:
      return "strategy";
    case Field::kStrategies:
      return "strategies";
    case Field::kBackCodec:
      return "codec of the way back";
    case Field::kAutoScope:
      return "codec and strategy";
    case Field::kChoice:
      return "who chooses codec and strategy";
    case Field::kArrivedTos:
    case Field::kPacketSize:
    case Field::kNoAnswer:
    case Field::kPathMtu:
    case Field::kTensor:
    case Field::kEncoded:
      break;
  }
  return "?";
}

void add_codec(FailureText& text, uint64_t value) noexcept {
  const auto id = static_cast<uint8_t>(value >> 8);
  const CodecArguments arguments = arguments_of(value);
  if (const auto codec = find_codec(static_cast<CodecId>(id), arguments, Isa::kScalar)) {
    text.add(codec->short_name().view());
    return;
  }
  text.add("unknown (id ").add(id).add(", parameter ").add(arguments.bits);
  if (more_arguments(arguments) != 0) text.add(", 0x").add(more_arguments(arguments), 16);
  text.add(")");
}

void add_auto_scope(FailureText& text, uint64_t value) noexcept {
  const AutoScope it = auto_scope_of(value);
  constexpr const char* kCodecs[] = {"auto", "auto:2^-", "auto:rel="};
  if (it.codec) text.add(kCodecs[it.codec->bound]);
  if (it.codec && it.codec->bound != GL_BOUND_EXACT) text.add(it.codec->bits);
  if (it.strategy) text.add(it.codec ? " and " : "").add("strategy auto");
  if (!it.codec && !it.strategy) text.add("no auto");
}

void add_tos(FailureText& text, uint64_t value) noexcept { text.add("0x").add(value & 0xff, 16, 2); }

// Appends why a neighbour does not answer, and what to do about it.
void add_silence(FailureText& text, const Failure& failure) noexcept {
  constexpr const char* kCheck = "; run gradlane check on both";
  const PacketPath path = path_of(failure.ours);
  switch (failure.field) {
    case Field::kArrivedTos:
      text.add("packets of rank ").add(path.from).add(" arrive at rank ").add(path.to).add(" with ToS ");
      add_tos(text, failure.theirs);
      text.add(", which is not in `tos`: a switch between them rewrites DSCP").add(kCheck);
      return;
    case Field::kPacketSize:
      text.add("packets of ").add(path.bytes).add(" bytes from rank ").add(path.from);
      text.add(" do not arrive at rank ").add(path.to);
      if (failure.theirs != 0) text.add(", but those of ").add(failure.theirs).add(" bytes do");
      if (failure.theirs == 0) text.add(", but short ones do");
      text.add(": the MTU of an interface or a switch port between them is too small").add(kCheck);
      return;
    case Field::kPathMtu:
      text.add("packets of ").add(path.bytes).add(" bytes from rank ").add(path.from);
      text.add(" do not arrive at rank ").add(path.to).add(": the path takes at most ").add(failure.theirs);
      text.add(" (found by probes): set mtu: ").add(failure.theirs).add(" on all nodes, or fix the path").add(kCheck);
      return;
    case Field::kNoAnswer:
      text.add("rank ").add(path.to).add(" is heard, but packets of rank ").add(path.from);
      text.add(" do not arrive there: something on the way drops them").add(kCheck);
      return;
    default:
      text.add("rank ").add(failure.rank);
      text.add(" has been silent for too long: it has died, hangs, or cannot be reached");
  }
}

// Appends a value of a field. It may come from another rank, so any number must work.
void add_value(FailureText& text, Field field, uint64_t value) noexcept {
  const auto name_or_number = [&](bool known, const char* name) {
    if (known) {
      text.add(name);
    } else {
      text.add("unknown (").add(value).add(")");
    }
  };
  switch (field) {
    case Field::kCodec:
    case Field::kBackCodec:
      return add_codec(text, value);
    case Field::kStrategy: {
      const auto strategy = strategy_of(static_cast<uint32_t>(value));
      return name_or_number(strategy.has_value(), strategy.value_or(StrategyId{}).name().c_str());
    }
    case Field::kReduction:
      return name_or_number(value <= static_cast<uint64_t>(Reduction::kMax),
                            reduction_name(static_cast<Reduction>(value)));
    case Field::kRankTable:
      text.add("0x").add(value, 16, 16);
      return;
    case Field::kStrategies:
      text.add(packed_names(value).view());
      return;
    case Field::kAddresses:
      text.add("0x").add(value & UINT32_MAX, 16, 8);
      return;
    case Field::kKind:
      return name_or_number(value <= static_cast<uint64_t>(kLastKind), op_name(static_cast<OpKind>(value)));
    case Field::kType:
      return name_or_number(value <= static_cast<uint64_t>(ElementType::kBytes),
                            element_name(static_cast<ElementType>(value)));
    case Field::kTosCompressed:
    case Field::kTosRaw:
    case Field::kTosControl:
      return add_tos(text, value);
    case Field::kAutoScope:
      return add_auto_scope(text, value);
    case Field::kChoice:
      text.add(value != 0 ? "gradlane (auto)" : "the caller");
      return;
    case Field::kLocalReduce:
      text.add(value != 0 ? "true" : "false");
      return;
    case Field::kMtu:
      text.add(value & ~uint64_t{kInSegments}).add((value & kInSegments) != 0 ? " with segments" : "");
      return;
    default:
      text.add(value);
  }
}

// Appends a MAC address or an incarnation: "02:00:00:00:00:01", "process 0x1234".
void add_source(FailureText& text, uint64_t source) noexcept {
  if ((source & kMacSource) == 0) {
    text.add(source == 0 ? "process " : "process 0x").add(source, 16);
    return;
  }
  for (unsigned i = 0; i < 6; ++i) text.add(i == 0 ? "" : ":").add(source >> 8 * i & 0xff, 16, 2);
}

// Appends the time limit of an operation that took too long. Older versions do not send it.
void add_limit(FailureText& text, const Failure& failure) noexcept {
  if (failure.ours == 0) return;
  const bool even = failure.ours % kSecond == 0;
  text.add(" (limit: ").add(failure.ours / (even ? kSecond : kMillisecond)).add(even ? " s" : " ms");
  text.add(failure.theirs != 0 ? ", timeouts.operation)" : ")");
}

}  // namespace

void add_difference(FailureText& text, const Failure& failure, std::string_view here, std::string_view there) noexcept {
  if (failure.field == Field::kNone) return;
  text.add(": ").add(field_name(failure.field)).add(": ");
  add_value(text, failure.field, failure.ours);
  text.add(" ").add(here).add(", ");
  add_value(text, failure.field, failure.theirs);
  text.add(" ").add(there);
  if (failure.field == Field::kMtu && ((failure.ours ^ failure.theirs) & kInSegments) != 0) {
    text.add("; set `segments` alike on all nodes");
  }
  if (failure.field == Field::kChoice) text.add("; all ranks must use auto alike and resume together");
}

std::string difference_text(const Failure& failure, const std::string& here, const std::string& there) {
  FailureText text;
  add_difference(text, failure, here, there);
  return std::string(text.view());
}

void add_failure(FailureText& text, const Failure& failure) noexcept {
  const auto rank = [&]() -> FailureText& { return text.add("rank ").add(failure.rank); };
  switch (failure.code) {
    case FailureCode::kNone:
      text.add("no failure");
      return;
    case FailureCode::kSilent:
      return add_silence(text, failure);
    case FailureCode::kRestarted:
      rank().add(" has restarted and lost the operations that were in flight");
      return;
    case FailureCode::kRefused:
      rank().add(" is configured differently");
      return add_difference(text, failure, "here", "there");
    case FailureCode::kMismatch: {
      rank().add(" runs another operation");
      FixedText<32> there = "on rank ";
      there.add(failure.rank);
      add_difference(text, failure, "on the rank that found this", there.view());
      if (failure.field != Field::kChoice) text.add("; all ranks must call the same operations in the same order");
      return;
    }
    case FailureCode::kAborted:
      if (failure.field == Field::kEncoded) {
        text.add("the encoded contribution of ");
        rank().add(" is malformed, or not of this codec and count");
        return;
      }
      text.add(failure.field == Field::kTensor ? "stopped on " : "cancelled on ");
      rank();
      if (failure.field == Field::kTensor) text.add(": its trainer wrote to the tensor while the operation ran");
      return;
    case FailureCode::kNoRing:
      text.add("the ring did not come up in time: ");
      if (failure.field != Field::kNone) return add_silence(text, failure);
      text.add("nothing was heard from ");
      rank();
      return;
    case FailureCode::kStuck:
      text.add("the operation took too long: it was waiting for ");
      rank();
      return add_limit(text, failure);
    case FailureCode::kClosed:
      rank().add(" has left, or was shut down");
      return;
    case FailureCode::kDuplicateRank:
      rank().add(" is used by two machines");
      // The two machines are unknown if the failure passed through a node with an older version.
      if (failure.ours != 0) {
        add_source(text.add(", "), failure.ours);
        add_source(text.add(" and "), failure.theirs);
      }
      text.add(": does one of them use the configuration of another node?");
      return;
  }
  // This version does not know the code that another rank sent.
  text.add("unknown failure ").add(static_cast<unsigned>(failure.code)).add(", ");
  rank();
}

std::string failure_text(const Failure& failure) {
  FailureText text;
  add_failure(text, failure);
  return std::string(text.view());
}

}  // namespace gradlane
