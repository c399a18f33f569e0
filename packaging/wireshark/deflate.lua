-- deflate.lua - blocks of records that are deflated or contain plain floats (called by blocks.lua)
local numbers, inflate = ...
if not numbers then return end -- Wireshark also loads this file alone, without arguments
local deflate = {}

local kHead, kMostFloats, kFloat = 2, 2048, 4

-- Returns the record at `at`, which may have up to `left` floats. Returns nil and what is wrong if there is none.
local function open(bytes, at, left)
  if at + kHead > #bytes then return nil, "it ends within a record's head" end
  local head = numbers.unsigned(bytes, at, kHead)
  local record = { floats = head % 32768, deflated = head >= 32768 }
  if record.floats == 0 or record.floats > kMostFloats then return nil, "an invalid head" end
  if record.floats > left then return nil, "more floats than the run has" end
  record.data, record.bytes = at + kHead, kFloat * record.floats
  if record.deflated then
    if record.data + kHead > #bytes then return nil, "it ends within a record's head" end
    record.bytes, record.data = numbers.unsigned(bytes, record.data, kHead), record.data + kHead
  end
  record.stop = record.data + record.bytes
  if record.stop > #bytes then return nil, "it ends within a record" end
  local data = bytes:sub(record.data + 1, record.stop)
  if not record.deflated then
    record.data_bytes = { data:byte(1, kFloat * math.min(record.floats, 32)) }
    return record
  end
  local wrong
  record.data_bytes, wrong = inflate.bytes(data, kFloat * record.floats)
  if wrong then return nil, wrong end
  return record
end

-- Decodes a block. Returns what is wrong, or nil.
function deflate.decode(found, bytes, n)
  local at, done = 0, 0
  while done < n do
    local record, wrong = open(bytes, at, n - done)
    if not record then return wrong end
    if done == 0 then
      found:field("floats", 0, kHead, record.floats)
      found:field("deflated", 0, kHead, record.deflated)
      if record.deflated then found:field("stream", record.data, record.bytes) end
    end
    for i = 0, math.min(record.floats, found.most - #found.values) - 1 do
      local word = 0
      for k = kFloat, 1, -1 do word = 256 * word + record.data_bytes[kFloat * i + k] end
      found:value(numbers.fp32(word))
    end
    at, done = record.stop, done + record.floats
  end
  return found.length(bytes, at)
end

return deflate
