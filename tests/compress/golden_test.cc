// golden_test.cc - every ISA against tests/compress/golden/, which an independent implementation wrote
//
// make_golden.py says what the lines of those files mean. GRADLANE_GOLDEN_DIR names the folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "compress/codec.h"
#include "tests/compress/isa_test.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test::golden_test {
namespace {

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;

// A call of the same case with an output of limited room, and its expected result.
struct Cut {
  size_t first, room, floats, size;
  uint64_t hash;
};

struct Case {
  std::string file, kind, title;
  std::string codec;
  unsigned wire_id = 0, wire_param = 0;
  std::map<std::string, std::string> lists;  // values by key, without spaces
  std::vector<Cut> cuts;

  // Returns whether elements have 16 bits. Their format is then the last part of `codec`.
  [[nodiscard]] bool halves() const { return codec.ends_with(":bf16") || codec.ends_with(":fp16"); }
  [[nodiscard]] size_t width() const { return halves() ? 2 : 4; }

  [[nodiscard]] bool has(const std::string& key) const { return lists.count(key) != 0; }

  [[nodiscard]] std::string hex(const std::string& key) const {
    const auto found = lists.find(key);
    if (found == lists.end()) throw std::runtime_error(file + ": '" + title + "' lacks " + key);
    return found->second;
  }

  [[nodiscard]] Bytes bytes(const std::string& key) const {
    const std::string text = hex(key);
    Bytes result;
    for (size_t i = 0; i < text.size(); i += 2) {
      result.push_back(static_cast<uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
    }
    return result;
  }

  // Returns floats. If elements are halves, they are in the first half of these bytes.
  [[nodiscard]] Floats floats(const std::string& key) const {
    const std::string text = hex(key);
    Floats result(text.size() / (2 * width()));
    for (size_t i = 0; i < result.size(); ++i) {
      const auto bits = static_cast<uint32_t>(std::stoul(text.substr(2 * width() * i, 2 * width()), nullptr, 16));
      std::memcpy(reinterpret_cast<uint8_t*>(result.data()) + width() * i, &bits, width());
    }
    return result;
  }

  [[nodiscard]] size_t number(const std::string& key) const { return std::stoul(hex(key)); }
};

void read_file(const std::filesystem::path& path, std::vector<Case>& cases) {
  std::ifstream file(path);
  Case head;
  head.file = path.filename();
  bool in_case = false;
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string key, word;
    line >> key;
    if (key.empty() || key[0] == '#') continue;
    if (key == "codec") {
      line >> head.codec;
    } else if (key == "wire") {
      line >> head.wire_id >> head.wire_param;
    } else if (key == "case") {
      in_case = true;
      cases.push_back(head);
      line >> cases.back().kind;
      std::getline(line >> std::ws, cases.back().title);
    } else if (!in_case) {
      throw std::runtime_error(head.file + ": '" + key + "' outside a case");
    } else if (key == "cut") {
      Cut cut{};
      line >> cut.first >> cut.room >> cut.floats >> cut.size >> std::hex >> cut.hash;
      if (!line) throw std::runtime_error(head.file + ": bad line '" + text + "'");
      cases.back().cuts.push_back(cut);
    } else {
      std::string& list = cases.back().lists[key];
      while (line >> word) list += word;
    }
  }
}

std::vector<Case> read_cases() {
  const char* folder = std::getenv("GRADLANE_GOLDEN_DIR");
  if (folder == nullptr) throw std::runtime_error("GRADLANE_GOLDEN_DIR is not set: it names tests/compress/golden");
  std::vector<Case> cases;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file()) read_file(entry.path(), cases);
  }
  return cases;
}

