// host_list.h - parsers of lists of hosts, as people and SLURM write them (set-up only)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradlane {

// A host as it was written, without its port: a name, or an address of IPv4 or IPv6.
struct Host {
  std::string name;
  uint16_t port = 0;  // 0 if none was given

  bool operator==(const Host&) const = default;
};

// These functions throw SetupError, "WHERE: what is wrong, what is allowed". They return 1 to kMaxNodes hosts.

// Parses "10.0.0.1,node-b:19000,fd00::3,[fd00::4]:19000". `of` is the kind of the ports, for messages.
[[nodiscard]] std::vector<Host> parse_hosts(std::string_view list, const std::string& where, const char* of = "UDP");

// Parses a file with a host at the start of each line. The rest of a line is ignored, as in mpirun's "node-a slots=4".
// # begins a comment.
[[nodiscard]] std::vector<Host> parse_host_file(std::string_view text, const std::string& path);

// Parses a list as in SLURM_JOB_NODELIST: "login2,n[01-03,7],rack[0-1]n[0-9]-ib". Numbers have at least as many digits
// as the first one of their range.
[[nodiscard]] std::vector<Host> parse_slurm_hosts(std::string_view list, const std::string& where);

}  // namespace gradlane
