-- numbers.lua - bits, integers and floats in strings of bytes (no side effects)
--
-- Offsets count from 0, in bytes or in bits. The lowest bit of a byte comes first. Integers are little-endian.
local numbers = {}

local floor, abs, inf = math.floor, math.abs, math.huge
local nan = abs(0 / 0) -- written as "nan" and not as "-nan"
-- values by code, in blocks or chunks that also have values that are not finite
numbers.special = { [0] = 0, [1] = inf, [2] = -inf, [3] = nan }

function numbers.bit(value, i) return floor(value / 2 ^ i) % 2 end

-- Returns an integer of `count` bytes, up to 6.
function numbers.unsigned(bytes, at, count)
  local value = 0
  for i = at + count, at + 1, -1 do value = 256 * value + bytes:byte(i) end
  return value
end

-- Returns an integer of `count` bits, up to 40.
function numbers.bits(bytes, first, count)
  local at, skipped = floor(first / 8), first % 8
  return floor(numbers.unsigned(bytes, at, math.ceil((skipped + count) / 8)) / 2 ^ skipped) % 2 ^ count
end

-- Converts an IEEE 754 number with 1 sign bit, `exponent` and `fraction` bits to a number of Lua.
function numbers.ieee(bits, exponent, fraction)
  local sign = numbers.bit(bits, exponent + fraction) == 1 and -1 or 1
  local power, bias = floor(bits / 2 ^ fraction) % 2 ^ exponent, 2 ^ (exponent - 1) - 1
  local rest = bits % 2 ^ fraction / 2 ^ fraction
  if power == 2 ^ exponent - 1 then return rest == 0 and sign * inf or nan end
  if power == 0 then return sign * rest * 2 ^ (1 - bias) end
  return sign * (1 + rest) * 2 ^ (power - bias)
end

function numbers.fp32(bits) return numbers.ieee(bits, 8, 23) end

function numbers.fp32_at(bytes, at) return numbers.fp32(numbers.unsigned(bytes, at, 4)) end

-- Returns the exponent of the greatest power of two that is not above a finite number above 0, as ilogb() of C does.
function numbers.exponent(value)
  local exponent = floor(math.log(value) / math.log(2))
  if 2 ^ exponent > value then return exponent - 1 end
  return 2 ^ (exponent + 1) <= value and exponent + 1 or exponent
end

-- Rounds to the nearest fp32, ties to even. So a sum or product of two fp32 values is the same as in fp32 arithmetic.
function numbers.rounded(value)
  local size = abs(value)
  if size == 0 or size == inf or size ~= size then return value end
  local ulp = 2 ^ (math.max(numbers.exponent(size), -126) - 23)
  size = (size / ulp + 2 ^ 52 - 2 ^ 52) * ulp
  if size >= 2 ^ 128 then size = inf end
  return value < 0 and -size or size
end

return numbers
