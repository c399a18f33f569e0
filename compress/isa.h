// isa.h - the instruction sets that codecs run on, and the choice of one
#pragma once

#include <array>
#include <cstdint>

namespace gradlane {

enum class Isa : uint8_t {
  kScalar,  // no vectors: x86-64-v2 (SSE4.2, POPCNT) or ARMv8-A; these kernels are the specification
  kAvx2,    // AVX2, F16C, BMI1/2
  kAvx512,  // AVX-512 F, BW, DQ, VL, VBMI, VBMI2, VPOPCNTDQ, GFNI, with the above: Ice Lake, Zen 4 and later
  kNeon,    // Advanced SIMD, which every ARMv8-A has
};

// The instruction sets that this build has kernels for, from the slowest to the fastest.
#if defined(__x86_64__)
inline constexpr std::array kIsas = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512};
#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
inline constexpr std::array kIsas = {Isa::kScalar, Isa::kNeon};
#else
#error "gradlane is for x86-64 and 64-bit ARM: another machine needs its list of instruction sets here"
#endif

// Returns "scalar", "avx2", "avx512" or "neon".
[[nodiscard]] const char* isa_name(Isa isa) noexcept;

// Returns whether this CPU and operating system support `isa`.
[[nodiscard]] bool isa_supported(Isa isa) noexcept;

// Returns the instruction set to use: the one that GRADLANE_ISA names, else the best supported one. Throws SetupError
// if GRADLANE_ISA is unknown or not supported here.
[[nodiscard]] Isa select_isa();

}  // namespace gradlane
