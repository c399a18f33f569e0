// superpacket.h - superpackets of TCP as the kernel has them with its devices: cut into packets, and put together from
// packets (worker thread only; no sockets, no DPDK)
//
// A superpacket is one frame with the payload of many TCP segments that follow each other: Ethernet, IPv4 or IPv6, TCP,
// and up to 64 KiB. The kernel sends such to a device that cuts (TSO), and takes such from one that puts together
// (GRO). What is to be done with a frame is in a header of its own in front of it, struct virtio_net_hdr.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradlane {

// As in linux/virtio_net.h, in the byte order of the machine.
struct VnetHeader {
  static constexpr uint8_t kNeedsChecksum = 1;  // flags: the sum of the pseudo-header is where the checksum belongs
  static constexpr uint8_t kOnePacket = 0, kTcpIpv4 = 1, kTcpIpv6 = 4;  // kind
  static constexpr uint8_t kCongestionOnce = 0x80;                      // added to kind: CWR is for the first packet

  uint8_t flags = 0;
  uint8_t kind = kOnePacket;
  uint16_t header_bytes = 0;    // in front of the payload
  uint16_t segment_bytes = 0;   // of payload in each packet, but the last one
  uint16_t checksum_start = 0;  // in the frame: what the checksum is about, to its end
  uint16_t checksum_field = 0;  // from there
};
static_assert(sizeof(VnetHeader) == 10);

// Where things are in the headers of a TCP packet.
struct TcpPlaces {
  size_t ip = 0;  // 0: this is none, or one that is left as it is
  size_t tcp = 0;
  size_t payload = 0;
  bool of_ipv6 = false;
};

// Takes one frame of the kernel apart.
class SuperpacketCutter {
 public:
  static constexpr size_t kMostBytes = 65536 + 128;  // of a frame

  // `frame` is read until the last packet is written, and what the header asks of a frame that is one packet is done to
  // it here. False: there is no packet in it, as header and frame do not go together.
  [[nodiscard]] bool begin(const VnetHeader& header, std::span<uint8_t> frame) noexcept;
  // Of the next packet; 0: there is none.
  [[nodiscard]] size_t next_bytes() const noexcept;
  // Writes it to `to`: lengths, IP identification, sequence number, flags and checksums are its own.
  void next(uint8_t* to) noexcept;
  void skip() noexcept;
  [[nodiscard]] bool several() const noexcept { return segment_bytes_ != 0; }

 private:
  void write_headers(uint8_t* to, size_t bytes, bool last) const noexcept;

  std::span<uint8_t> frame_;
  size_t at_ = 0;             // payload up to here has been written; or all of the frame
  size_t segment_bytes_ = 0;  // 0: the frame is one packet
  TcpPlaces places_;
  bool congestion_once_ = false;
  uint64_t pseudo_ = 0;  // the sum of the pseudo-header without the length, not folded
  uint16_t number_ = 0;  // of the next packet
};

// Puts packets together that follow each other in a flow, as they would come from one superpacket.
class SuperpacketJoiner {
 public:
  static constexpr size_t kMostPackets = 64;
  static constexpr size_t kMostHeader = 128;

  // All frames are read until the superpacket is sent, and none is changed. False: `frame` is always sent alone.
  [[nodiscard]] bool begin(std::span<const uint8_t> frame) noexcept;
  // False: it is not the next packet of this superpacket, which has as many as it can have.
  [[nodiscard]] bool add(std::span<const uint8_t> frame) noexcept;

  // With two packets and more: header, headers of the frame, and its payload.
  void finish() noexcept;
  [[nodiscard]] const VnetHeader& header() const noexcept { return header_; }
  [[nodiscard]] std::span<const uint8_t> front() const noexcept { return {front_.data(), places_.payload}; }
  [[nodiscard]] std::span<const std::span<const uint8_t>> payload() const noexcept { return {parts_.data(), count_}; }

 private:
  [[nodiscard]] bool follows(std::span<const uint8_t> frame, const TcpPlaces& places) const noexcept;

  std::span<const uint8_t> first_;
  TcpPlaces places_;
  bool first_is_right_ = false;  // its checksums have been looked at
  bool closed_ = false;          // nothing may follow the last packet
  uint32_t next_seq_ = 0;
  uint16_t last_id_ = 0;
  uint8_t pushed_ = 0;  // PSH of the last one
  size_t segment_bytes_ = 0;
  size_t payload_bytes_ = 0;
  size_t count_ = 0;
  std::array<std::span<const uint8_t>, kMostPackets> parts_{};
  VnetHeader header_;
  std::array<uint8_t, kMostHeader> front_{};
};

}  // namespace gradlane
