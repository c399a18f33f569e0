// hello.cc - hellos, which ask whether an accelerator is there, and their answers (worker thread; pure functions)
#include <utility>

#include "dataplane/accelerator/engine/bundle.h"
#include "dataplane/frame/frame.h"

namespace gradlane::accel {
namespace {

using namespace internet;

MacAddress mac_at(const uint8_t* bytes) noexcept { return load<MacAddress>(bytes); }

size_t write(uint8_t* out, const Flow& flow, uint8_t tos, unsigned kind, uint64_t nonce) noexcept {
  write_headers(out, flow, tos, kHelloBytes);
  uint8_t* const payload = out + kFrameBytes;
  store(payload, GroupHeader{.magic = kGroupMagic,
                             .version_kind = static_cast<uint8_t>(kGroupVersion << 4 | kind),
                             .codec = 0,
                             .param = 0});
  store(payload + kGroupBytes, HelloBody{nonce});
  seal_udp(out, kHelloBytes);
  return kHelloFrameBytes;
}

}  // namespace

static_assert(kHelloFrameBytes == kFrameBytes + kHelloBytes);

size_t write_hello(uint8_t* out, const uint8_t* like_frame, uint16_t udp_port, uint8_t wire_tos, unsigned kind,
                   uint64_t nonce) noexcept {
  const uint8_t* const ip = like_frame + kEthernetBytes;
  const Flow flow{.source_mac = mac_at(like_frame + kSourceMac),
                  .destination_mac = mac_at(like_frame + kDestinationMac),
                  .source_ip = load32(ip + kIpSource),
                  .destination_ip = load32(ip + kIpDestination),
                  .source_port = udp_port,
                  .destination_port = udp_port};
  return write(out, flow, wire_tos, kind, nonce);
}

size_t answer_hello(uint8_t* frame, const PacketView& view) noexcept {
  const uint64_t nonce = load<HelloBody>(frame + view.payload + kGroupBytes).nonce;
  const Flow flow{.source_mac = mac_at(frame + kDestinationMac),
                  .destination_mac = mac_at(frame + kSourceMac),
                  .source_ip = view.key.destination_ip,
                  .destination_ip = view.key.source_ip,
                  .source_port = view.key.destination_port,
                  .destination_port = view.key.source_port};
  return write(frame, flow, static_cast<uint8_t>(view.tos & ~kEcnMask), kKindAnswer, nonce);
}

}  // namespace gradlane::accel
