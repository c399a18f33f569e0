-- planes.lua - blocks in bit planes: fixed, terngrad, tbq (called by blocks.lua)
local numbers = ...
if not numbers then return end -- Wireshark also loads this file alone, without arguments
local planes = {}

local kGroup, kEscaped, kEscapeBytes, kMostPlanes = 32, 15, 5, 16

local function tag_of(bytes, group)
  return math.floor(bytes:byte(math.floor(group / 2) + 1) / (group % 2 == 0 and 1 or 16)) % 16
end

-- Returns the escape that ends `back` bytes before the end: number of planes, number and mask of raw floats, offset.
local function escape_of(bytes, back)
  local at, raw = #bytes - back - kEscapeBytes, 0
  local mask = numbers.unsigned(bytes, at + 1, 4)
  for i = 0, kGroup - 1 do raw = raw + numbers.bit(mask, i) end
  return bytes:byte(at + 1), raw, mask, at
end

-- Returns the length that the block must have, or nil and what is wrong. The third result describes the first group:
-- {tag, width, mask, escape: offset of its escape or nil, payload: offset of the planes}.
local function shape(bytes, n)
  local groups = math.ceil(n / kGroup)
  local tags = math.ceil(groups / 2)
  local wanted, escapes, first = tags, 0, nil
  if #bytes < tags then return nil, "it ends within its tags" end
  if groups % 2 == 1 and bytes:byte(tags) >= 16 then return nil, "a tag behind the last group" end
  for group = 0, groups - 1 do
    local width, raw, mask, at = tag_of(bytes, group), 0, 0, nil
    local tag = width
    if tag == kEscaped then
      if #bytes < tags + kEscapeBytes * (escapes + 1) then return nil, "it ends within its escapes" end
      width, raw, mask, at = escape_of(bytes, kEscapeBytes * escapes)
      escapes = escapes + 1
      if width > kMostPlanes or width + raw > kGroup then return nil, "an invalid escape" end
      if mask >= 2 ^ math.min(kGroup, n - kGroup * group) then return nil, "an escape behind the last float" end
      wanted = wanted + kEscapeBytes
    end
    wanted = wanted + 4 * (width + raw)
    first = first or { tag = tag, width = width, mask = mask, escape = at, payload = tags }
  end
  return wanted, nil, first
end

-- Decodes a block. step: step of the lattice; nil if unknown, then values are counts of steps. Returns what is wrong,
-- or nil.
function planes.decode(found, bytes, n, step)
  local wanted, wrong, first = shape(bytes, n)
  wrong = wrong or found.length(bytes, wanted)
  if wrong then return wrong end
  found:field("tag", 0, 1, first.tag)
  if first.escape then
    found:field("planes", first.escape, 1, first.width)
    found:field("raw", first.escape + 1, 4, first.mask)
  end
  for plane = 0, first.width - 1 do found:field("plane", first.payload + 4 * plane, 4) end
  local raw = first.payload + 4 * first.width
  for i = 0, math.min(n, found.most) - 1 do
    if numbers.bit(first.mask, i) == 1 then
      found:value(numbers.fp32_at(bytes, raw))
      raw = raw + 4
    else
      local q = 0
      for plane = 0, first.width - 1 do
        local worth = (plane == first.width - 1 and -1 or 1) * 2 ^ plane
        q = q + numbers.bits(bytes, 8 * (first.payload + 4 * plane) + i, 1) * worth
      end
      if step then found:value(q * step) else found:steps(q) end
    end
  end
end

return planes
