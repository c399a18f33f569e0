// test_calls.cc - makes and describes the calls of test_calls.h
#include "tests/compress/test_calls.h"

#include <algorithm>

namespace gradlane::test {
namespace {

template <class T>
std::span<const uint8_t> as_bytes(std::span<T> items) {
  return {reinterpret_cast<const uint8_t*>(items.data()), items.size_bytes()};
}

float* writable(Memory& memory, Memory::Slot slot, std::span<const float> floats) {
  uint8_t* const at = memory.output(slot, floats.size_bytes());
  std::copy_n(as_bytes(floats).data(), floats.size_bytes(), at);
  return reinterpret_cast<float*>(at);
}

}  // namespace

const uint8_t* HeapMemory::input(Slot slot, std::span<const uint8_t> data) {
  uint8_t* const at = output(slot, data.size());
  std::copy(data.begin(), data.end(), at);
  return at;
}

uint8_t* HeapMemory::output(Slot slot, size_t bytes) {
  // a new vector, because a resized one may have memory after its end
  slots_[slot] = std::vector<uint8_t>(offset_ + bytes);
  return slots_[slot].data() + offset_;
}

Outcome run(const Codec& codec, const Call& call, Memory& memory) {
  const size_t count = call.floats.size();
  const std::span block(memory.input(Memory::kBlock, call.block), call.block.size());
  const size_t bytes = bytes_of_elements(codec, count);
  const std::span<const uint8_t> elements = as_bytes(call.floats).first(bytes);
  const auto* in = reinterpret_cast<const float*>(memory.input(Memory::kFloats, elements));
  const size_t owed_floats = std::min(count, call.residual.size());
  const std::span owed(writable(memory, Memory::kResidual, call.residual.first(owed_floats)), owed_floats);
  const size_t second_floats = call.residual.size() - owed_floats;
  const std::span second(writable(memory, Memory::kSecond, call.residual.subspan(owed_floats)), second_floats);
  const bool writes_floats = call.op == Op::kDecode || call.op == Op::kDecodeAdd;
  const size_t room = writes_floats ? bytes : call.room;
  uint8_t* const out = memory.output(Memory::kOut, room);
  std::fill_n(out, room, uint8_t{0xa5});
  const std::span floats(reinterpret_cast<float*>(out), count);

  Outcome outcome;
  const auto wrote = [&](size_t consumed, size_t written) {
    outcome.floats = consumed;
    outcome.bytes.assign(out, out + written);
    for (const auto& state : {as_bytes(owed), as_bytes(second)}) {
      outcome.residual.insert(outcome.residual.end(), state.begin(), state.end());
    }
  };
  EncodeResult encoded{};
  HopResult hopped{};
  switch (call.op) {
    case Op::kEncode:
    case Op::kEncodeFeedback:
      encoded = call.op == Op::kEncode ? codec.encode({in, count}, {out, room})
                : second.empty()       ? codec.encode_feedback({in, count}, owed.data(), {out, room})
                                       : codec.encode({.in = in,
                                                       .residual = owed.data(),
                                                       .floats = count,
                                                       .out = out,
                                                       .room = room,
                                                       .second = second.data()});
      wrote(encoded.floats, encoded.bytes);
      break;
    case Op::kValidate:
      outcome.status = codec.validate(block, count);
      break;
    case Op::kDecode:
    case Op::kDecodeAdd:
      if (call.op == Op::kDecodeAdd) std::copy_n(elements.data(), bytes, out);
      outcome.status = call.op == Op::kDecode ? codec.decode(block, floats) : codec.decode_add(block, floats);
      if (outcome.status == Status::kOk) wrote(count, room);
      break;
    case Op::kHop:
    case Op::kHopFeedback:
      hopped = call.op == Op::kHop ? codec.hop(block, {in, count}, {out, room}, call.first)
               : second.empty()    ? codec.hop_feedback(block, {in, count}, owed.data(), {out, room}, call.first)
                                   : codec.hop({.block = block.data(),
                                                .block_bytes = block.size(),
                                                .local = in,
                                                .residual = owed.data(),
                                                .floats = count,
                                                .first = call.first,
                                                .out = out,
                                                .room = room,
                                                .second = second.data()});
      outcome.status = hopped.status;
      outcome.floats = hopped.floats;
      if (outcome.status == Status::kOk) wrote(hopped.floats, hopped.bytes);
      break;
  }
  return outcome;
}

CallData make_data(Rng& rng, const Codec& codec, const FloatSource& source, size_t floats) {
  CallData data;
  data.floats = source.make(rng, kKinds[rng.below(kKinds.size())], floats);
  data.residual = source.make(rng, rng.one_in(4) ? kKinds[rng.below(kKinds.size())] : Kind::kResidual, floats);
  data.block = make_block(rng, codec, source, kBlockKinds[rng.below(kBlockKinds.size())], floats);
  std::vector<float> values(floats);
  if (rng.one_in(3) && codec.decode(data.block, values) == Status::kOk) {
    // The local floats nearly cancel the values of the block, which are of any class.
    const std::vector<float> left = source.make(rng, rng.one_in(2) ? Kind::kResidual : Kind::kSteps, floats);
    for (size_t i = 0; i < floats; ++i) data.floats[i] = left[i] - values[i];
  }
  if (codec.states() > 1) {
    const std::vector<float> second = source.make(rng, kKinds[rng.below(kKinds.size())], floats);
    data.residual.insert(data.residual.end(), second.begin(), second.end());
  }
  return data;
}

std::vector<Call> make_calls(Rng& rng, const Codec& codec, const CallData& data) {
  const size_t floats = data.floats.size();
  const size_t max = codec.max_bytes(floats);
  const size_t usual = std::min(max, data.block.size());
  std::vector<Call> calls;
  const auto add = [&](Op op, size_t room, size_t first) {
    calls.push_back({op, data.block, data.floats, data.residual, room, first});
  };
  const auto limited = [&] {
    return rng.one_in(2) ? rng.below(max + 1) : usual + rng.below(9) - std::min<size_t>(usual, 4);
  };
  for (const Op op : {Op::kValidate, Op::kDecode, Op::kDecodeAdd}) add(op, 0, 0);
  for (const Op op : {Op::kEncode, Op::kEncodeFeedback, Op::kHop, Op::kHopFeedback}) {
    const bool feedback = op == Op::kEncodeFeedback || op == Op::kHopFeedback;
    if (feedback && !codec.has_feedback()) continue;
    add(op, max, 0);
    add(op, max + rng.below(130), 0);
    add(op, limited(), 0);
    if (op == Op::kEncode || op == Op::kEncodeFeedback) continue;
    const size_t first = rng.below(floats / codec.granule() + 1) * codec.granule();
    add(op, max, first);
    add(op, limited(), first);
  }
  return calls;
}

std::string describe(const Codec& codec, const Call& call) {
  constexpr const char* kNames[kOps] = {"encode", "encode_feedback", "validate", "decode", "decode_add",
                                        "hop",    "hop_feedback"};
  return codec.name() + " " + kNames[static_cast<size_t>(call.op)] + " of " + std::to_string(call.floats.size()) +
         " floats, block of " + std::to_string(call.block.size()) + " bytes, room " + std::to_string(call.room) +
         ", first " + std::to_string(call.first);
}

std::string difference(const Outcome& want, const Outcome& got) {
  const auto differ = [](const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
    const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
    return std::to_string(b.size()) + " for " + std::to_string(a.size()) +
           (a == b ? " bytes, equal" : " bytes, first difference at byte " + std::to_string(at));
  };
  return "status " + std::to_string(static_cast<int>(got.status)) + " for " +
         std::to_string(static_cast<int>(want.status)) + ", floats " + std::to_string(got.floats) + " for " +
         std::to_string(want.floats) + ", output " + differ(want.bytes, got.bytes) + ", residual " +
         differ(want.residual, got.residual);
}

}  // namespace gradlane::test
