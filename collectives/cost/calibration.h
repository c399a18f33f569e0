// calibration.h - what an exchange costs on given hosts, links and ports: plain figures for the planner
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradlane {

// Elements are floats. Times are those of one core. Fields in ns have it in their names, all others are in s and bytes
// per s.

// The costs of a codec on a host, and the bytes that it needs for typical gradients.
struct CodecCost {
  std::string name;      // name for find_codec()
  double encode_ns = 0;  // per element of a contribution
  double merge_ns = 0;   // per element of a hop: decode, add the local one, encode
  double decode_ns = 0;  // per element of a result, or of a contribution that an owner adds
  double look_ns = 0;    // per element of a contribution, in all passes of Codec::scan() before anything is sent
  double packet_ns = 0;  // additional, for each packet that is encoded: cutting runs to its length, and joining them
  // Additional time per element of a tensor, because of where it lies in memory. The other times were measured one
  // after the other, with data that a cache holds. In an exchange, nodes, trainers and the kernel want the same cores
  // and caches. 0: not measured.
  double place_ns = 0;

  // ---- Width on the wire, without headers
  double bytes = 4;     // bytes per element of one contribution
  double doubling = 0;  // additional bytes for each doubling of the contributions to a sum
  // share of the elements that is sent, if > 0 (sparse codecs); a sum has all elements of its contributions
  double density = 0;
  double results = 0;     // bytes per element of a result, for any number of contributions, if > 0 (votes)
  double most_bytes = 4;  // most bytes per element: the codec's own layout for values that do not fit

  bool owners = false;  // encoded blocks cannot be added: only strategies whose blocks have owners carry them
  bool exact = false;

  // Returns the bytes per element of a sum of that many contributions, which are assumed to be independent of each
  // other.
  [[nodiscard]] double width(double contributions) const noexcept;
  // Returns the bytes per element of the result of that many contributions.
  [[nodiscard]] double result_width(double contributions) const noexcept;
};

// The figures of a link from one rank to another.
struct LinkCost {
  unsigned from = 0;
  unsigned to = 0;
  double latency = 0;     // one-way time of a short packet in s
  double bandwidth = 0;   // bytes per s, all headers included
  bool at_least = false;  // the limit was a core and not the link, which may be faster
  // Repetitions, or the two directions, differ by a factor of more than kUnsteady. Shown to users, not stored in files.
  bool unsteady = false;
};

inline constexpr double kUnsteady = 1.5;

// Shows how the figures fit the ring on which they were measured: by all-reduces of 64 KiB and more, right after the
// measurement.
struct CalibrationChecks {
  // measured time / predicted time of the all-reduce that differs most; 0: nothing was checked
  double times_as_long = 0;
  double speedup = 0;  // time of raw / time of fixed:10, for the longest all-reduces, as measured
};

// The costs of one packet on its way through a rank.
struct PacketCost {
  // ---- The port: driver, kernel, copies
  double send_ns = 0;
  double receive_ns = 0;
  double call_ns = 0;   // per call that sends or receives several packets
  double per_call = 1;  // packets per call
  // ---- The exchange: headers, windows, acknowledgements, checksums of a full packet
  double reduce_ns = 0;  // a partial sum arrives and the next one is sent
  double gather_ns = 0;  // a result arrives and is relayed
  // ---- Lengths
  double payload = 1408;  // bytes of a block that fit into a full packet
  double overhead = 130;  // bytes on the wire around the payload, for every packet: from preamble to run header

  // Sets the lengths for IP packets of `mtu` bytes.
  void set_mtu(double mtu) noexcept;
  // Returns the length of a full IP packet in bytes.
  [[nodiscard]] double mtu() const noexcept;
};

// One size of an all-reduce, measured as a training sees it: through PyTorch, on all ranks at once.
struct ExchangePoint {
  double bytes = 0;    // of the tensor of float32 elements
  double seconds = 0;  // median time on the slowest rank
  double busy = 0;     // core-seconds that this took on one node: kernel, daemon and trainer
};

// All-reduces of one library with one codec, by ascending bytes.
struct MeasuredExchange {
  std::string library;  // "gloo", "nccl" or "gradlane"
  // A codec of gradlane, or "fixed:adaptive" of PyTorch's hook, with error feedback. Other libraries have the type on
  // the wire here, "fp32" or "bf16".
  std::string codec;
  std::vector<ExchangePoint> points;
};

inline constexpr unsigned kCalibrationVersion = 1;

struct Calibration {
  // ---- Origin; empty if nothing was measured
  unsigned version = kCalibrationVersion;
  std::string made;     // UTC, "2026-11-23T16:44:25Z"
  uint64_t made_s = 0;  // the same time in s since 1970
  std::string host;     // name of the host
  std::string cpu;      // model, as the kernel calls it
  std::string isa;      // instruction set of the kernels that were measured
  std::string program;  // version of gradlane
  std::string port;     // kind: "udp", "packets", "card"

  std::vector<CodecCost> codecs;
  PacketCost packets;
  LinkCost link;                // link that the model uses: the slowest of all
  std::vector<LinkCost> links;  // measured links; empty: none

  double memory = 24e9;  // bytes per s that one core reads or writes
  double start = 0;      // s from an operation's submission to its first packet, plus s from its last packet to the end
  unsigned lanes = 1;    // workers with cores of their own
  double contention = 1;  // factor by which a lane is slower while the other lanes work, too
  double lambda = 1.05;   // factor by which backward is slower during an exchange (MLSys'22: 1.04 to 1.1)

  double lambda_least = 0;  // least lambda of the repetitions; shown to users, not read from files; 0: not measured
  double lambda_most = 0;

  CalibrationChecks checks;
  std::vector<std::string> strategies;  // strategies that the measured ring allows; empty: unknown

  double cores = 0;                         // cores of this host for each of its nodes; 0: unknown, enough for all
  std::vector<MeasuredExchange> exchanges;  // empty: PyTorch was not found

  [[nodiscard]] const CodecCost* find(std::string_view codec) const noexcept;
};

[[nodiscard]] const MeasuredExchange* find_exchange(std::span<const MeasuredExchange> exchanges,
                                                    std::string_view library, std::string_view codec) noexcept;

// Returns "these figures do not fit this ring: ..." if the checks are off by a factor of more than 2. Returns an empty
// text if the figures fit or there are no checks.
[[nodiscard]] std::string misfit_text(const CalibrationChecks& checks);

// Marks links whose two directions differ by more than kUnsteady.
void mark_unsteady(std::vector<LinkCost>& links) noexcept;

// Returns the slowest figures of all links: highest latency, least bandwidth. Returns `fallback` if there are no links.
[[nodiscard]] LinkCost slowest(const std::vector<LinkCost>& links, const LinkCost& fallback) noexcept;

// The host that wants to use a calibration, and the time.
struct CalibrationUse {
  std::string host;
  std::string cpu;
  std::string isa;
  std::string program;
  uint64_t now_s = 0;                         // since 1970
  uint64_t longest_s = uint64_t{30} * 86400;  // maximum age; older calibrations are stale
};
// Returns a text for people: why the calibration must not be used there (stale, or of another host). Empty: it can be
// used.
[[nodiscard]] std::string calibration_fault(const Calibration& calibration, const CalibrationUse& use);

// Kinds of ports for which there are figures without a calibration.
enum class PlanPort : uint8_t { kUdp, kPackets, kCard };
[[nodiscard]] const char* plan_port_name(PlanPort port) noexcept;

// Returns the figures for use without a calibration. The figures of codecs are those of a Xeon
// with AVX-512 and 42 GB/s of memcpy. The figures of packets and ports are those of an EPYC with two busy cores. The
// figures of cards are an estimate, because no card was measured. Links have a usual latency; the caller must set their
// bandwidth.
[[nodiscard]] Calibration usual_calibration(PlanPort port);

// Returns the figures of a world in which computing takes no time, as in the simulator: only links and headers do.
// Codecs have their usual widths.
[[nodiscard]] Calibration free_calibration(double latency, double bandwidth);

// Returns the figures of an ideal that no library beats without compression: TCP segments of the same MTU on the same
// links. They cost no core, so backward is not slower during an exchange. Use them with the codec `raw`.
[[nodiscard]] Calibration ideal_calibration(const Calibration& calibration);

}  // namespace gradlane
