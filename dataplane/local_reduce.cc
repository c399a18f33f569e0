// local_reduce.cc - trainers of one node are summed up before the ring, in pieces between polls (worker thread only)
#include <algorithm>
#include <cstring>

#include "dataplane/trainer_ops.h"

namespace gradlane {
namespace {

constexpr size_t kCopyBytes = size_t{256} << 10;

std::string differs(const char* what, unsigned trainer, uint64_t first, uint64_t theirs) {
  return std::string("trainers of this node run different operations: ") + what + ": " + std::to_string(first) +
         " here, " + std::to_string(theirs) + " by trainer " + std::to_string(trainer) + " of the node";
}

}  // namespace

// With the first one that submitted it.
void TrainerOps::compare(Job& it, unsigned trainer) {
  const auto first = std::ranges::find_if(it.parts, &Part::submitted);
  const Part& other =
      first == it.parts.begin() + trainer ? *std::ranges::find_if(first + 1, it.parts.end(), &Part::submitted) : *first;
  const Operation& a = other.operation;
  const Operation& b = it.parts[trainer].operation;
  const auto id = [this](const Operation& op) {
    const Codec& codec = op.codec ? *op.codec : setup_.limits.codec;
    return static_cast<uint64_t>(codec.id()) << 8 | codec.param();
  };
  if (a.kind != b.kind)
    it.failure = differs("kind", trainer, static_cast<uint64_t>(a.kind), static_cast<uint64_t>(b.kind));
  else if (a.type != b.type)
    it.failure = differs("type", trainer, static_cast<uint64_t>(a.type), static_cast<uint64_t>(b.type));
  else if (a.count != b.count)
    it.failure = differs("count", trainer, a.count, b.count);
  else if (a.root != b.root)
    it.failure = differs("root", trainer, a.root, b.root);
  else if (a.average != b.average)
    it.failure = differs("average", trainer, a.average ? 1 : 0, b.average ? 1 : 0);
  else if (a.type == ElementType::kFloat32 && id(a) != id(b))
    it.failure = differs("codec", trainer, id(a), id(b));
  else if (a.tag != b.tag)
    it.failure = differs("tag", trainer, a.tag, b.tag);
}

// Finds this lane's share, and whose tensor the exchange shall work on.
void TrainerOps::begin_sum(Job& it) noexcept {
  const Operation& operation = std::ranges::find_if(it.parts, &Part::submitted)->operation;
  it.share = share(operation);
  it.buffer = 0;
  const bool root_here = shares_buffer() && operation.root / setup_.trainers == setup_.node;
  if (operation.kind == OpKind::kBroadcast && root_here) it.buffer = operation.root % setup_.trainers;
  it.other = 1;
  it.done = 0;
  const bool sums = shares_buffer() && operation.kind == OpKind::kAllReduce && it.share.count != 0;
  it.state = sums ? Job::State::kSumming : Job::State::kReady;
}

uint8_t* TrainerOps::elements(Job& it, unsigned trainer, size_t element) noexcept {
  const Operation& operation = it.parts[trainer].operation;
  return static_cast<uint8_t*>(operation.data) + (it.share.first + element) * element_bytes(operation.type);
}

bool TrainerOps::sum_piece(Job& it) noexcept {
  const Operation& operation = it.parts[0].operation;
  const size_t width = element_bytes(operation.type);
  // Plain sums: what is rounded is the sum of the node, once.
  const Coder coder(operation.type, *find_codec(CodecId::kRaw, 0, setup_.limits.codec.isa()));
  const size_t count = std::min(scratch_.size() / width, it.share.count - it.done);
  uint8_t* const sum = elements(it, 0, it.done);
  const auto result = coder.hop({elements(it, it.other, it.done), count * width}, sum, count, nullptr, scratch_);
  std::memcpy(sum, scratch_.data(), result.floats * width);
  const bool last = it.other + 1 == setup_.trainers;
  if (last && operation.average) coder.divide(sum, result.floats, setup_.trainers);
  it.done += result.floats;
  if (it.done < it.share.count) return false;
  it.done = 0;
  ++it.other;
  return last;
}

bool TrainerOps::copy_piece(Job& it) noexcept {
  if (it.other == it.buffer) ++it.other;
  if (it.other >= setup_.trainers) return true;
  const size_t width = element_bytes(it.parts[it.buffer].operation.type);
  const size_t count = std::min(kCopyBytes / width, it.share.count - it.done);
  std::memcpy(elements(it, it.other, it.done), elements(it, it.buffer, it.done), count * width);
  it.done += count;
  if (it.done < it.share.count) return false;
  it.done = 0;
  ++it.other;
  return it.other >= setup_.trainers || (it.other == it.buffer && it.other + 1 == setup_.trainers);
}

}  // namespace gradlane
