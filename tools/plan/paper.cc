// paper.cc - `gradlane plan --paper`: the set-ups of MLSys'22, with that paper's codecs and with gradlane's
#include "tools/plan/paper.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "collectives/cost/mlsys.h"
#include "tools/plan/advice.h"
#include "tools/plan/rows.h"

namespace gradlane {
namespace {

constexpr double kRates[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30};

// Counts set-ups: all, those that gain, and those with the largest batch.
struct Count {
  size_t gain = 0;
  size_t much = 0;  // gain 5 % or more
  size_t all = 0;
  size_t large_gain = 0;
  size_t large = 0;

  void add(const MlsysSetup& setup) {
    const bool gains = setup.gains();
    ++all;
    gain += gains ? 1 : 0;
    much += setup.compressed * 1.05 <= setup.sync ? 1 : 0;
    if (setup.batch != 64) return;
    ++large;
    large_gain += gains ? 1 : 0;
  }
};

struct PaperRate {
  double gbps;
  Count paper;
  Count fitted;  // the paper's codecs with kMlsysFittedVotes
  Count ours;
  std::vector<MlsysSetup> list;
  std::vector<MlsysSetup> our_list;
};

// Returns the time in s of a step of the set-up without compression, in the same buckets as gradlane's codecs. Only
// backward counts, as in the paper.
double plain_step(const PlanSetting& setting, const MlsysSetup& setup, const std::vector<PlanBucket>& buckets) {
  const Calibration plain = plain_calibration(setting.calibration);
  const CodecCost* const raw = plain.find("raw");
  return plan_step(plain, {&raw, 1}, buckets, {0, setup.backward}, setup.workers, setting.strategies).time.step;
}

// Returns the set-up with one of gradlane's codecs in place of the paper's. It is compared with the paper's sync-SGD or
// with plain_step(), the faster of the two.
MlsysSetup with_ours(const PlanSetting& setting, const MlsysSetup& setup, const std::vector<PlanBucket>& buckets,
                     const std::string& codec) {
  MlsysSetup ours = setup;
  ours.sync = std::min(ours.sync, plain_step(setting, setup, buckets));
  const CodecCost* const cost = setting.calibration.find(codec);
  ours.codec = codec;
  ours.compressed =
      plan_step(setting.calibration, {&cost, 1}, buckets, {0, setup.backward}, setup.workers, setting.strategies)
          .time.step;
  return ours;
}

PaperRate rate_of(PlanSetting setting, double gbps) {
  PaperRate rate = {gbps, {}, {}, {}, mlsys_grid(gbps * 1e9 / 8), {}};
  for (const MlsysSetup& each : mlsys_grid(gbps * 1e9 / 8, kMlsysFittedVotes)) rate.fitted.add(each);
  setting.calibration.link.bandwidth = gbps * 1e9 / 8;
  const size_t codecs = mlsys_codecs().size();
  std::string model;
  std::vector<PlanBucket> buckets;
  for (size_t i = 0; i < rate.list.size(); i += codecs) {
    const MlsysSetup& place = rate.list[i];
    if (place.model != model) buckets = buckets_of(find_model(place.model).value());
    model = place.model;
    for (size_t j = 0; j < codecs; ++j) rate.paper.add(rate.list[i + j]);
    for (const std::string& codec : setting.codecs) {
      rate.our_list.push_back(with_ours(setting, place, buckets, codec));
      rate.ours.add(rate.our_list.back());
    }
  }
  return rate;
}

std::string share_text(size_t gain, size_t all) { return fmt::format("{} of {}", gain, all); }

void print_rates(const PlanSetting& setting, const std::vector<PaperRate>& rates) {
  fmt::print(
      "Set-ups that are faster than sync-SGD: ResNet-50, ResNet-101, BERT-base; 4 to 96 workers; batches of 16,\n"
      "32, 64. The paper's seven codecs by its model, and gradlane's {} (port {}, lanes {}) by its own.\n"
      "fitted: the paper's, with a term for decoding votes that its formula does not have, fitted to one point.\n{}\n",
      setting.codecs.size(), setting.calibration.port, setting.calibration.lanes,
      setting.calibrated ? "" : "gradlane's:" + origin_text(setting) + "\n");
  const auto print = [](auto rate, auto... words) {
    fmt::print("{:>5} | {:>10} {:>6} {:>9} {:>6} | {:>10} {:>6} {:>9}\n", rate, words...);
  };
  print("Gb/s", "paper's", "by 5 %", "batch 64", "fitted", "gradlane's", "by 5 %", "batch 64");
  for (const PaperRate& rate : rates) {
    print(rate.gbps, share_text(rate.paper.gain, rate.paper.all), rate.paper.much,
          share_text(rate.paper.large_gain, rate.paper.large), rate.fitted.gain,
          share_text(rate.ours.gain, rate.ours.all), rate.ours.much, share_text(rate.ours.large_gain, rate.ours.large));
  }
}

nlohmann::json setups_json(const std::vector<MlsysSetup>& setups) {
  nlohmann::json list = nlohmann::json::array();
  for (const MlsysSetup& each : setups) {
    list.push_back({{"model", each.model},
                    {"workers", each.workers},
                    {"batch", each.batch},
                    {"codec", each.codec},
                    {"backward_ms", each.backward * 1e3},
                    {"sync_ms", each.sync * 1e3},
                    {"compressed_ms", each.compressed * 1e3},
                    {"gains", each.gains()}});
  }
  return list;
}

}  // namespace

void run_paper(const PlanOptions& options) {
  const std::pair<const char*, const std::string*> own[] = {{"--model", &options.model},
                                                            {"--nodes", &options.nodes},
                                                            {"--gbps", &options.gbps},
                                                            {"--batch", &options.batch},
                                                            {"--compute-ms", &options.compute_ms}};
  for (const auto& [name, text] : own) {
    if (!text->empty()) throw SetupError(fmt::format("--paper uses the set-ups of the paper: leave out {}", name));
  }
  PlanOptions any = options;
  any.model = kMlsysModels[0];
  const PlanSetting setting = make_plan_setting(any);
  std::vector<PaperRate> rates;
  for (const double gbps : kRates) rates.push_back(rate_of(setting, gbps));
  if (!options.json) {
    print_rates(setting, rates);
    return;
  }
  const std::string origin = setting.calibrated ? "calibrated" : origin_text(setting);
  nlohmann::json result = nlohmann::json::array();
  for (const PaperRate& rate : rates) {
    result.push_back({{"gbps", rate.gbps},
                      {"fitted", rate.fitted.gain},
                      {"origin", origin},
                      {"paper", setups_json(rate.list)},
                      {"gradlane", setups_json(rate.our_list)}});
  }
  fmt::print("{}\n", result.dump());
}

}  // namespace gradlane
