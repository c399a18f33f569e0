-- exchange.lua - packets of the exchange and probes, docs/wire-format.md (called by gradlane.lua)
local show, names, crc, blocks, operations = ...
if not show then return end -- Wireshark also loads this file alone, without arguments
local exchange = {}

local kHeader, kRunHeader, kTag, kMaxPacket = 44, 20, 28, 16384
local kMagic, kProbeMagic, kVersion = 0x4c47, 0x5047, 2
local kinds = { hello = 1, acknowledgement = 2, data = 3 }
local kStart, kPadding = 2, 5

-- ---- Which packets these are

local function magic_at(tvb, at) return tvb(at, 2):le_uint() end

function exchange.is_ours(tvb)
  if tvb:len() < kHeader then return false end
  local magic, kind = magic_at(tvb, 0), tvb(3, 1):uint()
  return magic == kMagic and kind >= 1 and kind <= 3 or magic == kProbeMagic and (kind == 1 or kind == 2)
end

-- Returns possible lengths of the first packet, in ascending order, if other packets of the same length follow it. The
-- kernel sends and receives superpackets. All their packets have one length, only the last may be shorter. Some packets
-- may be probes.
local function lengths(bytes)
  local found, last = {}, #bytes - kHeader
  local head = "^G[LP].[\1-\3]"
  local next = bytes:find(head:sub(2), kHeader + 1)
  while next and next - 1 <= last and next - 1 <= kMaxPacket + kTag do
    local whole = true
    for begin = next - 1, last, next - 1 do whole = whole and bytes:find(head, begin + 1) ~= nil end
    if whole then found[#found + 1] = next - 1 end
    next = bytes:find(head:sub(2), next + 1)
  end
  return found
end

-- Returns the length of the packets in a superpacket. If the payload is one packet, it is the payload's length.
local function packet_length(tvb, bytes)
  local length = tvb:len()
  local function right(wanted) return crc.length(bytes, 1, wanted) ~= nil end
  if length <= kMaxPacket + kTag and right(length >= kHeader + kTag and { length - kTag, length } or { length }) then
    return length
  end
  local candidates = lengths(bytes)
  for _, candidate in ipairs(candidates) do
    if right(candidate >= kHeader + kTag and { candidate - kTag, candidate } or { candidate }) then return candidate end
  end
  return candidates[1] or length
end

-- ---- Runs

-- Returns how many bytes of a descriptor its digest covers. If an offer follows, the descriptor always has all 48
-- bytes.
local function digested_bytes(range)
  local length = range:len()
  if length >= 48 and range(32, 16):raw() ~= ("\0"):rep(16) then return 48 end
  return length >= 32 and range(24, 4):le_uint() ~= 0 and 32 or 24
end

local function show_descriptor(tree, run, range, from)
  if range:len() < 24 then
    show.expert(tree, "bad_run", "A start without a descriptor")
    return
  end
  show.layout(tree, "descriptor", range)
  local type = range(19, 1):uint()
  if crc.of(range(0, digested_bytes(range)):raw()) ~= run.digest then
    show.expert(tree, "bad_digest")
  elseif from.whole then
    operations.start(from.session, from.sender, run, range, names.type_bytes[type] and type)
  end
  local codec, back = operations.codecs(range)
  show.generated(tree, "codec", range(21, 2), names.codec_text(codec))
  local strategy = range:len() >= 32 and range(24, 4):le_uint() or 0
  if strategy ~= 0 then show.generated(tree, "codec.back", range(28, 2), names.codec_text(back)) end
  show.generated(tree, "strategy", range(0, 0), names.strategy_text(strategy))
end

local function show_abort(tree, range)
  local items = show.layout(tree, "abort", range)
  local code, field = range(18, 1):uint(), range(19, 1):uint()
  local text = string.format("operation failed: %s, rank %d%s", names.failure[code] or code, range(16, 2):le_uint(),
    field > 0 and ", " .. (names.field[field] or field) or "")
  show.expert(items.code, "failed", text)
end

local function show_block(tree, run, range, codec)
  local type = operations.type(run.digest)
  if type then show.generated(tree, "run.type", range(0, 0), type) end
  if run.codec == 0 then
    local found = blocks.elements(range, run.count, type or 0)
    -- The type is unknown if the start was not captured. Any width may be right then.
    if not type then found.wrong = nil end
    show.block(tree, range, found)
  else
    show.block(tree, range, blocks.decode(range, run.count, codec))
  end
end

local function run_text(run, codec)
  local phase = names.phase[run.phase] or string.format("phase %d", run.phase)
  if run.phase <= 1 then
    return string.format("%s op %d block %d granule %d, %d by %s", phase, run.operation, run.block, run.first,
      run.count, names.codec_text(codec))
  end
  return string.format("%s op %d", phase, run.operation)
end

local function read_run(header)
  return {
    operation = header(0, 4):le_uint(), digest = header(4, 4):le_uint(), first = header(8, 4):le_uint(),
    count = header(12, 2):le_uint(), bytes = header(14, 2):le_uint(), block = header(16, 1):uint(),
    phase = header(17, 1):uint(), codec = header(18, 1):uint(), param = header(19, 1):uint(),
  }
end

-- Shows the payload of a run.
local function show_payload(tree, run, range, codec, from)
  if run.phase <= 1 then
    show_block(tree, run, range, codec)
  elseif run.phase == kStart then
    show_descriptor(tree, run, range, from)
  elseif run.phase == 3 and range:len() >= 24 then
    show_abort(tree, range)
  end
end

-- Shows all runs of a packet. range: its payload; from: its session, its sender, and whether it is undamaged; cut: the
-- capture lacks a part of the packet. Returns their texts.
local function show_runs(tree, range, from, cut)
  local at, texts = 0, {}
  while at < range:len() do
    local left = range:len() - at
    if left < kRunHeader then
      local item = show.add(tree, "run.padding", range(at, left))
      if at == 0 or range(at, left):bytes() ~= ByteArray.new(("00"):rep(left)) then
        if not cut then show.expert(item, "bad_run", "Bytes behind the last run that are no padding") end
      end
      break
    end
    local run = read_run(range(at, kRunHeader))
    if run.phase == kPadding then
      show.add(tree, "run.padding", range(at, left))
      break
    end
    local bytes = math.min(run.bytes, left - kRunHeader)
    local item = show.add(tree, "run", range(at, kRunHeader + bytes))
    local codec = operations.codec(from.session, run)
    texts[#texts + 1] = run_text(run, codec)
    item:append_text(": " .. texts[#texts])
    show.layout(item, "run", range(at, kRunHeader))
    -- A start shows its codec from the descriptor, which has the arguments too.
    if run.phase ~= kStart then show.generated(item, "codec", range(at + 18, 2), names.codec_text(codec)) end
    if bytes < run.bytes then
      if not cut then show.expert(item, "bad_run") end
      break
    end
    if bytes > 0 then
      show_payload(item, run, range(at + kRunHeader, bytes), codec, from)
    elseif run.phase <= 1 and run.count > 0 then
      show.expert(item, "bad_block", "Elements without bytes")
    end
    at = at + kRunHeader + bytes
  end
  return texts
end

-- ---- Packets

local function show_hello(tree, range, from)
  local items = show.layout(tree, "hello", range)
  if range:len() < 56 then
    show.expert(tree, "too_short", "A hello of fewer than 56 bytes")
    return ""
  end
  if from.whole then operations.hello(from.sender, range(34, 2):le_uint(), range(32, 2):le_uint()) end
  show.generated(tree, "codec", range(40, 2), names.codec_text(operations.codec_at(range, 40, 104)))
  local cause = range(44, 1):uint()
  if cause > 0 then
    show.expert(items.cause_code, "ended", string.format("the generation before ended: %s, rank %d",
      names.failure[cause] or cause, range(46, 2):le_uint()))
  end
  if items.complaint and range(61, 1):uint() > 0 then
    show.expert(items.complaint, "complaint", names.field[range(61, 1):uint()])
  end
  if items.strategies then show.generated(tree, "strategy", range(96, 8), names.strategies_text(range(96, 8):raw())) end
  if range:len() > 120 then show.add(tree, "rest", range(120)) end
  return string.format(" rank %d of %d, reach %d", range(34, 2):le_uint(), range(32, 2):le_uint(),
    range(42, 2):le_uint())
end

-- Shows the verdict on the CRC. Returns how many bytes at the end of the packet are a tag, and whether the packet is
-- damaged.
local function show_crc(tree, item, range, bytes, at, cut)
  local function verdict(text) show.generated(tree, "crc.status", range(40, 4), text) end
  if cut then
    verdict("unknown: the capture has not got the whole packet")
    show.expert(item, "cut")
    return 0, false
  end
  local length = range:len()
  local found = crc.length(bytes, at + 1, length >= kHeader + kTag and { length - kTag, length } or { length })
  if found then
    verdict("good")
    return length - found, false
  end
  local computed = crc.compute(bytes, at + 1, length)
  verdict("bad")
  show.generated(tree, "crc.computed", range(40, 4), computed)
  show.expert(item, "bad_crc")
  return 0, true
end

local function show_probe(tree, range)
  local items = show.layout(tree, "probe", range(0, kHeader))
  local codec = { id = range(30, 1):uint(), param = range(31, 1):uint() }
  show.generated(tree, "codec", range(30, 2), names.codec_text(codec))
  local kind = names.probe_kind[range(3, 1):uint()]
  return items.crc, string.format("probe %s id 0x%08x, %d bytes", kind, range(4, 4):le_uint(), range:len())
end

local function show_link(tree, range)
  local items = show.layout(tree, "link", range(0, kHeader))
  if range(2, 1):uint() ~= kVersion then show.expert(items.version, "bad_version") end
  local kind = range(3, 1):uint()
  if not names.kind[kind] then show.expert(items.kind, "bad_kind") end
  return items.crc, string.format("%s seq %d ack %d", names.kind[kind] or "unknown", range(4, 4):le_uint(),
    range(24, 4):le_uint())
end

-- Shows one packet. bytes: the complete payload; at: offset of the packet in it; sender: an address and a port. Returns
-- the text of the packet.
local function show_packet(tree, range, bytes, at, sender, cut)
  if range:len() < kHeader then
    show.expert(tree, "too_short")
    return "too short"
  end
  local probe = magic_at(range, 0) == kProbeMagic
  local item, text = (probe and show_probe or show_link)(tree, range)
  local tag, damaged = show_crc(tree, item, range, bytes, at, cut)
  local rest = range:len() - kHeader - tag
  if rest > 0 then
    local kind, payload = range(3, 1):uint(), range(kHeader, rest)
    local from = { session = range(8, 8):raw(), sender = sender, whole = not damaged }
    if probe or range(2, 1):uint() ~= kVersion or kind == kinds.acknowledgement then
      show.add(tree, "rest", payload)
    elseif kind == kinds.hello then
      text = text .. show_hello(tree, payload, from)
    elseif kind == kinds.data then
      text = text .. ": " .. table.concat(show_runs(tree, payload, from, cut), "; ")
    end
  elseif not probe and range(3, 1):uint() == kinds.hello and not cut then
    show.expert(tree, "too_short", "A hello without its content")
  end
  if tag > 0 then show.layout(tree, "tag", range(range:len() - tag, tag)) end
  return text
end

-- Dissects a UDP payload. Returns its text for the list of packets.
function exchange.dissect(tvb, pinfo, tree)
  local bytes, sender = tvb:raw(), string.format("%s port %d", tostring(pinfo.src), pinfo.src_port)
  local cut = tvb:reported_len() > tvb:len()
  local length = packet_length(tvb, bytes)
  local number = math.ceil(tvb:len() / length)
  local top = tree:add(show.proto, tvb())
  if number > 1 then show.generated(top, "superpacket", tvb(0, 0), number) end
  local texts = {}
  for i = 1, number do
    local at = (i - 1) * length
    local range = tvb(at, math.min(length, tvb:len() - at))
    local item = top
    if number > 1 then
      item = show.add(top, "packet", range)
      show.generated(item, "packet.number", range(0, 0), i)
    end
    show.generated(item, "packet.length", range(0, 0), range:len())
    texts[i] = show_packet(item, range, bytes, at, sender, cut and i == number)
    if number > 1 then item:append_text(string.format(" %d: %s", i, texts[i])) end
  end
  local text = number > 1 and string.format("%d packets: ", number) or ""
  return text .. table.concat(texts, " | ")
end

return exchange
