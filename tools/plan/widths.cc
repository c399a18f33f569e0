// widths.cc - `gradlane plan --widths`: how many bytes would be saved on recorded gradients if each layer had a width,
// or a codec, of its own
#include "tools/plan/widths.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "collectives/cost/widths.h"
#include "tools/bench/codec_list.h"
#include "tools/bench/npy.h"
#include "tools/bench/quality.h"
#include "tools/plan/profile.h"

namespace gradlane {
namespace {

// Widths in bits that are shown, from kFirst to kLast. The width of a layer may differ by up to kAround from the shown
// one.
constexpr int kFirst = 6;
constexpr int kLast = 16;
constexpr int kAround = 5;
constexpr size_t kUniform = kAround;  // index, in a layer's choices, of the choice that is the same for all
constexpr double kMib = 1048576;
constexpr double kFirstBucket = kMib;
constexpr double kBuckets[] = {kMib, 25 * kMib};  // bytes: smaller buckets, and those of DistributedDataParallel
constexpr int kAutoBits = 4;                      // `bits` of fixed:adaptive
constexpr size_t kBlock = 8192;

// Compares one choice for all layers or buckets with a choice for each, at the same error.
struct Saving {
  double error = 0;  // vNMSE of contributions, which is a share of their squares
  double all = 0;    // bits per float with one choice for all
  double each = 0;

  [[nodiscard]] double saved() const { return all > 0 ? 1 - each / all : 0; }
};

struct WidthsRow {
  int bits = 0;
  Saving plain;     // fixed:B
  Saving feedback;  // fixed:B, with residuals of earlier steps in the contributions
  Saving relative;  // fixed:rel=B of each layer
};
struct BucketsRow {
  double mib = 0;
  size_t buckets = 0;
  Saving saving;
};
struct LayersRow {
  std::string codec;
  Saving saving;
};

// ---- A recording, cut into layers

class Recording {
 public:
  Recording(const ModelTable& model, const std::string& path) : array_(load_npy(path)) {
    size_t first = 0;
    for (const ModelLayer& each : model.layers) {
      const auto count = static_cast<size_t>(each.elements);
      places_.emplace_back(first, count);
      first += count;
    }
    if (first != array_.columns) {
      throw SetupError(
          fmt::format("{}: has {} columns, but the layers of --model have {} elements", path, array_.columns, first));
    }
    for (const auto& [begin, count] : places_) {
      mean_squares_.push_back(0);
      for (size_t i = begin; i < begin + count; ++i) {
        double sum = 0;
        for (size_t rank = 0; rank < array_.rows; ++rank) sum += static_cast<double>(array_.row(rank)[i]);
        const double mean = sum / static_cast<double>(array_.rows);
        mean_squares_.back() += mean * mean;
      }
      WidthHistogram& histogram = histograms_.emplace_back();
      for (size_t rank = 0; rank < array_.rows; ++rank) histogram.add(array_.row(rank).subspan(begin, count));
      squares_ += histogram.squares();
    }
  }

  [[nodiscard]] size_t layers() const { return places_.size(); }
  [[nodiscard]] size_t ranks() const { return array_.rows; }
  [[nodiscard]] size_t elements(size_t layer) const { return places_[layer].second; }
  [[nodiscard]] std::span<const float> row(size_t layer, size_t rank) const {
    return array_.row(rank).subspan(places_[layer].first, places_[layer].second);
  }
  [[nodiscard]] const WidthHistogram& histogram(size_t layer) const { return histograms_[layer]; }
  // Returns the sum of the squares of the average over ranks.
  [[nodiscard]] double mean_squares(size_t layer) const { return mean_squares_[layer]; }

  [[nodiscard]] Saving saving(const std::vector<std::vector<WidthCost>>& choices, size_t uniform) const {
    const WidthCost all = uniform_cost(choices, uniform);
    const WidthPlan plan = plan_widths(choices, uniform);
    const double bits = 8 / static_cast<double>(array_.floats.size());
    return {squares_ > 0 ? all.error / squares_ : 0, bits * all.bytes, bits * plan.cost.bytes};
  }

 private:
  NpyArray array_;
  std::vector<std::pair<size_t, size_t>> places_;  // first element, elements
  std::vector<WidthHistogram> histograms_;         // of all ranks' contributions
  std::vector<double> mean_squares_;
  double squares_ = 0;
};

// ---- Choices

// Computes costs with error feedback. It adds residuals that are spread evenly over a step, as they are after some
// steps with feedback. The error is the size of such a residual.
class WithFeedback {
 public:
  explicit WithFeedback(const Recording& recording) : recording_(recording), known_(recording.layers()) {}

