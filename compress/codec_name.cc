// codec_name.cc - codec names: parsing of their arguments, and writing of names (set-up; Codec::short_name() on any
// thread)
#include "compress/codec_name.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>

#include "compress/codec.h"

namespace gradlane {
namespace {

constexpr std::string_view kValuesOnLattice = "fixed:";
constexpr std::string_view kAdaptive = "adaptive";
constexpr double kPercent = 100;
constexpr unsigned kLeastValueBits = 1;
constexpr unsigned kMostValueBits = 30;

// ---- Numbers

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Writes a stored number as text: 250 becomes "2.5" if 1 is stored as 100.
std::string written(unsigned value, unsigned per_one) {
  std::string text = std::to_string(value / per_one);
  unsigned rest = value % per_one;
  if (rest != 0) text += '.';
  for (unsigned unit = per_one / 10; rest != 0; unit /= 10) {
    text += static_cast<char>('0' + rest / unit);
    rest %= unit;
  }
  return text;
}

bool fits(const NumericParameter& extra, unsigned value) {
  if (extra.place == nullptr) return value == 0;
  return value >= extra.least && value <= extra.most && (!extra.power_of_two || std::has_single_bit(value));
}

std::string range_of(const NumericParameter& extra) {
  return written(extra.least, extra.per_one) + " to " + written(extra.most, extra.per_one) +
         (extra.power_of_two ? ", a power of two" : "") +
         (extra.per_one > 1 ? ", in steps of " + written(1, extra.per_one) : "");
}

// Parses the number of a NumericParameter into `value`. Returns "", or a message that calls the number `what` and says
// why it is wrong.
std::string parse_extra(const NumericParameter& extra, std::string_view what, std::string_view text, unsigned& value) {
  const auto number = number_of<double>(text);
  const double kept = number ? *number * extra.per_one : -1;
  value = kept >= 0 && kept <= extra.most ? static_cast<unsigned>(std::lround(kept)) : 0;
  const bool exact = std::abs(kept - value) < 1e-6;
  if (exact && fits(extra, value)) return "";
  return std::string(what) + " must be " + range_of(extra) + ", not '" + std::string(text) + "'";
}

std::optional<uint32_t> parse_rate(std::string_view text) {
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  const auto number = number_of<double>(text);
  if (!number || !(*number > 0)) return std::nullopt;
  const double rate = std::round(*number / (percent ? kPercent : 1) * kRateOfAll);
  if (rate < 1 || rate > kRateOfAll) return std::nullopt;
  return static_cast<uint32_t>(rate);
}

// ---- Parts of a name

bool stands(const NumericParameter& extra, std::string_view place) {
  return extra.place != nullptr && place == extra.place;
}

// An option "NAME=number" of a NumericParameter, or a plain word.
struct Option {
  std::string_view name;
  std::optional<std::string_view> number;
};
Option split_option(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == text.npos) return {text, std::nullopt};
  return {text.substr(0, equals), text.substr(equals + 1)};
}

// Parses the arguments of one name, part by part. The function of a part returns why that part is wrong, or "".
class Parser {
 public:
  Parser(const CodecRow& row, const CodecText& text) : row_(row), text_(text) {
    extra_ = row.extra.usual;
    second_ = row.second_extra.usual;
  }

  NameFault parse(CodecArguments& arguments) {
    NameFault fault = variant();
    if (fault.why.empty()) fault.why = value();
    if (fault.why.empty()) fault.why = number();
    if (fault.why.empty()) fault.why = options();
    if (fault.why.empty()) fault.why = lattice();
    arguments_.extra = static_cast<uint16_t>(extra_);
    if (row_.second_extra.place != nullptr) arguments_.bits = static_cast<uint8_t>(second_);
    arguments = arguments_;
    return fault;
  }

