// superpacket.h - TCP superpackets, as the kernel exchanges them with its devices: a cutter into packets, and a joiner
// of packets (worker thread only; no sockets, no DPDK)
//
// A superpacket is one frame with the payload of many TCP segments that follow each other: Ethernet, IPv4 or IPv6, TCP,
// and up to 64 KiB. The kernel sends superpackets to a device that cuts them (TSO). It takes superpackets from a device
// that joins packets (GRO). A header in front of the frame, struct virtio_net_hdr, says what must be done with the
// frame.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradlane {

// struct virtio_net_hdr of linux/virtio_net.h, in the byte order of the machine.
struct VnetHeader {
  static constexpr uint8_t kNeedsChecksum = 1;  // flag: the checksum field has only the sum of the pseudo-header
  static constexpr uint8_t kOnePacket = 0, kTcpIpv4 = 1, kTcpIpv6 = 4;  // values of kind
  static constexpr uint8_t kCongestionOnce = 0x80;  // added to kind: CWR is for the first packet only

  uint8_t flags = 0;
  uint8_t kind = kOnePacket;
  uint16_t header_bytes = 0;    // bytes before the payload
  uint16_t segment_bytes = 0;   // payload of each packet except the last one
  uint16_t checksum_start = 0;  // offset in the frame; the checksum covers the bytes from here to the end
  uint16_t checksum_field = 0;  // offset of the checksum field from checksum_start
};
static_assert(sizeof(VnetHeader) == 10);

// Offsets of the headers of a TCP packet in its frame.
struct TcpPlaces {
  size_t ip = 0;  // offset of the IP header; 0 if the frame is not TCP, is a fragment, or has a bad header
  size_t tcp = 0;
  size_t payload = 0;
  bool of_ipv6 = false;
};

// Cuts one frame of the kernel into packets.
class SuperpacketCutter {
 public:
  static constexpr size_t kMostBytes = 65536 + 128;  // longest frame

  // Begins a frame, which must stay valid until its last packet is written. If the frame is one packet and the header
  // asks for a checksum, computes it in place. Returns false if header and frame do not fit together. Then there is no
  // packet in it.
  [[nodiscard]] bool begin(const VnetHeader& header, std::span<uint8_t> frame) noexcept;
  // Returns the length of the next packet, or 0 if there is none.
  [[nodiscard]] size_t next_bytes() const noexcept;
  // Writes the next packet to `to`, with its own lengths, IP identification, sequence number, flags and checksums.
  void next(uint8_t* to) noexcept;
  void skip() noexcept;
  [[nodiscard]] bool several() const noexcept { return segment_bytes_ != 0; }

 private:
  void write_headers(uint8_t* to, size_t bytes, bool last) const noexcept;

  std::span<uint8_t> frame_;
  // offset in the frame of the first byte of payload (if the frame is one packet: of the frame) that is not written yet
  size_t at_ = 0;
  size_t segment_bytes_ = 0;  // 0: the frame is one packet
  TcpPlaces places_;
  bool congestion_once_ = false;
  uint64_t pseudo_ = 0;  // sum of the pseudo-header without the length, not folded
  uint16_t number_ = 0;  // index of the next packet, from 0
};

// Joins packets of a flow that follow each other, if they could come from one superpacket.
class SuperpacketJoiner {
 public:
  static constexpr size_t kMostPackets = 64;
  static constexpr size_t kMostHeader = 128;

  // Begins a superpacket. All frames must stay valid until the superpacket is sent, and none is changed. Returns false
  // if `frame` must be sent alone.
  [[nodiscard]] bool begin(std::span<const uint8_t> frame) noexcept;
  // Adds the next packet. Returns false if `frame` is not the next packet of this superpacket, or if that is full.
  [[nodiscard]] bool add(std::span<const uint8_t> frame) noexcept;

  // Makes the header, the headers of the frame, and the list of its payload. Needs at least two packets.
  void finish() noexcept;
  [[nodiscard]] const VnetHeader& header() const noexcept { return header_; }
  [[nodiscard]] std::span<const uint8_t> front() const noexcept { return {front_.data(), places_.payload}; }
  [[nodiscard]] std::span<const std::span<const uint8_t>> payload() const noexcept { return {parts_.data(), count_}; }

 private:
  [[nodiscard]] bool follows(std::span<const uint8_t> frame, const TcpPlaces& places) const noexcept;

  std::span<const uint8_t> first_;
  TcpPlaces places_;
  bool first_is_right_ = false;  // whether the checksums of the first packet have been verified
  bool closed_ = false;          // nothing may follow the last packet
  uint32_t next_seq_ = 0;
  uint16_t last_id_ = 0;
  uint8_t pushed_ = 0;  // PSH flag of the packet that was added last
  size_t segment_bytes_ = 0;
  size_t payload_bytes_ = 0;
  size_t count_ = 0;
  std::array<std::span<const uint8_t>, kMostPackets> parts_{};
  VnetHeader header_;
  std::array<uint8_t, kMostHeader> front_{};
};

}  // namespace gradlane
