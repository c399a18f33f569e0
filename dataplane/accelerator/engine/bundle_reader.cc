// bundle_reader.cc - checks of wire packets, and restoration of the packets in them (worker thread)
#include <cstring>

#include "dataplane/accelerator/engine/bundle.h"
#include "dataplane/frame/frame.h"

namespace gradlane::accel {
namespace {

using namespace internet;

BundleFault fault_of(RecordFault fault) noexcept {
  switch (fault) {
    case RecordFault::kNone:
      return BundleFault::kNone;
    case RecordFault::kBadShape:
      return BundleFault::kBadShape;
    case RecordFault::kBadMask:
      return BundleFault::kBadMask;
    case RecordFault::kBadBlock:
      return BundleFault::kBadBlock;
    case RecordFault::kShort:
    case RecordFault::kTooLong:
      break;
  }
  return BundleFault::kShortRecord;
}

// Calls visit(word, value) for each header word of a record.
template <class Visit>
void for_each_word(const RecordView& record, Visit visit) noexcept {
  const uint8_t* at = record.words;
  for (unsigned left = record.header.mask; left != 0; left &= left - 1, at += sizeof(uint32_t)) {
    visit(static_cast<size_t>(__builtin_ctz(left)), load<uint32_t>(at));
  }
}

}  // namespace

BundleFault BundleReader::begin(std::span<const uint8_t> frame, const PacketView& view, size_t mtu) noexcept {
  frame_ = frame.data();
  view_ = view;
  records_ = 0;
  kind_ = 0;
  const BundleFault fault = check(mtu);
  if (fault != BundleFault::kNone) records_ = 0;
  return fault;
}

BundleFault BundleReader::check(size_t mtu) noexcept {
  if (view_.layer < Layer::kIpv4) return BundleFault::kBadHeaders;
  if (!ip_checksum_right(frame_)) return BundleFault::kBadIpChecksum;
  if (view_.layer != Layer::kTcp && view_.layer != Layer::kUdp) return BundleFault::kBadHeaders;
  const bool udp = view_.layer == Layer::kUdp;
  if (udp && load<uint16_t>(frame_ + view_.l4 + kUdpChecksum) == 0) return BundleFault::kBadChecksum;
  if (!l4_checksum_right(frame_, view_)) return BundleFault::kBadChecksum;
  if (!may_compress(view_)) return BundleFault::kBadHeaders;
  if (view_.payload_bytes < kGroupBytes) return BundleFault::kNotOurs;
  const auto group = load<GroupHeader>(frame_ + view_.payload);
  rest_ = {frame_ + view_.payload + kGroupBytes, view_.payload_bytes - kGroupBytes};
  const BundleFault fault = check_group(group);
  if (fault != BundleFault::kNone) return fault;
  return kind_ == kKindRecords ? check_records(mtu) : check_hello();
}

BundleFault BundleReader::check_group(const GroupHeader& group) noexcept {
  if (group.magic != kGroupMagic) return BundleFault::kNotOurs;
  if (group.version_kind >> 4 != kGroupVersion) return BundleFault::kOtherVersion;
  kind_ = group.version_kind & 0xfU;
  if (kind_ == kKindHello || kind_ == kKindAnswer) return BundleFault::kNone;
  if (kind_ != kKindRecords) return BundleFault::kOtherKind;
  const auto id = static_cast<CodecId>(group.codec);
  if (codec_ && codec_->id() == id && codec_->param() == group.param) return BundleFault::kNone;
  codec_ = find_codec(id, group.param, isa_);
  // Codecs for accelerators, and codecs whose blocks are plain arrays, are accepted. Blocks of all others are parts of
  // sums, and cannot be decoded alone.
  if (codec_ && !codec_->row().accelerator && codec_->row().layout != Form::kArray) codec_.reset();
  return codec_ ? BundleFault::kNone : BundleFault::kUnknownCodec;
}

BundleFault BundleReader::check_hello() noexcept {
  if (view_.layer != Layer::kUdp || rest_.size() != sizeof(HelloBody)) return BundleFault::kBadHello;
  nonce_ = load<HelloBody>(rest_.data()).nonce;
  return BundleFault::kNone;
}

BundleFault BundleReader::check_records(size_t mtu) noexcept {
  words_ = HeaderWords(frame_, view_);
  std::span<const uint8_t> rest = rest_;
  do {
    if (records_ == kMaxRecords) return BundleFault::kTooManyRecords;
    RecordView record;
    const uint16_t allowed = records_ == 0 ? 0 : words_.allowed();
    BundleFault fault = fault_of(view_record(rest, allowed, record));
    if (fault == BundleFault::kNone) fault = check_record(record, mtu);
    if (fault != BundleFault::kNone) return fault;
    rest = rest.subspan(record.bytes);
    ++records_;
  } while (!rest.empty());
  return BundleFault::kNone;
}

BundleFault BundleReader::check_record(const RecordView& record, size_t mtu) const noexcept {
  if (view_.payload - kEthernetBytes + record.header.payload_bytes > mtu) return BundleFault::kRestoredTooLong;
  if (view_.layer != Layer::kUdp && (record.header.shape & kNoUdpChecksumBit) != 0) return BundleFault::kBadShape;
  bool right = true;
  for_each_word(record, [&](size_t i, uint32_t value) { right = right && words_.may_be(i, value); });
  if (!right) return BundleFault::kBadWord;
  return codec_->validate(record.block, record.floats) == Status::kOk ? BundleFault::kNone : BundleFault::kBadBlock;
}

size_t BundleReader::next(uint8_t tos, std::span<uint8_t> out) noexcept {
  RecordView record;
  if (records_ == 0 || view_record(rest_, UINT16_MAX, record) != RecordFault::kNone) return 0;
  const size_t payload_bytes = record.header.payload_bytes;
  const size_t bytes = view_.payload + payload_bytes;
  if (bytes > out.size()) return 0;
  rest_ = rest_.subspan(record.bytes);
  --records_;

  uint8_t* const frame = out.data();
  if (restore_payload(*codec_, record, frame + view_.payload) != RecordFault::kNone) return 0;
  std::memcpy(frame, frame_, view_.payload);
  for_each_word(record, [&](size_t i, uint32_t value) { words_.set(i, value); });
  words_.write(frame);
  words_.advance(payload_bytes);

  uint8_t* const ip = frame + kEthernetBytes;
  ip[kIpTos] = static_cast<uint8_t>((tos & ~kEcnMask) | (view_.tos & kEcnMask));
  store16(ip + kIpLength, static_cast<uint16_t>(bytes - kEthernetBytes));
  seal(ip, kIpv4Bytes, kIpChecksum);
  uint8_t* const l4 = frame + view_.l4;
  if (view_.layer == Layer::kUdp) store16(l4 + kUdpLength, static_cast<uint16_t>(bytes - view_.l4));
  if ((record.header.shape & kNoUdpChecksumBit) != 0) {
    store16(l4 + kUdpChecksum, 0);
  } else {
    seal_l4(ip, l4, view_.key.protocol, bytes - view_.l4);
  }
  return bytes;
}

}  // namespace gradlane::accel
