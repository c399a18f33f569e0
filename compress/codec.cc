// codec.cc - look-ups of codecs, and the choice of their kernels (set-up only)
#include "compress/codec.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "compress/codec_name.h"

namespace gradlane {

namespace {

// Returns the best kernels that exist and that a CPU with `isa` can run.
const CodecOps& ops_of(const CodecKernels& kernels, Isa isa) noexcept {
  auto best = static_cast<size_t>(std::ranges::find(kIsas, isa) - kIsas.begin());
  while (kernels[best] == nullptr) --best;
  return *kernels[best];
}

const CodecRow* find_row(CodecId id) noexcept {
  for (const CodecRow& row : codec_table()) {
    if (row.id == id) return &row;
  }
  return nullptr;
}

// Throws SetupError. `word` is the codec's word if the fault is in the text after it. If it is empty, the message lists
// all codecs.
[[noreturn]] void refuse(std::string_view name, const std::string& why, std::string_view word = "") {
  const char* const what = word.empty() ? "\nallowed:\n" : "\nusage:\n";
  throw SetupError("codec '" + std::string(name) + "': " + why + what + codec_help(word),
                   word.empty() ? SetupFault::kUnknownName : SetupFault::kOther);
}

// Codecs of earlier releases, and what to use instead.
struct Retired {
  std::string_view word;
  const char* why;
};
constexpr Retired kRetired[] = {
    {"trunc", "retired: use bf16, which has as many bits as trunc:16 and rounds to nearest"},
    {"deflate", "retired: use raw, which is also exact and 200 times as fast"},
};

// Returns " (did you mean ...?)" if a codec's name resembles this one, else "".
std::string guess(std::string name, size_t word_length) {
  constexpr size_t kMost = 2;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string_view word = std::string_view(name).substr(0, word_length);
  const auto far = [word](const CodecRow& row) { return edits_between(word, row.word); };
  const CodecRow& nearest = *std::ranges::min_element(codec_table(), {}, far);
  if (far(nearest) > std::min(kMost, word.size() / 2)) return "";
  const std::string rest = name.substr(word_length);
  if (nearest.adaptive && rest.starts_with(':') && means_adaptive(std::string_view(rest).substr(1))) {
    return " (did you mean " + adaptive_name(nearest) + "?)";
  }
  const std::string meant = nearest.word + rest;
  try {
    return " (did you mean " + find_codec(meant, Isa::kScalar).name() + "?)";
  } catch (const SetupError&) {
    return std::string(" (did you mean ") + nearest.example + "?)";
  }
}

}  // namespace

Codec Codec::of(FloatForm form) const noexcept {
  Codec codec = *this;
  codec.row_ = form == FloatForm::kBf16 ? row_->bf16 : row_->fp16;
  codec.ops_ = &ops_of(codec.row_->kernels, isa_);
  return codec;
}

std::string Codec::name() const { return std::string(short_name().view()); }

std::optional<Codec> find_codec(CodecId id, const CodecArguments& arguments, Isa isa) noexcept {
  const CodecRow* row = find_row(id);
  if (row == nullptr || !allowed(*row, arguments)) return std::nullopt;
  const bool option = row->option != nullptr && (arguments.bits & kOptionBit) != 0;
  Codec codec;
  codec.row_ = row;
  codec.ops_ = &ops_of(option ? row->option_kernels : row->kernels, isa);
  if (row->params != nullptr) codec.params_ = row->params(arguments);
  codec.params_.arguments = arguments;
  codec.isa_ = isa;
  return codec;
}

std::optional<Codec> find_codec(CodecId id, uint8_t param, Isa isa) noexcept {
  return find_codec(id, CodecArguments{.bits = param}, isa);
}

float agreed_on(Agreement agreement, std::span<const float> offers) noexcept {
  float greatest = 0;
  double sum = 0;
  for (const float offer : offers) {
    greatest = std::max(greatest, offer);
    sum += static_cast<double>(offer);
  }
  if (agreement == Agreement::kGreatest || offers.empty()) return greatest;
  return static_cast<float>(sum / static_cast<double>(offers.size()));
}

Codec codec_of(FloatForm form, Isa isa) noexcept {
  for (const CodecRow& row : codec_table()) {
    if (row.form == form) return *find_codec(row.id, 0, isa);
  }
  return *find_codec(codec_table().front().id, 0, isa);
}

Codec find_codec(std::string_view name, Isa isa) {
  if (!isa_supported(isa)) {
    throw SetupError("codec '" + std::string(name) + "': this CPU does not support " + isa_name(isa));
  }
  if (name.size() > kLongestCodecName) {
    throw SetupError("codec '" + std::string(name.substr(0, 40)) + "...': a name has at most " +
                     std::to_string(kLongestCodecName) + " characters, and this one " + std::to_string(name.size()));
  }
  const CodecText text = split_name(name);
  std::string why;
  for (const CodecRow& row : codec_table()) {
    if (text.word != row.word) continue;
    CodecArguments arguments;
    // Several rows may have this word. The reason comes from the last row that the name can only mean
    // (NameFault::meant), or else from the first row.
    const NameFault fault = parse_arguments(row, text, arguments);
    if (fault.why.empty()) return *find_codec(row.id, arguments, isa);
    if (why.empty() || fault.meant) why = fault.why;
  }
  if (!why.empty()) refuse(name, why, text.word);
  for (const Retired& codec : kRetired) {
    if (text.word == codec.word) refuse(name, codec.why);
  }
  refuse(name, name.empty() ? "empty name" : "unknown codec" + guess(std::string(name), text.word.size()));
}

Codec find_codec(std::string_view name) { return find_codec(name, select_isa()); }

std::vector<std::string> accelerator_codecs() {
  std::vector<std::string> texts;
  for (const CodecRow& row : codec_table()) {
    if (row.accelerator) texts.push_back(std::string(row.word) + (row.max_bits > 0 ? ":B" : ""));
  }
  std::ranges::sort(texts);
  return texts;
}

std::string codec_help(std::string_view word) {
  const auto wanted = [word](const CodecRow& row) { return word.empty() || word == row.word; };
  size_t width = 0;
  for (const CodecRow& row : codec_table()) {
    if (wanted(row)) width = std::max(width, std::string_view(row.usage).size() + 2);
  }
  std::string text;
  for (const CodecRow& row : codec_table()) {
    if (!wanted(row)) continue;
    std::string usage = row.usage;
    usage.resize(width, ' ');
    text += "  " + usage + row.promise + "\n";
  }
  return text;
}

}  // namespace gradlane
