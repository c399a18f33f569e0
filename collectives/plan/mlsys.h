// mlsys.h - the model of "On the Utility of Gradient Compression" (MLSys 2022), to be compared with (pure)
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/plan/models.h"

namespace gradlane {

// T_obs = max(lambda T_comp, (k-1) T_comm(b)) + T_comm(b^) for k buckets of b bytes, the last one of b^. Ring:
// T_comm = 2 alpha (p-1) + 2 b (p-1) / (p BW). Compressed, after backward, which it competes with:
// T = T_comp + T_encdec + T_comm'. p: workers; BW in bytes per s; all in s.
struct MlsysCluster {
  unsigned workers = 4;
  double bandwidth = 1.25e9;
  double alpha = 15e-6;            // of a hop: not in the paper's text; that of a cloud
  double lambda = 1.05;            // 1.04 to 1.1
  double bucket = 25 * 1048576.0;  // bytes
  // s, for each worker beyond four, of ResNet-50: what decoding the votes of all others may take SignSGD. The paper has
  // no such term.
  double vote_decode = 0;
};

// With this much, SignSGD takes the 1042 ms that were published for ResNet-101 with 96 workers, where the formula alone
// gives 685: fitted to that one point, and no more than a guess of what the formula leaves out.
inline constexpr double kMlsysFittedVotes = 2.22e-3;

[[nodiscard]] double mlsys_ring(const MlsysCluster& cluster, double bytes) noexcept;
// sync-SGD with overlap.
[[nodiscard]] double mlsys_sync(const MlsysCluster& cluster, double backward, double bytes) noexcept;

// The seven of the paper. T_comm', g being the gradient's bytes:
//   PowerSGD  4 alpha (p-1) + 2 (g_P + g_Q) (p-1) / (p BW), where P and Q are rows x rank and rank x columns of each
//   matrix,
//             and vectors go as they are
//   SignSGD   alpha (p-1) + (g/32) (p-1) / BW
//   MSTop-k   2 alpha (p-1) + (g_values + g_indices) (p-1) / BW
// T_encdec of ResNet-50 on a V100 was published: 45, 64, 130 ms (PowerSGD 4, 8, 16), 16 (SignSGD), 295, 289, 240 (Top-k
// 20, 10, 1 %). That of other models is taken to grow with their elements.
struct MlsysCodec {
  enum class Kind { kPowerSgd, kSign, kTopK };
  Kind kind;
  double parameter;  // rank; share of elements
  double encdec;     // s, of ResNet-50
  const char* name;
};
[[nodiscard]] const std::vector<MlsysCodec>& mlsys_codecs();
[[nodiscard]] double mlsys_compressed(const MlsysCluster& cluster, const MlsysCodec& codec, const ModelTable& model,
                                      double backward) noexcept;

// One of its set-ups: a model, workers and a batch, where a codec is held against sync-SGD.
struct MlsysSetup {
  std::string model;
  unsigned workers = 0;
  unsigned batch = 0;
  double backward = 0;  // s
  std::string codec;
  double sync = 0;  // s
  double compressed = 0;

  [[nodiscard]] bool gains() const noexcept { return compressed < sync; }
};
// ResNet-50, ResNet-101, BERT-base; 4, 8, 16, 32, 64, 96 workers; batches of 16, 32, 64; seven codecs: 378 set-ups.
// Which of them the paper's "more than 200" are is not known. Backward: v100_backward(). `vote_decode`: MlsysCluster's.
[[nodiscard]] std::vector<MlsysSetup> mlsys_grid(double bandwidth, double vote_decode = 0);

inline constexpr unsigned kMlsysWorkers[] = {4, 8, 16, 32, 64, 96};
inline constexpr unsigned kMlsysBatches[] = {16, 32, 64};
inline constexpr const char* kMlsysModels[] = {"resnet50", "resnet101", "bert-base"};

}  // namespace gradlane
