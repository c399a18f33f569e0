// models_test.cc - tests of the sizes of well-known models
#include "collectives/cost/models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace gradlane::test::models_test {
namespace {

// The counts are those of torchvision and transformers. BERT-base includes its pooler.
TEST(Models, Elements) {
  const std::pair<const char*, double> known[] = {
      {"alexnet", 61100840},   {"vgg16", 138357544},     {"vgg19", 143667240}, {"resnet50", 25557032},
      {"resnet101", 44549160}, {"bert-base", 109482240}, {"gpt2", 124439808}};
  for (const auto& [name, elements] : known) EXPECT_EQ(find_model(name).value().elements(), elements) << name;
  EXPECT_EQ(model_names().size(), std::size(known));
  for (const std::string& name : model_names()) EXPECT_EQ(find_model(name).value().name, name);
  EXPECT_FALSE(find_model("resnet51"));
}

// Multiply-adds of one image, in billions: 0.71, 15.5, 19.6, 4.09 and 7.80 in torchvision's table.
TEST(Models, Work) {
  EXPECT_NEAR(find_model("alexnet")->work(), 0.714e9, 0.01e9);
  EXPECT_NEAR(find_model("vgg16")->work(), 15.47e9, 0.02e9);
  EXPECT_NEAR(find_model("vgg19")->work(), 19.63e9, 0.02e9);
  EXPECT_NEAR(find_model("resnet50")->work(), 4.09e9, 0.01e9);
  EXPECT_NEAR(find_model("resnet101")->work(), 7.80e9, 0.01e9);
  EXPECT_DOUBLE_EQ(64 * v100_backward(*find_model("resnet50")), 0.122);
}

// The layers of VGG-19 are those of HiPress' list.
TEST(Models, LayersOfVgg19) {
  const ModelTable vgg = find_model("vgg19").value();
  const auto count = [&vgg](double elements) {
    return std::ranges::count(vgg.layers, elements, &ModelLayer::elements);
  };
  EXPECT_EQ(count(1728), 1);
  EXPECT_EQ(count(589824), 3);
  EXPECT_EQ(count(1179648), 1);
  EXPECT_EQ(count(2359296), 7);
  EXPECT_EQ(count(102760448), 1);
  EXPECT_EQ(count(512), 8);
  EXPECT_EQ(vgg.layers.size(), 38U);
}

}  // namespace
}  // namespace gradlane::test::models_test
