// address_table_test.cc - addresses of neighbours are found, all others are not
#include "dataplane/lane/address_table.h"

#include <gtest/gtest.h>

namespace gradlane::test::address_table_test {
namespace {

void check(const std::vector<uint32_t>& addresses) {
  const AddressTable table(addresses);
  for (size_t i = 0; i < addresses.size(); ++i) EXPECT_EQ(table.find(addresses[i]), i);
  for (const uint32_t other : {0U, 1U, 0x0a4d0000U, 0x0a4dffffU, 0xffffffffU}) {
    EXPECT_EQ(table.find(other), AddressTable::kNone) << other;
  }
}

TEST(AddressTable, FindsEachAndNoOther) {
  for (const uint32_t count : {0U, 1U, 2U, 3U, 16U, 255U}) {
    for (const uint32_t apart : {1U, 2U, 256U}) {
      std::vector<uint32_t> addresses;
      for (uint32_t i = 0; i < count; ++i) addresses.push_back(0x0a4d0001 + i * apart);
      check(addresses);
    }
  }
}

// Most searches start in the last 6 slots of the table and continue at its beginning. There they pass addresses whose
// search starts at slot 3.
TEST(AddressTable, FindsThoseThatCollide) {
  const auto place = [](uint32_t address) { return (address * 0x9e3779b1U) >> 24; };  // of 256 places
  std::vector<uint32_t> addresses;
  for (uint32_t address = 0x0b000000; addresses.size() < 60; ++address) {
    if (place(address) >= 250 || place(address) == 3) addresses.push_back(address);
  }
  check(addresses);
}

}  // namespace
}  // namespace gradlane::test::address_table_test
