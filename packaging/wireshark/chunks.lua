-- chunks.lua - blocks of chunks, each with its own scale: onebit, qsgd, int8, fp8 (called by blocks.lua)
local numbers = ...
if not numbers then return end -- Wireshark also loads this file alone, without arguments
local chunks = {}

local rounded = numbers.rounded
local kLeastEscape = 2 -- least bits of a code in a chunk with values that are not finite
local sizes = { 256, 512, 1024 }

-- Returns a magnitude from 4 bits of exponent and 3 bits after the point. It is always finite.
local function e4m3(code)
  local power, rest = math.floor(code / 8) % 16, code % 8 / 8
  return power == 0 and rest * 2 ^ -6 or (1 + rest) * 2 ^ (power - 7)
end

-- heads: names of the floats in a chunk's header; bits: bits of a code, nil if they are the codec's parameter; value:
-- value of a code.
local kinds = {
  [16] = { heads = { "low", "high" }, bits = 1, value = function(code, low, high)
    return code == 1 and high or low
  end },
  [17] = { heads = { "half_least", "half_step" }, value = function(code, half_least, half_step)
    local half = rounded(rounded(code * half_step) + half_least)
    return rounded(half + half)
  end },
  [18] = { heads = { "step" }, bits = 8, value = function(code, step)
    return rounded((code >= 128 and code - 256 or code) * step)
  end },
  [19] = { heads = { "step" }, bits = 8, value = function(code, step)
    local size = rounded(e4m3(code % 128) * step)
    return code >= 128 and -math.abs(size) or size
  end },
}

-- Returns the bits of a code in the chunk at `at`, and whether its codes are those of numbers.special.
local function width(bytes, at, bits)
  local first = numbers.fp32_at(bytes, at)
  if first == first then return bits, false end
  return math.max(bits, kLeastEscape), true
end

-- Returns the length that all chunks together must have, or nil and what is wrong.
local function shape(bytes, n, head, bits, size)
  local at = 0
  for begin = 0, n - 1, size do
    if at + head > #bytes then return nil, "it ends within a chunk's header" end
    at = at + head + math.ceil(math.min(size, n - begin) * width(bytes, at, bits) / 8)
  end
  return at
end

-- Returns the number of floats of a chunk, or nil and what is wrong. size: that number if it is known; if it is nil,
-- the first possible number that fits the block is returned.
local function find_size(found, bytes, n, head, bits, size)
  local text
  for _, one in ipairs(size and { size } or sizes) do
    local wanted, wrong = shape(bytes, n, head, bits, one)
    wrong = wrong or found.length(bytes, wanted)
    if not wrong then return one end
    text = text or wrong
  end
  return nil, text
end

function chunks.may_have(size) return size == 256 or size == 512 or size == 1024 end
function chunks.has(id) return kinds[id] ~= nil end

-- Decodes a block. size: floats of a chunk; nil if unknown. Returns what is wrong, or nil.
function chunks.decode(found, bytes, n, id, param, size)
  local kind = kinds[id]
  local bits, head = kind.bits or param, 4 * #kind.heads
  local wrong
  size, wrong = find_size(found, bytes, n, head, bits, size)
  if wrong then return wrong end
  local heads = {}
  for i, name in ipairs(kind.heads) do
    heads[i] = numbers.fp32_at(bytes, 4 * (i - 1))
    found:field(name, 4 * (i - 1), 4)
  end
  local code_bits, escaped = width(bytes, 0, bits)
  found:field("codes", head, math.ceil(math.min(n, size) * code_bits / 8))
  for i = 0, math.min(n, found.most) - 1 do
    local code = numbers.bits(bytes, 8 * head + i * code_bits, code_bits)
    found:value(escaped and numbers.special[code % 4] or kind.value(code, (table.unpack or unpack)(heads)))
  end
end

return chunks
