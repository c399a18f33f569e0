// host_list.h - lists of hosts as people and SLURM write them (set-up only)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradlane {

// As it was written, but for its port: a name, or an address of IPv4 or IPv6.
struct Host {
  std::string name;
  uint16_t port = 0;  // 0: none was given

  bool operator==(const Host&) const = default;
};

// All throw SetupError, "WHERE: what is wrong, what is allowed", and give 1 to kMaxNodes hosts.

// "10.0.0.1,node-b:19000,fd00::3,[fd00::4]:19000"; `of`: whose the ports are, for messages.
[[nodiscard]] std::vector<Host> parse_hosts(std::string_view list, const std::string& where, const char* of = "UDP");

// A host in each line, first of all: what follows, as in mpirun's "node-a slots=4", is not read. # begins a comment.
[[nodiscard]] std::vector<Host> parse_host_file(std::string_view text, const std::string& path);

// As in SLURM_JOB_NODELIST: "login2,n[01-03,7],rack[0-1]n[0-9]-ib". Numbers have as many digits as the first one of
// their range.
[[nodiscard]] std::vector<Host> parse_slurm_hosts(std::string_view list, const std::string& where);

}  // namespace gradlane
