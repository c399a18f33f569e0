// cpu_floor.c - a clear error on a CPU that gradlane cannot run on (runs before anything else in the process)
//
// All other code, and DPDK's libraries, are compiled for x86-64-v2. The libraries' constructors run before main(), and
// end in "Illegal instruction" on older CPUs. Functions in .preinit_array run before all constructors. This file is
// compiled for any x86-64 (meson.build), and calls only the kernel.
#include <cpuid.h>
#include <stddef.h>
#include <sys/syscall.h>

enum { kErrorOutput = 2, kBadInput = 2, kMostText = 512 };

struct feature {
  unsigned leaf;
  unsigned bit;  // bit number in ecx
  const char* name;
};

static const struct feature kFloor[] = {
    {1, 0, "SSE3"},    {1, 9, "SSSE3"},   {1, 13, "CMPXCHG16B"},         {1, 19, "SSE4.1"},
    {1, 20, "SSE4.2"}, {1, 23, "POPCNT"}, {0x80000001U, 0, "LAHF/SAHF"},
};
static const char kAdvice[] =
    "; gradlane needs x86-64-v2 (SSE4.2, POPCNT). In a virtual machine, choose another CPU model: host, Nehalem or "
    "later (QEMU: -cpu host; libvirt: host-passthrough; Proxmox: x86-64-v2-AES or host)\n";

struct text {
  char bytes[kMostText];
  size_t size;
};

static void append(struct text* text, const char* what) {
  while (*what != '\0' && text->size < kMostText) text->bytes[text->size++] = *what++;
}

static const char* file_name(const char* path) {
  const char* name = path;
  for (const char* it = path; *it != '\0'; ++it) {
    if (*it == '/') name = it + 1;
  }
  return name;
}

static int has(const struct feature* feature) {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(feature->leaf, &eax, &ebx, &ecx, &edx) && (ecx >> feature->bit & 1) != 0;
}

static void call(long number, long first, const char* bytes, size_t size) {
  long result = number;
  __asm__ volatile("syscall" : "+a"(result) : "D"(first), "S"(bytes), "d"(size) : "rcx", "r11", "memory");
}

static void check_cpu(int argc, char** argv, char** environment) {
  (void)environment;
  struct text text;
  text.size = 0;
  for (size_t i = 0; i < sizeof(kFloor) / sizeof(*kFloor); ++i) {
    if (has(&kFloor[i])) continue;
    if (text.size == 0) {
      append(&text, argc > 0 ? file_name(argv[0]) : "gradlane");
      append(&text, ": this CPU lacks ");
    } else {
      append(&text, ", ");
    }
    append(&text, kFloor[i].name);
  }
  if (text.size == 0) return;
  append(&text, kAdvice);
  call(SYS_write, kErrorOutput, text.bytes, text.size);
  call(SYS_exit_group, kBadInput, NULL, 0);
}

__attribute__((section(".preinit_array"), used)) static void (*const kFirst)(int, char**, char**) = check_cpu;
