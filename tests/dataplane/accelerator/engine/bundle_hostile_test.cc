// bundle_hostile_test.cc - damaged and forged wire packets: refused with the right name, or restored to valid packets
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <set>

#include "tests/compress/test_floats.h"
#include "tests/dataplane/accelerator/engine/bundles.h"
#include "tests/thorough.h"

namespace gradlane::test::bundle_hostile_test {
namespace {

using accel::BundleFault;
using accel::BundleReader;

const Codec kFixed = find_codec("fixed:10");

// Returns a wire packet with three packets. Over TCP, the second one has two header words and the third has one. The
// third one has another lead.
Bytes wire_of(uint8_t protocol, size_t bytes = 124) {
  Bundle bundle(kFixed);
  Packet packet{.protocol = protocol, .tcp_options = protocol == 6 ? timestamps(7, 8) : Bytes{}};
  for (size_t i = 0; i < 3; ++i) {
    packet.payload = payload(Data::kMixed, bytes + 4 * i + (i == 2 ? 3 : 0), 5 + i, i == 2 ? 1 : 0);
    if (!bundle.add(frame_of(packet), i == 2 ? 1 : 0)) std::abort();
    packet.seq += static_cast<uint32_t>(packet.payload.size());
    packet.ack += i == 0 ? 1 : 0;
  }
  return bundle.finish();
}

// Returns the name of a fault without "bundle_".
std::string name_of(BundleFault fault) { return std::string(counter_name(fault)).substr(7); }
std::string name_of(const Received& received) { return name_of(received.fault); }

// Returns true if the packet is refused. Otherwise all restored packets must be right.
bool sound(const Bytes& wire, size_t mtu = kMtu) {
  const Received received = receive(wire, mtu);
  if (received.fault != BundleFault::kNone) {
    EXPECT_TRUE(received.frames.empty());
    return true;
  }
  EXPECT_TRUE(!received.frames.empty() && received.frames.size() <= accel::kMaxRecords);
  for (const Bytes& frame : received.frames) {
    EXPECT_EQ(fault_in(frame), "");
    EXPECT_EQ(frame[kIp + 1] & 0xfc, kTosCompressed);
    EXPECT_LE(frame.size(), mtu + 14);
  }
  return false;
}

// ---- The faults. In UDP, records start at kFirst, with the header of the first record.
constexpr size_t kGroup = kL4 + 8, kFirst = kGroup + 4;

struct Row {
  const char* want;
  const char* what;
  std::function<void(Bytes&)> change;
  uint8_t protocol = 17;
  bool seal = true;
  size_t mtu = kMtu;
};

unsigned little16(const Bytes& bytes, size_t at) { return bytes[at] | unsigned{bytes[at + 1]} << 8; }
size_t second(const Bytes& wire) { return kFirst + 8 + little16(wire, kFirst + 2); }
std::function<void(Bytes&)> set(size_t at, uint8_t value) {
  return [=](Bytes& wire) { wire[at] = value; };
}
void relength(Bytes& wire) {
  put16(wire, kIp + 2, static_cast<unsigned>(wire.size() - kIp));
  const bool has_length = wire.size() >= kL4 + 6;  // false if the frame is cut before it
  if (wire[kIp + 9] == 17 && has_length) put16(wire, kL4 + 4, static_cast<unsigned>(wire.size() - kL4));
}
void cut_to(Bytes& wire, size_t bytes) {
  wire.resize(bytes);
  relength(wire);
}
void repeat_first(Bytes& wire, size_t times) {
  const Bytes record(wire.begin() + kFirst, wire.begin() + static_cast<ptrdiff_t>(second(wire)));
  wire.resize(second(wire));
  for (size_t i = 1; i < times; ++i) wire.insert(wire.end(), record.begin(), record.end());
  relength(wire);
}
// Replaces the header words of the second record by one word.
std::function<void(Bytes&)> word(uint16_t mask, uint32_t value) {
  return [=](Bytes& wire) {
    const size_t at = payload_at(wire) + 4;
    const size_t next = at + 8 + little16(wire, at + 2);
    const auto words = static_cast<size_t>(__builtin_popcount(little16(wire, next + 6)));
    const auto from = wire.begin() + static_cast<ptrdiff_t>(next + 8);
    wire.erase(from, from + static_cast<ptrdiff_t>(4 * words));
    wire[next + 6] = static_cast<uint8_t>(mask);
    wire[next + 7] = static_cast<uint8_t>(mask >> 8);
    Bytes bytes(4);
    put32(bytes, 0, value);
    wire.insert(wire.begin() + static_cast<ptrdiff_t>(next + 8), bytes.begin(), bytes.end());
    relength(wire);
  };
}

const std::vector<Row> kRows = {
    {"none", "as it was, UDP", [](Bytes&) {}},
    {"none", "as it was, TCP", [](Bytes&) {}, 6},
    {"none", "as many as there may be", [](Bytes& w) { repeat_first(w, 32); }},
    {"none", "ends behind the first record", [](Bytes& w) { cut_to(w, second(w)); }},
    {"bad_headers", "a fragment", [](Bytes& w) { put16(w, kIp + 6, 0x2000); }},
    {"bad_headers", "a later fragment", [](Bytes& w) { put16(w, kIp + 6, 0x0007); }},
    {"bad_headers", "reserved bit", [](Bytes& w) { put16(w, kIp + 6, 0x8000); }},
    {"bad_headers", "ICMP", set(kIp + 9, 1)},
    {"bad_headers", "not IPv4", set(12, 0x86)},
    {"bad_headers", "SYN", [](Bytes& w) { w[kL4 + 13] |= 2; }, 6},
    {"bad_headers", "FIN", [](Bytes& w) { w[kL4 + 13] |= 1; }, 6},
    {"bad_headers", "RST", [](Bytes& w) { w[kL4 + 13] |= 4; }, 6},
    {"bad_headers", "URG", [](Bytes& w) { w[kL4 + 13] |= 32; }, 6},
    {"bad_headers", "UDP length", [](Bytes& w) { put16(w, kL4 + 4, 30); }},
    {"bad_headers", "no payload", [](Bytes& w) { cut_to(w, kGroup); }},
    {"bad_headers", "IP options",
     [](Bytes& w) {
       w.insert(w.begin() + kL4, {1, 1, 1, 1}), w[kIp] = 0x46, relength(w);
     }},
    {"bad_ip_checksum", "TTL", [](Bytes& w) { --w[kIp + 8]; }, 17, false},
    {"bad_ip_checksum", "checksum", [](Bytes& w) { ++w[kIp + 10]; }, 6, false},
    {"bad_checksum", "last byte, UDP", [](Bytes& w) { w.back() ^= 1; }, 17, false},
    {"bad_checksum", "last byte, TCP", [](Bytes& w) { w.back() ^= 1; }, 6, false},
    {"bad_checksum", "no UDP checksum", [](Bytes& w) { put16(w, kL4 + 6, 0); }},
    {"not_ours", "magic", set(kGroup, 0xa5)},
    {"not_ours", "3 bytes", [](Bytes& w) { cut_to(w, kGroup + 3); }},
    {"other_version", "version 3", set(kGroup + 1, 0x31)},
    {"other_version", "version 1, with other blocks", set(kGroup + 1, 0x11)},
    {"other_version", "version 0", set(kGroup + 1, 0x01)},
    {"other_kind", "kind 0", set(kGroup + 1, 0x20)},
    {"other_kind", "kind 4", set(kGroup + 1, 0x24)},
    {"bad_hello", "too long a hello", set(kGroup + 1, 0x22)},
    {"bad_hello", "too short an answer", [](Bytes& w) { w[kGroup + 1] = 0x23, cut_to(w, kGroup + 11); }},
    {"bad_hello", "a hello in TCP", [](Bytes& w) { w[66 + 1] = 0x22, cut_to(w, 66 + 12); }, 6},
    {"unknown_codec", "codec 9", set(kGroup + 2, 9)},
    {"unknown_codec", "fixed:31", set(kGroup + 3, 31)},
    {"unknown_codec", "fixed:0", set(kGroup + 3, 0)},
    {"short_record", "a group header and no more", [](Bytes& w) { cut_to(w, kFirst); }},
    {"short_record", "cut in the header", [](Bytes& w) { cut_to(w, kFirst + 7); }},
    {"short_record", "cut in the block", [](Bytes& w) { cut_to(w, second(w) - 1); }},
    {"short_record", "cut in the second header", [](Bytes& w) { cut_to(w, second(w) + 1); }},
    {"short_record", "a byte left over", [](Bytes& w) { cut_to(w, w.size() + 1); }},
    {"short_record", "block longer than the packet", set(kFirst + 3, 0x7f)},
    {"bad_shape", "bit 7", set(kFirst + 4, 0x80)},
    {"bad_shape", "zero", set(kFirst + 5, 1)},
    {"bad_shape", "no whole floats", set(kFirst + 4, 1)},
    {"bad_shape", "no payload", [](Bytes& w) { w[kFirst] = w[kFirst + 1] = 0; }},
    {"bad_shape", "no UDP checksum, TCP", [](Bytes& w) { w[66 + 4 + 4] |= 0x10; }, 6},
    {"bad_mask", "in the first record", set(kFirst + 6, 1)},
    {"bad_mask", "bit 14", [](Bytes& w) { w[second(w) + 7] = 0x40; }},
    {"bad_mask", "sequence number of UDP", word(2, 1)},
    {"bad_mask", "an option word that TCP here has not", word(1 << 7, 1), 6},
    {"none", "the last option word that it has", word(1 << 6, 1), 6},
    {"none", "another id", word(1, 0x55554000)},
    {"bad_word", "a fragment", word(1, 0x55552000)},
    {"bad_word", "an offset", word(1, 0x55550001)},
    {"bad_word", "reserved bit", word(1, 0x5555c000)},
    {"none", "another window, PSH, ECE, CWR", word(8, 0x80d80001), 6},
    {"bad_word", "FIN", word(8, 0x80110001), 6},
    {"bad_word", "SYN", word(8, 0x80120001), 6},
    {"bad_word", "RST", word(8, 0x80140001), 6},
    {"bad_word", "URG", word(8, 0x80300001), 6},
    {"bad_word", "another data offset", word(8, 0x70100001), 6},
    {"none", "a float more, which is 0", [](Bytes& w) { w[kFirst] = static_cast<uint8_t>(w[kFirst] + 4); }},
    {"none", "one float of the group", set(kFirst, 4)},
    {"bad_block", "floats by the hundred", [](Bytes& w) { w[kFirst + 1] = 2; }},
    {"too_many_records", "33", [](Bytes& w) { repeat_first(w, 33); }},
    {"restored_too_long", "a smaller MTU here", [](Bytes&) {}, 17, true, 20 + 8 + 130},
    {"none", "as small as it can be", [](Bytes&) {}, 17, true, 20 + 8 + 135},
    {"restored_too_long", "as long as it gets", [](Bytes& w) { w[kFirst] = 0xfc, w[kFirst + 1] = 0xff; }},
};

TEST(BundleHostile, EveryFaultByName) {
  std::set<std::string> seen;
  for (const Row& row : kRows) {
    Bytes wire = wire_of(row.protocol);
    row.change(wire);
    if (row.seal) seal_frame(wire);
    const Received received = receive(wire, row.mtu);
    EXPECT_EQ(name_of(received), row.want) << row.what;
    EXPECT_EQ(received.frames.empty(), received.fault != BundleFault::kNone) << row.what;
    seen.insert(name_of(received));
  }
  std::set<std::string> names, helps;
  for (size_t i = 0; i < static_cast<size_t>(BundleFault::kCount); ++i) {
    names.insert(name_of(static_cast<BundleFault>(i)));
    helps.insert(counter_help(static_cast<BundleFault>(i)));
  }
  EXPECT_EQ(seen, names);
  EXPECT_EQ(helps.size(), names.size());
}

// ---- Damage

TEST(BundleHostile, EveryFlippedBitIsRefused) {
  for (const uint8_t protocol : {uint8_t{6}, uint8_t{17}}) {
    const Bytes whole = wire_of(protocol);
    const std::vector<Bytes> want = receive(whole).frames;
    ASSERT_EQ(want.size(), 3U);
    for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      Bytes wire = whole;
      wire[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      const Received received = receive(wire);
      const bool mac = bit / 8 < 12;  // only the frame's CRC covers these bytes
      EXPECT_EQ(received.fault == BundleFault::kNone, mac) << bit;
      EXPECT_EQ(received.frames.size(), mac ? want.size() : 0) << bit;
    }
  }
}

TEST(BundleHostile, EveryFlippedBitUnderRightChecksums) {
  for (const uint8_t protocol : {uint8_t{6}, uint8_t{17}}) {
    const Bytes whole = wire_of(protocol);
    size_t refused = 0;
    for (size_t bit = 8 * 12; bit < 8 * whole.size(); ++bit) {
      Bytes wire = whole;
      wire[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      seal_frame(wire);
      refused += sound(wire) ? 1 : 0;
    }
    EXPECT_GT(refused, 300U);
  }
}

TEST(BundleHostile, TwoByteChangesUnderRightChecksums) {
  Rng rng(11);
  const Bytes wires[] = {wire_of(6), wire_of(17), wire_of(6, 400), wire_of(17, 400)};
  size_t refused = 0;
  const size_t kRounds = rounds<size_t>(60000);
  for (size_t round = 0; round < kRounds; ++round) {
    Bytes wire = wires[rng.below(4)];
    const size_t from = rng.one_in(2) ? kGroup : 12;
    for (int i = 0; i < 2; ++i) wire[from + rng.below(wire.size() - from)] = static_cast<uint8_t>(rng.bits());
    if (rng.one_in(4)) cut_to(wire, kL4 + rng.below(wire.size() - kL4));
    seal_frame(wire);
    refused += sound(wire, 100 + rng.below(1400)) ? 1 : 0;
  }
  EXPECT_GT(refused, kRounds / 10);
  EXPECT_LT(refused, kRounds);
}

TEST(BundleHostile, EveryCut) {
  for (const uint8_t protocol : {uint8_t{6}, uint8_t{17}}) {
    const Bytes whole = wire_of(protocol);
    size_t taken = 0;
    for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
      const Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes));
      EXPECT_EQ(name_of(receive(cut)), "bad_headers") << bytes;
      if (bytes < kL4 + 20) continue;
      Bytes fitted = cut;
      cut_to(fitted, bytes);
      seal_frame(fitted);
      taken += sound(fitted) ? 0 : 1;
    }
    EXPECT_EQ(taken, 2U);  // the cuts after the first and the second record
  }
}

