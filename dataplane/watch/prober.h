// prober.h - finds out what the way to each neighbour is like, by probes (control thread; no DPDK, no clock)
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

inline constexpr size_t kProbedClasses = 3;  // all but the host's

struct ProbeResult {
  unsigned node = 0;
  std::string address;
  bool arp = false;  // its MAC address is known
  unsigned sent = 0;
  unsigned answered = 0;
  Nanos rtt_min = 0;  // of small probes; 0: none was answered
  Nanos rtt_median = 0;
  size_t full = 0;     // the longest IP packet that the exchange sends,
  bool tried = false;  //   whether it was tried,
  size_t largest = 0;  //   and the longest that got there and back, as far as is known; 0: none
  bool sure = false;   // that is the longest there is: anything longer gets lost, while short ones are answered
  struct Tos {
    uint8_t sent = 0;
    bool answered = false;
    uint8_t there = 0;
    uint8_t back = 0;
  };
  std::array<Tos, kProbedClasses> tos;  // by TrafficClass
  std::optional<ProbeIdentity> theirs;
};

// One neighbour, one run at a time. A run waits for the neighbour's address; sends small probes of every ToS class, a
// round every 200 ms until one is answered, and then some more for classes that are not; then probes as long as the
// exchange's packets may be, and if none of those is answered, looks for the longest that is, trying a few lengths of
// the interval at a time; what it finds it tries once more. This is the search of RFC 8899, whose base are the small
// probes.
//
// One that asks for the length only sends two probes where all is well: one of 576 bytes, which any link of IP takes,
// and one of full length.
class ProbeRun {
 public:
  struct Setup {
    unsigned node = 0;
    std::string address{};
    const std::atomic<uint64_t>* mac = nullptr;  // 0: not known
    std::array<uint8_t, kProbedClasses> tos{};
    size_t mtu = 0;       // of IP
    size_t overhead = 0;  // bytes of an IP packet around the probe
    bool length_only = false;
  };
  ProbeRun(const Setup& setup, ProbeBoard& board) : setup_(setup), board_(board) {}

  // `nonce` is random. Ends after `most`, whatever is known then.
  void begin(Nanos now, Nanos most, uint64_t nonce);
  // True: there are new probes, which the worker that sends may sleep over.
  bool step(Nanos now);
  [[nodiscard]] bool running() const noexcept { return stage_ != Stage::kDone; }
  // Complete when it does not run any more.
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
  uint32_t turn_ = 0;  // counts rounds of all runs, so that no id is that of a probe that may still be answered
  Nanos end_ = 0;
  Nanos round_end_ = 0;
  unsigned rounds_ = 0;  // of this stage
  // Of this round; slots [0, asked_) are in use.
  size_t asked_ = 0;
  struct Asked {
    TrafficClass traffic = TrafficClass::kControl;
    size_t ip_bytes = 0;
    bool cleared = false;
  };
  std::array<Asked, ProbeBoard::kSlots> asks_{};
  unsigned answers_ = 0;  // but to small ones
  bool small_answered_ = false;
  bool collecting_ = false;
  bool posted_ = false;
  size_t too_long_ = 0;  // kSearch: the shortest that did not pass
  std::vector<Nanos> rtts_;
};

// All neighbours of a node.
class Prober {
 public:
  // boards[i] belongs to the neighbour of setups[i]; they outlive this.
  Prober(const std::vector<ProbeRun::Setup>& setups, const std::vector<ProbeBoard*>& boards);

  // Starts a run, unless one is on its way: then its results are those of this one.
  void begin(Nanos now, Nanos most, uint64_t nonce);
  // True: as that of a run.
  bool step(Nanos now);
  [[nodiscard]] bool running() const noexcept;
  [[nodiscard]] std::vector<ProbeResult> results() const;

 private:
  std::vector<std::unique_ptr<ProbeRun>> runs_;
};

}  // namespace gradlane
