// models.cc - the layers of well-known models, computed from their architectures (pure)
#include "collectives/cost/models.h"

#include <array>

namespace gradlane {
namespace {

// Adds the layers of a network one after the other. `side` is the side of the image at the current layer.
class Builder {
 public:
  explicit Builder(std::string_view name, double side = 0) : side_(side) { table_.name = name; }

  void matrix(const std::string& name, double rows, double columns, double times) {
    table_.layers.push_back({name, rows * columns, rows, columns, rows * columns * times});
  }
  void vector(const std::string& name, double elements) { table_.layers.push_back({name, elements, 0, 0, 0}); }
  void dense(const std::string& name, double outputs, double inputs, double times = 1) {
    matrix(name + ".weight", outputs, inputs, times);
    vector(name + ".bias", outputs);
  }
  void convolve(const std::string& name, double outputs, double inputs, double kernel, double stride = 1,
                bool bias = true) {
    side_ = side_ / stride;
    matrix(name + ".weight", outputs, inputs * kernel * kernel, side_ * side_);
    if (bias) vector(name + ".bias", outputs);
  }
  void normalise(const std::string& name, double features) {
    vector(name + ".weight", features);
    vector(name + ".bias", features);
  }
  void set_side(double side) { side_ = side; }
  [[nodiscard]] double side() const { return side_; }
  ModelLayer& last() { return table_.layers.back(); }
  ModelLayer& first() { return table_.layers.front(); }
  ModelTable done() { return std::move(table_); }