uint64_t fnv1a(const Bytes& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

// An output of `room` bytes at an odd address, with guard bytes on both sides that must not change.
class Output {
 public:
  explicit Output(size_t room) : room_(room), bytes_(kBefore + room + kBehind, kGuard) {}

  std::span<uint8_t> span() { return {bytes_.data() + kBefore, room_}; }

  // Checks the guard bytes, and returns the first `size` bytes.
  Bytes take(size_t size) {
    EXPECT_LE(size, room_);
    const auto guard = [](uint8_t byte) { return byte == kGuard; };
    const auto begin = bytes_.begin() + kBefore;
    const auto end = begin + static_cast<ptrdiff_t>(room_);
    EXPECT_TRUE(std::all_of(bytes_.begin(), begin, guard)) << "wrote before the output";
    EXPECT_TRUE(std::all_of(end, bytes_.end(), guard)) << "wrote behind the output";
    return {begin, begin + static_cast<ptrdiff_t>(std::min(size, room_))};
  }

 private:
  static constexpr size_t kBefore = 9;
  static constexpr size_t kBehind = 128;
  static constexpr uint8_t kGuard = 0xa5;
  size_t room_;
  Bytes bytes_;
};

class Golden : public IsaTest {
 protected:
  // Runs `check` on every case of a kind.
  static void for_cases(const std::string& kind, const std::function<void(const Case&, const Codec&)>& check) {
    static const std::vector<Case> cases = read_cases();
    size_t seen = 0;
    for (const Case& c : cases) {
      if (c.kind != kind) continue;
      SCOPED_TRACE(c.file + ": " + c.title);
      check(c, find_named(c.codec, GetParam()));
      ++seen;
    }
    EXPECT_GT(seen, 0U) << "no case of kind " << kind;
  }
};

// The codec's states before an operation. A state that the case does not have is empty.
struct States {
  explicit States(const Case& c)
      : residual(c.has("residual") ? c.floats("residual") : Floats()),
        second(c.has("second") ? c.floats("second") : Floats()) {}
  float* first() { return residual.empty() ? nullptr : residual.data(); }
  float* other() { return second.empty() ? nullptr : second.data(); }

  Floats residual;
  Floats second;
};

// Returns the codec for a case. It has scanned the contribution `in` if the case says so.
Codec looked(const Case& c, const Codec& codec, const Floats& in) {
  States states(c);
  return c.has("looked") ? ready_for(codec, in, states.first(), states.other()) : codec;
}

// The output of an encode or hop, and the states after it.
struct Result {
  size_t floats;
  Bytes block;
  Floats residual;
  Floats second = {};
};

Result run_encode(const Codec& codec, const Floats& in, const States& states, size_t room) {
  Output out(room);
  States left = states;
  const EncodeResult got = codec.encode({.in = in.data(),
                                         .residual = left.first(),
                                         .floats = in.size(),
                                         .out = out.span().data(),
                                         .room = room,
                                         .second = left.other()});
  return {got.floats, out.take(got.bytes), left.residual, left.second};
}

Result run_hop(const Codec& codec, const Bytes& block, const Floats& local, const Floats* residual, size_t room,
               size_t first) {
  Output out(room);
  Floats left = residual != nullptr ? *residual : Floats();
  const HopResult got = residual != nullptr ? codec.hop_feedback(block, local, left.data(), out.span(), first)
                                            : codec.hop(block, local, out.span(), first);
  EXPECT_EQ(got.status, Status::kOk);
  return {got.floats, out.take(got.bytes), left};
}

void expect_cut(const Cut& cut, const Result& got) {
  EXPECT_EQ(got.floats, cut.floats);
  EXPECT_EQ(got.block.size(), cut.size);
  EXPECT_EQ(fnv1a(got.block), cut.hash);
}

// Checks `run(room, first)`, which encodes or hops `floats` values: all of them, with and without spare room, and each
// cut.
void expect_writes(const Case& c, const Codec& codec, size_t floats, const Bytes& block,
                   const std::function<Result(size_t room, size_t first)>& run) {
  const bool feedback = c.has("residual");
  const Floats before = feedback ? c.floats("residual") : Floats();
  const Floats after = feedback ? c.floats("residual_out") : Floats();
  EXPECT_LE(block.size(), codec.max_bytes(floats));
  for (const size_t room : {codec.max_bytes(floats), codec.max_bytes(floats) + 200, block.size()}) {
    SCOPED_TRACE("room for " + std::to_string(room) + " bytes");
    const Result got = run(room, 0);
    EXPECT_EQ(got.floats, floats);
    EXPECT_EQ(got.block, block);
    EXPECT_EQ(bits_of(got.residual), bits_of(after));
    if (c.has("second")) {
      EXPECT_EQ(bits_of(got.second), bits_of(c.floats("second_out")));
    }
  }
  for (const Cut& cut : c.cuts) {
    SCOPED_TRACE("from " + std::to_string(cut.first) + ", room for " + std::to_string(cut.room) + " bytes");
    const Result got = run(cut.room, cut.first);
    expect_cut(cut, got);
    if (!feedback) continue;
    Floats expected = before;
    const auto from = static_cast<ptrdiff_t>(cut.first);
    std::copy_n(after.begin() + from, cut.floats, expected.begin() + from);
    EXPECT_EQ(bits_of(got.residual), bits_of(expected));
  }
}

TEST_P(Golden, Wire) {
  for_cases("encode", [](const Case& c, const Codec& codec) {
    const std::string name = c.halves() ? c.codec.substr(0, c.codec.find(':')) : c.codec;
    EXPECT_EQ(codec.name(), name);
    EXPECT_EQ(codec.isa(), GetParam());
    EXPECT_EQ(static_cast<unsigned>(codec.id()), c.wire_id);
    if (!codec.row().has_rate) {
      EXPECT_EQ(codec.param(), c.wire_param);
    }
    const auto found = find_codec(static_cast<CodecId>(c.wire_id), codec.arguments(), GetParam());
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->name(), name);
    EXPECT_EQ(found->isa(), GetParam());
  });
}

