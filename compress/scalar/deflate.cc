// deflate.cc - codec deflate: floats through ISA-L's igzip, as they are where that is no longer (any thread)
//
// docs/codec-format.md says the same in prose. A baseline: what a packet holds is found by trying.
#include <isa-l/igzip_lib.h>

#include <array>

#include "compress/baselines.h"
#include "compress/scalar/elements.h"
#include "compress/scalar/scalar.h"

namespace gradlane::scalar {
namespace {

constexpr unsigned kDeflated = 0x8000;  // in a head
constexpr size_t kRecordBytes = kStreamFloats * sizeof(float);

unsigned load_head(const uint8_t* p) { return p[0] | static_cast<unsigned>(p[1]) << 8; }

void store_head(uint8_t* p, size_t head) {
  p[0] = static_cast<uint8_t>(head);
  p[1] = static_cast<uint8_t>(head >> 8);
}

// Igzip for 64-bit ARM reads behind the end of what it deflates (ISA-L 2.30): there it gets a copy.
#ifdef __aarch64__
constexpr size_t kCopyBytes = kRecordBytes + 64;
#else
constexpr size_t kCopyBytes = 0;
#endif

// State of more than 110 KB on the stack.
class Deflater {
 public:
  // What `bytes` bytes become, in packed(); 0: more than `most`.
  size_t deflate(const uint8_t* in, size_t bytes, size_t most) {
    isal_deflate_stateless_init(&stream_);
    stream_.end_of_stream = 1;
    stream_.level = 1;  // Huffman codes of the data's own, which need room for their tables and tokens
    stream_.level_buf = tables_;
    stream_.level_buf_size = sizeof tables_;
    if constexpr (kCopyBytes > 0) {
      std::memcpy(copied_.data(), in, bytes);
      in = copied_.data();
    }
    stream_.next_in = const_cast<uint8_t*>(in);  // it does not write there
    stream_.avail_in = static_cast<uint32_t>(bytes);
    stream_.next_out = packed_;
    stream_.avail_out = sizeof packed_;
    const bool good = isal_deflate_stateless(&stream_) == COMP_OK;
    return good && stream_.total_out <= most ? stream_.total_out : 0;
  }
  [[nodiscard]] const uint8_t* packed() const { return packed_; }