 private:
  ModelTable table_;
  double side_;
};

std::string at(const std::string& name, size_t i) { return name + "." + std::to_string(i); }

ModelTable alexnet() {
  Builder net("alexnet", 55);
  net.convolve("features.0", 64, 3, 11);
  net.set_side(27);
  net.convolve("features.3", 192, 64, 5);
  net.set_side(13);
  net.convolve("features.6", 384, 192, 3);
  net.convolve("features.8", 256, 384, 3);
  net.convolve("features.10", 256, 256, 3);
  net.dense("classifier.1", 4096, 256 * 6 * 6);
  net.dense("classifier.4", 4096, 4096);
  net.dense("classifier.6", 1000, 4096);
  return net.done();
}

// Five groups of convolutions follow each other. Each has half the image side of the group before.
ModelTable vgg(std::string_view name, const std::array<unsigned, 5>& groups) {
  constexpr std::array<double, 5> kWidths = {64, 128, 256, 512, 512};
  Builder net(name, 224);
  double inputs = 3;
  size_t place = 0;
  for (size_t group = 0; group < groups.size(); ++group) {
    for (unsigned i = 0; i < groups[group]; ++i) {
      net.convolve(at("features", place), kWidths[group], inputs, 3);
      inputs = kWidths[group];
      place += 2;  // the convolution and its ReLU
    }
    ++place;  // pooling
    net.set_side(net.side() / 2);
  }
  net.dense("classifier.0", 4096, 512 * 7 * 7);
  net.dense("classifier.3", 4096, 4096);
  net.dense("classifier.6", 1000, 4096);
  return net.done();
}

// Four groups of bottlenecks: 1 x 1, 3 x 3, and 1 x 1 with four times as many outputs.
ModelTable resnet(std::string_view name, const std::array<unsigned, 4>& groups) {
  Builder net(name, 224);
  const auto convolve = [&net](const std::string& block, unsigned i, double outputs, double inputs, double kernel,
                               double stride) {
    net.convolve(block + "conv" + std::to_string(i), outputs, inputs, kernel, stride, false);
    net.normalise(block + "bn" + std::to_string(i), outputs);
  };
  convolve("", 1, 64, 3, 7, 2);
  net.set_side(56);
  double inputs = 64;
  double width = 64;
  for (size_t group = 0; group < groups.size(); ++group, width *= 2) {
    for (unsigned i = 0; i < groups[group]; ++i) {
      const std::string block = at("layer" + std::to_string(group + 1), i) + ".";
      const double stride = i == 0 && group > 0 ? 2 : 1;
      convolve(block, 1, width, inputs, 1, 1);
      convolve(block, 2, width, width, 3, stride);
      convolve(block, 3, 4 * width, width, 1, 1);
      if (i == 0) {
        net.convolve(block + "downsample.0", 4 * width, inputs, 1, 1, false);
        net.normalise(block + "downsample.1", 4 * width);
      }
      inputs = 4 * width;
    }
  }
  net.dense("fc", 1000, inputs);
  return net.done();
}

// Adds the work of attention that is in no parameter matrix to `layer`: queries by keys, and weights by values.
void add_attention(ModelLayer& layer, double tokens, double features) { layer.work += 2 * tokens * tokens * features; }

ModelTable bert_base() {
  constexpr double kFeatures = 768;
  constexpr double kTokens = 128;
  Builder net("bert-base");
  net.matrix("embeddings.word", 30522, kFeatures, 0);
  net.matrix("embeddings.position", 512, kFeatures, 0);
  net.matrix("embeddings.type", 2, kFeatures, 0);
  net.normalise("embeddings.norm", kFeatures);
  for (size_t i = 0; i < 12; ++i) {
    const std::string block = at("encoder", i) + ".";
    net.dense(block + "query", kFeatures, kFeatures, kTokens);
    net.dense(block + "key", kFeatures, kFeatures, kTokens);
    net.dense(block + "value", kFeatures, kFeatures, kTokens);
    net.dense(block + "output", kFeatures, kFeatures, kTokens);
    add_attention(net.last(), kTokens, kFeatures);
    net.normalise(block + "attention.norm", kFeatures);
    net.dense(block + "up", 4 * kFeatures, kFeatures, kTokens);
    net.dense(block + "down", kFeatures, 4 * kFeatures, kTokens);
    net.normalise(block + "norm", kFeatures);
  }
  net.dense("pooler", kFeatures, kFeatures);
  return net.done();
}

ModelTable gpt2() {
  constexpr double kFeatures = 768;
  constexpr double kTokens = 1024;
  constexpr double kWords = 50257;
  Builder net("gpt2");
  net.matrix("wte.weight", kWords, kFeatures, 0);
  net.matrix("wpe.weight", 1024, kFeatures, 0);
  for (size_t i = 0; i < 12; ++i) {
    const std::string block = at("h", i) + ".";
    net.normalise(block + "ln_1", kFeatures);
    net.dense(block + "attn.c_attn", 3 * kFeatures, kFeatures, kTokens);
    add_attention(net.last(), kTokens, kFeatures);
    net.dense(block + "attn.c_proj", kFeatures, kFeatures, kTokens);
    net.normalise(block + "ln_2", kFeatures);
    net.dense(block + "mlp.c_fc", 4 * kFeatures, kFeatures, kTokens);
    net.dense(block + "mlp.c_proj", kFeatures, 4 * kFeatures, kTokens);
  }
  net.normalise("ln_f", kFeatures);
  // The head comes first in backward. Its gradient is part of the embedding's, which is complete last.
  net.last().work += kWords * kFeatures * kTokens;
  return net.done();
}

}  // namespace

double ModelTable::elements() const noexcept {
  double all = 0;
  for (const ModelLayer& layer : layers) all += layer.elements;
  return all;
}

double ModelTable::work() const noexcept {
  double all = 0;
  for (const ModelLayer& layer : layers) all += layer.work;
  return all;
}

std::optional<ModelTable> find_model(std::string_view asked) {
  std::string name(asked);
  for (char& each : name) each = each >= 'A' && each <= 'Z' ? static_cast<char>(each - 'A' + 'a') : each;
  if (name == "alexnet") return alexnet();
  if (name == "vgg16") return vgg(name, {2, 2, 3, 3, 3});
  if (name == "vgg19") return vgg(name, {2, 2, 4, 4, 4});
  if (name == "resnet50") return resnet(name, {3, 4, 6, 3});
  if (name == "resnet101") return resnet(name, {3, 4, 23, 3});
  if (name == "bert-base") return bert_base();
  if (name == "gpt2") return gpt2();
  return std::nullopt;
}

std::vector<std::string> model_names() {
  return {"alexnet", "vgg16", "vgg19", "resnet50", "resnet101", "bert-base", "gpt2"};
}

double v100_backward(const ModelTable& model) {
  constexpr double kSeconds = 122e-3;
  constexpr double kBatch = 64;
  return model.work() * kSeconds / kBatch / find_model("resnet50")->work();
}

}  // namespace gradlane
