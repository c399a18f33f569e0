// ring_links.cc - making and draining links between nodes of one process (control thread only)
#include "dataplane/device/ring_links.h"

#include <rte_mbuf.h>
#include <rte_ring.h>

#include "base/error.h"

namespace gradlane {
namespace {

constexpr unsigned kRingPackets = 512;

}  // namespace

RingLinks::~RingLinks() {
  for (auto& [name, link] : links_) {
    for (const auto& rings : {link.there, link.back}) {
      for (rte_ring* const ring : rings) rte_ring_free(ring);
    }
  }
}

void RingLinks::drain() noexcept {
  for (auto& [name, link] : links_) {
    for (const auto& rings : {&link.there, &link.back}) {
      for (rte_ring* const ring : *rings) {
        for (void* packet = nullptr; rte_ring_dequeue(ring, &packet) == 0;) {
          rte_pktmbuf_free(static_cast<rte_mbuf*>(packet));
        }
      }
    }
  }
}

RingLinks::End RingLinks::attach(const std::string& name, unsigned lanes) {
  Link& link = links_[name];
  if (link.ends == 2)
    throw SetupError("ring '" + name + "' has two ends already: set another `ring` name for this port");
  if (link.ends == 1 && link.there.size() != lanes) {
    throw SetupError("ring '" + name + "' has " + std::to_string(link.there.size()) +
                     " lanes on its other end, but workers.lanes is " + std::to_string(lanes) + " here");
  }
  if (++link.ends == 1) {
    for (unsigned lane = 0; lane < lanes; ++lane) {
      for (auto* const rings : {&link.there, &link.back}) {
        const std::string unique = name.substr(0, 16) + (rings == &link.there ? ">" : "<") + std::to_string(lane) +
                                   "." + std::to_string(links_.size());
        rte_ring* const ring =
            rte_ring_create(unique.c_str(), kRingPackets, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
        if (ring == nullptr) throw SetupError("no memory for ring '" + name + "'");
        rings->push_back(ring);
      }
    }
    return {link.back, link.there};
  }
  return {link.there, link.back};
}

void RingLinks::check_all_have_two_ends() const {
  for (const auto& [name, link] : links_) {
    if (link.ends == 2) continue;
    throw SetupError("ring '" + name +
                     "' has only one end: the other end must be a port of another node of this process; " +
                     "start gradlaned with a --config for each node");
  }
}

}  // namespace gradlane
