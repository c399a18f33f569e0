// codec.cc - the table of codecs: names, parameters and the choice of kernels (set-up only)
#include "compress/codec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "compress/layout.h"

namespace gradlane {

// A row of the table of codecs.
struct CodecRow {
  CodecId id;
  const char* word;        // the name up to the colon
  const char* usage;       // how to write the whole name
  const char* promise;     // in a few words
  OpsRow ops;              // its kernels; those of truncation stand behind them
  unsigned min_bits = 0;   // range of b
  unsigned max_bits = 0;   // 0: no parameter
  bool truncates = false;  // takes ",truncate"
  bool feedback = false;
  size_t flat_width = 0;  // bytes per float of a codec without tags
};

namespace {

constexpr CodecRow kCodecs[] = {
    {.id = CodecId::kRaw, .word = "raw", .usage = "raw", .promise = "fp32 as it is", .ops = kRowRaw, .flat_width = 4},
    {.id = CodecId::kBf16,
     .word = "bf16",
     .usage = "bf16",
     .promise = "bfloat16, relative error 2^-8",
     .ops = kRowBf16,
     .flat_width = 2},
    {.id = CodecId::kFp16,
     .word = "fp16",
     .usage = "fp16",
     .promise = "IEEE half, relative error 2^-11",
     .ops = kRowFp16,
     .flat_width = 2},
    {.id = CodecId::kInceptionn,
     .word = "inceptionn",
     .usage = "inceptionn:B[,truncate]",
     .promise = "error < 2^-B, B = 2..14",
     .ops = kRowInceptionn,
     .min_bits = 2,
     .max_bits = 14,
     .truncates = true},
    {.id = CodecId::kFixed,
     .word = "fixed",
     .usage = "fixed:B",
     .promise = "error <= 2^-B, exact sums, B = 1..30",
     .ops = kRowFixed,
     .min_bits = 1,
     .max_bits = 30,
     .feedback = true},
};
static_assert(kRowInceptionnTruncate == kRowInceptionn + 1);

const CodecRow* find_row(CodecId id) noexcept {
  for (const CodecRow& row : kCodecs) {
    if (row.id == id) return &row;
  }
  return nullptr;
}

const CodecOps* ops_table(Isa isa) noexcept {
  return isa == Isa::kAvx512 ? kAvx512Ops : isa == Isa::kAvx2 ? kAvx2Ops : kScalarOps;
}

CodecParams make_params(CodecId id, unsigned bits) noexcept {
  CodecParams params;
  params.bits = bits;
  params.split = bits / 2;
  const int exponent = id == CodecId::kInceptionn ? -15 : 1 - static_cast<int>(bits);
  params.step = std::ldexp(1.0F, exponent);
  params.steps_per_one = std::ldexp(1.0F, -exponent);
  params.magic = 1.5F * 0x1p23F * params.step;
  params.exact = 0x1p23F * params.step;
  return params;
}

[[noreturn]] void refuse(std::string_view name, const std::string& why) {
  throw SetupError("codec '" + std::string(name) + "': " + why + "\nallowed:\n" + codec_help());
}

// The parameter byte of what stands behind the colon.
uint8_t parse_param(std::string_view name, const CodecRow& row, std::optional<std::string_view> text) {
  const std::string word = row.word;
  if (row.max_bits == 0) {
    if (text) refuse(name, word + " takes no parameter");
    return 0;
  }
  if (row.id == CodecId::kFixed && (!text || text->starts_with("auto"))) {
    refuse(name,
           "name its B, as in fixed:10; a bound that follows the gradients is the trainer's choice: fixed:auto in "
           "PyTorch, gradlane.AdaptiveBound with NumPy");
  }
  if (!text) refuse(name, word + " needs its parameter B");
  uint8_t flags = 0;
  if (const size_t comma = text->find(','); comma != text->npos) {
    const std::string_view option = text->substr(comma + 1);
    if (!row.truncates || option != "truncate") refuse(name, "unknown option '" + std::string(option) + "'");
    flags = kTruncateBit;
    text = text->substr(0, comma);
  }
  unsigned bits = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), bits);
  if (error != std::errc() || end != text->data() + text->size() || bits < row.min_bits || bits > row.max_bits) {
    refuse(name, "B must be " + std::to_string(row.min_bits) + " to " + std::to_string(row.max_bits) + ", not '" +
                     std::string(*text) + "'");
  }
  return static_cast<uint8_t>(bits | flags);
}

}  // namespace

