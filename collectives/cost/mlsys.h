// mlsys.h - the model of "On the Utility of Gradient Compression" (MLSys 2022), for comparison (pure)
#pragma once

#include <string>
#include <vector>

#include "collectives/cost/models.h"

namespace gradlane {

// The model has p workers and a bandwidth BW in bytes per s; all times are in s. With k buckets of b bytes, the last
// one of b^ bytes: T_obs = max(lambda T_comp, (k-1) T_comm(b)) + T_comm(b^). In a ring: T_comm = 2 b (p-1) / (p BW).
// Compression runs after backward, because the two compete: T = T_comp + T_encdec + T_comm'.
//
// The paper's formulas also have a latency alpha for each hop. Its value was not published, so it is 0 here: times of
// exchanges are lower bounds. With 96 workers, each us of alpha would add 0.19 ms to each bucket of sync-SGD.
struct MlsysCluster {
  unsigned workers = 96;
  double bandwidth = 1.25e9;  // the paper's links have 10 Gb/s
  double lambda = 1.04;       // from kMlsysLambdaLeast to kMlsysLambdaMost
};
inline constexpr double kMlsysLambdaLeast = 1.04;
inline constexpr double kMlsysLambdaMost = 1.1;
inline constexpr double kMlsysBucket = 25 * 1048576.0;  // bytes; the default of PyTorch's DistributedDataParallel

// Returns the time of sync-SGD with overlap.
[[nodiscard]] double mlsys_sync(const MlsysCluster& cluster, double backward, double bytes) noexcept;

// The codecs of the paper. T_comm', where g is the bytes of the gradient:
//   PowerSGD  2 (g_P + g_Q) (p-1) / (p BW), where P and Q are rows x rank and rank x columns of each matrix, and
//             vectors are not compressed
//   SignSGD   (g/32) (p-1) / BW
//   Top-k     (g_values + g_indices) (p-1) / BW
// T_encdec was published for ResNet-50 on a V100, as was T_comp (v100_backward()). These constants come from notes of
// the paper, which were not checked with its text. For other models, T_encdec is assumed to grow with the number of
// elements.
struct MlsysCodec {
  enum class Kind { kPowerSgd, kSign, kTopK };
  Kind kind;
  double parameter;  // PowerSGD: rank; Top-k: share of elements
  double encdec;     // s, for ResNet-50
  const char* name;
};
[[nodiscard]] const std::vector<MlsysCodec>& mlsys_codecs();
[[nodiscard]] double mlsys_compressed(const MlsysCluster& cluster, const MlsysCodec& codec, const ModelTable& model,
                                      double backward) noexcept;

// Share by which two times must differ before the model tells which one is shorter. The model misses the published time
// of sync-SGD by less than that (mlsys_published()).
inline constexpr double kMlsysTolerance = 0.1;

enum class MlsysVerdict { kGains, kUnclear, kLoses };

// One set-up of the paper: a model, workers and a batch, in which a codec is compared with sync-SGD.
struct MlsysSetup {
  std::string model;
  unsigned workers = 0;
  unsigned batch = 0;
  std::string codec;
  // All of its constants were published: ResNet-50 with a batch of 64. For the others, T_comp is scaled by
  // multiply-adds and T_encdec by elements.
  bool published = false;
  double backward = 0;    // s
  double sync_least = 0;  // s, with the smallest lambda
  double sync_most = 0;   // s, with the largest lambda
  double compressed = 0;  // s

  // Gains: by more than the tolerance with any lambda. Loses: likewise. Unclear: all others.
  [[nodiscard]] MlsysVerdict verdict() const noexcept;
};

// Returns 198 set-ups. The models and what each is trained with are those of the scripts that the paper's authors
// published (github.com/uw-mad-dash/GradCompressionUtility, main_ddp_final.py and main_bert.py): ResNet-50 and
// ResNet-101 with PowerSGD of rank 4, 8, 16 and batches of 16, 32, 64, and with SignSGD and Top-k of 20, 10, 1 % and a
// batch of 64; BERT-base with all seven codecs, for 512 tokens. The scripts do not contain the batch of BERT, here 16,
// and the numbers of workers, here 4, 8, 16, 32, 64 and 96. The "more than 200" set-ups of the paper are not listed
// anywhere.
[[nodiscard]] std::vector<MlsysSetup> mlsys_grid(double bandwidth);

// A number that was published, and what the model has instead.
struct MlsysNumber {
  const char* what;
  const char* unit;
  double published;
  double least;  // of the model, over the published range of lambda
  double most;

  // Returns the largest relative difference.
  [[nodiscard]] double error() const noexcept;
};
[[nodiscard]] std::vector<MlsysNumber> mlsys_published();

}  // namespace gradlane
