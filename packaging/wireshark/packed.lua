-- packed.lua - blocks of packed floats: pack (called by blocks.lua)
local numbers = ...
if not numbers then return end -- Wireshark also loads this file alone, without arguments
local packed = {}

local kGroup = 32
local kZeros, kPlain, kMaskBit, kLowBit = 0x40, 0x20, 3, 4 -- heads of groups without a base, bits M and D of others
local kHead, kBase, kMask, kFloat, kRest = 1, 1, 4, 4, 3 -- bytes
local kSign = 2 ^ 23 -- worth of the sign after a mantissa

-- Returns the group of `floats` floats at `at`, or nil and what is wrong.
local function open(bytes, at, floats)
  if at >= #bytes then return nil, "it ends before a head" end
  local head = bytes:byte(at + 1)
  local group = { at = at, head = head, mask = 2 ^ floats - 1, sent = floats, stop = at + kHead }
  if head == kPlain then
    group.stop = group.stop + kFloat * floats
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
    group.rest = group.first + group.planes * group.stride
    group.stop = group.rest + kRest * group.sent
  end
  if group.stop > #bytes then return nil, "it ends within a group" end
  if group.mask >= 2 ^ floats then return nil, "a mask behind the last float" end
  return group
end

-- Returns the bits of the i-th of the floats that travel.
local function float_of(bytes, group, i)
  local code = 0
  for plane = group.planes - 1, 0, -1 do
    code = 2 * code + numbers.bits(bytes, 8 * (group.first + plane * group.stride) + i, 1)
  end
  local exponent = (bytes:byte(group.at + kHead + 1) - code) % 256
  if group.low and code == 2 ^ group.planes - 1 then exponent = 0 end
  local rest = numbers.unsigned(bytes, group.rest + kRest * i, kRest)
  return (rest >= kSign and 2 ^ 31 or 0) + exponent * 2 ^ 23 + rest % kSign
end

local function show(found, bytes, group, floats)
  found:field("head", group.at, kHead)
  if group.planes then
    found:field("planes", group.at, kHead, group.planes)
    found:field("base", group.at + kHead, kBase)
    if numbers.bit(group.head, kMaskBit) == 1 then found:field("mask", group.first - kMask, kMask) end
    if group.sent > 0 then
      for plane = 0, group.planes - 1 do found:field("plane", group.first + plane * group.stride, group.stride) end
      found:field("mantissas", group.rest, kRest * group.sent)
    end
  end
  local sent = 0
  for i = 0, floats - 1 do
    if group.head == kPlain then
      found:value(numbers.fp32_at(bytes, group.at + kHead + kFloat * i))
    elseif group.planes and numbers.bit(group.mask, i) == 1 then
      found:value(numbers.fp32(float_of(bytes, group, sent)))
      sent = sent + 1
    else
      found:value(0)
    end
  end
end

-- Decodes a block. Returns what is wrong, or nil.
function packed.decode(found, bytes, n)
  local at = 0
  for begin = 0, n - 1, kGroup do
    local floats = math.min(kGroup, n - begin)
    local group, wrong = open(bytes, at, floats)
    if not group then return wrong end
    if begin == 0 then show(found, bytes, group, floats) end
    at = group.stop
  end
  return found.length(bytes, at)
end

return packed