 private:
  // Checks prefix and variant: if this row's are missing, the name means another row.
  NameFault variant() {
    const std::string prefix = row_.prefix;
    if (!text_.value.starts_with(prefix)) {
      // The user may have written "rel" or "rel:8" for "rel=8".
      const bool begun = text_.value.starts_with(std::string_view(prefix).substr(0, prefix.size() - 1));
      return {"write " + std::string(row_.usage) + ", as in " + row_.example, begun};
    }
    const bool named = row_.variant != nullptr && std::ranges::count(text_.options, row_.variant) != 0;
    if (row_.variant != nullptr && !named) return {"write " + std::string(row_.usage) + ", as in " + row_.example};
    meant_ = row_.variant != nullptr || !prefix.empty();
    return {"", meant_};
  }

  std::string value() {
    std::string_view text = text_.value;
    text.remove_prefix(std::string_view(row_.prefix).size());
    if (row_.has_rate) return rate(text);
    if (stands(row_.extra, ":")) return text_.has_value ? parse_extra(row_.extra, "the number", text, extra_) : "";
    if (row_.max_bits == 0) return text_.has_value ? word() + " takes no parameter" : "";
    if (row_.adaptive && (!text_.has_value || text.starts_with("adaptive") || text.starts_with("auto"))) {
      return "give its B, as in " + std::string(row_.example) +
             "; only the trainer can choose a bound that follows the gradients: " + adaptive_name(row_) +
             " in PyTorch, gradlane.AdaptiveBound with NumPy";
    }
    if (!text_.has_value) return word() + " needs its parameter B";
    const auto bits = number_of<unsigned>(text);
    if (!bits || *bits < row_.min_bits || *bits > row_.max_bits) {
      return "B must be " + std::to_string(row_.min_bits) + " to " + std::to_string(row_.max_bits) + ", not '" +
             std::string(text) + "'" +
             (row_.adaptive && means_adaptive(text) ? " (did you mean " + adaptive_name(row_) + "?)" : "");
    }
    arguments_.bits = static_cast<uint8_t>(*bits);
    return "";
  }

  std::string rate(std::string_view text) {
    if (!text_.has_value) return word() + " needs the rate of elements to send, as in " + row_.example;
    const auto parsed = parse_rate(text);
    if (!parsed) return "the rate must be 0.0001% to 100%, not '" + std::string(text) + "'";
    if (*parsed == kRateOfAll && !text.ends_with('%')) {  // the user most likely means 1%
      return "a rate of " + std::string(text) + " means all elements; write " + word() + ":" + std::string(text) +
             "% for one in a hundred, " + word() + ":100% for all";
    }
    arguments_.rate = *parsed;
    return "";
  }

  std::string number() {
    if (!text_.has_number) return "";
    if (!stands(row_.extra, "/")) return word() + " takes no number after a slash";
    return parse_extra(row_.extra, "the number after the slash", text_.number, extra_);
  }

  std::string options() {
    for (const std::string_view text : text_.options) {
      const Option option = split_option(text);
      std::string why;
      const auto same = [&](std::string_view other) { return split_option(other).name == option.name; };
      if (std::ranges::count_if(text_.options, same) > 1) return "option '" + std::string(text) + "' is given twice";
      if (row_.variant != nullptr && text == row_.variant) continue;
      if (row_.option != nullptr && text == row_.option) {
        arguments_.bits |= kOptionBit;
      } else if (option.number && stands(row_.extra, option.name)) {
        why = parse_extra(row_.extra, option.name, *option.number, extra_);
      } else if (option.number && stands(row_.second_extra, option.name)) {
        why = parse_extra(row_.second_extra, option.name, *option.number, second_);
      } else {
        why = "unknown option '" + std::string(text) + "'";
      }
      if (!why.empty()) return why;
    }
    return "";
  }

  std::string lattice() {
    if (!text_.has_lattice) return "";
    if (!row_.takes_lattice) return "this codec takes nothing after '+'";
    std::string_view text = text_.lattice;
    const bool fixed = text.starts_with(kValuesOnLattice);
    if (fixed) text.remove_prefix(kValuesOnLattice.size());
    const auto bits = number_of<unsigned>(text);
    if (!fixed || !bits || *bits < kLeastValueBits || *bits > kMostValueBits) {
      return "after '+', allowed is fixed:1 to fixed:30, not '" + std::string(text_.lattice) + "'";
    }
    arguments_.value_bits = static_cast<uint8_t>(*bits);
    return "";
  }

