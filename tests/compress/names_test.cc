// names_test.cc - look-ups of codecs by name and by wire id, and GRADLANE_ISA, which selects the instruction set
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/error.h"
#include "tests/compress/isa_test.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test::names_test {
namespace {

// Returns the text of the SetupError that `call` throws; empty if it throws none.
template <class Call>
std::string setup_error(Call call) {
  try {
    call();
  } catch (const SetupError& error) {
    return error.what();
  }
  return {};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

class Names : public IsaTest {};

TEST_P(Names, RoundTrip) {
  for (const std::string& name : all_codecs()) {
    const Codec by_name = codec(name);
    EXPECT_EQ(by_name.name(), name);
    const std::optional<Codec> by_id = find_codec(by_name.id(), by_name.arguments(), GetParam());
    ASSERT_TRUE(by_id.has_value());
    EXPECT_EQ(by_id->name(), name);
    EXPECT_EQ(by_id->isa(), GetParam());
    EXPECT_EQ(by_id->granule(), by_name.granule());
    EXPECT_EQ(by_id->has_feedback(), by_name.has_feedback());
    EXPECT_EQ(by_id->max_bytes(100), by_name.max_bytes(100));
  }
}

// These values are in packet headers.
TEST_P(Names, WireIds) {
  const struct {
    const char* name;
    int id, param;
    size_t granule, max_bytes_of_33;
    bool feedback;
  } rows[] = {
      {"raw", 0, 0, 1, 132, false},
      {"bf16", 1, 0, 1, 66, false},
      {"fp16", 2, 0, 1, 66, false},
      {"pack", 23, 0, 32, 134, false},
      {"inceptionn:10", 3, 10, 32, 148, false},
      {"inceptionn:10,truncate", 3, 0x8a, 32, 148, false},
      {"inceptionn:10,literal", 22, 10, 32, 148, false},
      {"fixed:10", 4, 10, 32, 143, true},
  };
  for (const auto& row : rows) {
    const Codec found = codec(row.name);
    EXPECT_EQ(static_cast<int>(found.id()), row.id);
    EXPECT_EQ(found.param(), row.param);
    EXPECT_EQ(found.granule(), row.granule);
    EXPECT_EQ(found.max_bytes(33), row.max_bytes_of_33);
    EXPECT_EQ(found.has_feedback(), row.feedback);
  }
}

// The default is exact. Users get a lossy codec only if they name it.
TEST_P(Names, Defaults) {
  EXPECT_EQ(kDefaultCodec, "raw");
  for (const std::string_view name : {kDefaultCodec, kDefaultLossyCodec}) {
    EXPECT_EQ(codec(std::string(name)).name(), name);
  }
  for (const char* const name : {"fixed", "fixed:adaptive", "fixed:adaptive:6"}) {
    const std::string error = setup_error([&] { (void)codec(name); });
    EXPECT_TRUE(contains(error, "give its B, as in fixed:10")) << error;
    EXPECT_TRUE(contains(error, "fixed:adaptive in PyTorch, gradlane.AdaptiveBound with NumPy")) << error;
  }
}

TEST_P(Names, NothingForBadIds) {
  const struct {
    int id, param;
  } rows[] = {{0, 1},    {1, 1},    {2, 0x80}, {3, 0},  {3, 1},    {3, 15},    {3, 0x81},
              {3, 0x80}, {3, 0x8f}, {4, 0},    {4, 31}, {4, 0x8a}, {99, 0},    {99, 10},
              {255, 10}, {0, 255},  {20, 16},  {21, 0}, {22, 1},   {22, 0x8a}, {23, 1}};
  for (const auto& row : rows) {
    const auto id = static_cast<CodecId>(row.id);
    EXPECT_FALSE(find_codec(id, static_cast<uint8_t>(row.param), GetParam()).has_value()) << row.id << " " << row.param;
  }
}

TEST_P(Names, BadNamesAreRefusedWithWhatIsAllowed) {
  for (const char* name : {"",
                           ":",
                           ":10",
                           "fixed:99",
                           "fixed:31",
                           "fixed:",
                           "fixed:0",
                           "fixed:-1",
                           "fixed:+1",
                           "fixed:10 ",
                           " fixed:10",
                           "fixed: 10",
                           "fixed:0x10",
                           "fixed:1e1",
                           "fixed:10.0",
                           "fixed:10,foo",
                           "fixed:10,truncate",
                           "fixed:4294967306",
                           "fixed:18446744073709551626",
                           "fixed:10:10",
                           "FIXED:10",
                           "fixe",
                           "fixedd:10",
                           "inceptionn",
                           "inceptionn:",
                           "inceptionn:0",
                           "inceptionn:1",
                           "inceptionn:15",
                           "inceptionn:10,",
                           "inceptionn:10,truncate,truncate",
                           "inceptionn:10,nearest",
                           "inceptionn:10,truncate,literal",
                           "inceptionn:,truncate",
                           "inceptionn,truncate",
                           "raw:1",
                           "raw:",
                           "bf16:8",
                           "pack:3",
                           "fp16:",
                           "auto"}) {
    const std::string text = setup_error([&] { (void)find_codec(name, GetParam()); });
    EXPECT_TRUE(contains(text, std::string("'") + name + "'")) << name << ": " << text;
    // If the word is that of a codec, the message shows how its names are written; otherwise it lists all codecs.
    const std::string_view word = std::string_view(name).substr(0, std::string_view(name).find_first_of(":,/+"));
    const auto has_word = [word](const CodecRow& row) { return word == row.word; };
    const bool known = std::ranges::any_of(codec_table(), has_word);
    EXPECT_EQ(contains(text, "\nusage:\n"), known) << text;
    for (const CodecRow& row : codec_table()) {
      EXPECT_EQ(contains(text, std::string("\n  ") + row.usage + " "), !known || has_word(row)) << name << ": " << text;
    }
  }
}

TEST_P(Names, WhatIsWrong) {
  const std::pair<const char*, const char*> names[] = {
      {"fixed:rel", "write fixed:rel=B, as in fixed:rel=10\n"},
      {"fixed:rel:8", "write fixed:rel=B, as in fixed:rel=10\n"},
      {"fixed:rel=", "B must be 1 to 23, not ''\n"},
      {"fixed:rel=24", "B must be 1 to 23, not '24'\n"},
      {"fixed:31,stochastic", "B must be 1 to 30, not '31'\n"},
      {"signsgd,foo", "unknown option 'foo'\n"},
      {"topk", "topk needs the rate of elements to send, as in topk:1%\n"},
      {"topk:1", "topk:1% for one in a hundred, topk:100% for all"},
      {"mstopk:1.0", "mstopk:1.0% for one in a hundred, mstopk:100% for all"},
      {"topk:1%+fixed:31", "fixed:1 to fixed:30, not 'fixed:31'\n"},
      {"qsgd:4/100", "the number after the slash must be 256 to 1024, a power of two, not '100'\n"},
      {"dgc:0.1%,m=0.95,clip=1000", "clip must be 0 to 25.5, in steps of 0.1, not '1000'\n"},
  };
  for (const auto& [name, why] : names) {
    const std::string text = setup_error([&, it = name] { (void)find_codec(it, GetParam()); });
    EXPECT_TRUE(contains(text, why)) << name << ": " << text;
  }
}

// The longest name of every codec fits. The error for a longer name says how long it is.
TEST_P(Names, Longest) {
  CodecArguments most{.value_bits = 30, .rate = 123'456};
  for (const CodecRow& row : codec_table()) {
    CodecArguments arguments{.bits = static_cast<uint8_t>(row.second_extra.place != nullptr ? 254 : row.max_bits)};
    if (row.option != nullptr) arguments.bits |= kOptionBit;
    if (row.extra.place != nullptr) arguments.extra = row.extra.power_of_two ? row.extra.most : row.extra.most - 100;
    if (row.has_rate) arguments.rate = most.rate;
    if (row.takes_lattice) arguments.value_bits = most.value_bits;
    const std::optional<Codec> longest = find_codec(row.id, arguments, GetParam());
    ASSERT_TRUE(longest.has_value()) << row.word;
    EXPECT_LE(longest->name().size(), 40U) << longest->name();
    EXPECT_TRUE(codec(longest->name()).is(*longest)) << longest->name();
  }
  const std::string zeros = "topk:0." + std::string(kLongestCodecName - 8, '0');
  EXPECT_TRUE(contains(setup_error([&] { (void)codec(zeros + "1"); }), "the rate must be"));
  EXPECT_TRUE(
      contains(setup_error([&] { (void)codec(zeros + "01"); }), "a name has at most 63 characters, and this one 64"));
}

TEST_P(Names, WhatMayBeMeant) {
  const auto says = [](const char* name, const std::string& text) {
    return contains(setup_error([&] { (void)find_codec(name, GetParam()); }), text);
  };
  EXPECT_TRUE(says("fixd:10", "'fixd:10': unknown codec (did you mean fixed:10?)\n"));
  EXPECT_TRUE(says("fixed10", "(did you mean fixed:10?)"));
  EXPECT_TRUE(says("fxed:99", "(did you mean fixed:10?)"));
  EXPECT_TRUE(says("fixd:adaptive", "(did you mean fixed:adaptive?)"));
  EXPECT_TRUE(says("fixd:adaptve:6", "(did you mean fixed:adaptive?)"));
  EXPECT_TRUE(says("fixed:adaptve", "not 'adaptve' (did you mean fixed:adaptive?)\n"));
  EXPECT_TRUE(says("fixed:adoptive:6", "not 'adoptive:6' (did you mean fixed:adaptive?)\n"));
  EXPECT_TRUE(says("fixed:ten", "not 'ten'\n"));
  EXPECT_TRUE(says("terngard:adaptive", "(did you mean terngrad?)"));
  EXPECT_TRUE(says("inception:4,truncate", "(did you mean inceptionn:4,truncate?)"));
  EXPECT_TRUE(says("deflate", "retired: use raw"));
  EXPECT_TRUE(says("trunc:16", "retired: use bf16"));
  EXPECT_TRUE(says("RAW", "(did you mean raw?)"));
  EXPECT_TRUE(says("TopK:1%", "(did you mean topk:1%?)"));
  EXPECT_TRUE(says("Fixd:10", "(did you mean fixed:10?)"));
  EXPECT_TRUE(says("x", "unknown codec\n"));
  EXPECT_TRUE(says("gzip", "unknown codec\n"));
}

TEST_P(Names, Help) {
  for (const char* word : {"raw", "bf16", "fp16", "inceptionn", "fixed"}) EXPECT_TRUE(contains(codec_help(), word));
}

INSTANTIATE_TEST_SUITE_P(Isa, Names, testing::ValuesIn(kIsas), isa_test_name);

constexpr const char* kPin = "GRADLANE_ISA";

// Saves GRADLANE_ISA and restores it at the end of a test.
class SavedPin {
 public:
  SavedPin() {
    if (const char* value = std::getenv(kPin)) value_ = value;
  }
  ~SavedPin() {
    if (value_) {
      setenv(kPin, value_->c_str(), 1);
    } else {
      unsetenv(kPin);
    }
  }
  SavedPin(const SavedPin&) = delete;
  SavedPin& operator=(const SavedPin&) = delete;

 private:
  std::optional<std::string> value_;
};

class Pin : public IsaTest {
  SavedPin saved_;
};

TEST_P(Pin, TakesEffect) {
  setenv(kPin, isa_name(GetParam()), 1);
  EXPECT_EQ(select_isa(), GetParam());
  for (const std::string& name : some_codecs()) EXPECT_EQ(find_codec(name).isa(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Isa, Pin, testing::ValuesIn(kIsas), isa_test_name);

TEST(PinValue, OfMissingInstructionSetIsRefused) {
  const SavedPin saved;
  size_t missing = 0;
  for (const Isa isa : kIsas) {
    if (isa_supported(isa)) continue;
    ++missing;
    setenv(kPin, isa_name(isa), 1);
    const std::string text = setup_error([] { (void)find_codec("raw"); });
    EXPECT_TRUE(contains(text, std::string(kPin) + "=" + isa_name(isa))) << text;
    EXPECT_TRUE(contains(text, "usable here: scalar")) << text;
    EXPECT_TRUE(contains(setup_error([&] { (void)find_codec("raw", isa); }), isa_name(isa)));
  }
  if (missing == 0) GTEST_SKIP() << "this CPU has them all";
}

// An empty value is not the same as an unset variable.
TEST(PinValue, UnknownIsRefused) {
  const SavedPin saved;
  for (const char* value : {"", "AVX2", "avx", "scalar ", "sse4", "0", "auto"}) {
    setenv(kPin, value, 1);
    for (const std::string& text :
         {setup_error([] { (void)select_isa(); }), setup_error([] { (void)find_codec("raw"); })}) {
      EXPECT_TRUE(contains(text, std::string(kPin) + "=" + value + ":")) << text;
      EXPECT_TRUE(contains(text, "usable here: scalar")) << text;
    }
  }
}

// The last supported instruction set of kIsas is the fastest.
TEST(PinValue, UnsetTakesTheBest) {
  const SavedPin saved;
  unsetenv(kPin);
  Isa best = Isa::kScalar;
  for (const Isa isa : kIsas) {
    if (isa_supported(isa)) best = isa;
  }
  EXPECT_EQ(find_codec("raw").isa(), best);
}

}  // namespace
}  // namespace gradlane::test::names_test
