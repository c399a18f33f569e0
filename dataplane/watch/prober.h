// prober.h - probes that measure the path to each neighbour (control thread; no DPDK, no clock)
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "dataplane/frame/frame.h"
#include "dataplane/lane/probe_board.h"

namespace gradlane {

inline constexpr size_t kProbedClasses = 3;  // all classes except the host's

struct ProbeResult {
  unsigned node = 0;
  std::string address;
  bool arp = false;  // whether its MAC address is known
  unsigned sent = 0;
  unsigned answered = 0;
  Nanos rtt_min = 0;  // round trip of small probes; 0: none was answered
  Nanos rtt_median = 0;
  size_t full = 0;     // longest IP packet that the exchange sends
  bool tried = false;  // whether a probe of that length was sent
  size_t largest = 0;  // longest IP packet that is known to get there and back; 0: none
  bool sure = false;   // whether `largest` is the limit: longer packets get lost, while short ones are answered
  struct Tos {
    uint8_t sent = 0;
    bool answered = false;
    uint8_t there = 0;
    uint8_t back = 0;
  };
  std::array<Tos, kProbedClasses> tos;  // by TrafficClass
  std::optional<ProbeIdentity> theirs;
};

// Probes one neighbour, in one run at a time. The stages of a run are:
//   - It waits for the MAC address of the neighbour.
//   - It sends small probes (of the least length) of every ToS class, a round every 200 ms, until one is answered.
//   - It sends a few more small probes of classes that were not answered.
//   - It sends probes as long as the longest packets of the exchange.
//   - If none of these is answered, it searches for the longest length that is.
// Each round of the search tries a few lengths of the remaining interval. At the end, the shortest length without an
// answer is tried again. This is the search of RFC 8899, with the small probes as its base.
//
// A run with `length_only` sends two probes if all is well: one of 576 bytes, which any link of IP takes, and one of
// full length.
class ProbeRun {
 public:
  struct Setup {
    unsigned node = 0;
    std::string address{};
    const std::atomic<uint64_t>* mac = nullptr;  // MAC address of the neighbour; 0: not known
    std::array<uint8_t, kProbedClasses> tos{};
    size_t mtu = 0;       // MTU of IP
    size_t overhead = 0;  // bytes of an IP packet around the probe
    bool length_only = false;
  };
  ProbeRun(const Setup& setup, ProbeBoard& board) : setup_(setup), board_(board) {}

  // Starts a run. It ends after `most` at the latest, with the results so far. `nonce` must be random.
  void begin(Nanos now, Nanos most, uint64_t nonce);
  // Continues the run. Returns true if there are new probes. Then the worker that sends may be asleep and must be
  // woken.
  bool step(Nanos now);
  [[nodiscard]] bool running() const noexcept { return stage_ != Stage::kDone; }
  // Returns the result. It is complete when the run has ended.
  [[nodiscard]] const ProbeResult& result() const noexcept { return result_; }

 private:
  enum class Stage : uint8_t { kAddress, kSmall, kFull, kSearch, kDone };

  void enter(Stage stage, Nanos now);
  void start_round(Nanos now);
  void ask_small();
  void ask_full();
  void ask_lengths();
  void ask(TrafficClass traffic, size_t ip_bytes);
  [[nodiscard]] bool round_over(Nanos now) const noexcept;
  [[nodiscard]] bool collect();
  void note(size_t slot, const ProbeAnswer& answer);
  void next_stage(Nanos now);
  void narrow();
  void finish();
  [[nodiscard]] size_t small() const noexcept;
  [[nodiscard]] bool all_classes_answered() const noexcept;

  const Setup setup_;
  ProbeBoard& board_;
  Stage stage_ = Stage::kDone;
  ProbeResult result_;
  uint64_t nonce_ = 0;
  uint32_t turn_ = 0;  // number of rounds in all runs; makes ids differ from those of probes that may still be answered
  Nanos end_ = 0;
  Nanos round_end_ = 0;
  unsigned rounds_ = 0;  // number of rounds in this stage
  // The probes of this round. Slots [0, asked_) are in use.
  size_t asked_ = 0;
  struct Asked {
    TrafficClass traffic = TrafficClass::kControl;
    size_t ip_bytes = 0;
    bool cleared = false;
  };
  std::array<Asked, ProbeBoard::kSlots> asks_{};
  unsigned answers_ = 0;  // number of answers, except those to small probes
  bool small_answered_ = false;
  bool collecting_ = false;
  bool posted_ = false;
  size_t too_long_ = 0;  // kSearch: shortest length without an answer
  std::vector<Nanos> rtts_;
};

// Probes all neighbours of a node.
class Prober {
 public:
  // boards[i] is for the neighbour of setups[i]. The boards must outlive this object.
  Prober(const std::vector<ProbeRun::Setup>& setups, const std::vector<ProbeBoard*>& boards);

  // Starts a run for each neighbour. Does nothing while runs are in progress; their results serve this caller, too.
  void begin(Nanos now, Nanos most, uint64_t nonce);
  // Continues the runs. Returns the same as ProbeRun::step().
  bool step(Nanos now);
  [[nodiscard]] bool running() const noexcept;
  [[nodiscard]] std::vector<ProbeResult> results() const;

 private:
  std::vector<std::unique_ptr<ProbeRun>> runs_;
};

}  // namespace gradlane
