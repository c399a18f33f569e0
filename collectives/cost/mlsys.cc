// mlsys.cc - the model of "On the Utility of Gradient Compression" (MLSys 2022) (pure)
#include "collectives/cost/mlsys.h"

#include <algorithm>
#include <cmath>

namespace gradlane {
namespace {

constexpr double kFp32 = 4;
constexpr double kIndex = 4;
constexpr double kResNet50 = 25557032;
constexpr double kVoteWorkers = 4;

double power_bytes(const ModelTable& model, double rank) {
  double elements = 0;
  for (const ModelLayer& layer : model.layers) {
    const double factors = rank * (layer.rows + layer.columns);
    elements += layer.rows > 0 ? std::min(factors, layer.elements) : layer.elements;
  }
  return kFp32 * elements;
}

}  // namespace

double mlsys_ring(const MlsysCluster& cluster, double bytes) noexcept {
  const double p = cluster.workers;
  return 2 * cluster.alpha * (p - 1) + 2 * bytes * (p - 1) / (p * cluster.bandwidth);
}

double mlsys_sync(const MlsysCluster& cluster, double backward, double bytes) noexcept {
  const double buckets = std::max(1.0, std::ceil(bytes / cluster.bucket));
  const double last = bytes - (buckets - 1) * cluster.bucket;
  return std::max(cluster.lambda * backward, (buckets - 1) * mlsys_ring(cluster, cluster.bucket)) +
         mlsys_ring(cluster, last);
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
  const double others = cluster.workers - 1.0;
  const double elements = model.elements();
  double communicate = 0;
  double encdec = codec.encdec;
  switch (codec.kind) {
    case MlsysCodec::Kind::kPowerSgd:
      communicate = 4 * cluster.alpha * others +
                    2 * power_bytes(model, codec.parameter) * others / (cluster.workers * cluster.bandwidth);
      break;
    case MlsysCodec::Kind::kSign:
      encdec += cluster.vote_decode * std::max(0.0, cluster.workers - kVoteWorkers);
      communicate = cluster.alpha * others + kFp32 * elements / 32 * others / cluster.bandwidth;
      break;
    case MlsysCodec::Kind::kTopK:
      communicate =
          2 * cluster.alpha * others + codec.parameter * elements * (kFp32 + kIndex) * others / cluster.bandwidth;
      break;
  }
  return backward + encdec * elements / kResNet50 + communicate;
}

std::vector<MlsysSetup> mlsys_grid(double bandwidth, double vote_decode) {
  std::vector<MlsysSetup> setups;
  for (const char* const name : kMlsysModels) {
    const ModelTable model = find_model(name).value();
    const double sample = v100_backward(model);
    for (const unsigned workers : kMlsysWorkers) {
      MlsysCluster cluster;
      cluster.workers = workers;
      cluster.bandwidth = bandwidth;
      cluster.vote_decode = vote_decode;
      for (const unsigned batch : kMlsysBatches) {
        const double backward = sample * batch;
        const double sync = mlsys_sync(cluster, backward, kFp32 * model.elements());
        for (const MlsysCodec& codec : mlsys_codecs()) {
          setups.push_back(
              {name, workers, batch, backward, codec.name, sync, mlsys_compressed(cluster, codec, model, backward)});
        }
      }
    }
  }
  return setups;
}

}  // namespace gradlane
