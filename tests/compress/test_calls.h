// test_calls.h - calls of codecs that the tests and fuzz targets share. It needs no test framework.
//
// A Call is one call of a Codec with all its inputs. run() makes the call with inputs and outputs in a Memory. It
// returns everything that the contract specifies. So a test says what to call and where the spans lie, and compares
// outcomes.
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
  // encode: in; hop: local; decode_add: accumulator; other ops use only the number of these floats
  std::span<const float> floats;
  // as many values as floats, or twice as many: the second half is then the second state
  std::span<const float> residual;
  size_t room = 0;
  size_t first = 0;
};

// The outcome of a call. If the status is bad, only the status is specified, and the rest stays empty.
struct Outcome {
  Status status = Status::kOk;
  size_t floats = 0;              // number of floats consumed
  std::vector<uint8_t> bytes;     // the block written, or the floats decoded
  std::vector<uint8_t> residual;  // all states after the call

  bool operator==(const Outcome&) const = default;
};

// Lays out the spans of one call at a time.
class Memory {
 public:
  enum Slot : uint8_t { kBlock, kFloats, kResidual, kSecond, kOut, kSlots };
  virtual ~Memory() = default;
  // Returns a copy of `data` that the call only reads.
  virtual const uint8_t* input(Slot slot, std::span<const uint8_t> data) = 0;
  // Returns `bytes` bytes for the call to write.
  virtual uint8_t* output(Slot slot, size_t bytes) = 0;
};

// Puts each span into an allocation of its own. The span begins `offset` bytes after the start of the allocation, and
// both end at the same byte.
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

// Returns a call of every op that the codec has, on `data`: with full and limited room, from the first float on and
// from a later one.
std::vector<Call> make_calls(Rng& rng, const Codec& codec, const CallData& data);

// Return a line that identifies a call, and a text that says how two outcomes differ.
std::string describe(const Codec& codec, const Call& call);
std::string difference(const Outcome& want, const Outcome& got);

}  // namespace gradlane::test
