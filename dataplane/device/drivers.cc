// drivers.cc - cards and virtual devices, DPDK's drivers for them, and Debian's packages (control thread only)
#include "dataplane/device/drivers.h"

#include <dlfcn.h>
#include <rte_config.h>  // has RTE_EAL_PMD_PATH, the folder that EAL was built for
#include <rte_version.h>

#include <algorithm>
#include <cstdint>
#include <span>

namespace gradlane {
namespace {

// The ABI version in the names of libraries and packages. A release of November and the two after it have the same one.
constexpr unsigned kAbi = RTE_VER_YEAR + (RTE_VER_MONTH >= 11 ? 1 : 0);

// The drivers that are linked in by -Dstatic=true. Empty if EAL loads drivers from a folder.
constexpr std::string_view kBuiltIn = " " GRADLANE_BUILT_IN_DRIVERS " ";
constexpr bool kSharedDpdk = sizeof(GRADLANE_BUILT_IN_DRIVERS) == 1;

// Intel's cards, as the drivers of DPDK 22.11 list them.
constexpr uint16_t kE1000[] = {0x0438, 0x043a, 0x043c, 0x0440, 0x100e, 0x100f, 0x1010, 0x1011, 0x1012, 0x101d, 0x105e,
                               0x105f, 0x1060, 0x107d, 0x107e, 0x107f, 0x109a, 0x10a4, 0x10a5, 0x10a7, 0x10a9, 0x10b9,
                               0x10bc, 0x10c9, 0x10ca, 0x10d3, 0x10d5, 0x10d6, 0x10d9, 0x10da, 0x10e6, 0x10e7, 0x10e8,
                               0x10f6, 0x1502, 0x150a, 0x150c, 0x150d, 0x150e, 0x150f, 0x1510, 0x1511, 0x1516, 0x1518,
                               0x1520, 0x1521, 0x1522, 0x1523, 0x1524, 0x1526, 0x1527, 0x152d, 0x152f, 0x1533, 0x1534,
                               0x1535, 0x1536, 0x1537, 0x1538, 0x1539, 0x153a, 0x153b, 0x1546, 0x1559, 0x155a, 0x156f,
                               0x1570, 0x157b, 0x157c, 0x15a0, 0x15a1, 0x15a2, 0x15a3, 0x15b7, 0x15b8, 0x15b9, 0x15bb,
                               0x15bc, 0x15bd, 0x15be, 0x15d6, 0x15d7, 0x15d8, 0x15e3, 0x1f40, 0x1f41, 0x1f45};
constexpr uint16_t kIxgbe[] = {0x10b6, 0x10c6, 0x10c7, 0x10c8, 0x10db, 0x10dd, 0x10e1, 0x10ec, 0x10ed, 0x10f1,
                               0x10f4, 0x10f7, 0x10f8, 0x10f9, 0x10fb, 0x10fc, 0x1507, 0x1508, 0x150b, 0x1514,
                               0x1515, 0x1517, 0x151c, 0x1528, 0x1529, 0x152a, 0x152e, 0x1530, 0x154a, 0x154d,
                               0x1557, 0x1558, 0x155d, 0x1560, 0x1563, 0x1564, 0x1565, 0x15a8, 0x15a9, 0x15aa,
                               0x15ab, 0x15ac, 0x15ad, 0x15ae, 0x15b0, 0x15b4, 0x15c2, 0x15c3, 0x15c4, 0x15c5,
                               0x15c6, 0x15c7, 0x15c8, 0x15ca, 0x15cc, 0x15ce, 0x15d1, 0x15e4, 0x15e5};
constexpr uint16_t kI40e[] = {0x0cf8, 0x0d58, 0x101f, 0x104e, 0x104f, 0x1572, 0x1574, 0x1580, 0x1581,
                              0x1583, 0x1584, 0x1585, 0x1586, 0x1587, 0x1588, 0x1589, 0x158a, 0x158b,
                              0x15ff, 0x374c, 0x37ce, 0x37cf, 0x37d0, 0x37d1, 0x37d2, 0x37d3};
constexpr uint16_t kIavf[] = {0x154c, 0x1571, 0x1889, 0x374d, 0x37cd};
constexpr uint16_t kIce[] = {0x0dbd, 0x0dcd, 0x124c, 0x124d, 0x124e, 0x124f, 0x151d, 0x1591, 0x1592, 0x1593, 0x1599,
                             0x159a, 0x159b, 0x1888, 0x188a, 0x188b, 0x188c, 0x188d, 0x188e, 0x1890, 0x1891, 0x1892,
                             0x1893, 0x1894, 0x1897, 0x1898, 0x1899, 0x189a, 0x579c, 0x579d, 0x579e, 0x579f};
constexpr uint16_t kIgc[] = {0x0d9f, 0x125b, 0x125c, 0x125d, 0x125f, 0x15f2, 0x15f3, 0x15f8, 0x3100, 0x3102, 0x5503};
constexpr uint16_t kFm10k[] = {0x15a4, 0x15a5, 0x15d0};
constexpr uint16_t kIdpf[] = {0x1452};

struct IntelCards {
  const char* driver;
  std::span<const uint16_t> devices;
};
constexpr IntelCards kIntel[] = {
    {"net_e1000", kE1000}, {"net_ixgbe", kIxgbe}, {"net_i40e", kI40e},   {"net_iavf", kIavf},
    {"net_ice", kIce},     {"net_igc", kIgc},     {"net_fm10k", kFm10k}, {"net_idpf", kIdpf},
};

// Vendors whose cards have one driver, or two: devices with a number below `below` have the driver `other`.
struct Vendor {
  uint16_t vendor;
  const char* driver;
  uint16_t below = 0;
  const char* other = nullptr;
};
constexpr Vendor kVendors[] = {
    {0x1022, "net_axgbe"},
    {0x1077, "net_qede"},
    {0x10ee, "net_sfc"},
    {0x1137, "net_enic"},
    {0x1425, "net_cxgbe"},
    {0x14e4, "net_bnxt"},
    {0x15ad, "net_vmxnet3"},
    {0x15b3, "net_mlx5", 0x1010, "net_mlx4"},
    {0x177d, "net_cnxk"},
    {0x1924, "net_sfc"},
    {0x19e5, "net_hns3", 0xa000, "net_hinic"},
    {0x19ee, "net_nfp"},
    {0x1ae0, "net_gve"},
    {0x1af4, "net_virtio"},
    {0x1d0f, "net_ena"},
    {0x1d6a, "net_atlantic"},
    {0x1da8, "net_nfp"},
    {0x1dd8, "net_ionic"},
    {0x8088, "net_txgbe", 0x1000, "net_ngbe"},
};
constexpr uint16_t kIntelVendor = 0x8086;

// A prefix of the names of virtual devices, without the leading "net" or "eth", and their driver.
struct Named {
  const char* prefix;
  const char* driver;
};
constexpr Named kNamed[] = {
    {"_af_packet", "net_af_packet"}, {"_af_xdp", "net_af_xdp"},      {"_bonding", "net_bond"}, {"_memif", "net_memif"},
    {"_null", "net_null"},           {"_pcap", "net_pcap"},          {"_ring", "net_ring"},    {"_tap", "net_tap"},
    {"_vhost", "net_vhost"},         {"_virtio_user", "net_virtio"},
};

uint16_t hexadecimal(std::string_view text) {
  unsigned value = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'a' || c > 'f')) return 0;
    value = value << 4 | static_cast<unsigned>(digit ? c - '0' : c - 'a' + 10);
  }
  return static_cast<uint16_t>(value);
}

