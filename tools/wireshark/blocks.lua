-- blocks.lua - blocks of codecs: whether they are as long as they should be, and their first floats (no side effects)
--
-- docs/codec-format.md has the bytes. A block is a TvbRange, its codec an id and a parameter byte, n its floats.
local blocks = {}

local floor, inf = math.floor, math.huge
local kGroup = 32  -- floats that are shown at most

local function bit(value, i) return floor(value / 2 ^ i) % 2 end

-- IEEE 754 of 1 sign, `exponent` and `fraction` bits, as a number of Lua's.
local function ieee(bits, exponent, fraction)
  local sign = bit(bits, exponent + fraction) == 1 and -1 or 1
  local power, bias = floor(bits / 2 ^ fraction) % 2 ^ exponent, 2 ^ (exponent - 1) - 1
  local rest = bits % 2 ^ fraction / 2 ^ fraction
  if power == 2 ^ exponent - 1 then return rest == 0 and sign * inf or 0 / 0 end
  if power == 0 then return sign * rest * 2 ^ (1 - bias) end
  return sign * (1 + rest) * 2 ^ (power - bias)
end

local function fp32(bits) return ieee(bits, 8, 23) end

local function word(range, at) return range(at, 4):le_uint() end

-- Of codecs with a width: nil if it is right, or what is wrong.
local function wrong_length(range, wanted)
  if range:len() ~= wanted then return string.format("%d bytes in place of %d", range:len(), wanted) end
end

local function values(range, n, bytes, value)
  local found = {}
  for i = 0, math.min(n, kGroup, floor(range:len() / bytes)) - 1 do found[i + 1] = value(range(bytes * i, bytes)) end
  return found
end

-- Elements as they are: raw float32, and other types.
local elements = {
  [0] = { 4, function(r) return fp32(r:le_uint()) end },
  [1] = { 8, function(r) return r:le_float() end },
  [2] = { 2, function(r) return ieee(r:le_uint(), 5, 10) end },
  [3] = { 2, function(r) return ieee(r:le_uint(), 8, 7) end },
  [4] = { 4, function(r) return r:le_int() end },
  [5] = { 8, function(r) return r:le_int64():tonumber() end },
  [6] = { 1, function(r) return r:uint() end },
}

function blocks.elements(range, n, type)
  local bytes, value = elements[type][1], elements[type][2]
  return values(range, n, bytes, value), wrong_length(range, bytes * n)
end

-- ---- Bit planes

-- How wide the planes of each group are and which of its floats are raw: what is wrong, or nil; and both of the first.
local function plane_shape(range, n)
  local groups = math.ceil(n / 32)
  local tags = math.ceil(groups / 2)
  local wanted, escapes, width, mask = tags, 0, 0, 0
  if range:len() < tags then return "it ends within its tags" end
  for group = 0, groups - 1 do
    local tag = floor(range(floor(group / 2), 1):uint() / (group % 2 == 0 and 1 or 16)) % 16
    local planes, raw, which = tag, 0, 0
    if tag == 15 then
      escapes = escapes + 1
      if range:len() < tags + 5 * escapes then return "it ends within its escapes" end
      local at = range:len() - 5 * escapes
      planes, which = range(at, 1):uint(), word(range, at + 1)
      for i = 0, 31 do raw = raw + bit(which, i) end
      if planes > 16 or planes + raw > 32 then return "an escape that cannot be" end
      wanted = wanted + 5
    end
    wanted = wanted + 4 * (planes + raw)
    if group == 0 then width, mask = planes, which end
  end
  return wrong_length(range, wanted), width, mask, tags
end

-- In steps, if nobody knows how long one is.
local function planes(range, n, step)
  local wrong, width, mask, at = plane_shape(range, n)
  if wrong then return {}, wrong end
  local found, raw = {}, at + 4 * width
  for i = 0, math.min(n, kGroup) - 1 do
    if bit(mask, i) == 1 then
      found[i + 1] = fp32(word(range, raw))
      raw = raw + 4
    else
      local q = 0
      for plane = 0, width - 1 do
        q = q + bit(word(range, at + 4 * plane), i) * (plane == width - 1 and -1 or 1) * 2 ^ plane
      end
      found[i + 1] = q * step
    end
  end
  return found, nil
end

-- ---- Tagged

local tag_bytes = { [0] = 0, [1] = 1, [2] = 2, [3] = 4 }

local function tagged(range, n, param)
  local groups, found = math.ceil(n / 32), {}
  if range:len() < 8 * groups then return {}, "it ends within its tags" end
  local at, half = 8 * groups, floor(param % 128 / 2)
  for i = 0, n - 1 do
    local tag = floor(range(floor(i / 4), 1):uint() / 4 ^ (i % 4)) % 4
    if at + tag_bytes[tag] > range:len() then return {}, "it ends within its floats" end
    if i < kGroup then
      local code = tag == 0 and 0 or range(at, tag_bytes[tag]):le_uint()
      if tag == 3 then
        found[i + 1] = fp32(code)
      elseif tag == 2 then
        found[i + 1] = (code >= 32768 and -1 or 1) * (code % 32768) * 2 ^ -15
      else
        found[i + 1] = (code >= 128 and -1 or 1) * (code % 128) * 2 ^ -(7 + half)
      end
    end
    at = at + tag_bytes[tag]
  end
  return found, wrong_length(range, at)
end

-- ---- Bits of floats

local function truncated(range, n, bits)
  local wrong, found = wrong_length(range, math.ceil(n * bits / 8)), {}
  for i = 0, wrong and -1 or math.min(n, kGroup) - 1 do
    local code = 0
    for j = 0, bits - 1 do
      code = code + bit(range(floor((i * bits + j) / 8), 1):uint(), (i * bits + j) % 8) * 2 ^ j
    end
    found[i + 1] = fp32(code * 2 ^ (32 - bits))
  end
  return found, wrong
end

-- ---- All of them

local decoders = {
  [0] = function(range, n) return blocks.elements(range, n, 0) end,
  [1] = function(range, n) return blocks.elements(range, n, 3) end,
  [2] = function(range, n) return blocks.elements(range, n, 2) end,
  [3] = tagged,
  [4] = function(range, n, b) return planes(range, n, 2 ^ (1 - b)) end,
  [5] = function(range, n, b) return planes(range, n, 2 ^ (1 - b)) end,
  [6] = function(range, n) return planes(range, n, 1) end,
  [7] = function(range, n) return planes(range, n, 1) end,
  [8] = function(range, n, b) return planes(range, n, 2 ^ -b) end,
  [20] = truncated,
}

-- Steps of these follow from what the ranks have agreed on: their numbers are counts of steps.
blocks.in_steps = { [6] = true, [7] = true }

-- Its first floats, 32 at most, and what is wrong with the block, or nil. Nothing of codecs that are not known here.
function blocks.decode(range, n, codec, param)
  local decode = decoders[codec]
  if not decode or n == 0 then return {}, nil end
  return decode(range, n, param)
end

return blocks
