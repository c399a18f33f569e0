// daemon_facts.cc - facts about a daemon that a calibration needs, from its admin socket (main thread)
#include "tools/calibrate/daemon_facts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "collectives/cost/calibration.h"
#include "tools/admin/client.h"
#include "tools/admin/json_fields.h"

namespace gradlane {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kPatience{5000};
constexpr double kMicro = 1e-6;
constexpr double kMegabit = 1e6 / 8;

double real_at(const json& of, const char* key) {
  const auto found = of.find(key);
  return of.is_object() && found != of.end() && found->is_number() ? found->get<double>() : 0;
}

// Returns the kind of port for the planner's usual figures; for kinds that have none, the driver's name.
std::string kind_of(const json& port) {
  const std::string driver = text_at(port, "driver");
  if (driver == "net_af_packet" || driver == "net_af_xdp") return plan_port_name(PlanPort::kPackets);
  for (const char* const name : {"vhost", "virtio_user", "memif", "ring"}) {
    if (driver.find(name) != driver.npos) return name;
  }
  return plan_port_name(driver.empty() ? PlanPort::kUdp : PlanPort::kCard);
}

// Returns the path of the admin socket. If both sockets are given, it is `admin`, which then is not beside `socket`.
std::string path_of(const std::string& socket, const std::string& admin) {
  AdminPlace place;
  place.admin = admin;
  if (admin.empty()) place.socket = socket;
  return admin_path(place);
}

}  // namespace

DaemonView::DaemonView(const std::string& socket, const std::string& admin) : path_(path_of(socket, admin)) {}

DaemonFacts facts_of(const json& document) {
  DaemonFacts facts;
  facts.node = static_cast<unsigned>(number_at(document, "node"));
  facts.nodes = static_cast<unsigned>(number_at(document, "nodes"));
  facts.trainers = static_cast<unsigned>(number_at(document, "trainers"));
  facts.mtu = real_at(document, "mtu");
  double slowest = std::numeric_limits<double>::infinity();
  for (const json& port : list_at(document, "ports")) {
    facts.port = kind_of(port);
    // The speeds that other devices report are not real.
    const bool card = facts.port == plan_port_name(PlanPort::kCard);
    slowest = std::min(slowest, card ? kMegabit * real_at(port, "speed_mbps") : 0);
  }
  if (std::isfinite(slowest)) facts.speed = slowest;
  const json workers = list_at(document, "workers");
  for (const json& worker : workers) facts.busy.push_back(kMicro * real_at(worker, "busy_us"));
  for (const json& each : list_at(document, "table")) facts.reach.push_back(text_at(each, "reach"));
  facts.workers = std::max(1U, static_cast<unsigned>(workers.size()));
  return facts;
}

DaemonFacts DaemonView::facts() const { return facts_of(ask_admin(path_, "stats", kPatience)); }

std::vector<double> DaemonView::round_trips(unsigned nodes) const {
  std::vector<double> times(nodes, 0.0);
  const json document = ask_admin(path_, "probe 2000", kPatience);
  for (const json& probe : list_at(document, "probes")) {
    const uint64_t node = number_at(probe, "node");
    if (node < nodes) times[node] = kMicro * real_at(object_at(probe, "rtt_us"), "min");
  }
  return times;
}

}  // namespace gradlane
