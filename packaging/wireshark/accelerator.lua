-- accelerator.lua - bundles between accelerators, docs/accelerator.md (called by gradlane.lua)
local show, names, blocks = ...
if not show then return end -- Wireshark also loads this file alone, without arguments
local accelerator = {}

local kMagic, kVersion, kHeader, kRecord = 0xa6, 2, 4, 8
local kRecords = 1

-- Returns whether a payload is a bundle. udp: whether it arrived by UDP; then it may also be a hello or an answer.
function accelerator.is_ours(tvb, udp)
  if tvb:len() < kHeader + kRecord or tvb(0, 1):uint() ~= kMagic then return false end
  local version, kind = math.floor(tvb(1, 1):uint() / 16), tvb(1, 1):uint() % 16
  return version == kVersion and (kind == kRecords or udp and (kind == 2 or kind == 3))
end

-- Returns `bytes` bytes at `at` as a range, or nil if the bundle ends before that.
local function part(range, at, bytes)
  if bytes >= 0 and at + bytes <= range:len() then return range(at, bytes) end
end

-- Shows the record at `at`. Returns the offset after it, its item, and the number of bytes of the host's payload. The
-- offset is nil if the record does not fit. codec: for blocks.decode().
local function show_record(tree, range, at, codec)
  local item = show.add(tree, "record", range(at))
  local header = part(range, at, kRecord)
  if not header then return nil, item end
  show.layout(item, "record", header)
  local payload, bytes, shape, mask = header(0, 2):le_uint(), header(2, 2):le_uint(), header(4, 1):uint(),
    header(6, 2):le_uint()
  local lead, trail = shape % 4, math.floor(shape / 4) % 4
  local begin = at
  at = at + kRecord
  for bit = 0, 15 do
    if math.floor(mask / 2 ^ bit) % 2 == 1 then
      local word = part(range, at, 4)
      if not word then return nil, item end
      show.word(item, bit, word)
      at = at + 4
    end
  end
  local parts = { { "record.lead", lead }, { "record.trail", trail }, { nil, bytes } }
  for _, row in ipairs(parts) do
    local found = part(range, at, row[2])
    local floats = (payload - lead - trail) / 4
    if not found or floats < 1 or floats % 1 ~= 0 then return nil, item end
    if row[1] and row[2] > 0 then
      show.add(item, row[1], found)
    elseif not row[1] then
      show.generated(item, "record.floats", header(0, 2), floats)
      show.block(item, found, blocks.decode(found, floats, codec))
    end
    at = at + row[2]
  end
  item:set_len(at - begin)
  item:append_text(string.format(": %d bytes of the host in %d", payload, bytes))
  return at, item, payload
end

-- Dissects a UDP or TCP payload. Returns its text for the list of packets.
function accelerator.dissect(tvb, _, tree)
  local range = tvb()
  local top = tree:add(show.proto, range)
  local kind, codec = range(1, 1):uint() % 16, { id = range(2, 1):uint(), param = range(3, 1):uint() }
  show.layout(top, "bundle", range(0, kHeader))
  show.generated(top, "bundle.kind", range(1, 1), kind)
  if kind ~= kRecords then
    show.layout(top, "bundle_hello", range(kHeader, 8))
    return "accelerator " .. names.bundle_kind[kind]
  end
  local name = names.codec_text(codec)
  show.generated(top, "codec", range(2, 2), name)
  local at, records, bytes = kHeader, 0, 0
  while at < range:len() do
    local behind, item, payload = show_record(top, range, at, codec)
    if not behind then
      local cut = tvb:reported_len() > tvb:len()
      show.expert(item, cut and "cut" or "bad_record")
      break
    end
    at, records, bytes = behind, records + 1, bytes + payload
  end
  return string.format("accelerator: %d packets of %d bytes in %d by %s", records, bytes, range:len(), name)
end

return accelerator
