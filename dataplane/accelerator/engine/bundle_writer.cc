// bundle_writer.cc - conversion of compressed packets into wire packets (worker thread)
#include <cstring>

#include "dataplane/accelerator/engine/bundle.h"
#include "dataplane/frame/frame.h"

namespace gradlane::accel {
namespace {

using namespace internet;

bool no_udp_checksum(const uint8_t* frame, const PacketView& view) noexcept {
  return view.layer == Layer::kUdp && load<uint16_t>(frame + view.l4 + kUdpChecksum) == 0;
}

}  // namespace

void BundleWriter::begin(uint8_t* frame, const PacketView& view, size_t most_bytes, const Codec& codec,
                         std::span<const uint8_t> record) noexcept {
  frame_ = frame;
  view_ = view;
  most_bytes_ = kEthernetBytes + most_bytes;
  records_ = 0;
  const GroupHeader group{.magic = kGroupMagic,
                          .version_kind = kGroupVersion << 4 | kKindRecords,
                          .codec = static_cast<uint8_t>(codec.id()),
                          .param = codec.param()};
  store(frame + view.payload, group);
  bytes_ = view.payload + kGroupBytes;
  const HeaderWords words(frame, view);
  append(record, 0, words, no_udp_checksum(frame, view));
  predicted_ = words;
  predicted_.advance(view.payload_bytes);
}

bool BundleWriter::same_headers(const uint8_t* frame, const PacketView& view) const noexcept {
  if (view.layer != view_.layer || view.key != view_.key || view.tos != view_.tos || view.payload != view_.payload) {
    return false;
  }
  if (frame[kEthernetBytes + kIpTtl] != frame_[kEthernetBytes + kIpTtl]) return false;
  if (std::memcmp(frame, frame_, kEtherType) != 0) return false;
  const size_t urgent = view.l4 + kTcpUrgent;
  return view.layer == Layer::kUdp || load<uint16_t>(frame + urgent) == load<uint16_t>(frame_ + urgent);
}

bool BundleWriter::add(const uint8_t* frame, const PacketView& view, std::span<const uint8_t> record) noexcept {
  if (!open() || records_ == kMaxRecords || !may_compress(view) || !same_headers(frame, view)) return false;
  const HeaderWords words(frame, view);
  const uint16_t mask = words.differences(predicted_);
  const size_t more = record.size() + sizeof(uint32_t) * static_cast<size_t>(__builtin_popcount(mask));
  if (bytes_ + more > most_bytes_) return false;
  append(record, mask, words, no_udp_checksum(frame, view));
  predicted_ = words;
  predicted_.advance(view.payload_bytes);
  return true;
}

void BundleWriter::append(std::span<const uint8_t> record, uint16_t mask, const HeaderWords& words,
                          bool no_checksum) noexcept {
  auto header = load<RecordHeader>(record.data());
  header.mask = mask;
  if (no_checksum) header.shape |= kNoUdpChecksumBit;
  uint8_t* to = frame_ + bytes_;
  store(to, header);
  to += kRecordHeaderBytes;
  for (unsigned left = mask; left != 0; left &= left - 1) {
    store(to, words.word(static_cast<size_t>(__builtin_ctz(left))));
    to += sizeof(uint32_t);
  }
  std::memcpy(to, record.data() + kRecordHeaderBytes, record.size() - kRecordHeaderBytes);
  bytes_ = static_cast<size_t>(to - frame_) + record.size() - kRecordHeaderBytes;
  ++records_;
}

size_t BundleWriter::finish(uint8_t wire_tos) noexcept {
  uint8_t* const ip = frame_ + kEthernetBytes;
  view_.length = bytes_ - kEthernetBytes;
  ip[kIpTos] = static_cast<uint8_t>((wire_tos & ~kEcnMask) | (view_.tos & kEcnMask));
  store16(ip + kIpLength, static_cast<uint16_t>(view_.length));
  seal(ip, kIpv4Bytes, kIpChecksum);
  if (view_.layer == Layer::kUdp) store16(frame_ + view_.l4 + kUdpLength, static_cast<uint16_t>(bytes_ - view_.l4));
  set_l4_checksum(frame_, view_);
  frame_ = nullptr;
  return bytes_;
}

}  // namespace gradlane::accel
