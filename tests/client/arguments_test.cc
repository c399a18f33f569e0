// arguments_test.cc - tests of the arguments of operations: what is submitted to the daemon, and what is refused
#include <cstdint>
#include <cstring>

#include "tests/client/client_fixture.h"

namespace gradlane::test::arguments_test {
namespace {

constexpr size_t kCount = 100;

class Arguments : public testing::Test {
 protected:
  void open(FakeDaemon::Settings settings) {
    gl_.reset();
    daemon_.reset();
    daemon_ = std::make_unique<FakeDaemon>(std::move(settings));
    gl_ = open_context(*daemon_);
    data_ = allocate(gl_, kCount);
    residual_ = allocate(gl_, kCount);
  }
  void SetUp() override { open({.lanes = 2, .rank = 1, .world = 3}); }

  // Returns the latest submission, which is the same on both lanes.
  gl_submission last() {
    const auto first = daemon_->seen(0);
    const auto second = daemon_->seen(1);
    EXPECT_EQ(first.size(), second.size());
    EXPECT_EQ(memcmp(&first.back(), &second.back(), sizeof(gl_submission)), 0);
    return first.back();
  }
  // Expects a refusal with this text, and that nothing reaches the daemon.
  void expect_bad(gradlane_code code, const std::string& part) {
    EXPECT_EQ(code, GRADLANE_BAD_ARGUMENT);
    EXPECT_SAYS(gl_.get(), part);
    EXPECT_TRUE(daemon_->seen(0).empty());
  }
  gradlane_code all_reduce(void* data, size_t count, const gradlane_how* how = nullptr,
                           gradlane_type type = GRADLANE_FLOAT32) {
    return gradlane_all_reduce(gl_.get(), data, count, type, how, nullptr);
  }