// Returns advice for a driver that is not linked into this program.
std::string of_a_shared_dpdk() {
  return "this program contains only the drivers " GRADLANE_BUILT_IN_DRIVERS
         "; a build with Debian's DPDK uses all drivers that are installed";
}

bool is_loaded(const std::string& library) {
  void* const handle = dlopen((library + ".so." + std::to_string(kAbi)).c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

// Returns the name of the driver's Debian package. A dash stands between a number at the end of the driver's name and
// the ABI version.
std::string package_of(const std::string& driver) {
  std::string name = "librte-" + driver;
  std::ranges::replace(name, '_', '-');
  const bool number = name.back() >= '0' && name.back() <= '9';
  return name + (number ? "-" : "") + std::to_string(kAbi);
}

}  // namespace

std::string driver_of_card(std::string_view ids) {
  const size_t colon = ids.find(':');
  if (colon == std::string_view::npos) return "";
  const uint16_t vendor = hexadecimal(ids.substr(0, colon));
  const uint16_t device = hexadecimal(ids.substr(colon + 1));
  if (vendor == kIntelVendor) {
    for (const IntelCards& it : kIntel) {
      if (std::ranges::find(it.devices, device) != it.devices.end()) return it.driver;
    }
    return "";  // newer than the list; DPDK may know it
  }
  for (const Vendor& it : kVendors) {
    if (it.vendor == vendor) return device < it.below ? it.other : it.driver;
  }
  return "";
}

bool may_be_e1000(std::string_view ids) {
  const std::string driver = driver_of_card(ids);
  return driver == "net_e1000" ||
         (driver.empty() && ids.find(':') != ids.npos && hexadecimal(ids.substr(0, ids.find(':'))) == kIntelVendor);
}

std::string driver_of_device(std::string_view devargs) {
  // Device names may also have the older prefix eth_.
  if (!devargs.starts_with("net_") && !devargs.starts_with("eth_")) return "";
  for (const Named& it : kNamed) {
    if (devargs.substr(3).starts_with(it.prefix)) return it.driver;
  }
  return "";
}

bool driver_loaded(const std::string& driver) {
  return kSharedDpdk ? is_loaded("librte_" + driver) : kBuiltIn.find(" " + driver + " ") != kBuiltIn.npos;
}

std::string missing_driver(const std::string& driver) {
  if (!kSharedDpdk) return "there is no DPDK driver " + driver + ": " + of_a_shared_dpdk();
  return "DPDK's driver librte_" + driver + ".so is not in " RTE_EAL_PMD_PATH ": on Debian, apt install " +
         package_of(driver);
}

std::string all_drivers() {
  if (!kSharedDpdk) return of_a_shared_dpdk();
  return "DPDK loads its drivers from " RTE_EAL_PMD_PATH "; on Debian, librte-meta-net installs all of them";
}

}  // namespace gradlane