CodecId Codec::id() const noexcept { return row_->id; }

bool Codec::has_feedback() const noexcept { return row_->feedback; }

size_t Codec::granule() const noexcept { return row_->flat_width == 0 ? kGroupFloats : 1; }

size_t Codec::max_bytes(size_t floats) const noexcept {
  return row_->flat_width == 0 ? tagged_max_bytes(floats) : floats * row_->flat_width;
}

// [tags 1, payload 1, tags 2, payload 2] becomes [tags 1, tags 2, payload 1, payload 2]: two neighbours swap places.
void Codec::join(uint8_t* block, size_t first_floats, size_t first_bytes, size_t second_floats) const noexcept {
  if (row_->flat_width != 0) return;
  const size_t first_tags = groups_of(first_floats) * kTagBytes;
  const size_t tags = groups_of(second_floats) * kTagBytes;
  const size_t payload = first_bytes - first_tags;
  if (tags == 0 || payload == 0) return;
  uint8_t* const at = block + first_tags;
  std::array<uint8_t, kMaxPacket / 2> shorter;  // of the two parts of any packet
  if (tags <= payload && tags <= shorter.size()) {
    std::memcpy(shorter.data(), at + payload, tags);
    std::memmove(at + tags, at, payload);
    std::memcpy(at, shorter.data(), tags);
  } else if (payload <= shorter.size()) {
    std::memcpy(shorter.data(), at, payload);
    std::memmove(at, at + payload, tags);
    std::memcpy(at + tags, shorter.data(), payload);
  } else {
    std::rotate(at, at + payload, at + payload + tags);
  }
}

std::string Codec::name() const { return std::string(short_name().view()); }

CodecName Codec::short_name() const noexcept {
  CodecName text = row_->word;
  if (row_->max_bits != 0) text.add(":").add(bits());
  if (truncates()) text.add(",truncate");
  return text;
}

std::optional<Codec> find_codec(CodecId id, uint8_t param, Isa isa) noexcept {
  const CodecRow* row = find_row(id);
  if (row == nullptr) return std::nullopt;
  const bool truncate = row->truncates && (param & kTruncateBit) != 0;
  const unsigned bits = truncate ? param & ~kTruncateBit : param;
  if (bits < row->min_bits || bits > row->max_bits) return std::nullopt;
  Codec codec;
  codec.row_ = row;
  codec.ops_ = &ops_table(isa)[row->ops + (truncate ? 1 : 0)];
  codec.params_ = make_params(id, bits);
  codec.param_ = param;
  codec.isa_ = isa;
  return codec;
}

Codec find_codec(std::string_view name, Isa isa) {
  if (!isa_supported(isa)) {
    throw SetupError("codec '" + std::string(name) + "': this CPU does not support " + isa_name(isa));
  }
  const size_t colon = name.find(':');
  const std::string_view word = name.substr(0, colon);
  for (const CodecRow& row : kCodecs) {
    if (word != row.word) continue;
    const auto text = colon == name.npos ? std::nullopt : std::optional(name.substr(colon + 1));
    return *find_codec(row.id, parse_param(name, row, text), isa);
  }
  refuse(name, name.empty() ? "empty name" : "unknown codec");
}

Codec find_codec(std::string_view name) { return find_codec(name, select_isa()); }

std::string codec_help() {
  std::string text;
  for (const CodecRow& row : kCodecs) {
    std::string usage = row.usage;
    usage.resize(26, ' ');
    text += "  " + usage + row.promise + "\n";
  }
  return text;
}

std::string codec_names() {
  std::string text;
  for (const CodecRow& row : kCodecs) {
    text += (text.empty() ? "" : ", ") + std::string(row.usage);
    if (row.max_bits > 0) text += " (" + std::to_string(row.min_bits) + " to " + std::to_string(row.max_bits) + ")";
  }
  return text;
}

const char* status_text(Status status) noexcept {
  switch (status) {
    case Status::kOk:
      return "ok";
    case Status::kShort:
      return "block too short for its tags";
    case Status::kLong:
      return "block longer than its tags say";
    case Status::kBadTail:
      return "tags set behind the last float";
  }
  return "?";
}

}  // namespace gradlane