 private:
  isal_zstream stream_{};
  uint8_t tables_[ISAL_DEF_LVL1_MIN]{};
  std::array<uint8_t, kCopyBytes> copied_{};
  uint8_t packed_[kRecordBytes + 1024];  // it wants more room than it needs
};

// One record of as many of the floats at `in` as fit, up to kStreamFloats.
EncodeResult put_record(Deflater& deflater, const uint8_t* in, size_t floats, uint8_t* out, size_t room) {
  if (room < 2 * kStreamHead) return {0, 0};
  const size_t most = smaller(floats, kStreamFloats);
  size_t fit = smaller(most, (room - kStreamHead) / sizeof(float));
  if (fit < most) fit = fit / kGroupFloats * kGroupFloats;
  size_t packed = 0;  // bytes of so many, deflated; 0: they are as they are
  size_t too_many = most + kGroupFloats;
  size_t next = most;
  do {
    const size_t shorter = next * sizeof(float) - kStreamHead - 1;  // with its heads, than as they are
    const size_t bytes = deflater.deflate(in, next * sizeof(float), smaller(room - 2 * kStreamHead, shorter));
    if (bytes == 0) {
      too_many = next;
    } else {
      packed = bytes;
      fit = next;
      std::memcpy(out + 2 * kStreamHead, deflater.packed(), packed);
    }
    next = (fit + too_many) / 2 / kGroupFloats * kGroupFloats;
  } while (next > fit && fit < most);
  if (fit == 0) return {0, 0};
  if (packed == 0) {
    store_head(out, fit);
    std::memcpy(out + kStreamHead, in, fit * sizeof(float));
    return {fit, kStreamHead + fit * sizeof(float)};
  }
  store_head(out, kDeflated | fit);
  store_head(out + kStreamHead, packed);
  return {fit, 2 * kStreamHead + packed};
}

// Records until there is no room: `next(done, floats)` gives so many behind the first `done`.
template <class Next>
EncodeResult put_records(size_t floats, uint8_t* out, size_t room, Next next) {
  if (room < stream_max_bytes(floats)) room = smaller(room, kMaxPacket);
  Deflater deflater;
  EncodeResult all{0, 0};
  while (all.floats < floats) {
    const size_t most = smaller(floats - all.floats, kStreamFloats);
    const EncodeResult one = put_record(deflater, next(all.floats, most), most, out + all.bytes, room - all.bytes);
    all.floats += one.floats;
    all.bytes += one.bytes;
    if (one.floats < most) break;
  }
  return all;
}

bool inflate(const uint8_t* in, size_t bytes, uint8_t* out, size_t want) {
  inflate_state state;
  isal_inflate_init(&state);
  state.next_in = const_cast<uint8_t*>(in);  // it does not write there
  state.avail_in = static_cast<uint32_t>(bytes);
  state.next_out = out;
  state.avail_out = static_cast<uint32_t>(want);
  return isal_inflate_stateless(&state) == ISAL_DECOMP_OK && state.block_state == ISAL_BLOCK_FINISH &&
         state.total_out == want && state.avail_in == 0;
}

// Tells `each(from, count, bytes)` of all records, and what is wrong with the block.
template <class Each>
Status for_records(const uint8_t* block, size_t bytes, size_t floats, Each each) {
  uint8_t inflated[kRecordBytes];
  for (size_t done = 0; done < floats;) {
    if (bytes < kStreamHead) return Status::kShort;
    const unsigned head = load_head(block);
    const size_t count = head & ~kDeflated;
    if (count == 0 || count > kStreamFloats) return Status::kBadEscape;
    if (count > floats - done) return Status::kBadTail;
    const bool deflated = (head & kDeflated) != 0;
    if (deflated && bytes < 2 * kStreamHead) return Status::kShort;
    const size_t heads = deflated ? 2 * kStreamHead : kStreamHead;
    const size_t length = deflated ? load_head(block + kStreamHead) : count * sizeof(float);
    if (length > bytes - heads) return Status::kShort;
    if (deflated && !inflate(block + heads, length, inflated, count * sizeof(float))) return Status::kBadEscape;
    each(done, count, deflated ? inflated : block + heads);
    done += count;
    block += heads + length;
    bytes -= heads + length;
  }
  return compare_length(bytes, 0);
}

float load(const void* p, size_t i) {
  float f;  // floats may lie at odd addresses
  std::memcpy(&f, static_cast<const uint8_t*>(p) + i * sizeof f, sizeof f);
  return f;
}

EncodeResult encode(const CodecParams&, const EncodeJob& job) noexcept {
  const auto* in = reinterpret_cast<const uint8_t*>(job.in);
  return put_records(job.floats, job.out, job.room, [&](size_t done, size_t) { return in + done * sizeof(float); });
}

Status validate(const CodecParams&, const uint8_t* block, size_t bytes, size_t floats) noexcept {
  return for_records(block, bytes, floats, [](size_t, size_t, const uint8_t*) {});
}

template <bool kAdd>
Status decode(const CodecParams&, const uint8_t* block, size_t bytes, float* out, size_t floats) noexcept {
  return for_records(block, bytes, floats, [&](size_t from, size_t count, const uint8_t* in) {
    for (size_t i = 0; i < count; ++i) {
      const float f = kAdd ? add(load(out, from + i), load(in, i)) : load(in, i);
      std::memcpy(out + from + i, &f, sizeof f);
    }
  });
}

// Reads the block anew for each record that it writes.
HopResult hop(const CodecParams& params, const HopJob& job) noexcept {
  const Status status = validate(params, job.block, job.block_bytes, job.floats);
  if (status != Status::kOk) return {status, 0, 0};
  float sums[kStreamFloats];
  const auto next = [&](size_t done, size_t most) {
    const size_t begin = job.first + done;
    std::memcpy(sums, job.local + begin, most * sizeof(float));
    (void)for_records(job.block, job.block_bytes, job.floats, [&](size_t from, size_t count, const uint8_t* in) {
      const size_t skipped = begin > from ? smaller(begin - from, count) : 0;
      const size_t end = begin + most > from ? smaller(begin + most - from, count) : 0;
      for (size_t i = skipped; i < end; ++i) {
        sums[from + i - begin] = add(load(in, i), sums[from + i - begin]);
      }
    });
    return reinterpret_cast<const uint8_t*>(sums);
  };
  const EncodeResult written = put_records(job.floats - job.first, job.out, job.room, next);
  return {Status::kOk, written.floats, written.bytes};
}

}  // namespace

constexpr CodecOps kDeflate = {encode, validate, decode<false>, decode<true>, hop};

}  // namespace gradlane::scalar
