-- sparse.lua - blocks of sparse records: topk, mstopk, dgc, graddrop (called by blocks.lua)
local numbers = ...
if not numbers then return end -- Wireshark also loads this file alone, without arguments
local sparse = {}

local kRecord, kBitmap, kMostWidth, kWholeFloat = 256, 255, 25, 32

-- Returns the places of floats in a record as an array, and the offset after them. Returns nil and what is wrong if the
-- record has no valid places.
local function open_places(bytes, at, floats)
  local count, map = bytes:byte(at + 1), math.ceil(floats / 8)
  local bitmap = count == kBitmap
  if count > map and not bitmap then return nil, "more places than a list may have" end
  local places, stop = {}, at + 1 + (bitmap and map or count)
  if stop > #bytes then return nil, "it ends within its places" end
  if bitmap then
    for place = 0, 8 * map - 1 do
      if numbers.bits(bytes, 8 * (at + 1) + place, 1) == 1 then places[#places + 1] = place end
    end
  else
    for i = 1, count do
      places[i] = bytes:byte(at + 1 + i)
      if i > 1 and places[i] <= places[i - 1] then return nil, "places that do not ascend" end
    end
  end
  if #places > 0 and places[#places] >= floats then return nil, "a place behind the last float" end
  return places, stop
end

-- Returns the record of `floats` floats at `at`, or nil and what is wrong.
local function open(bytes, at, floats, lattice)
  if at >= #bytes then return nil, "it ends before a record" end
  local places, stop = open_places(bytes, at, floats)
  if not places then return nil, stop end
  local record = { at = at, count = bytes:byte(at + 1), places = places, values = stop, width = kWholeFloat }
  if lattice and #places > 0 then
    if stop >= #bytes then return nil, "it ends before the width of its values" end
    record.width, record.values = bytes:byte(stop + 1), stop + 1
    if record.width == 0 or record.width > kMostWidth and record.width ~= kWholeFloat then
      return nil, "values of an invalid width"
    end
  end
  record.stop = record.values + math.ceil(#places * record.width / 8)
  if record.stop > #bytes then return nil, "it ends within its values" end
  return record
end

-- Returns all records, and what is wrong or nil.
local function read(found, bytes, n, lattice)
  local records, at = {}, 0
  for begin = 0, n - 1, kRecord do
    local record, wrong = open(bytes, at, math.min(kRecord, n - begin), lattice)
    if not record then return records, wrong end
    record.begin = begin
    records[#records + 1] = record
    at = record.stop
  end
  return records, found.length(bytes, at)
end

local function show_head(found, record, lattice)
  found:field("count", record.at, 1)
  local bytes = record.values - record.at - 1 - (lattice and #record.places > 0 and 1 or 0)
  if bytes > 0 then found:field(record.count == kBitmap and "bitmap" or "places", record.at + 1, bytes) end
  if lattice and #record.places > 0 then found:field("width", record.values - 1, 1) end
  if #record.places > 0 then found:field("packed", record.values, record.stop - record.values) end
end

-- Decodes a block. lattice: whether values are numbers of steps, or fp32 if these do not fit. If it is nil, this is
-- unknown, and values are taken for fp32 if the block is then valid. step: nil if unknown. Returns what is wrong, or
-- nil.
function sparse.decode(found, bytes, n, lattice, step)
  local records, wrong = read(found, bytes, n, lattice)
  if lattice == nil and wrong then
    local others, fault = read(found, bytes, n, true)
    if not fault then lattice, records, wrong = true, others, nil end
  end
  if wrong then return wrong end
  local sent, shown = 0, records[1]
  for i = #records, 1, -1 do
    sent = sent + #records[i].places
    if #records[i].places > 0 then shown = records[i] end
  end
  found:field("sent", 0, 0, sent)
  show_head(found, shown, lattice)
  for _, record in ipairs(records) do
    for i, place in ipairs(record.places) do
      if #found.values == found.most then return nil end
      local q = numbers.bits(bytes, 8 * record.values + (i - 1) * record.width, record.width)
      place = record.begin + place
      if record.width == kWholeFloat then
        found:value(numbers.fp32(q), place)
      else
        if q >= 2 ^ (record.width - 1) then q = q - 2 ^ record.width end
        if step then found:value(q * step, place) else found:steps(q, place) end
      end
    end
  end
end

return sparse
