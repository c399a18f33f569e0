// cpu_kernels.cc - the kernels of codec fixed for GPUs as a library for the CPU, which Python's tests call
#include "tests/client/gpu/device.h"
// The kernels use the names of device.h.
#include <mutex>

#include "client/python/gradlane/torch/kernels/fixed.cu"

namespace gradlane::test::gpu {
namespace {

void run(uint32_t blocks, const std::function<void()>& kernel) {
  static std::mutex lock;  // device.h runs one kernel at a time
  const std::lock_guard guard(lock);
  static Launcher launcher(gradlane::gpu::kThreads, 2, 1);
  launcher.run(blocks, kernel);
}

}  // namespace
}  // namespace gradlane::test::gpu

// Each function runs the kernel of its name with `blocks` thread blocks, to its end.
#pragma GCC visibility push(default)
extern "C" {

void run_gradlane_fixed_encode(uint32_t blocks, const uint32_t* in, uint32_t* residual, uint64_t floats, uint32_t bits,
                               uint8_t* out, uint64_t* states) {
  gradlane::test::gpu::run(
      blocks, [=] { gradlane::gpu::fixed::gradlane_fixed_encode(in, residual, floats, bits, out, states); });
}

void run_gradlane_fixed_decode(uint32_t blocks, const uint8_t* encoded, uint64_t bytes, uint64_t floats, uint32_t bits,
                               uint32_t* out, uint32_t* fault) {
  gradlane::test::gpu::run(
      blocks, [=] { gradlane::gpu::fixed::gradlane_fixed_decode(encoded, bytes, floats, bits, out, fault); });
}

void run_gradlane_fixed_decode_runs(uint32_t blocks, const gradlane::gpu::Run* runs, const uint8_t* arena,
                                    uint64_t bytes, uint64_t floats, uint32_t bits, uint32_t divisor, uint32_t* out,
                                    uint32_t* fault) {
  gradlane::test::gpu::run(blocks, [=] {
    gradlane::gpu::fixed::gradlane_fixed_decode_runs(runs, arena, bytes, floats, bits, divisor, out, fault);
  });
}

}  // extern "C"
#pragma GCC visibility pop
