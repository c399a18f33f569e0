-- votes.lua - blocks of votes: signsgd and its variants (called by blocks.lua)
local numbers = ...
if not numbers then return end -- Wireshark also loads this file alone, without arguments
local votes = {}

local kRecord, kHead, kMost, kCodePlanes = 256, 2, 256, 2

-- Returns the record of `floats` floats at `at`, or nil and what is wrong.
local function open(bytes, at, floats)
  local left = #bytes - at
  if left < kHead then return nil, "it ends within a head" end
  local head = numbers.unsigned(bytes, at, kHead)
  local record = {
    at = at, range = head % 1024, single = numbers.bit(head, 14) == 1, special = numbers.bit(head, 15) == 1,
    planes = 0, stride = math.ceil(floats / 8),
  }
  if record.range > kMost or math.floor(head / 1024) % 16 ~= 0 then return nil, "an invalid head" end
  local largest = record.single and 2 * record.range or record.range
  while largest >= 2 ^ record.planes do record.planes = record.planes + 1 end
  record.bytes = kHead + (record.planes + (record.special and kCodePlanes or 0)) * record.stride
  if left < record.bytes then return nil, "it ends within its planes" end
  return record
end

-- Returns the bits of float i in `count` planes from `first` on, with the first plane in the lowest bit.
local function across(bytes, record, i, first, count)
  local value = 0
  for plane = count - 1, 0, -1 do
    local at = record.at + kHead + (first + plane) * record.stride
    value = 2 * value + numbers.bits(bytes, 8 * at + i, 1)
  end
  return value
end

local function show_head(found, record)
  local at = record.at + kHead
  found:field("head", record.at, kHead)
  found:field("range", record.at, kHead, record.range)
  for plane = 0, record.planes - 1 do found:field("plane", at + plane * record.stride, record.stride) end
  if record.special then found:field("codes", at + record.planes * record.stride, kCodePlanes * record.stride) end
end

-- Decodes a block. step: value of a vote; nil if unknown. Returns what is wrong, or nil.
function votes.decode(found, bytes, n, step)
  local at = 0
  for begin = 0, n - 1, kRecord do
    local here = math.min(kRecord, n - begin)
    local record, wrong = open(bytes, at, here)
    if not record then return wrong end
    if begin == 0 then
      show_head(found, record)
      for i = 0, math.min(here, found.most) - 1 do
        local c = across(bytes, record, i, 0, record.planes)
        local v = math.min((record.single and c or 2 * c) - record.range, kMost)
        local code = record.special and across(bytes, record, i, record.planes, kCodePlanes) or 0
        if code ~= 0 then
          found:value(numbers.special[code])
        elseif step then
          found:value(v * step)
        else
          found:steps(v)
        end
      end
    end
    at = at + record.bytes
  end
  return found.length(bytes, at)
end

return votes
