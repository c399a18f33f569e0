// device.h - the parts of CUDA that kernels use, on the CPU: threads of thread blocks are fibers of one thread
//
// A test includes this file, then a kernel of client/python/gradlane/torch/kernels/, and calls Launcher::run(). A
// function of a full warp waits until all 32 lanes have called it. Elsewhere threads run one after the other, in an
// order that a seed gives. So a missing barrier gives other results for some seeds. A wait that can never end, and
// threads that wait in different functions, end the program.
//
// Several thread blocks run at once, as on a GPU, and begin in the order of their numbers. Memory is sequentially
// consistent: no test with this file shows that a kernel has the fences that it needs.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace gradlane::test::gpu {

// A line of a kernel.
struct Here {
  const char* file;
  int line;
};
#define GRADLANE_HERE \
  ::gradlane::test::gpu::Here { __builtin_FILE(), __builtin_LINE() }

[[noreturn]] inline void fail(const char* what, const Here& where) {
  std::fprintf(stderr, "%s:%d: %s\n", where.file, where.line, what);
  std::abort();
}

// ---- Fibers. ucontext.h has them, too, but makes a system call for each switch.

// Keeps the registers of the running fiber on its stack and the stack in *from, and continues on the stack `to`.
extern "C" void gradlane_test_switch(void** from, void* to);

#if defined(__x86_64__)
constexpr size_t kSavedWords = 6;  // callee-saved registers; then comes the address where the fiber continues
constexpr size_t kReturn = 6;
asm(R"(
.pushsection .text
.weak gradlane_test_switch
.type gradlane_test_switch, @function
gradlane_test_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size gradlane_test_switch, . - gradlane_test_switch
.popsection
)");
#elif defined(__aarch64__)
constexpr size_t kSavedWords = 20;  // x19 to x30, d8 to d15; x30 is the address where the fiber continues
constexpr size_t kReturn = 11;
asm(R"(
.pushsection .text
.weak gradlane_test_switch
.type gradlane_test_switch, %function
gradlane_test_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size gradlane_test_switch, . - gradlane_test_switch
.popsection
)");
#endif

struct Index {
  uint32_t x = 0;
};

constexpr uint32_t kLanes = 32;
constexpr size_t kStackWords = 8192;
constexpr uint64_t kCanary = 0x5ca1ab1e5ca1ab1e;
constexpr uint64_t kMostSleeps = 10'000'000;

// A barrier of the threads of a warp or of a thread block.
struct Barrier {
  uint32_t size;
  uint32_t arrived = 0;
  uint64_t round = 0;  // number of times that all have arrived
  Here where{};        // where the first of them waits
};

// Holds the values that the lanes of a warp give in one round.
struct Given {
  std::array<uint64_t, kLanes> values{};
  uint64_t bits = 0;  // bitwise OR of the values
};

struct Warp {
  Barrier barrier{kLanes};
  std::array<Given, 2> given{};  // in this round and in the one before
};

struct ThreadBlock;

struct Fiber {
  ThreadBlock* block;
  Index index;
  std::unique_ptr<uint64_t[]> memory = std::make_unique<uint64_t[]>(kStackWords);
  void* stack = nullptr;
  const uint64_t* round = nullptr;  // it waits while *round is `waits`; null: it can run
  uint64_t waits = 0;
  bool done = false;
};

struct ThreadBlock {
  Index index;
  Barrier barrier;
  std::vector<Warp> warps;
  std::vector<uint64_t> shared;
  std::vector<Fiber> fibers;
};

// The running kernel. One thread runs all fibers, so that there is one of this.
struct Device {
  std::function<void()> kernel;
  Index grid;
  Fiber* running = nullptr;
  void* scheduler = nullptr;
  uint64_t sleeps = 0;
};
inline Device device;

inline void leave() { gradlane_test_switch(&device.running->stack, device.scheduler); }

[[noreturn]] inline void run_fiber() {
  device.kernel();
  device.running->done = true;
  leave();
  std::abort();
}

