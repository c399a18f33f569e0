-- blocks.lua - blocks of codecs: whether they have the right length, and their first floats (no side effects)
--
-- docs/codec-format.md has the bytes. A block is a TvbRange, and n is its number of floats. The result has three
-- members.
--   fields: rows of {name, offset, length, value or nil}, for the first group, record or chunk
--   values: rows of {number, whether it counts steps, place or nil}, for the first floats, up to 32; in sparse blocks
--           only floats that are there
--   wrong:  text, if it is no block of the codec; the other two are empty then
local numbers, planes, votes, sparse, chunks, packed, deflate = ...
if not numbers then return end -- Wireshark also loads this file alone, without arguments
local blocks = {}

local kGroup = 32 -- most values that are shown

-- ---- What is found

local Found = { most = kGroup }
Found.__index = Found

function Found:field(name, at, length, value) self.fields[#self.fields + 1] = { name, at, length, value } end
function Found:value(number, place) self.values[#self.values + 1] = { number, false, place } end
function Found:steps(count, place) self.values[#self.values + 1] = { count, true, place } end

-- Returns what is wrong with the length, or nil.
function Found.length(bytes, wanted)
  if #bytes ~= wanted then return string.format("%d bytes, but %d expected", #bytes, wanted) end
end

local function nothing(wrong) return setmetatable({ fields = {}, values = {}, wrong = wrong }, Found) end

-- ---- Arrays

-- Elements without a codec, by type: bytes of an element, and a function that reads it. Type 0 is raw float32.
local elements = {
  [0] = { 4, function(r) return numbers.fp32(r:le_uint()) end },
  [1] = { 8, function(r) return r:le_float() end },
  [2] = { 2, function(r) return numbers.ieee(r:le_uint(), 5, 10) end },
  [3] = { 2, function(r) return numbers.ieee(r:le_uint(), 8, 7) end },
  [4] = { 4, function(r) return r:le_int() end },
  [5] = { 8, function(r) return r:le_int64():tonumber() end },
  [6] = { 1, function(r) return r:uint() end },
}

function blocks.elements(range, n, type)
  local bytes, value = elements[type][1], elements[type][2]
  if range:len() ~= bytes * n then return nothing(string.format("%d bytes, but %d expected", range:len(), bytes * n)) end
  local found = nothing()
  for i = 0, math.min(n, kGroup) - 1 do found:value(value(range(bytes * i, bytes))) end
  return found
end

-- ---- Tagged

local tag_bytes = { [0] = 0, [1] = 1, [2] = 2, [3] = 4 }

-- Converts a code with a sign in bit `sign` and `fraction` bits after the point. A code of 0 has no sign.
local function signed(code, sign, fraction)
  local size = code % 2 ^ sign * 2 ^ -fraction
  return code >= 2 ^ sign and size > 0 and -size or size
end

local function tagged(found, bytes, n, codec)
  local groups = math.ceil(n / 32)
  local at, half = 8 * groups, codec.id == 3 and math.floor(codec.param % 128 / 2) or 0
  if #bytes < at then return "it ends within its tags" end
  for i = n, 32 * groups - 1 do
    if numbers.bits(bytes, 2 * i, 2) ~= 0 then return "a tag behind the last float" end
  end
  found:field("tags", 0, 8)
  for i = 0, n - 1 do
    local tag = numbers.bits(bytes, 2 * i, 2)
    if at + tag_bytes[tag] > #bytes then return "it ends within its floats" end
    if i < kGroup then
      local code = numbers.unsigned(bytes, at, tag_bytes[tag])
      if tag == 3 then
        found:value(numbers.fp32(code))
      elseif tag == 2 then
        found:value(signed(code, 15, 15))
      else
        found:value(signed(code, 7, 7 + half))
      end
    end
    at = at + tag_bytes[tag]
  end
  return found.length(bytes, at)
end

-- ---- Bits of floats

local function truncated(found, bytes, n, codec)
  local bits = codec.param
  local wrong = found.length(bytes, math.ceil(n * bits / 8))
  if wrong then return wrong end
  for i = 0, math.min(n, kGroup) - 1 do
    found:value(numbers.fp32(numbers.bits(bytes, i * bits, bits) * 2 ^ (32 - bits)))
  end
end

-- ---- All of them

-- Least and greatest parameter of the codecs that have one; it is 0 for the others.
local parameters = { [4] = { 1, 30 }, [5] = { 1, 30 }, [6] = { 1, 23 }, [8] = { 1, 30 }, [14] = { 0, 255 },
  [17] = { 1, 8 }, [20] = { 10, 24 }, [22] = { 2, 14 } }

-- Returns what is wrong with the codec itself, or nil.
local function no_codec(codec)
  local least, most, param = 0, 0, codec.param
  if codec.id == 3 then
    least, most, param = 2, 14, param % 128
  elseif parameters[codec.id] then
    least, most = parameters[codec.id][1], parameters[codec.id][2]
  end
  if param < least or param > most then return string.format("it does not allow parameter %d", param) end
  if chunks.has(codec.id) and codec.number and not chunks.may_have(codec.number) then
    return string.format("it does not allow chunks of %d", codec.number)
  end
end

-- Returns the value of one step, or nil if it is unknown.
local function step_of(codec)
  if codec.id == 4 or codec.id == 5 then return 2 ^ (1 - codec.param) end
  if codec.id == 8 then return 2 ^ -codec.param end
  if codec.id == 9 or codec.id == 10 then return 1 end
  return codec.step
end

local function by_planes(found, bytes, n, codec) return planes.decode(found, bytes, n, step_of(codec)) end
local function by_votes(found, bytes, n, codec) return votes.decode(found, bytes, n, step_of(codec)) end
local function by_chunks(found, bytes, n, codec)
  return chunks.decode(found, bytes, n, codec.id, codec.param, codec.number)
end
local function by_records(found, bytes, n, codec)
  local lattice = nil
  if codec.plus then lattice = codec.plus > 0 end
  return sparse.decode(found, bytes, n, lattice, lattice and 2 ^ (1 - codec.plus) or nil)
end

local decoders = {
  [3] = tagged, [4] = by_planes, [5] = by_planes, [6] = by_planes, [7] = by_planes, [8] = by_planes,
  [9] = by_votes, [10] = by_votes, [11] = by_votes,
  [12] = by_records, [13] = by_records, [14] = by_records, [15] = by_records,
  [16] = by_chunks, [17] = by_chunks, [18] = by_chunks, [19] = by_chunks,
  [20] = truncated, [21] = deflate.decode, [22] = tagged, [23] = packed.decode,
}
local types_of = { [0] = 0, [1] = 3, [2] = 2, [24] = 0 } -- codecs whose blocks are arrays of a type

-- Decodes a block. codec: {id, param}, and further members if they are known. `plus` is b of "+fixed:b" or 0, `number`
-- is the first of its arguments, `step` is the step that ranks agree on. element_type: of the operation, or nil. Returns
-- an empty result for a codec that is not known here.
function blocks.decode(range, n, codec, element_type)
  local type, decode = types_of[codec.id], decoders[codec.id]
  if not type and not decode then return nothing() end
  local wrong = no_codec(codec)
  if wrong then return nothing(wrong) end
  if type then return blocks.elements(range, n, type) end
  if n == 0 then return nothing(Found.length(range:raw(), 0)) end
  local found = nothing()
  wrong = decode(found, range:raw(), n, codec, element_type)
  return wrong and nothing(wrong) or found
end

return blocks