  std::unique_ptr<FakeDaemon> daemon_;
  Context gl_;
  float* data_ = nullptr;
  float* residual_ = nullptr;
  gradlane_how how_ = GRADLANE_HOW_INIT;
};

TEST_F(Arguments, AllReduce) {
  ASSERT_EQ(all_reduce(data_ + 10, 50), GRADLANE_OK);
  const gl_submission it = last();
  EXPECT_EQ(it.kind, GL_ALL_REDUCE);
  EXPECT_EQ(it.type, GRADLANE_FLOAT32);
  EXPECT_EQ(it.count, 50U);
  EXPECT_EQ(it.offset, 40U);
  EXPECT_EQ(it.segment, 0U);
  EXPECT_EQ(it.flags, GL_FLAG_EXACT);
  EXPECT_EQ(it.tag, 0U);
  EXPECT_EQ(it.timeout_ms, 0U);
}

TEST_F(Arguments, How) {
  how_.codec = "fixed:7";
  how_.residual = residual_;
  how_.average = 1;
  how_.has_tag = 1;
  how_.tag = 0x123456789abcdef0;
  how_.timeout_ms = 1500;
  how_.whole = 1024;
  ASSERT_EQ(all_reduce(data_, kCount, &how_), GRADLANE_OK);
  const gl_submission it = last();
  EXPECT_EQ(it.flags, GL_FLAG_AVERAGE | GL_FLAG_CODEC | GL_FLAG_RESIDUAL);
  EXPECT_EQ(it.codec, 5);
  EXPECT_EQ(it.codec_arguments, 7U);
  EXPECT_EQ(it.residual_segment, 0U);
  EXPECT_EQ(it.residual_offset, 4096U);
  EXPECT_EQ(it.tag, 0x123456789abcdef0U);
  EXPECT_EQ(it.timeout_ms, 1500U);
}

TEST_F(Arguments, OtherKinds) {
  ASSERT_EQ(gradlane_reduce_scatter(gl_.get(), data_, 33, GRADLANE_FLOAT32, nullptr, nullptr), GRADLANE_OK);
  EXPECT_EQ(last().kind, GL_REDUCE_SCATTER);
  EXPECT_EQ(last().count, 33U);
  ASSERT_EQ(gradlane_all_gather(gl_.get(), data_, 16, GRADLANE_FLOAT64, nullptr, nullptr), GRADLANE_OK);
  EXPECT_EQ(last().kind, GL_ALL_GATHER);
  EXPECT_EQ(last().type, GRADLANE_FLOAT64);
  ASSERT_EQ(gradlane_broadcast(gl_.get(), data_, 400, GRADLANE_BYTES, 2, nullptr, nullptr), GRADLANE_OK);
  EXPECT_EQ(last().kind, GL_BROADCAST);
  EXPECT_EQ(last().root, 2U);
  ASSERT_EQ(gradlane_barrier(gl_.get(), nullptr, nullptr), GRADLANE_OK);
  EXPECT_EQ(last().kind, GL_BARRIER);
  EXPECT_EQ(last().count, 0U);
}

TEST_F(Arguments, DefaultTagsCountOperations) {
  ASSERT_EQ(all_reduce(data_, kCount), GRADLANE_OK);
  how_.has_tag = 1;
  how_.tag = 77;
  ASSERT_EQ(all_reduce(data_, kCount, &how_), GRADLANE_OK);
  EXPECT_EQ(last().tag, 77U);
  EXPECT_EQ(all_reduce(nullptr, kCount), GRADLANE_BAD_ARGUMENT);  // a refused call does not count
  ASSERT_EQ(gradlane_barrier(gl_.get(), nullptr, nullptr), GRADLANE_OK);
  EXPECT_EQ(last().tag, 2U);
  gradlane_resume(gl_.get(), 1000);
  ASSERT_EQ(gradlane_barrier(gl_.get(), nullptr, nullptr), GRADLANE_OK);
  EXPECT_EQ(last().tag, 1000U);
  ASSERT_EQ(gradlane_barrier(gl_.get(), nullptr, nullptr), GRADLANE_OK);
  EXPECT_EQ(last().tag, 1001U);
}

// A codec that loses nothing, the daemon's or the one that the call names, is for copies, too.
TEST_F(Arguments, CopiesByCodecsWithoutLoss) {
  std::vector<gl_codec_row> codecs = fake_codecs();
  const uint32_t flags_of_pack = GL_CODEC_EXACT | GL_CODEC_HALVES;
  codecs.push_back({"pack", "pack", "pack", "", 23, 0, 0, 0, flags_of_pack, {}, "", "", "exact", ""});
  constexpr size_t kMany = 3 * GRADLANE_EXACT_BELOW;
  float* many = nullptr;
  const auto copies = [&](size_t count, gradlane_type type, uint16_t flags) {
    ASSERT_EQ(gradlane_all_gather(gl_.get(), many, count / 3, type, &how_, nullptr), GRADLANE_OK);
    EXPECT_EQ(last().flags, flags);
    ASSERT_EQ(gradlane_broadcast(gl_.get(), many, count, type, 0, &how_, nullptr), GRADLANE_OK);
    EXPECT_EQ(last().flags, flags);
  };
  for (const bool named : {false, true}) {
    open({.lanes = 2, .rank = 1, .world = 3, .codec = named ? "fixed:10" : "pack", .codecs = codecs});
    many = allocate(gl_, kMany);
    how_.codec = named ? "pack" : nullptr;
    copies(kMany, GRADLANE_FLOAT32, named ? GL_FLAG_CODEC : 0);
    copies(kMany, GRADLANE_BFLOAT16, named ? GL_FLAG_CODEC : 0);
    copies(kMany, GRADLANE_INT32, 0);
    copies(30, GRADLANE_FLOAT32, GL_FLAG_EXACT);
    how_.reduction = GRADLANE_MAX;
    ASSERT_EQ(all_reduce(many, kMany, &how_), GRADLANE_OK);
    EXPECT_NE(last().flags & GL_FLAG_EXACT, 0);
    how_.reduction = GRADLANE_SUM;
  }
}

TEST_F(Arguments, CodecsAreAskedForOnce) {
  EXPECT_EQ(daemon_->codec_questions(), 1U);  // for the default codec, at gradlane_open()
  for (const char* name : {"raw", "fixed:7", "raw", "fixed:7", "fixed:10"}) {
    how_.codec = name;
    ASSERT_EQ(all_reduce(data_, kCount, &how_), GRADLANE_OK);
  }
  EXPECT_EQ(daemon_->codec_questions(), 3U);
  // Other types use no codec.
  ASSERT_EQ(all_reduce(data_, kCount, &how_, GRADLANE_INT32), GRADLANE_OK);
  EXPECT_EQ(last().flags, 0);
}

// Only sums may be rounded. Copies stay exact.
TEST_F(Arguments, CopiesAreExact) {
  for (const char* const name : {static_cast<const char*>(nullptr), "raw"}) {
    how_.codec = name;
    ASSERT_EQ(gradlane_all_gather(gl_.get(), data_, 16, GRADLANE_FLOAT32, &how_, nullptr), GRADLANE_OK);
    EXPECT_EQ(last().flags, GL_FLAG_EXACT);
    ASSERT_EQ(gradlane_broadcast(gl_.get(), data_, kCount, GRADLANE_FLOAT32, 0, &how_, nullptr), GRADLANE_OK);
    EXPECT_EQ(last().flags, GL_FLAG_EXACT);
  }
  const size_t before = daemon_->seen(0).size();
  how_.codec = "fixed:10";
  EXPECT_EQ(gradlane_broadcast(gl_.get(), data_, kCount, GRADLANE_FLOAT32, 0, &how_, nullptr), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl_.get(), "broadcast: codec fixed:10 rounds, but copies are exact; use raw, or no codec");
  EXPECT_EQ(gradlane_all_gather(gl_.get(), data_, 16, GRADLANE_FLOAT32, &how_, nullptr), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl_.get(), "all_gather: codec fixed:10 rounds");
  EXPECT_EQ(daemon_->seen(0).size(), before);
}

TEST_F(Arguments, SmallSumsAreExact) {
  float* const data = allocate(gl_, 3 * 1024);
  const auto flags = [&](size_t count, bool scatter) {
    if (scatter) {
      EXPECT_EQ(gradlane_reduce_scatter(gl_.get(), data, count, GRADLANE_FLOAT32, &how_, nullptr), GRADLANE_OK);
    } else {
      EXPECT_EQ(all_reduce(data, count, &how_), GRADLANE_OK);
    }
    return last().flags;
  };
  for (const bool scatter : {false, true}) {
    how_ = GRADLANE_HOW_INIT;
    EXPECT_EQ(flags(1023, scatter), GL_FLAG_EXACT);
    EXPECT_EQ(flags(1024, scatter), 0);
    how_.codec = "fixed:7";
    EXPECT_EQ(flags(1023, scatter), GL_FLAG_EXACT);
    EXPECT_EQ(flags(1024, scatter), GL_FLAG_CODEC);
    how_.whole = 100'000;
    EXPECT_EQ(flags(10, scatter), GL_FLAG_CODEC);
    how_.whole = 1023;
    EXPECT_EQ(flags(1024, scatter), GL_FLAG_EXACT);
  }
  // Other types use no codec, however large they are.
  ASSERT_EQ(all_reduce(data, 10, nullptr, GRADLANE_FLOAT16), GRADLANE_OK);
  EXPECT_EQ(last().flags, GL_FLAG_EXACT);
}

// A codec with GL_CODEC_HALVES is for fp16 and bf16. With others they are exact, and so are their small sums.
TEST_F(Arguments, CodecsOfHalves) {
  std::vector<gl_codec_row> codecs = fake_codecs();
  const uint32_t flags_of_pack = GL_CODEC_EXACT | GL_CODEC_HALVES;
  codecs.push_back({"pack", "pack", "pack", "", 23, 0, 0, 0, flags_of_pack, {}, "", "", "exact", ""});
  for (const char* of_daemon : {"fixed:10", "pack"}) {
    open({.lanes = 2, .rank = 1, .world = 3, .codec = of_daemon, .codecs = codecs});
    const bool daemon_is_for = std::strcmp(of_daemon, "pack") == 0;
    float* const data = allocate(gl_, 2048);
    for (const gradlane_type type : {GRADLANE_FLOAT16, GRADLANE_BFLOAT16}) {
      const auto flags = [&](size_t count, const char* codec, gradlane_reduction reduction = GRADLANE_SUM) {
        how_ = GRADLANE_HOW_INIT;
        how_.codec = codec;
        how_.reduction = reduction;
        EXPECT_EQ(all_reduce(data, count, &how_, type), GRADLANE_OK) << gradlane_error(gl_.get());
        return last().flags;
      };
      EXPECT_EQ(flags(1024, "pack"), GL_FLAG_CODEC);
      EXPECT_EQ(last().codec, 23);
      EXPECT_EQ(flags(1024, "raw"), GL_FLAG_EXACT);
      EXPECT_EQ(flags(1024, "fixed:7"), GL_FLAG_EXACT);
      EXPECT_EQ(flags(1024, nullptr), daemon_is_for ? 0 : GL_FLAG_EXACT);
      EXPECT_EQ(flags(1023, "pack"), GL_FLAG_EXACT);
      EXPECT_EQ(flags(1023, nullptr), GL_FLAG_EXACT);
      EXPECT_EQ(flags(1024, "pack", GRADLANE_MIN), GL_FLAG_EXACT | GL_FLAG_MIN);
    }
  }
}

// A small sum is exact, so the call adds the residual to the data.
TEST_F(Arguments, SmallSumsAddTheResidual) {
  uint8_t* const bytes = reinterpret_cast<uint8_t*>(data_) + 1;  // data may lie at any address
  const float value = 1.0F;
  std::memcpy(bytes + 8, &value, sizeof(value));
  residual_[2] = 0x1p-12F;
  residual_[50] = 3.0F;
  how_.residual = residual_;
  ASSERT_EQ(all_reduce(bytes, 50, &how_), GRADLANE_OK) << gradlane_error(gl_.get());
  EXPECT_EQ(last().flags, GL_FLAG_EXACT);
  float sum = 0;
  std::memcpy(&sum, bytes + 8, sizeof(sum));
  EXPECT_EQ(sum, 1.0F + 0x1p-12F);
  EXPECT_EQ(residual_[2], 0.0F);
  EXPECT_EQ(residual_[50], 3.0F) << "of elements beyond it";
  // Refused calls do not change the residual.
  residual_[2] = 1.0F;
  how_.codec = "raw";
  EXPECT_EQ(all_reduce(bytes, 50, &how_), GRADLANE_BAD_ARGUMENT);
  EXPECT_EQ(residual_[2], 1.0F);
}

// With local_reduce, the residual of an average belongs to the mean of the node's trainers. Only one trainer adds it to
// its data, so that trainer adds the residual times the number of trainers.
TEST_F(Arguments, MeansAddTheResidual) {
  open({.lanes = 2, .world = 4, .flags = GL_WELCOME_LOCAL_REDUCE, .trainers = 2});
  for (const int average : {0, 1}) {
    how_ = {};
    how_.struct_size = sizeof(how_);
    auto* const floats = reinterpret_cast<float*>(data_);
    floats[2] = 1.0F;
    residual_[2] = 0x1p-12F;
    how_.residual = residual_;
    how_.average = average;
    ASSERT_EQ(all_reduce(data_, 50, &how_), GRADLANE_OK) << gradlane_error(gl_.get());
    EXPECT_EQ(floats[2], 1.0F + (average != 0 ? 0x1p-11F : 0x1p-12F));
    EXPECT_EQ(residual_[2], 0.0F);
  }
}

TEST_F(Arguments, TimeLimits) {
  gl_.reset();
  gradlane_options options = options_for(daemon_->path());
  options.operation_timeout_ms = 1'800'000;
  gradlane_context* gl = nullptr;
  ASSERT_EQ(gradlane_open(&gl, &options), GRADLANE_OK) << gradlane_error(nullptr);
  gl_.reset(gl);
  ASSERT_EQ(gradlane_barrier(gl, nullptr, nullptr), GRADLANE_OK);
  EXPECT_EQ(last().timeout_ms, 1'800'000U);
  how_.timeout_ms = 7;
  ASSERT_EQ(gradlane_barrier(gl, &how_, nullptr), GRADLANE_OK);
  EXPECT_EQ(last().timeout_ms, 7U);
  how_.timeout_ms = UINT32_MAX;
  ASSERT_EQ(gradlane_barrier(gl, &how_, nullptr), GRADLANE_OK);
  EXPECT_EQ(last().timeout_ms, UINT32_MAX);
  const size_t before = daemon_->seen(0).size();
  for (const int64_t wrong : {int64_t{-1}, int64_t{UINT32_MAX} + 1, INT64_MIN, INT64_MAX}) {
    how_.timeout_ms = wrong;
    EXPECT_EQ(gradlane_barrier(gl, &how_, nullptr), GRADLANE_BAD_ARGUMENT);
    EXPECT_SAYS(gl, "barrier: time limit is " + std::to_string(wrong) + " ms; allowed: 0 (the default) to 4294967295");
    options.operation_timeout_ms = wrong;
    EXPECT_EQ(gradlane_open(&gl, &options), GRADLANE_BAD_ARGUMENT);
    EXPECT_SAYS(nullptr, "time limit is " + std::to_string(wrong));
    gl = gl_.get();
  }
  EXPECT_EQ(daemon_->seen(0).size(), before);
}

TEST_F(Arguments, NoElements) {
  ASSERT_EQ(all_reduce(nullptr, 0), GRADLANE_OK);
  EXPECT_EQ(last().count, 0U);
}

TEST_F(Arguments, DataOutsideBuffers) {
  float here[4];
  expect_bad(all_reduce(static_cast<float*>(here), 4), "not in a buffer");
  expect_bad(all_reduce(nullptr, 4), "not in a buffer");
  expect_bad(all_reduce(data_ + kCount, 1), "not in a buffer");
  expect_bad(all_reduce(data_ - 1, 1), "not in a buffer");
  expect_bad(all_reduce(data_, kCount + 1), "needs 404 bytes, but its buffer has only 400");
  expect_bad(all_reduce(data_ + 1, kCount), "needs 400 bytes, but its buffer has only 396");
  expect_bad(gradlane_all_gather(gl_.get(), data_, 34, GRADLANE_FLOAT32, nullptr, nullptr), "needs 408 bytes");
}

TEST_F(Arguments, Sizes) {
  expect_bad(all_reduce(data_, SIZE_MAX / 4 + 2), "exceed the address space");
  expect_bad(all_reduce(data_, (size_t{64} << 20) + 1), "its buffer has only 400");
  expect_bad(gradlane_reduce_scatter(gl_.get(), data_, SIZE_MAX / 9, GRADLANE_FLOAT32, nullptr, nullptr), "per rank");
  expect_bad(gradlane_all_gather(gl_.get(), data_, SIZE_MAX / 2, GRADLANE_BYTES, nullptr, nullptr), "per rank");
}

TEST_F(Arguments, RootsAndTypes) {
  for (const int root : {-1, 3, INT32_MAX}) {
    expect_bad(gradlane_broadcast(gl_.get(), data_, 1, GRADLANE_FLOAT32, root, nullptr, nullptr),
               "root " + std::to_string(root) + "; ranks are 0 to 2");
  }
  expect_bad(all_reduce(data_, 1, nullptr, static_cast<gradlane_type>(7)), "no type 7");
}

TEST_F(Arguments, Average) {
  how_.average = 1;
  expect_bad(all_reduce(data_, 1, &how_, GRADLANE_INT32), "cannot average int32");
  expect_bad(all_reduce(data_, 1, &how_, GRADLANE_BYTES), "cannot average bytes");
  expect_bad(gradlane_broadcast(gl_.get(), data_, 1, GRADLANE_FLOAT32, 0, &how_, nullptr), "no sum to average");
  expect_bad(gradlane_barrier(gl_.get(), &how_, nullptr), "no sum to average");
  EXPECT_EQ(all_reduce(data_, 1, &how_, GRADLANE_BFLOAT16), GRADLANE_OK);
}

TEST_F(Arguments, Codecs) {
  how_.codec = "fixd:10";
  expect_bad(all_reduce(data_, 1, &how_), "there is no codec 'fixd:10'");
  how_.codec = "a name that is far too long for any codec that there is, now and later";
  expect_bad(all_reduce(data_, 1, &how_), "no codec has a name of more than 63 characters");
  const std::string longest = "fixed:" + std::string(GL_NAME - 8, '0') + "7";
  EXPECT_EQ(gradlane_check_codec(gl_.get(), longest.c_str(), nullptr), GRADLANE_OK);
  const std::string longer = longest + "0";
  how_.codec = longer.c_str();
  expect_bad(all_reduce(data_, 1, &how_), "63 characters");
}

TEST_F(Arguments, Residuals) {
  how_.residual = residual_;
  expect_bad(all_reduce(data_, 1, &how_, GRADLANE_FLOAT64), "float64: a residual is only for");
  expect_bad(gradlane_all_gather(gl_.get(), data_, 1, GRADLANE_FLOAT32, &how_, nullptr), "a residual is only for");
  how_.codec = "raw";
  expect_bad(all_reduce(data_, 1, &how_), "codec raw takes no residual; one that does is fixed:10");
  how_.codec = nullptr;
  float here[4];
  how_.residual = static_cast<float*>(here);
  expect_bad(all_reduce(data_, 4, &how_), "residual at");
  how_.residual = reinterpret_cast<float*>(reinterpret_cast<uintptr_t>(residual_) + 2);
  expect_bad(all_reduce(data_, 4, &how_), "is not a multiple of 4");
  how_.residual = residual_ + 1;
  expect_bad(all_reduce(data_, kCount, &how_), "residual needs 400 bytes, but its buffer has only 396");
  how_.residual = data_ + 50;
  expect_bad(all_reduce(data_, 51, &how_), "residual needs 204 bytes");
  expect_bad(all_reduce(data_ + 10, 45, &how_), "overlap");
  EXPECT_EQ(all_reduce(data_, 50, &how_), GRADLANE_OK);
}

TEST_F(Arguments, StructSizes) {
  for (const size_t wrong : {size_t{0}, size_t{8}, size_t{39}, size_t{44}, sizeof(how_) + 8, SIZE_MAX}) {
    how_.struct_size = wrong;
    expect_bad(all_reduce(data_, 1, &how_), "GRADLANE_HOW_INIT");
    gradlane_options options = options_for(daemon_->path());
    options.struct_size = wrong;
    gradlane_context* gl = nullptr;
    EXPECT_EQ(gradlane_open(&gl, &options), GRADLANE_BAD_ARGUMENT) << wrong;
    EXPECT_SAYS(nullptr, "GRADLANE_OPTIONS_INIT");
  }
  gradlane_figures figures{};
  EXPECT_EQ(gradlane_get_figures(gl_.get(), &figures), GRADLANE_BAD_ARGUMENT);
  EXPECT_EQ(gradlane_get_figures(gl_.get(), nullptr), GRADLANE_BAD_ARGUMENT);
}

// Programs that were built with version 2 of the header have shorter structs. The library does not read beyond them.
TEST_F(Arguments, OlderStructs) {
  constexpr size_t kHow2 = 40;
  constexpr size_t kOptions2 = 32;
  constexpr size_t kFigures2 = 40;
  how_.codec = "raw";
  how_.has_tag = 1;
  how_.tag = 9;
  how_.timeout_ms = -5;
  how_.whole = 4096;
  how_.struct_size = kHow2;
  ASSERT_EQ(all_reduce(data_, 10, &how_), GRADLANE_OK) << gradlane_error(gl_.get());
  EXPECT_EQ(last().tag, 9U);
  EXPECT_EQ(last().timeout_ms, 0U);
  EXPECT_EQ(last().flags, GL_FLAG_EXACT);
  gradlane_figures figures{};
  figures.struct_size = kFigures2;
  ASSERT_EQ(gradlane_get_figures(gl_.get(), &figures), GRADLANE_OK);
  EXPECT_EQ(figures.operations, 1U);
  EXPECT_EQ(figures.struct_size, kFigures2);
  gl_.reset();
  gradlane_options options = options_for(daemon_->path());
  options.operation_timeout_ms = -5;
  options.struct_size = kOptions2;
  gradlane_context* gl = nullptr;
  ASSERT_EQ(gradlane_open(&gl, &options), GRADLANE_OK) << gradlane_error(nullptr);
  gl_.reset(gl);
  EXPECT_EQ(gradlane_version(), GRADLANE_API_VERSION);
}

TEST_F(Arguments, LocalReduce) {
  open({.lanes = 2, .world = 2, .flags = GL_WELCOME_LOCAL_REDUCE});
  const size_t too_many = GL_PART_BYTES / 2 / sizeof(float) + 1;
  expect_bad(gradlane_reduce_scatter(gl_.get(), data_, too_many, GRADLANE_FLOAT32, nullptr, nullptr), "local_reduce");
  expect_bad(gradlane_all_gather(gl_.get(), data_, too_many, GRADLANE_FLOAT32, nullptr, nullptr), "divide the tensor");
  EXPECT_EQ(gradlane_all_gather(gl_.get(), data_, 1, GRADLANE_FLOAT32, nullptr, nullptr), GRADLANE_OK);
  EXPECT_EQ(all_reduce(data_, 1), GRADLANE_OK);
}

TEST_F(Arguments, DataInUse) {
  open({.lanes = 2, .on_submission = [](unsigned, const gl_submission&) { return false; }});
  gradlane_request first = 0;
  gradlane_request second = 5;
  ASSERT_EQ(gradlane_all_reduce(gl_.get(), data_, 50, GRADLANE_FLOAT32, nullptr, &first), GRADLANE_OK);
  EXPECT_EQ(gradlane_all_reduce(gl_.get(), data_ + 49, 1, GRADLANE_FLOAT32, nullptr, &second), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl_.get(), "in use by request " + std::to_string(first));
  EXPECT_EQ(second, 0U);
  EXPECT_EQ(gradlane_all_reduce(gl_.get(), data_ + 50, 50, GRADLANE_FLOAT32, nullptr, &second), GRADLANE_OK);
}

TEST_F(Arguments, Figures) {
  daemon_->set_figures(0, 1000, 10, 1);
  daemon_->set_figures(1, 500, 6, 2);
  ASSERT_EQ(gradlane_barrier(gl_.get(), nullptr, nullptr), GRADLANE_OK);
  gradlane_figures figures{};
  figures.struct_size = sizeof(figures);
  ASSERT_EQ(gradlane_get_figures(gl_.get(), &figures), GRADLANE_OK);
  EXPECT_EQ(figures.operations, 1U);
  EXPECT_EQ(figures.data_bytes, 1500U);
  EXPECT_EQ(figures.data_packets, 16U);
  EXPECT_EQ(figures.retransmitted, 3U);
}

}  // namespace
}  // namespace gradlane::test::arguments_test
