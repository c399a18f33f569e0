// address_table.h - which of some hundred addresses a packet comes from, found in one look (worker thread)
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gradlane {

// Numbers of addresses, by hash. At most a quarter of its places are taken, so that even an address that is not there
// is seldom compared with more than one. Fixed at construction.
class AddressTable {
 public:
  static constexpr size_t kNone = ~size_t{0};

  // All different; the number of an address is its place among these.
  explicit AddressTable(std::span<const uint32_t> addresses)
      : places_(std::bit_ceil(4 * addresses.size() + 4)), shift_(32 - std::countr_zero(places_.size())) {
    for (size_t i = 0; i < addresses.size(); ++i) {
      size_t at = first_of(addresses[i]);
      while (places_[at].number != 0) at = after(at);
      places_[at] = {addresses[i], static_cast<uint32_t>(i + 1)};
    }
  }

  // kNone: it is none of them.
  [[nodiscard]] size_t find(uint32_t address) const noexcept {
    size_t at = first_of(address);
    while (places_[at].number != 0 && places_[at].address != address) at = after(at);
    return size_t{places_[at].number} - 1;
  }

 private:
  struct Place {
    uint32_t address = 0;
    uint32_t number = 0;  // from 1 on; 0: free
  };

  // Addresses of a network follow one another: multiplication spreads them (Knuth, The Art of Computer Programming,
  // 6.4).
  [[nodiscard]] size_t first_of(uint32_t address) const noexcept { return (address * 0x9e3779b1U) >> shift_; }
  [[nodiscard]] size_t after(size_t at) const noexcept { return (at + 1) & (places_.size() - 1); }

  std::vector<Place> places_;
  int shift_;
};

}  // namespace gradlane
