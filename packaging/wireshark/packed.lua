-- packed.lua - blocks of packed floats: pack (called by blocks.lua)
local numbers = ...
if not numbers then return end -- Wireshark also loads this file alone, without arguments
local packed = {}

local kGroup = 32
local kZeros, kPlain, kMaskBit, kLowBit = 0x40, 0x20, 3, 4 -- heads of groups without a base, bits M and D of others
local kHead, kBase, kMask = 1, 1, 4 -- bytes

-- The types of elements: bytes of one, bits of its exponent and of its mantissa, planes of the lowest of these, and
-- bytes of the other ones with the sign.
local types = {
  [0] = { width = 4, exponent = 8, fraction = 23, low = 0, rest = 3 },
  [2] = { width = 2, exponent = 5, fraction = 10, low = 3, rest = 1 },
  [3] = { width = 2, exponent = 8, fraction = 7, low = 0, rest = 1 },
}

-- Returns the group of `floats` elements at `at`, or nil and what is wrong.
local function open(bytes, at, floats, type)
  if at >= #bytes then return nil, "it ends before a head" end
  local head = bytes:byte(at + 1)
  local group = { at = at, head = head, mask = 2 ^ floats - 1, sent = floats, stop = at + kHead }
  if head == kPlain then
    group.stop = group.stop + type.width * floats
  elseif head ~= kZeros then
    group.planes, group.low = head % 8, numbers.bit(head, kLowBit) == 1
    if head >= 32 or group.low and group.planes == 0 then return nil, "an invalid head" end
    group.first = at + kHead + kBase
    if numbers.bit(head, kMaskBit) == 1 then
      if group.first + kMask > #bytes then return nil, "it ends within a mask" end
      group.mask, group.sent, group.first = numbers.unsigned(bytes, group.first, kMask), 0, group.first + kMask
      for i = 0, kGroup - 1 do group.sent = group.sent + numbers.bit(group.mask, i) end
    end
    group.stride = math.ceil(group.sent / 8)
    group.rest = group.first + (group.planes + type.low) * group.stride
    group.stop = group.rest + type.rest * group.sent
  end
  if group.stop > #bytes then return nil, "it ends within a group" end
  if group.mask >= 2 ^ floats then return nil, "a mask behind the last float" end
  return group
end

-- Returns the number of which `count` planes from `first` on have the bits, for the i-th of the elements that travel.
local function from_planes(bytes, group, first, count, i)
  local number = 0
  for plane = first + count - 1, first, -1 do
    number = 2 * number + numbers.bits(bytes, 8 * (group.first + plane * group.stride) + i, 1)
  end
  return number
end

-- Returns the i-th of the elements that travel.
local function value_of(bytes, group, i, type)
  local code = from_planes(bytes, group, 0, group.planes, i)
  local exponent = (bytes:byte(group.at + kHead + 1) - code) % 2 ^ type.exponent
  if group.low and code == 2 ^ group.planes - 1 then exponent = 0 end
  local rest = numbers.unsigned(bytes, group.rest + type.rest * i, type.rest) * 2 ^ type.low +
    from_planes(bytes, group, group.planes, type.low, i)
  local sign, fraction = math.floor(rest / 2 ^ type.fraction), rest % 2 ^ type.fraction
  return numbers.ieee((sign * 2 ^ type.exponent + exponent) * 2 ^ type.fraction + fraction, type.exponent,
    type.fraction)
end

local function show(found, bytes, group, floats, type)
  found:field("head", group.at, kHead)
  if group.planes then
    found:field("planes", group.at, kHead, group.planes)
    found:field("base", group.at + kHead, kBase)
    if numbers.bit(group.head, kMaskBit) == 1 then found:field("mask", group.first - kMask, kMask) end
    if group.sent > 0 then
      for plane = 0, group.planes + type.low - 1 do
        found:field("plane", group.first + plane * group.stride, group.stride)
      end
      found:field("mantissas", group.rest, type.rest * group.sent)
    end
  end
  local sent = 0
  for i = 0, floats - 1 do
    if group.head == kPlain then
      local bits = numbers.unsigned(bytes, group.at + kHead + type.width * i, type.width)
      found:value(numbers.ieee(bits, type.exponent, type.fraction))
    elseif group.planes and numbers.bit(group.mask, i) == 1 then
      found:value(value_of(bytes, group, sent, type))
      sent = sent + 1
    else
      found:value(0)
    end
  end
end

-- Decodes a block. number: of the elements' type; nil: float32. Returns what is wrong, or nil.
function packed.decode(found, bytes, n, _, number)
  local at, type = 0, types[number] or types[0]
  for begin = 0, n - 1, kGroup do
    local floats = math.min(kGroup, n - begin)
    local group, wrong = open(bytes, at, floats, type)
    if not group then return wrong end
    if begin == 0 then show(found, bytes, group, floats, type) end
    at = group.stop
  end
  return found.length(bytes, at)
end

return packed
