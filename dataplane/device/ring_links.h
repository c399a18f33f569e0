// ring_links.h - links between nodes of one process: rings of packets (control thread only)
#pragma once

#include <map>
#include <string>
#include <vector>

struct rte_ring;

namespace gradlane {

// In-process links by name: two nodes of the process that name the same one get its two ends.
class RingLinks {
 public:
  ~RingLinks();
  // rx and tx rings of one end, one per lane. Throws SetupError for a third end, or another number of lanes.
  struct End {
    std::vector<rte_ring*> rx, tx;
  };
  [[nodiscard]] End attach(const std::string& name, unsigned lanes);
  void check_all_have_two_ends() const;
  // Gives back packets on their way, while their pools are still there.
  void drain() noexcept;

 private:
  struct Link {
    unsigned ends = 0;
    std::vector<rte_ring*> there, back;
  };
  std::map<std::string, Link> links_;
};

}  // namespace gradlane
