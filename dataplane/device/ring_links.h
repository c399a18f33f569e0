// ring_links.h - links between nodes of one process: rings of packets (control thread only)
#pragma once

#include <map>
#include <string>
#include <vector>

struct rte_ring;

namespace gradlane {

// Named links inside the process. Two nodes of the process that name the same link get its two ends.
class RingLinks {
 public:
  ~RingLinks();
  // The rx and tx rings of one end, one per lane. attach() throws SetupError for a third end, or if the two ends have
  // different numbers of lanes.
  struct End {
    std::vector<rte_ring*> rx, tx;
  };
  [[nodiscard]] End attach(const std::string& name, unsigned lanes);
  void check_all_have_two_ends() const;
  // Frees packets that are still in the rings. Their pools must still exist.
  void drain() noexcept;

 private:
  struct Link {
    unsigned ends = 0;
    std::vector<rte_ring*> there, back;
  };
  std::map<std::string, Link> links_;
};

}  // namespace gradlane
