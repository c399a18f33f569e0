// crc32c.cc - CRC32C by ISA-L (packet path)
#include "collectives/crc32c.h"

#include <isa-l/crc.h>

namespace gradlane {

uint32_t crc32c(uint32_t state, const uint8_t* data, size_t bytes) noexcept {
  // ISA-L takes an int and a pointer that it does not write through.
  return crc32_iscsi(const_cast<uint8_t*>(data), static_cast<int>(bytes), state);
}

}  // namespace gradlane
