// calibration.h - what an exchange costs on given hosts, links and ports: plain figures that the planner reckons with
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradlane {

// Elements are floats. Times are of one core; what is in ns says so in its name, all else is in s and bytes per s.

// A codec on a host, and what it makes of typical gradients.
struct CodecCost {
  std::string name;      // find_codec() takes it
  double encode_ns = 0;  // per element of a contribution
  double merge_ns = 0;   // per element of a hop: decode, add the local one, encode
  double decode_ns = 0;  // per element of a result, or of a contribution that an owner adds
  double look_ns = 0;    // per element of a contribution, in all passes of look() before anything is sent
  double packet_ns = 0;  // on top for each packet that is encoded: cutting to its length, and joining
  // On top per element of a tensor of a rank, where it lies in memory: the others are of what a cache holds, one after
  // the other, and in an exchange nodes, trainers and the kernel want the same cores and caches. 0: nothing was
  // measured
  double place_ns = 0;

  // ---- Width on the wire, without headers
  double bytes = 4;       // per element of one contribution
  double doubling = 0;    // so many more with each doubling of the contributions to a sum
  double density = 0;     // > 0: the share of elements that travels; sums have the union of what ranks contribute
  double results = 0;     // > 0: bytes per element of a result, whatever the sum is: votes
  double most_bytes = 4;  // per element; a codec's own layout for what does not fit

  bool owners = false;  // blocks do not add: only strategies whose blocks have owners carry them
  bool exact = false;

  // Bytes per element of a sum of so many contributions, which are taken to be independent of each other.
  [[nodiscard]] double width(double contributions) const noexcept;
  // Of the result of so many.
  [[nodiscard]] double result_width(double contributions) const noexcept;
};

// From one rank to another.
struct LinkCost {
  unsigned from = 0;
  unsigned to = 0;
  double latency = 0;     // s, one way, of a short packet
  double bandwidth = 0;   // bytes per s, all headers included
  bool at_least = false;  // it was a core that took so long, and not the link
  bool unsteady = false;  // repetitions, or both directions, are further apart than kUnsteady; for people: not in files
};

inline constexpr double kUnsteady = 1.5;

// How the figures fit the ring that they were measured on: all-reduces of 64 KiB and more, right after.
struct CalibrationChecks {
  double times_as_long = 0;  // measured / predicted, of the one that is furthest off; 0: nothing was checked
  double speedup = 0;        // raw / fixed:10, of the longest ones, as measured
};

// One packet on its way through a rank.
struct PacketCost {
  // ---- The port: driver, kernel, copies
  double send_ns = 0;
  double receive_ns = 0;
  double call_ns = 0;   // of a call that takes or gives several packets
  double per_call = 1;  // how many
  // ---- The exchange: headers, windows, acknowledgements, checksums of a full packet
  double reduce_ns = 0;  // a partial sum comes and the next one goes
  double gather_ns = 0;  // a result comes and is relayed
  // ---- Lengths
  double payload = 1408;  // bytes of a block that a full packet has room for
  double overhead = 130;  // bytes on the wire around them, of every packet: from preamble to run header

  // For packets of so many bytes of IP.
  void set_mtu(double mtu) noexcept;
  // Bytes of IP of a full packet.
  [[nodiscard]] double mtu() const noexcept;
};

inline constexpr unsigned kCalibrationVersion = 1;

struct Calibration {
  // ---- Where it comes from; empty where nothing was measured
  unsigned version = kCalibrationVersion;
  std::string made;     // UTC, "2026-11-23T16:44:25Z"
  uint64_t made_s = 0;  // the same in s since 1970
  std::string host;     // name
  std::string cpu;      // model, as the kernel calls it
  std::string isa;      // the kernels that were measured
  std::string program;  // version of gradlane
  std::string port;     // kind: "udp", "packets", "card"

  std::vector<CodecCost> codecs;
  PacketCost packets;
  LinkCost link;                // what an exchange reckons with: the slowest of all
  std::vector<LinkCost> links;  // as they were measured; empty: none was

  double memory = 24e9;   // bytes per s that one core reads or writes
  double start = 0;       // s from the submission of an operation to its first packet, and from its last one to the end
  unsigned lanes = 1;     // workers with cores of their own
  double contention = 1;  // how much longer everything takes on each lane while the others work, too
  double lambda = 1.05;   // how much longer backward takes while an exchange goes beside it (MLSys'22: 1.04 to 1.1)

  double lambda_least = 0;  // of its repetitions; for people: not read from files. 0: nothing was measured
  double lambda_most = 0;

  CalibrationChecks checks;
  std::vector<std::string> strategies;  // that the ring it was measured on allows; empty: not known

  [[nodiscard]] const CodecCost* find(std::string_view codec) const noexcept;
};

// "these figures do not fit this ring: ...", where the checks are off by more than 2; empty: they fit, or there are
// none.
[[nodiscard]] std::string misfit_text(const CalibrationChecks& checks);

// Marks those whose two directions are further apart than kUnsteady.
void mark_unsteady(std::vector<LinkCost>& links) noexcept;

// The slowest of the links in both figures. Empty: `fallback`.
[[nodiscard]] LinkCost slowest(const std::vector<LinkCost>& links, const LinkCost& fallback) noexcept;

// Who asks, and when.
struct CalibrationUse {
  std::string host;
  std::string cpu;
  std::string isa;
  std::string program;
  uint64_t now_s = 0;                         // since 1970
  uint64_t longest_s = uint64_t{30} * 86400;  // older ones are stale
};
// Why it must not be used there: it is stale or of another host, in words; empty: it can be.
[[nodiscard]] std::string calibration_fault(const Calibration& calibration, const CalibrationUse& use);

// Ports of which there are figures without a calibration.
enum class PlanPort : uint8_t { kUdp, kPackets, kCard };
[[nodiscard]] const char* plan_port_name(PlanPort port) noexcept;

// Without a calibration: what docs/figures.md has, of a Xeon with AVX-512 and 42 GB/s of memcpy (codecs) and an EPYC
// with two busy cores (packets, ports). That of cards is an estimate: no card was measured. Links have no delay and no
// rate yet.
[[nodiscard]] Calibration usual_calibration(PlanPort port);

// A world in which computing takes no time, as in the simulator: links and headers alone. Codecs have their widths.
[[nodiscard]] Calibration free_calibration(double latency, double bandwidth);

// What no library beats without compressing: TCP segments of the same MTU on the same links, which cost no core, so
// that backward is no slower beside them. Of it, `raw`.
[[nodiscard]] Calibration plain_calibration(const Calibration& calibration);

}  // namespace gradlane
