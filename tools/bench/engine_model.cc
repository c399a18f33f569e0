// engine_model.cc - clocked model of the INCEPTIONN paper's NIC engine (tools and tests; no packet passes through it)
#include "tools/bench/engine_model.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/error.h"

namespace gradlane {
namespace {

constexpr uint32_t kBias = 127;
constexpr uint32_t kMantissaBits = 23;
constexpr size_t kPayloadBytes[] = {0, 1, 2, 4};  // payload of a lane, by its tag

// The format of payloads with tag 1 or 2: a sign above `width` bits of the fraction M. The last bit of M weighs
// 2^-point.
struct Field {
  uint32_t width;
  uint32_t point;
};

// Returns the format. Magnitudes with tag 1 are below 2^-floor(b/2), so their guaranteed leading zeros are dropped.
Field field_of(EngineParams params, unsigned tag) { return tag == 1 ? Field{7, params.bits / 2 + 7} : Field{15, 15}; }

unsigned tag_of(unsigned tags, size_t lane) { return tags >> (2 * lane) & 3; }

struct LaneCode {
  unsigned tag;
  uint32_t payload;
};

// Models a compression block. It shifts the significand until the exponent would be 127, and rounds the fraction to 15
// bits, to even on a tie. These bits decide the tag. A value that rounds up to 1 has no such code and is not changed.
LaneCode compress_lane(EngineParams params, uint32_t word) {
  const uint32_t sign = word >> 31;
  const uint32_t exponent = word >> kMantissaBits & 0xff;
  if (exponent >= kBias) return {3, word};
  // below 2^-(b+1), so it rounds to 0; hence the shifts below are at most 23
  if (exponent + 1 < kBias - params.bits) return {0, 0};
  const Field wide = field_of(params, 2);
  const Field narrow = field_of(params, 1);

  const uint32_t significand = 1U << kMantissaBits | (word & ((1U << kMantissaBits) - 1));
  const uint32_t shift = (kBias - exponent) + (kMantissaBits - wide.point);
  const uint32_t below_half = (1U << (shift - 1)) - 1;
  const uint32_t round = params.truncate ? 0 : below_half + (significand >> shift & 1);
  const uint32_t fraction = (significand + round) >> shift;
  if (fraction >> wide.width != 0) return {3, word};
  if (fraction >> (wide.point - params.bits) == 0) return {0, 0};

  const uint32_t dropped = wide.point - narrow.point;
  const uint32_t half = params.truncate ? 0 : 1U << (dropped - 1);
  const uint32_t byte = (fraction + half) >> dropped;
  if (byte >> narrow.width == 0) return {1, sign << narrow.width | byte};
  return {2, sign << wide.width | fraction};
}

// Models a decompression block. The position of the leading one gives the exponent. The bits after it are the mantissa.
uint32_t decompress_lane(EngineParams params, unsigned tag, uint32_t payload) {
  if (tag == 0) return 0;
  if (tag == 3) return payload;
  const Field field = field_of(params, tag);
  const uint32_t kept = payload & ((1U << field.width) - 1);
  if (kept == 0) return 0;
  const auto leading = static_cast<uint32_t>(std::bit_width(kept)) - 1;
  const uint32_t exponent = kBias - field.point + leading;
  const uint32_t mantissa = (kept ^ 1U << leading) << (kMantissaBits - leading);
  return payload >> field.width << 31 | exponent << kMantissaBits | mantissa;
}

size_t payload_bytes(unsigned tags) {
  size_t bytes = 0;
  for (size_t lane = 0; lane < kEngineLanes; ++lane) bytes += kPayloadBytes[tag_of(tags, lane)];
  return bytes;
}

EngineParams checked(EngineParams params) {
  if (params.bits < 2 || params.bits > 14) {
    throw SetupError("engine model: B must be 2 to 14, not " + std::to_string(params.bits));
  }
  return params;
}

// Returns the burst of floats that begins at `first`. Lanes after the last float are zero.
Lanes load_lanes(std::span<const float> data, size_t first) {
  Lanes lanes{};
  const size_t count = std::min(kEngineLanes, data.size() - first);
  for (size_t i = 0; i < count; ++i) lanes[i] = std::bit_cast<uint32_t>(data[first + i]);
  return lanes;
}

}  // namespace

CompressionEngine::CompressionEngine(EngineParams params) : params_(checked(params)) {}

bool CompressionEngine::staged_moves() const {
  const size_t leaving = aligned_.fill >= kBurstBytes ? kBurstBytes : 0;
  return staged_.fill != 0 && aligned_.fill - leaving + staged_.fill <= aligned_.bytes.size();
}

std::optional<Burst> CompressionEngine::clock(const Lanes* in, bool flush) {
  const bool take = in != nullptr && ready();
  const bool move = staged_moves();
  const bool last = flush && staged_.fill == 0 && aligned_.fill != 0;

  std::optional<Burst> out;
  if (aligned_.fill >= kBurstBytes || last) {
    std::copy_n(aligned_.bytes.data(), kBurstBytes, out.emplace().data());
    aligned_.drop(std::min(aligned_.fill, kBurstBytes));
  }
  if (move) {
    aligned_.append(std::span(staged_.bytes).first(staged_.fill));
    staged_ = {};
  }
  if (take) {
    unsigned tags = 0;
    staged_.fill = kTagVectorBytes;
    for (size_t lane = 0; lane < kEngineLanes; ++lane) {
      const LaneCode code = compress_lane(params_, (*in)[lane]);
      tags |= code.tag << (2 * lane);
      const auto payload = std::bit_cast<std::array<uint8_t, 4>>(code.payload);
      staged_.append(std::span(payload).first(kPayloadBytes[code.tag]));
    }
    staged_.bytes[0] = static_cast<uint8_t>(tags);
    staged_.bytes[1] = static_cast<uint8_t>(tags >> 8);
  }
  return out;
}

DecompressionEngine::DecompressionEngine(EngineParams params, size_t floats)
    : params_(checked(params)),
      last_lanes_(static_cast<unsigned>(floats % kEngineLanes != 0 ? floats % kEngineLanes : kEngineLanes)),
      groups_left_(floats / kEngineLanes + (floats % kEngineLanes != 0)) {}

DecompressionEngine::Plan DecompressionEngine::plan() const {
  const size_t payload = tags_ ? payload_bytes(*tags_) : 0;
  if (buffer_.fill < payload) return {false, false, 0};
  const bool load_tags = groups_left_ != 0 && buffer_.fill >= payload + kTagVectorBytes;
  return {tags_.has_value(), load_tags, payload + (load_tags ? kTagVectorBytes : 0)};
}

bool DecompressionEngine::starved() const {
  const Plan next = plan();
  return !next.decode && !next.load_tags;
}

bool DecompressionEngine::only_padding() const {
  return buffer_.fill < kBurstBytes && std::ranges::all_of(buffer_.bytes, [](uint8_t byte) { return byte == 0; });
}

Lanes DecompressionEngine::decode_lanes() const {
  Lanes lanes{};
  const uint8_t* at = buffer_.bytes.data();
  for (size_t lane = 0; lane < kEngineLanes; ++lane) {
    const unsigned tag = tag_of(*tags_, lane);
    std::array<uint8_t, 4> payload{};
    std::copy_n(at, kPayloadBytes[tag], payload.data());
    lanes[lane] = decompress_lane(params_, tag, std::bit_cast<uint32_t>(payload));
    at += kPayloadBytes[tag];
  }
  return lanes;
}

std::optional<Lanes> DecompressionEngine::clock(const Burst* in) {
  const bool take = in != nullptr && ready();
  const Plan next = plan();

  std::optional<Lanes> out;
  if (next.decode) {
    out = decode_lanes();
    tags_.reset();
  }
  if (next.load_tags) {
    const uint8_t* front = buffer_.bytes.data() + next.consumed - kTagVectorBytes;
    tags_ = static_cast<uint16_t>(front[0] | front[1] << 8);
    --groups_left_;
    bad_tail_ = groups_left_ == 0 && *tags_ >> (2 * last_lanes_) != 0;
  }
  buffer_.drop(next.consumed);
  if (take) buffer_.append(*in);
  return out;
}

EngineRun compress_stream(EngineParams params, std::span<const float> data) {
  CompressionEngine engine(params);
  EngineRun run;
  for (size_t next = 0; next < data.size() || !engine.idle(); ++run.cycles) {
    if (next >= data.size()) {
      if (const auto out = engine.clock(nullptr, true)) run.bursts.push_back(*out);
      continue;
    }
    const bool taken = engine.ready();
    const Lanes in = load_lanes(data, next);
    if (const auto out = engine.clock(&in, false)) run.bursts.push_back(*out);
    if (taken) {
      next += std::min(kEngineLanes, data.size() - next);
    } else {
      ++run.stalls;
    }
  }
  return run;
}

DecompressionRun decompress_stream(EngineParams params, std::span<const Burst> bursts, size_t floats) {
  DecompressionEngine engine(params, floats);
  DecompressionRun run;
  size_t next = 0;
  for (; !engine.done(); ++run.cycles) {
    const Burst* in = next < bursts.size() ? &bursts[next] : nullptr;
    if (in == nullptr && engine.starved()) {
      run.status = Status::kShort;
      return run;
    }
    if (in != nullptr && engine.ready()) {
      ++next;
    } else if (in != nullptr) {
      ++run.stalls;
    }
    if (const auto out = engine.clock(in)) {
      const size_t count = std::min(kEngineLanes, floats - run.floats.size());
      for (size_t lane = 0; lane < count; ++lane) run.floats.push_back(std::bit_cast<float>((*out)[lane]));
    }
  }
  if (engine.bad_tail()) {
    run.status = Status::kBadTail;
  } else if (next < bursts.size() || !engine.only_padding()) {
    run.status = Status::kLong;
  }
  return run;
}

double fp32_gbps(size_t floats, uint64_t cycles, double clock_hz) {
  if (cycles == 0) return 0;
  return 32 * static_cast<double>(floats) * clock_hz / static_cast<double>(cycles) / 1e9;
}

EngineFigure engine_figure(unsigned bits, bool truncate, std::span<const float> data, double clock_hz) {
  const EngineParams params{bits, truncate};
  const EngineRun out = compress_stream(params, data);
  const DecompressionRun back = decompress_stream(params, out.bursts, data.size());
  return {fp32_gbps(data.size(), out.cycles, clock_hz), fp32_gbps(data.size(), back.cycles, clock_hz), out.cycles,
          back.cycles, out.bursts.size() * kBurstBytes};
}

}  // namespace gradlane
