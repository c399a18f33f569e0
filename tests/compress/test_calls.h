// test_calls.h - calls of codecs that the tests and fuzz targets share; knows no test framework
//
// A Call is one call of a Codec with all its inputs; run() makes it with inputs and outputs laid out by a Memory, and
// returns everything the contract lets a caller look at. So a test says what to call and where the spans lie, and
// compares outcomes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compress/codec.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test {

enum class Op : uint8_t { kEncode, kEncodeFeedback, kValidate, kDecode, kDecodeAdd, kHop, kHopFeedback };
inline constexpr size_t kOps = 7;

struct Call {
  Op op;
  std::span<const uint8_t> block;
  std::span<const float> floats;    // encode: in; hop: local; decode_add: accumulator; else only their number counts
  std::span<const float> residual;  // as many, or twice as many: a second state
  size_t room = 0;
  size_t first = 0;
};

// What came of a call. Where the status is bad nothing but the status is specified, and the rest stays empty.
struct Outcome {
  Status status = Status::kOk;
  size_t floats = 0;              // consumed
  std::vector<uint8_t> bytes;     // the block written, or the floats decoded
  std::vector<uint8_t> residual;  // all of it after the call

  bool operator==(const Outcome&) const = default;
};

// Lays out the spans of one call at a time.
class Memory {
 public:
  enum Slot : uint8_t { kBlock, kFloats, kResidual, kSecond, kOut, kSlots };
  virtual ~Memory() = default;
  // A copy of `data` that nobody needs to write.
  virtual const uint8_t* input(Slot slot, std::span<const uint8_t> data) = 0;
  // `bytes` bytes to write.
  virtual uint8_t* output(Slot slot, size_t bytes) = 0;
};

// Each span in an allocation of its own that ends where the span ends, and begins `offset` bytes before it.
class HeapMemory : public Memory {
 public:
  explicit HeapMemory(size_t offset = 0) : offset_(offset) {}
  const uint8_t* input(Slot slot, std::span<const uint8_t> data) override;
  uint8_t* output(Slot slot, size_t bytes) override;

 private:
  size_t offset_;
  std::array<std::vector<uint8_t>, kSlots> slots_;
};

Outcome run(const Codec& codec, const Call& call, Memory& memory);

// Data for calls of every op: as many floats as the block has, and as many states as the codec.
struct CallData {
  std::vector<float> floats;
  std::vector<float> residual;
  std::vector<uint8_t> block;
};

CallData make_data(Rng& rng, const Codec& codec, const FloatSource& source, size_t floats);

// Every op the codec has on `data`, with full and limited room, from the first float on and from a later one.
std::vector<Call> make_calls(Rng& rng, const Codec& codec, const CallData& data);

// One line that tells a call from others, and what differs between two outcomes.
std::string describe(const Codec& codec, const Call& call);
std::string difference(const Outcome& want, const Outcome& got);

}  // namespace gradlane::test
