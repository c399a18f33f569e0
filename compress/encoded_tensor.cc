// encoded_tensor.cc - reading and writing encoded tensors
#include "compress/encoded_tensor.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace gradlane {
namespace {

constexpr size_t kEntry = sizeof(uint64_t);

size_t blocks_of(size_t floats) noexcept { return (floats + kEncodedBlock - 1) / kEncodedBlock; }

// Returns entry `number` of the table. Another process may change it later, so a caller reads each entry once.
uint64_t entry(std::span<const uint8_t> bytes, size_t number) noexcept {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + number * kEntry, kEntry);
  return value;
}

void set_entry(std::span<uint8_t> bytes, size_t number, uint64_t value) noexcept {
  std::memcpy(bytes.data() + number * kEntry, &value, kEntry);
}

}  // namespace

bool encodes_tensors(const Codec& codec) noexcept {
  return codec.row().exact() || (codec.exact_sums() && !codec.selects() && !codec.option());
}

size_t max_encoded_bytes(const Codec& codec, size_t floats) noexcept {
  return encoded_table_bytes(floats) + floats / kEncodedBlock * codec.max_bytes(kEncodedBlock) +
         codec.max_bytes(floats % kEncodedBlock);
}

std::optional<std::span<const uint8_t>> EncodedTensor::block(size_t number) const noexcept {
  const size_t table = encoded_table_bytes(floats_);
  if (bytes_.size() < table) return std::nullopt;
  const uint64_t begin = entry(bytes_, number);
  const uint64_t end = entry(bytes_, number + 1);
  if (begin < table || begin > end || end > bytes_.size()) return std::nullopt;
  return bytes_.subspan(begin, end - begin);
}

bool EncodedTensor::decode(const Codec& codec, size_t first, std::span<float> out) const noexcept {
  while (!out.empty()) {
    const size_t number = first / kEncodedBlock;
    const size_t skipped = first % kEncodedBlock;
    const size_t in_block = std::min(kEncodedBlock, floats_ - number * kEncodedBlock);
    const size_t count = std::min(in_block - skipped, out.size());
    const auto shared = block(number);
    // A decoder reads some bytes twice, so they must not change.
    std::array<uint8_t, kEncodedBlock * kMostEncodedBytes> copy;
    if (!shared || shared->size() > copy.size()) return false;
    std::memcpy(copy.data(), shared->data(), shared->size());
    const std::span<const uint8_t> coded = std::span(copy).first(shared->size());
    if (count == in_block) {
      if (codec.decode(coded, out.first(count)) != Status::kOk) return false;
    } else {
      std::array<float, kEncodedBlock> whole;
      if (codec.decode(coded, std::span(whole).first(in_block)) != Status::kOk) return false;
      std::memcpy(out.data(), whole.data() + skipped, count * sizeof(float));
    }
    first += count;
    out = out.subspan(count);
  }
  return true;
}

bool encode_tensor(const Codec& codec, std::span<const float> in, size_t first, size_t floats,
                   std::span<uint8_t> bytes) noexcept {
  const size_t table = encoded_table_bytes(floats);
  if (bytes.size() < table) return false;
  if (first == 0) set_entry(bytes, 0, table);
  uint64_t at = first == 0 ? table : entry(bytes, first / kEncodedBlock);
  while (!in.empty()) {
    const auto part = in.first(std::min(kEncodedBlock, in.size()));
    const size_t room = codec.max_bytes(part.size());
    if (at < table || at > bytes.size() || room > bytes.size() - at) return false;
    const EncodeResult done = codec.encode(part, bytes.subspan(at, room));
    at += done.bytes;
    first += part.size();
    set_entry(bytes, blocks_of(first), at);
    in = in.subspan(part.size());
  }
  return true;
}

}  // namespace gradlane
