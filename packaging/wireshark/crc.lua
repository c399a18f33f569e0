-- crc.lua - CRC32C of gradlane's packets (no side effects)
local crc = {}

-- Lua 5.2 has no operator for xor. Lua 5.3 and later may not have the library bit32.
local xor = bit32 and bit32.bxor or load("return function(a, b) return a ~ b end")()

local row = {}
for i = 0, 255 do
  local value = i
  for _ = 1, 8 do
    value = value % 2 == 1 and xor(math.floor(value / 2), 0x82f63b78) or math.floor(value / 2)
  end
  row[i] = math.floor(value)
end

-- Returns the state after these bytes of a string. The state before the first byte is 0xffffffff. The CRC is the
-- complement of the last state.
local function extend(state, bytes, first, last)
  local floor = math.floor
  for i = first, last do
    state = xor(row[xor(state % 256, bytes:byte(i))], floor(state / 256))
  end
  return state
end

-- Finds the length of a packet by its CRC. The CRC covers the bytes after the header of 44 bytes, and then the header
-- up to the CRC itself. Returns the first of these lengths with a right CRC, or nil.
--   bytes:   a string
--   at:      position of the packet in it, from 1 on
--   lengths: possible lengths, in ascending order
function crc.length(bytes, at, lengths)
  local state, done = 0xffffffff, at + 44
  local b1, b2, b3, b4 = bytes:byte(at + 40, at + 43)
  local wanted = b1 + 256 * b2 + 65536 * b3 + 16777216 * b4
  for _, length in ipairs(lengths) do
    state = extend(state, bytes, done, at + length - 1)
    done = at + length
    if xor(extend(state, bytes, at, at + 39), 0xffffffff) == wanted then return length end
  end
  return nil
end

-- Returns the CRC that a packet of that length must have.
function crc.compute(bytes, at, length)
  return xor(extend(extend(0xffffffff, bytes, at + 44, at + length - 1), bytes, at, at + 39), 0xffffffff)
end

-- Returns the CRC of a string.
function crc.of(bytes) return xor(extend(0xffffffff, bytes, 1, #bytes), 0xffffffff) end

return crc