  const WidthCost& cost(size_t layer, int bits) {
    bits = std::clamp(bits, WidthHistogram::kLeastBits, WidthHistogram::kMostBits);
    auto& known = known_[layer];
    known.resize(WidthHistogram::kMostBits - WidthHistogram::kLeastBits + 1, {-1, 0});
    WidthCost& cost = known[static_cast<size_t>(bits - WidthHistogram::kLeastBits)];
    if (cost.bytes < 0) cost = measure(layer, bits);
    return cost;
  }

 private:
  WidthCost measure(size_t layer, int bits) {
    const double step = std::ldexp(1.0, 1 - bits);
    std::minstd_rand random(1);
    std::uniform_real_distribution<double> residual(-step / 2, step / 2);
    WidthHistogram histogram;
    for (size_t rank = 0; rank < recording_.ranks(); ++rank) {
      const std::span<const float> own = recording_.row(layer, rank);
      floats_.resize(own.size());
      std::ranges::transform(own, floats_.begin(), [&](float each) {
        return static_cast<float>(static_cast<double>(each) + residual(random));
      });
      histogram.add(floats_);
    }
    return {histogram.fixed(bits).bytes, static_cast<double>(histogram.elements()) * step * step / 12};
  }

  const Recording& recording_;
  std::vector<std::vector<WidthCost>> known_;
  std::vector<float> floats_;
};

// Returns the choices of each layer: widths around `own(layer)`, which is at index kUniform.
template <typename Own, typename Cost>
std::vector<std::vector<WidthCost>> choices_of(const Recording& recording, const Own& own, const Cost& cost) {
  std::vector<std::vector<WidthCost>> choices(recording.layers());
  for (size_t layer = 0; layer < choices.size(); ++layer) {
    for (int more = -kAround; more <= kAround; ++more) choices[layer].push_back(cost(layer, own(layer) + more));
  }
  return choices;
}

std::vector<WidthsRow> widths_rows(const Recording& recording, WithFeedback& feedback) {
  const auto plain = [&](size_t layer, int bits) { return recording.histogram(layer).fixed(bits); };
  const auto kept = [&](size_t layer, int bits) { return feedback.cost(layer, bits); };
  std::vector<WidthsRow> rows;
  for (int bits = kFirst; bits <= kLast; ++bits) {
    const auto same = [&](size_t) { return bits; };
    const auto of_layer = [&](size_t layer) {
      const float largest = recording.histogram(layer).largest();
      return largest > 0 ? bits - std::ilogb(largest) : bits;
    };
    rows.push_back({bits, recording.saving(choices_of(recording, same, plain), kUniform),
                    recording.saving(choices_of(recording, same, kept), kUniform),
                    recording.saving(choices_of(recording, of_layer, plain), kUniform)});
  }
  return rows;
}

// fixed:adaptive has a width for each bucket. The width follows from the RMS of the bucket's average
// (gradlane.AdaptiveBound).
std::vector<BucketsRow> buckets_rows(const Recording& recording, WithFeedback& feedback) {
  std::vector<BucketsRow> rows;
  for (const double most : kBuckets) {
    std::vector<int> widths(recording.layers());
    size_t buckets = 0;
    for (size_t end = recording.layers(); end > 0; ++buckets) {
      const double full = buckets == 0 ? kFirstBucket : most;
      double squares = 0;
      double elements = 0;
      size_t begin = end;
      while (begin > 0 && elements * sizeof(float) < full) {
        --begin;
        squares += recording.mean_squares(begin);
        elements += static_cast<double>(recording.elements(begin));
      }
      const int exponent =
          squares > 0 && std::isfinite(squares) ? static_cast<int>(std::floor(std::log2(squares / elements) / 2)) : 0;
      std::fill(widths.begin() + static_cast<ptrdiff_t>(begin), widths.begin() + static_cast<ptrdiff_t>(end),
                kAutoBits - exponent);
      end = begin;
    }
    const auto own = [&](size_t layer) { return widths[layer]; };
    const auto cost = [&](size_t layer, int bits) { return feedback.cost(layer, bits); };
    rows.push_back({most / kMib, buckets, recording.saving(choices_of(recording, own, cost), kUniform)});
  }
  return rows;
}

// Returns a row for each codec: that codec for all layers, compared with the best of these codecs for each layer.
std::vector<LayersRow> codec_rows(const Recording& recording, const std::vector<std::string>& names) {
  std::vector<std::vector<WidthCost>> choices(recording.layers());
  for (size_t layer = 0; layer < choices.size(); ++layer) {
    Contributions ranks;
    for (size_t rank = 0; rank < recording.ranks(); ++rank) ranks.push_back(recording.row(layer, rank));
    for (const std::string& name : names) {
      const Quality quality = single_quality(find_codec(name), ranks, kBlock);
      if (!std::isfinite(quality.error)) {
        throw SetupError(
            fmt::format("--codecs '{}': cannot be compared: {}", name, "its error is not finite, or it sums votes"));
      }
      choices[layer].push_back({static_cast<double>(quality.encoded_bytes), quality.error});
    }
  }
  std::vector<LayersRow> rows;
  for (size_t i = 0; i < names.size(); ++i) rows.push_back({names[i], recording.saving(choices, i)});
  return rows;
}

// ---- Output

std::string saving_text(const Saving& saving) {
  return fmt::format("{:>9.2g} {:>7.3f} {:>7.3f} {:>6.1f} %", saving.error, saving.all, saving.each,
                     100 * saving.saved());
}

nlohmann::json saving_json(const Saving& saving) {
  return {{"vnmse", saving.error}, {"bits_all", saving.all}, {"bits_each", saving.each}, {"saved", saving.saved()}};
}

struct Report {
  std::string name;
  std::vector<WidthsRow> widths;
  std::vector<BucketsRow> buckets;
  std::vector<LayersRow> codecs;
};

void print(const Report& report) {
  fmt::print("  {:<33}   {:<33}   {}\n", "fixed:B", "fixed:B with feedback", "fixed:rel=B of each layer");
  fmt::print("{:>3}", "B");
  for (int i = 0; i < 3; ++i) fmt::print("{:>10} {:>7} {:>7} {:>8}", "error", "all", "each", "saved");
  fmt::print("\n");
  for (const WidthsRow& row : report.widths) {
    fmt::print("{:>3} {} {} {}\n", row.bits, saving_text(row.plain), saving_text(row.feedback),
               saving_text(row.relative));
  }
  fmt::print("\n");
  for (const BucketsRow& row : report.buckets) {
    fmt::print("fixed:adaptive, {:>2} buckets of {:>2g} MiB {}\n", row.buckets, row.mib, saving_text(row.saving));
  }
  fmt::print("\n");
  for (const LayersRow& row : report.codecs) fmt::print("{:<32} {}\n", row.codec, saving_text(row.saving));
}

nlohmann::json to_json(const Report& report) {
  nlohmann::json result = {{"recording", report.name}};
  for (const WidthsRow& row : report.widths) {
    result["widths"].push_back({{"bits", row.bits},
                                {"fixed", saving_json(row.plain)},
                                {"feedback", saving_json(row.feedback)},
                                {"relative", saving_json(row.relative)}});
  }
  for (const BucketsRow& row : report.buckets) {
    result["buckets"].push_back({{"mib", row.mib}, {"buckets", row.buckets}, {"auto", saving_json(row.saving)}});
  }
  for (const LayersRow& row : report.codecs) {
    result["codecs"].push_back({{"codec", row.codec}, {"layers", saving_json(row.saving)}});
  }
  return result;
}

ModelTable model_of(const std::string& model) {
  if (const auto known = find_model(model)) return *known;
  if (std::error_code error; !model.empty() && std::filesystem::exists(model, error)) return load_profile(model).table;
  throw SetupError(
      fmt::format("--model '{}': --widths needs the layers of the recordings: name a profile FILE", model));
}

std::vector<std::string> usual_codecs() {
  std::vector<std::string> names = {"raw", "bf16", "int8", "qsgd:4"};
  for (int bits = kFirst; bits <= kLast; ++bits) names.push_back(fmt::format("fixed:{}", bits));
  return names;
}

}  // namespace

void run_widths(const PlanOptions& options) {
  const ModelTable model = model_of(options.model);
  std::vector<std::string> codecs = usual_codecs();
  if (!options.codecs.empty()) codecs = codec_list(options.codecs);
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& path : options.widths) {
    const Recording recording(model, path);
    WithFeedback feedback(recording);
    const Report report = {path, widths_rows(recording, feedback), buckets_rows(recording, feedback),
                           codec_rows(recording, codecs)};
    if (options.json) {
      all.push_back(to_json(report));
      continue;
    }
    fmt::print(
        "{}\n{} layers, {} contributions. Bits of a float: one choice for all layers, and one for each layer\n"
        "with no more error (vNMSE of contributions)\n\n",
        path, recording.layers(), recording.ranks());
    print(report);
    fmt::print("\n");
  }
  if (options.json) fmt::print("{}\n", all.dump(1));
}

}  // namespace gradlane
