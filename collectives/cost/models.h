// models.h - the layers of well-known models, computed from their architectures: the gradients to exchange (pure)
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradlane {

// A parameter tensor.
struct ModelLayer {
  std::string name;
  double elements = 0;
  // Shape as a matrix for low-rank codecs: outputs by inputs. 0 rows: a vector.
  double rows = 0;
  double columns = 0;
  // The cost in backward, in any unit: multiply-adds of one sample, or measured time.
  double work = 0;
};

struct ModelTable {
  std::string name;
  std::vector<ModelLayer> layers;  // in the order of forward
  unsigned batch = 0;              // batch size of a profile
  double backward = 0;             // s, of a profile; 0: not measured

  [[nodiscard]] double elements() const noexcept;
  [[nodiscard]] double work() const noexcept;
};

// Returns the layers of "alexnet", "vgg16", "vgg19", "resnet50", "resnet101", "bert-base" or "gpt2". The first five are
// those of torchvision for 224 x 224 images and 1000 classes (buffers of normalisation are not parameters). BERT-base
// is uncased, with its pooler and without a head, for 128 tokens. GPT-2 is the small one, whose head is its embedding,
// for 1024 tokens. The case of letters does not matter.
[[nodiscard]] std::optional<ModelTable> find_model(std::string_view name);
[[nodiscard]] std::vector<std::string> model_names();

// Returns the s that backward takes for one sample on a V100. It is scaled by multiply-adds from ResNet-50's 122 ms for
// 64 samples (MLSys'22), so it is only for tables with multiply-adds.
[[nodiscard]] double v100_backward(const ModelTable& model);

}  // namespace gradlane