TEST_P(Golden, Encode) {
  for_cases("encode", [](const Case& c, const Codec& codec) {
    const Floats in = c.floats("in");
    const Bytes block = c.bytes("block");
    const Codec mine = looked(c, codec, in);
    expect_writes(c, codec, in.size(), block,
                  [&](size_t room, size_t) { return run_encode(mine, in, States(c), room); });
    EXPECT_EQ(codec.validate(block, in.size()), Status::kOk);
    Floats out(in.size());
    EXPECT_EQ(codec.decode(block, out), Status::kOk);
    EXPECT_EQ(bits_of(out), bits_of(c.floats("out")));
    if (!codec.row().is_additive) return;
    EXPECT_TRUE(comes_back(codec, block, in.size()));
  });
}

TEST_P(Golden, EncodeLongRuns) {
  for_cases("tile", [](const Case& c, const Codec& codec) {
    const Floats pattern = c.floats("in");
    Floats in(c.number("floats"));
    for (size_t i = 0; i < in.size(); ++i) {
      std::memcpy(reinterpret_cast<uint8_t*>(in.data()) + i * c.width(),
                  reinterpret_cast<const uint8_t*>(pattern.data()) + i % pattern.size() * c.width(), c.width());
    }
    for (const Cut& cut : c.cuts) {
      SCOPED_TRACE("room for " + std::to_string(cut.room) + " bytes");
      expect_cut(cut, run_encode(codec, in, States(c), cut.room));
    }
  });
}

TEST_P(Golden, Decode) {
  for_cases("decode", [](const Case& c, const Codec& codec) {
    const Bytes block = c.bytes("block");
    Floats out(c.floats("out").size());
    Floats acc = c.floats("acc");
    EXPECT_EQ(codec.validate(block, out.size()), Status::kOk);
    EXPECT_EQ(codec.decode(block, out), Status::kOk);
    EXPECT_EQ(bits_of(out), bits_of(c.floats("out")));
    EXPECT_EQ(codec.decode_add(block, acc), Status::kOk);
    EXPECT_EQ(bits_of(acc), bits_of(c.floats("sum")));
  });
}

TEST_P(Golden, InvalidBlock) {
  const std::map<std::string, Status> names = {{"short", Status::kShort},
                                               {"long", Status::kLong},
                                               {"bad-tail", Status::kBadTail},
                                               {"bad-escape", Status::kBadEscape}};
  for_cases("invalid", [&](const Case& c, const Codec& codec) {
    const Bytes block = c.bytes("block");
    const Status expected = names.at(c.hex("status"));
    Floats floats(c.number("floats"));
    Output out(codec.max_bytes(floats.size()));
    EXPECT_EQ(codec.validate(block, floats.size()), expected);
    EXPECT_EQ(codec.decode(block, floats), expected);
    EXPECT_EQ(codec.decode_add(block, floats), expected);
    for (size_t first = 0; first <= floats.size(); first += std::max(codec.granule(), kGroupFloats)) {
      const HopResult got = codec.hop(block, floats, out.span(), first);
      EXPECT_EQ(got.status, expected) << "from " << first;
      EXPECT_EQ(got.floats, 0U);
      EXPECT_EQ(out.take(got.bytes).size(), 0U);
    }
  });
}

TEST_P(Golden, Hop) {
  for_cases("hop", [](const Case& c, const Codec& codec) {
    const Bytes block = c.bytes("block");
    const Floats local = c.floats("local");
    const Floats residual = c.has("residual") ? c.floats("residual") : Floats();
    const Codec mine = looked(c, codec, local);
    expect_writes(c, codec, local.size(), c.bytes("result"), [&](size_t room, size_t first) {
      return run_hop(mine, block, local, c.has("residual") ? &residual : nullptr, room, first);
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Isa, Golden, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace gradlane::test::golden_test
