// xdp.cc - calls of libbpf and libxdp, if DPDK has loaded them; they are not linked (control thread only)
#include "dataplane/kernel/xdp.h"

#include <dlfcn.h>
#include <linux/bpf.h>
#include <linux/if_link.h>

#include <array>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace gradlane {
namespace {

constexpr size_t kMostMessages = 4096;

// The messages so far. Only the control thread, which makes the devices, uses them.
std::string messages;

// Keeps a warning, level 0. Both libraries call this function; higher levels are information and debugging.
int keep_message(int level, const char* format, va_list arguments) {
  std::array<char, 512> text{};
  const int length = std::vsnprintf(text.data(), text.size(), format, arguments);
  if (level == 0 && messages.size() < kMostMessages) messages += text.data();
  return length;
}

template <class Function>
Function* find_in(const char* library, const char* name) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  return handle == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(handle, name));
}

template <class Function>
Function* of_libbpf(const char* name) {
  return find_in<Function>("libbpf.so.1", name);
}

// The first fields of libbpf's bpf_link_create_opts, which begins with its own length.
struct LinkOptions {
  size_t bytes = sizeof(LinkOptions);
  uint32_t flags = 0;
  uint32_t zero = 0;
};

}  // namespace

void prepare_xdp() {
  using Print = int(int, const char*, va_list);
  setenv("LIBXDP_SKIP_DISPATCHER", "1", 0);
  for (const auto& [library, name] :
       {std::pair("libbpf.so.1", "libbpf_set_print"), {"libxdp.so.1", "libxdp_set_print"}}) {
    if (auto* const set = find_in<void*(Print*)>(library, name)) set(&keep_message);
  }
}

std::string take_xdp_messages() { return std::exchange(messages, {}); }

FileDescriptor keep_xdp_program(unsigned interface) {
  auto* const query = of_libbpf<int(int, int, uint32_t*)>("bpf_xdp_query_id");
  auto* const open = of_libbpf<int(uint32_t)>("bpf_prog_get_fd_by_id");
  auto* const attach = of_libbpf<int(int, int, uint32_t, const void*)>("bpf_xdp_attach");
  auto* const detach = of_libbpf<int(int, uint32_t, const void*)>("bpf_xdp_detach");
  auto* const link = of_libbpf<int(int, int, int, const LinkOptions*)>("bpf_link_create");
  if (query == nullptr || open == nullptr || attach == nullptr || detach == nullptr || link == nullptr) return {};
  const auto index = static_cast<int>(interface);
  for (const uint32_t mode : {uint32_t{XDP_FLAGS_DRV_MODE}, uint32_t{XDP_FLAGS_SKB_MODE}}) {
    uint32_t id = 0;
    if (query(index, static_cast<int>(mode), &id) != 0 || id == 0) continue;
    const FileDescriptor program(open(id));
    if (!program || detach(index, mode, nullptr) != 0) return {};
    const LinkOptions options{.flags = mode};
    FileDescriptor kept(link(program.get(), index, BPF_XDP, &options));
    if (!kept) (void)attach(index, program.get(), mode, nullptr);
    return kept;
  }
  return {};
}

}  // namespace gradlane
