// check_sum.h - zlib's crc32, as operations.py has it from there
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace gradlane::native {

constexpr std::array<uint32_t, 256> check_sum_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest & 1) != 0 ? rest >> 1 ^ 0xEDB88320u : rest >> 1;
    table[byte] = rest;
  }
  return table;
}

constexpr uint32_t check_sum(std::string_view text) {
  constexpr auto kTable = check_sum_table();
  uint32_t sum = ~0u;
  for (const char letter : text) sum = sum >> 8 ^ kTable[(sum ^ static_cast<unsigned char>(letter)) & 0xFF];
  return ~sum;
}

static_assert(check_sum("123456789") == 0xCBF43926u);

}  // namespace gradlane::native