// Waits until all threads of the barrier have called this.
inline void wait_at(Barrier& barrier, const Here& here) {
  if (barrier.arrived == 0) barrier.where = here;
  if (barrier.where.line != here.line || std::strcmp(barrier.where.file, here.file) != 0) {
    std::fprintf(stderr, "%s:%d: a thread waits here, and others of its warp or thread block elsewhere\n",
                 barrier.where.file, barrier.where.line);
    fail("they must all call the same function", here);
  }
  const uint64_t round = barrier.round;
  if (++barrier.arrived == barrier.size) {
    barrier.arrived = 0;
    ++barrier.round;
    return;
  }
  device.running->round = &barrier.round;
  device.running->waits = round;
  leave();
}

inline uint32_t own_lane() { return device.running->index.x % kLanes; }

// Gives a value to the other lanes of the warp, and returns what all of them have given.
inline const Given& exchange(uint32_t mask, uint64_t value, const Here& here) {
  if (mask != 0xffffffff) fail("a mask must have all lanes", here);
  Warp& warp = device.running->block->warps[device.running->index.x / kLanes];
  Given& given = warp.given[warp.barrier.round % 2];
  given.bits = (warp.barrier.arrived == 0 ? 0 : given.bits) | value;
  given.values[own_lane()] = value;
  wait_at(warp.barrier, here);
  return given;
}

// Returns the variable that the threads of this thread block share. A kernel has one.
template <class T>
T& shared() {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= alignof(uint64_t));
  std::vector<uint64_t>& memory = device.running->block->shared;
  if (memory.empty()) memory.assign((sizeof(T) + 7) / 8, 0xdeadbeefdeadbeef);
  return *reinterpret_cast<T*>(memory.data());
}

// Runs kernels with `threads` threads in a thread block, of which at most `resident` run at once. `seed` gives the
// order of threads.
class Launcher {
 public:
  Launcher(uint32_t threads, uint32_t resident, uint64_t seed) : random_(seed) {
    for (uint32_t i = 0; i < resident; ++i) {
      auto& block = *places_.emplace_back(std::make_unique<ThreadBlock>());
      block.barrier.size = threads;
      block.warps.resize(threads / kLanes);
      for (uint32_t thread = 0; thread < threads; ++thread) block.fibers.push_back({&block, {thread}});
    }
  }

  void run(uint32_t blocks, std::function<void()> kernel) {
    device.grid = {blocks};
    device.kernel = std::move(kernel);
    device.sleeps = 0;
    std::vector<ThreadBlock*> idle, running;
    for (const auto& block : places_) idle.push_back(block.get());
    for (uint32_t begun = 0; begun < blocks || !running.empty();) {
      while (begun < blocks && !idle.empty()) {
        begin(*idle.back(), begun++);
        running.push_back(idle.back());
        idle.pop_back();
      }
      const auto chosen = running.begin() + static_cast<std::ptrdiff_t>(random_() % running.size());
      if (step(**chosen)) continue;
      idle.push_back(*chosen);
      running.erase(chosen);
    }
    device.kernel = nullptr;
  }

 private:
  static void begin(ThreadBlock& block, uint32_t number) {
    block.index = {number};
    block.shared.clear();
    for (Fiber& fiber : block.fibers) {
      // These are the registers that gradlane_test_switch() restores. Behind them, the stack is as after a call.
      uint64_t* const frame = fiber.memory.get() + kStackWords - 32;
      std::fill_n(frame, kSavedWords, uint64_t{0});
      frame[kReturn] = reinterpret_cast<uint64_t>(&run_fiber);
      fiber.memory[0] = kCanary;
      fiber.stack = frame;
      fiber.round = nullptr;
      fiber.done = false;
    }
  }

