// address_table.h - a table that finds a packet's sender among some hundred addresses, in one lookup (worker thread)
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gradlane {

// A hash table from addresses to their numbers. It has at least four slots per address. So an address is seldom
// compared with more than one entry, even if it is not in the table. The table is fixed at construction.
class AddressTable {
 public:
  static constexpr size_t kNone = ~size_t{0};

  // The addresses must all be different. The number of an address is its index here.
  explicit AddressTable(std::span<const uint32_t> addresses)
      : places_(std::bit_ceil(4 * addresses.size() + 4)), shift_(32 - std::countr_zero(places_.size())) {
    for (size_t i = 0; i < addresses.size(); ++i) {
      size_t at = first_of(addresses[i]);
      while (places_[at].number != 0) at = after(at);
      places_[at] = {addresses[i], static_cast<uint32_t>(i + 1)};
    }
  }

  // Returns the number of an address; kNone if it is not in the table.
  [[nodiscard]] size_t find(uint32_t address) const noexcept {
    size_t at = first_of(address);
    while (places_[at].number != 0 && places_[at].address != address) at = after(at);
    return size_t{places_[at].number} - 1;
  }

 private:
  struct Place {
    uint32_t address = 0;
    uint32_t number = 0;  // number of the address plus 1; 0: free slot
  };

  // Addresses of a network follow one another: multiplication spreads them (Knuth, The Art of Computer Programming,
  // 6.4).
  [[nodiscard]] size_t first_of(uint32_t address) const noexcept { return (address * 0x9e3779b1U) >> shift_; }
  [[nodiscard]] size_t after(size_t at) const noexcept { return (at + 1) & (places_.size() - 1); }

  std::vector<Place> places_;
  int shift_;
};

}  // namespace gradlane
