// mlsys.cc - the model of "On the Utility of Gradient Compression" (MLSys 2022) (pure)
#include "collectives/cost/mlsys.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace gradlane {
namespace {

constexpr double kFp32 = 4;
constexpr double kIndex = 4;
constexpr double kResNet50 = 25557032;
constexpr unsigned kWorkers[] = {4, 8, 16, 32, 64, 96};
constexpr unsigned kBatches[] = {16, 32, 64};
constexpr unsigned kLargeBatch = 64;
constexpr unsigned kBertBatch = 16;
constexpr double kBertTokens = 512;
constexpr double kTableTokens = 128;  // of find_model("bert-base")

double ring(const MlsysCluster& cluster, double bytes) noexcept {
  const double p = cluster.workers;
  return 2 * bytes * (p - 1) / (p * cluster.bandwidth);
}

double power_bytes(const ModelTable& model, double rank) {
  double elements = 0;
  for (const ModelLayer& layer : model.layers) {
    const double factors = rank * (layer.rows + layer.columns);
    elements += layer.rows > 0 ? std::min(factors, layer.elements) : layer.elements;
  }
  return kFp32 * elements;
}

// Adds a model's set-ups with each of the codecs.
void add_setups(std::vector<MlsysSetup>& setups, MlsysCluster cluster, const ModelTable& model, unsigned batch,
                double sample, std::span<const MlsysCodec> codecs) {
  const double backward = sample * batch;
  for (const unsigned workers : kWorkers) {
    cluster.workers = workers;
    for (const MlsysCodec& codec : codecs) {
      MlsysSetup setup = {.model = model.name, .workers = workers, .batch = batch, .codec = codec.name};
      setup.published = model.name == "resnet50" && batch == kLargeBatch;
      setup.backward = backward;
      cluster.lambda = kMlsysLambdaLeast;
      setup.sync_least = mlsys_sync(cluster, backward, kFp32 * model.elements());
      cluster.lambda = kMlsysLambdaMost;
      setup.sync_most = mlsys_sync(cluster, backward, kFp32 * model.elements());
      setup.compressed = mlsys_compressed(cluster, codec, model, backward);
      setups.push_back(setup);
    }
  }
}

// Returns the bandwidth in Gb/s up to which PowerSGD of rank 4 is faster than sync-SGD, with 96 workers.
double highest_rate(double lambda, const ModelTable& model, double backward) {
  double low = 1;
  double high = 100;
  while (high - low > 1e-3) {
    const double rate = (low + high) / 2;
    const MlsysCluster cluster = {.bandwidth = rate * 1e9 / 8, .lambda = lambda};
    const bool gains = mlsys_compressed(cluster, mlsys_codecs().front(), model, backward) <
                       mlsys_sync(cluster, backward, kFp32 * model.elements());
    (gains ? low : high) = rate;
  }
  return low;
}

}  // namespace

double mlsys_sync(const MlsysCluster& cluster, double backward, double bytes) noexcept {
  const double buckets = std::max(1.0, std::ceil(bytes / kMlsysBucket));
  const double last = bytes - (buckets - 1) * kMlsysBucket;
  return std::max(cluster.lambda * backward, (buckets - 1) * ring(cluster, kMlsysBucket)) + ring(cluster, last);
}

const std::vector<MlsysCodec>& mlsys_codecs() {
  using Kind = MlsysCodec::Kind;
  static const std::vector<MlsysCodec> kCodecs = {
      {Kind::kPowerSgd, 4, 45e-3, "PowerSGD 4"},    {Kind::kPowerSgd, 8, 64e-3, "PowerSGD 8"},
      {Kind::kPowerSgd, 16, 130e-3, "PowerSGD 16"}, {Kind::kSign, 1, 16e-3, "SignSGD"},
      {Kind::kTopK, 0.2, 295e-3, "Top-k 20%"},      {Kind::kTopK, 0.1, 289e-3, "Top-k 10%"},
      {Kind::kTopK, 0.01, 240e-3, "Top-k 1%"}};
  return kCodecs;
}

double mlsys_compressed(const MlsysCluster& cluster, const MlsysCodec& codec, const ModelTable& model,
                        double backward) noexcept {
  const double gathers = (cluster.workers - 1.0) / cluster.bandwidth;
  const double elements = model.elements();
  double communicate = 0;
  switch (codec.kind) {
    case MlsysCodec::Kind::kPowerSgd:
      communicate = ring(cluster, power_bytes(model, codec.parameter));
      break;
    case MlsysCodec::Kind::kSign:
      communicate = kFp32 * elements / 32 * gathers;
      break;
    case MlsysCodec::Kind::kTopK:
      communicate = codec.parameter * elements * (kFp32 + kIndex) * gathers;
      break;
  }
  return backward + codec.encdec * elements / kResNet50 + communicate;
}

MlsysVerdict MlsysSetup::verdict() const noexcept {
  if (compressed * (1 + kMlsysTolerance) < sync_least) return MlsysVerdict::kGains;
  if (compressed > sync_most * (1 + kMlsysTolerance)) return MlsysVerdict::kLoses;
  return MlsysVerdict::kUnclear;
}

std::vector<MlsysSetup> mlsys_grid(double bandwidth) {
  constexpr size_t kPowerSgds = 3;
  const std::span<const MlsysCodec> codecs = mlsys_codecs();
  const MlsysCluster cluster = {.bandwidth = bandwidth};
  std::vector<MlsysSetup> setups;
  for (const char* const name : {"resnet50", "resnet101"}) {
    const ModelTable model = find_model(name).value();
    for (const unsigned batch : kBatches) {
      const std::span<const MlsysCodec> used = batch == kLargeBatch ? codecs : codecs.first(kPowerSgds);
      add_setups(setups, cluster, model, batch, v100_backward(model), used);
    }
  }
  const ModelTable bert = find_model("bert-base").value();
  add_setups(setups, cluster, bert, kBertBatch, v100_backward(bert) * kBertTokens / kTableTokens, codecs);
  return setups;
}

double MlsysNumber::error() const noexcept {
  return std::max(std::abs(least - published), std::abs(most - published)) / published;
}

std::vector<MlsysNumber> mlsys_published() {
  const ModelTable small = find_model("resnet50").value();
  const ModelTable large = find_model("resnet101").value();
  const double small_backward = kLargeBatch * v100_backward(small);
  const double backward = kLargeBatch * v100_backward(large);
  const auto sync = [&](double lambda) {
    return 1e3 * mlsys_sync({.lambda = lambda}, backward, kFp32 * large.elements());
  };
  const double signs = 1e3 * mlsys_compressed({}, mlsys_codecs()[3], large, backward);
  return {
      {"sync-SGD, ResNet-101, 96 workers", "ms", 265, sync(kMlsysLambdaLeast), sync(kMlsysLambdaMost)},
      {"SignSGD, ResNet-101, 96 workers", "ms", 1042, signs, signs},
      {"PowerSGD 4 pays below, ResNet-50, 96 workers", "Gb/s", 8,
       highest_rate(kMlsysLambdaLeast, small, small_backward), highest_rate(kMlsysLambdaMost, small, small_backward)}};
}

}  // namespace gradlane