  // Lets each thread of a thread block run until it waits: warp by warp, in any order, from any lane on. Returns
  // whether there are threads left.
  bool step(ThreadBlock& block) {
    std::vector<size_t> order(block.warps.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::shuffle(order, random_);
    bool ran = false, left = false;
    for (const size_t warp : order) {
      const size_t turn = random_() % kLanes;
      for (size_t i = 0; i < kLanes; ++i) {
        Fiber& fiber = block.fibers[warp * kLanes + (i + turn) % kLanes];
        if (fiber.done) continue;
        left = true;
        if (fiber.round != nullptr && *fiber.round == fiber.waits) continue;
        fiber.round = nullptr;
        device.running = &fiber;
        gradlane_test_switch(&device.scheduler, fiber.stack);
        if (fiber.memory[0] != kCanary) fail("the stack of a fiber is too small", GRADLANE_HERE);
        ran = true;
      }
    }
    if (left && !ran) fail("all threads of a thread block wait for each other", block.barrier.where);
    return left;
  }

  std::vector<std::unique_ptr<ThreadBlock>> places_;
  std::mt19937_64 random_;
};

// Bytes without room to spare: sanitizers find what is read or written outside.
class Memory {
 public:
  explicit Memory(size_t bytes) : words_((bytes + 3) / 4), bytes_(bytes) {}
  explicit Memory(std::span<const uint8_t> bytes) : Memory(bytes.size()) {
    if (!bytes.empty()) std::memcpy(words_.data(), bytes.data(), bytes.size());
  }
  [[nodiscard]] uint8_t* data() { return reinterpret_cast<uint8_t*>(words_.data()); }
  [[nodiscard]] std::span<uint8_t> span() { return {data(), bytes_}; }

 private:
  std::vector<uint32_t> words_;
  size_t bytes_;
};

}  // namespace gradlane::test::gpu

// ---- CUDA's names

#define __global__
#define __device__
#define __launch_bounds__(threads)
#define GRADLANE_SHARED(type, name) type& name = ::gradlane::test::gpu::shared<type>()
#define GRADLANE_UNROLL(count)
#define threadIdx (::gradlane::test::gpu::device.running->index)
#define blockIdx (::gradlane::test::gpu::device.running->block->index)
#define gridDim (::gradlane::test::gpu::device.grid)

namespace gradlane::gpu {

using test::gpu::Here;

inline void __syncthreads(Here here = GRADLANE_HERE) {
  test::gpu::wait_at(test::gpu::device.running->block->barrier, here);
}

inline void __nanosleep(uint32_t, Here here = GRADLANE_HERE) {
  if (++test::gpu::device.sleeps > test::gpu::kMostSleeps) test::gpu::fail("thread blocks wait for each other", here);
  test::gpu::leave();
}

inline uint32_t __reduce_or_sync(uint32_t mask, uint32_t value, Here here = GRADLANE_HERE) {
  return static_cast<uint32_t>(test::gpu::exchange(mask, value, here).bits);
}
inline uint32_t __ballot_sync(uint32_t mask, bool set, Here here = GRADLANE_HERE) {
  return __reduce_or_sync(mask, (set ? 1U : 0U) << test::gpu::own_lane(), here);
}

template <class T>
T __shfl_sync(uint32_t mask, T value, int from, Here here = GRADLANE_HERE) {
  return static_cast<T>(test::gpu::exchange(mask, value, here).values[static_cast<uint32_t>(from) % test::gpu::kLanes]);
}
template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int distance, Here here = GRADLANE_HERE) {
  return __shfl_sync(mask, value, static_cast<int>(test::gpu::own_lane()) ^ distance, here);
}
template <class T>
T __shfl_up_sync(uint32_t mask, T value, uint32_t distance, Here here = GRADLANE_HERE) {
  const uint32_t own = test::gpu::own_lane();
  return __shfl_sync(mask, value, static_cast<int>(own < distance ? own : own - distance), here);
}

template <class T>
T atomicAdd(T* at, T value) {
  return std::exchange(*at, static_cast<T>(*at + value));
}

inline int __popc(uint32_t bits) { return std::popcount(bits); }
inline int __clz(int bits) { return std::countl_zero(static_cast<uint32_t>(bits)); }
inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) << shift % 32 >> 32);
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> shift % 32);
}

inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t __float_as_uint(float f) { return std::bit_cast<uint32_t>(f); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
using ::rintf;

}  // namespace gradlane::gpu