  std::string word() const { return row_.word; }

  const CodecRow& row_;
  const CodecText& text_;
  CodecArguments arguments_;
  unsigned extra_ = 0;
  unsigned second_ = 0;
  bool meant_ = false;
};

void add_extra(CodecName& text, const NumericParameter& extra, unsigned value) {
  if (extra.place == nullptr || value == extra.usual) return;
  const std::string_view place = extra.place;
  const bool mark = place == ":" || place == "/";
  if (!mark) text.add(",");
  text.add(place).add(mark ? "" : "=");
  text.add(written(value, extra.per_one));
}

}  // namespace

CodecText split_name(std::string_view name) {
  CodecText text;
  const auto cut = [&name](char mark, bool& found) -> std::string_view {
    const size_t at = name.find(mark);
    found = at != name.npos;
    if (!found) return {};
    const std::string_view rest = name.substr(at + 1);
    name = name.substr(0, at);
    return rest;
  };
  text.lattice = cut('+', text.has_lattice);
  bool more = false;
  for (std::string_view options = cut(',', more); more;) {
    const size_t comma = options.find(',');
    text.options.push_back(options.substr(0, comma));
    more = comma != options.npos;
    if (more) options.remove_prefix(comma + 1);
  }
  text.number = cut('/', text.has_number);
  text.value = cut(':', text.has_value);
  text.word = name;
  return text;
}

size_t edits_between(std::string_view one, std::string_view other) {
  std::vector<size_t> row(other.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < one.size(); ++i) {
    size_t before = row[0]++;
    for (size_t k = 0; k < other.size(); ++k) {
      const size_t changed = before + (one[i] != other[k] ? 1 : 0);
      before = row[k + 1];
      row[k + 1] = std::min({changed, before + 1, row[k] + 1});
    }
  }
  return row.back();
}

bool means_adaptive(std::string_view value) {
  const std::string_view kind = value.substr(0, value.find(':'));
  return kind == "auto" || edits_between(kind, kAdaptive) <= 2;
}

std::string adaptive_name(const CodecRow& row) { return row.word + (":" + std::string(kAdaptive)); }

NameFault parse_arguments(const CodecRow& row, const CodecText& text, CodecArguments& arguments) {
  return Parser(row, text).parse(arguments);
}

bool allowed(const CodecRow& row, const CodecArguments& arguments) noexcept {
  if (row.second_extra.place != nullptr) {
    if (!fits(row.second_extra, arguments.bits)) return false;
  } else {
    const unsigned bits = row.option != nullptr ? arguments.bits & ~unsigned{kOptionBit} : arguments.bits;
    if (bits < row.min_bits || bits > row.max_bits) return false;
  }
  if (row.has_rate ? arguments.rate == 0 || arguments.rate > kRateOfAll : arguments.rate != 0) return false;
  if (arguments.value_bits > (row.takes_lattice ? kMostValueBits : 0)) return false;
  return fits(row.extra, arguments.extra);
}

CodecName Codec::short_name() const noexcept {
  CodecName text = row_->word;
  const CodecArguments& has = arguments();
  if (row_->has_rate) text.add(":").add(written(has.rate, kRateOfAll / 100)).add("%");
  if (row_->max_bits != 0) text.add(":").add(row_->prefix).add(bits());
  add_extra(text, row_->extra, has.extra);
  if (row_->second_extra.place != nullptr) add_extra(text, row_->second_extra, has.bits);
  if (row_->variant != nullptr) text.add(",").add(row_->variant);
  if (option()) text.add(",").add(row_->option);
  if (has.value_bits != 0) text.add("+").add(kValuesOnLattice).add(has.value_bits);
  return text;
}

}  // namespace gradlane