TEST(BundleHostile, ShortRoomAndNothingLeft) {
  const Bytes wire = wire_of(17);
  BundleReader reader;
  Bytes out(kMtu + 14);
  EXPECT_EQ(reader.next(0, out), 0U);
  ASSERT_EQ(reader.begin(wire, accel::view_packet(wire), kMtu), BundleFault::kNone);
  EXPECT_EQ(reader.next(0, std::span(out).first(42 + 123)), 0U);
  EXPECT_EQ(reader.next(0, std::span(out).first(42 + 124)), 42U + 124);
  EXPECT_EQ(reader.records(), 2U);
  EXPECT_NE(reader.next(0, out), 0U);
  EXPECT_NE(reader.next(0, out), 0U);
  EXPECT_EQ(reader.next(0, out), 0U);
  Bytes bad = wire;
  bad.back() ^= 1;
  ASSERT_EQ(reader.begin(wire, accel::view_packet(wire), kMtu), BundleFault::kNone);
  ASSERT_NE(reader.begin(bad, accel::view_packet(bad), kMtu), BundleFault::kNone);
  EXPECT_EQ(reader.records(), 0U);
  EXPECT_EQ(reader.next(0, out), 0U);
}

}  // namespace
}  // namespace gradlane::test::bundle_hostile_test
