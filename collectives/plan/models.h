// models.h - the shapes of well-known models, made from their architectures: what there is to exchange (pure)
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
  // As a matrix, which low-rank codecs take it for: outputs by inputs. 0 rows: a vector.
  double rows = 0;
  double columns = 0;
  // What backward spends on it, in any unit: multiply-adds of one sample, or measured time.
  double work = 0;
};

struct ModelTable {
  std::string name;
  std::vector<ModelLayer> layers;  // in the order of forward
  unsigned batch = 0;              // of a profile
  double backward = 0;             // s, of a profile; 0: nothing was measured

  [[nodiscard]] double elements() const noexcept;
  [[nodiscard]] double work() const noexcept;
};

// "alexnet", "vgg16", "vgg19", "resnet50", "resnet101", "bert-base", "gpt2". As torchvision has the first five for 224
// x 224 images and 1000 classes (buffers of normalisation are not parameters); BERT-base uncased with its pooler and
// without a head, 128 tokens; GPT-2 small, whose head is its embedding, 1024 tokens.
// The case of letters does not matter.
[[nodiscard]] std::optional<ModelTable> find_model(std::string_view name);
[[nodiscard]] std::vector<std::string> model_names();

// s that backward takes for one sample on a V100: scaled by multiply-adds from ResNet-50's 122 ms for 64 (MLSys'22). Of
// tables with multiply-adds only.
[[nodiscard]] double v100_backward(const ModelTable& model);

}  // namespace gradlane
