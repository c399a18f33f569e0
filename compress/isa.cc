// isa.cc - detection of the CPU's instruction sets, and the GRADLANE_ISA override (set-up only)
#include "compress/isa.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <cstdlib>
#include <string>

#include "base/error.h"

namespace gradlane {
namespace {

#ifdef __x86_64__

// Bits of XCR0: register state that the operating system saves.
constexpr uint32_t kXcr0Avx = 0x6;      // XMM, YMM
constexpr uint32_t kXcr0Avx512 = 0xe6;  // the same and opmask, upper ZMM, ZMM16-31

uint32_t read_xcr0() noexcept {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

constexpr bool has_all(uint32_t have, uint32_t want) { return (have & want) == want; }

struct CpuFeatures {
  bool avx2 = false;
  bool avx512 = false;
};

CpuFeatures detect() noexcept {
  constexpr uint32_t k1Ecx = bit_OSXSAVE | bit_AVX | bit_F16C | bit_POPCNT;
  constexpr uint32_t k7EbxAvx2 = bit_AVX2 | bit_BMI | bit_BMI2;
  constexpr uint32_t k7EbxAvx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL | bit_AVX512CD;
  constexpr uint32_t k7EcxAvx512 = bit_AVX512VBMI | bit_AVX512VBMI2 | bit_AVX512VPOPCNTDQ | bit_GFNI;

  CpuFeatures found;
  uint32_t eax, ebx, ecx, edx;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || !has_all(ecx, k1Ecx)) return found;
  const uint32_t xcr0 = read_xcr0();
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return found;
  found.avx2 = has_all(xcr0, kXcr0Avx) && has_all(ebx, k7EbxAvx2);
  found.avx512 = found.avx2 && has_all(xcr0, kXcr0Avx512) && has_all(ebx, k7EbxAvx512) && has_all(ecx, k7EcxAvx512);
  return found;
}

bool cpu_has(Isa isa) noexcept {
  // The result is kept, because CPUID traps in a virtual machine, which takes about 10 us.
  static const CpuFeatures cpu = detect();
  return (isa == Isa::kAvx2 && cpu.avx2) || (isa == Isa::kAvx512 && cpu.avx512);
}

#else

bool cpu_has(Isa isa) noexcept { return isa == Isa::kNeon; }

#endif

}  // namespace

const char* isa_name(Isa isa) noexcept {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kNeon:
      return "neon";
  }
  return "?";
}

bool isa_supported(Isa isa) noexcept { return isa == Isa::kScalar || cpu_has(isa); }

Isa select_isa() {
  Isa best = Isa::kScalar;
  std::string usable;
  for (const Isa isa : kIsas) {
    if (!isa_supported(isa)) continue;
    best = isa;
    usable += usable.empty() ? "" : ", ";
    usable += isa_name(isa);
  }
  const char* pin = std::getenv("GRADLANE_ISA");
  if (pin == nullptr) return best;
  for (const Isa isa : kIsas) {
    if (std::string(pin) != isa_name(isa)) continue;
    if (isa_supported(isa)) return isa;
    throw SetupError("GRADLANE_ISA=" + std::string(pin) + ": this CPU does not support it; usable here: " + usable);
  }
  throw SetupError("GRADLANE_ISA=" + std::string(pin) + ": unknown instruction set; usable here: " + usable);
}

}  // namespace gradlane
