-- exchange.lua - packets of the exchange and probes, docs/wire-format.md (called by gradlane.lua)
local show, names, crc, blocks, operations, segments = ...
if not show then return end -- Wireshark also loads this file alone, without arguments
local exchange = {}

local kHeader, kRunHeader, kEnvelope, kMaxPacket = 44, 20, 28, 16384
local lives = { 36, 0, 16 } -- bytes before the envelope, by its kind
local kMagic, kProbeMagic, kVersion = 0x4c47, 0x5047, 2
local kinds = { hello = 1, acknowledgement = 2, data = 3 }
local kStart, kPadding = 2, 5
local kNear = 1024 -- sequences in a superpacket are closer to each other

-- ---- Which packets these are

local function magic_at(tvb, at) return tvb(at, 2):le_uint() end

-- Returns whether a payload begins with a packet, or with the first segment of one.
function exchange.is_ours(tvb)
  local at = exchange.is_segment(tvb) and segments.kHeader or 0
  if tvb:len() < at + kHeader then return false end
  local magic, kind = magic_at(tvb, at), tvb(at + 3, 1):uint()
  return magic == kMagic and kind >= 1 and kind <= 3 or at == 0 and magic == kProbeMagic and (kind == 1 or kind == 2)
end

-- Returns whether a payload may begin with a segment or a report.
function exchange.is_segment(tvb)
  return tvb:len() > segments.kHeader and segments.read(tvb:raw(0, math.min(tvb:len(), segments.kReport)), 0) ~= nil
end

-- Returns the length of the envelope of a datagram and of the lives before it; nil if it has none.
local function envelope_bytes(range)
  if range:len() < kEnvelope or range(range:len() - 17, 1):uint() ~= 0 then return nil end
  local before = lives[range(range:len() - 18, 1):uint()]
  return before and range:len() >= kEnvelope + before and kEnvelope + before or nil
end

-- Returns the offset of a hello without a packet at the end of a superpacket; nil if there is none. It is shorter than
-- all other datagrams.
local function bare_hello_at(bytes)
  local at = #bytes - lives[1] - kEnvelope
  return at >= kHeader and bytes:byte(#bytes - 17) == 1 and bytes:byte(#bytes - 16) == 0 and at or nil
end

-- Returns whether a payload may be an encrypted packet.
function exchange.is_sealed(tvb) return envelope_bytes(tvb()) ~= nil end

-- Returns whether a packet begins at offset `at`, or a segment or report that may follow one named `first`.
local function begins(bytes, at, first)
  if bytes:find("^G[LP].[\1-\3]", at + 1) then return true end
  local it = segments.read(bytes, at)
  return it ~= nil and it.session == first.session and math.abs(it.sequence - first.sequence) < kNear
end

-- Returns possible lengths of the first datagram, at least `least`, in ascending order, if others of the same length
-- follow it. The kernel sends and receives superpackets. All their datagrams have one length, only the last may be
-- shorter. Some may be probes. first: {session, sequence} of the first one
local function lengths(bytes, least, first)
  local found, last, bare = {}, #bytes - segments.kHeader - 1, bare_hello_at(bytes)
  local next = bytes:find("G[LPS]", least + 1)
  while next and next - 1 <= last and next - 1 <= kMaxPacket + kEnvelope do
    local whole = true
    for begin = next - 1, last, next - 1 do
      whole = whole and (begin == bare or begins(bytes, begin, first))
    end
    if whole then found[#found + 1] = next - 1 end
    next = bytes:find("G[LPS]", next + 1)
  end
  if bare and bare > least then found[#found + 1] = bare end
  return found
end

-- Returns the length of the datagrams in a superpacket that begins with a segment. A segment has no CRC. Therefore the
-- second datagram must have the same session.
local function segment_length(bytes, first)
  for _, candidate in ipairs(lengths(bytes, segments.kHeader + 1, first)) do
    if segments.read(bytes, candidate) or bytes:byte(candidate + 9) == first.session then return candidate end
  end
  return #bytes
end

-- Returns the length of the datagrams in a superpacket. If the payload is one datagram, it is the payload's length.
local function datagram_length(tvb, bytes)
  local length, segment = tvb:len(), segments.read(bytes, 0)
  if segment then return segment_length(bytes, segment) end
  local of_header = tvb(3, 1):uint() == kinds.data and crc.length(bytes, 1, { kHeader }) ~= nil
  -- `strictly`: a CRC of the link header alone does not count. It would fit a superpacket whose last packet has an
  -- envelope.
  local function right(wanted, strictly)
    local sealed = envelope_bytes(tvb(0, wanted))
    if sealed and wanted < kHeader + sealed then sealed = nil end
    if crc.length(bytes, 1, sealed and { wanted - sealed, wanted } or { wanted }) then return true end
    return sealed and of_header and not strictly
  end
  if length <= kMaxPacket + kEnvelope and right(length, true) then return length end
  local first = { session = tvb(8, 1):uint(), sequence = tvb(4, 4):le_uint() }
  local candidates = lengths(bytes, kHeader, first)
  for _, candidate in ipairs(candidates) do
    if right(candidate) then return candidate end
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
    show.block(tree, range, blocks.decode(range, run.count, codec, type))
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

-- Shows the verdict on the CRC. Returns how many bytes at the end of the packet are an envelope and what belongs to it,
-- and whether the packet is damaged.
local function show_crc(tree, item, range, bytes, at, cut)
  local function verdict(text) show.generated(tree, "crc.status", range(40, 4), text) end
  if cut then
    verdict("unknown: the capture has not got the whole packet")
    show.expert(item, "cut")
    return 0, false
  end
  local length, sealed = range:len(), envelope_bytes(range)
  if sealed and length < kHeader + sealed then sealed = nil end
  local found = crc.length(bytes, at + 1, sealed and { length - sealed, length } or { length })
  if found then
    verdict("good")
    return length - found, false
  end
  if sealed and range(3, 1):uint() == kinds.data and crc.length(bytes, at + 1, { kHeader }) then
    verdict("good for the link header - the tag covers the rest")
    return sealed, false
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

-- Shows the last `sealed` bytes of a datagram.
local function show_envelope(tree, range, sealed)
  local first = range:len() - sealed
  if sealed > kEnvelope then show.add(tree, "lives", range(first, sealed - kEnvelope)) end
  show.layout(tree, "envelope", range(range:len() - kEnvelope, kEnvelope))
end

-- Shows an encrypted packet, or a hello without one, and returns its text.
local function show_sealed(tree, range)
  local sealed = envelope_bytes(range)
  if range:len() > sealed then show.add(tree, "sealed", range(0, range:len() - sealed)) end
  show_envelope(tree, range, sealed)
  local kind = names.envelope_kind[range(range:len() - 18, 1):uint()]
  return string.format("sealed: %s, counter %s, %d bytes", kind,
    tostring(range(range:len() - kEnvelope, 8):le_uint64()), range:len() - sealed)
end

-- Dissects an encrypted packet, and returns its text.
function exchange.dissect_sealed(tvb, _, tree) return show_sealed(tree:add(show.proto, tvb()), tvb()) end

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
  if tag > 0 then show_envelope(tree, range, tag) end
  return text
end

-- Shows a segment or report. Returns its text, and whether its packet is shown, too. pinfo: of the frame; offset: in
-- the frame; cut: the capture lacks a part of it.
local function show_segment(tree, range, it, sender, pinfo, offset, cut)
  show.layout(tree, "segment", range(0, it.report and segments.kReport or segments.kHeader))
  if it.report then
    local arrived = 0
    for i = 0, 63 do arrived = arrived + range(8 + math.floor(i / 8), 1):bitfield(i % 8, 1) end
    local overdue = it.last and ", it is overdue" or ""
    return string.format("report: packet %d, %d of its segments have arrived%s", it.sequence, arrived, overdue), false
  end
  local text = string.format("segment %d of packet %d%s", it.number, it.sequence, it.last and ", the last" or "")
  if cut then
    show.expert(tree, "cut")
    return text, false
  end
  local flow = string.format("%s to %s port %d", sender, tostring(pinfo.dst), pinfo.dst_port)
  local part, here = range(segments.kHeader):raw(), string.format("%d at %d", pinfo.number, offset)
  local bytes = segments.join(flow, it, part, here, pinfo.visited)
  if not bytes then return text, false end
  local whole = ByteArray.new(bytes, true):tvb("Packet of segments")
  if #bytes > kMaxPacket or not exchange.is_ours(whole) or exchange.is_segment(whole) then
    show.expert(tree, "bad_segment")
    return text, false
  end
  local item = show.add(tree, "packet", whole())
  show.generated(item, "packet.length", whole(0, 0), #bytes)
  return text .. ": " .. show_packet(item, whole(), bytes, 0, sender, false), true
end

-- Dissects a UDP payload. Returns its text for the list of packets. The text names only the last one of a packet's
-- segments in a row.
function exchange.dissect(tvb, pinfo, tree)
  local bytes, sender = tvb:raw(), string.format("%s port %d", tostring(pinfo.src), pinfo.src_port)
  local cut = tvb:reported_len() > tvb:len()
  local length = datagram_length(tvb, bytes)
  local number = math.ceil(tvb:len() / length)
  local top = tree:add(show.proto, tvb())
  if number > 1 then show.generated(top, "superpacket", tvb(0, 0), number) end
  local texts, before, noun = {}, nil, "packets"
  for i = 1, number do
    local at = (i - 1) * length
    local range = tvb(at, math.min(length, tvb:len() - at))
    local segment, item, text, whole = segments.read(range:raw(), 0), top, nil, true
    if number > 1 then
      item = show.add(top, segment and "datagram" or "packet", range)
      show.generated(item, "packet.number", range(0, 0), i)
    end
    if segment then
      noun = "datagrams"
      text, whole = show_segment(item, range, segment, sender, pinfo, tvb:offset() + at, cut and i == number)
    else
      show.generated(item, "packet.length", range(0, 0), range:len())
      text = i > 1 and at == bare_hello_at(bytes) and not cut and show_sealed(item, range) or show_packet(item, range, bytes, at, sender, cut and i == number)
    end
    if number > 1 then item:append_text(string.format(" %d: %s", i, text)) end
    local part = segment and not segment.report
    if part and before and segments.same_packet(segment, before) then texts[#texts] = nil end
    texts[#texts + 1] = text
    before = part and not whole and segment or nil
  end
  local text = number > 1 and string.format("%d %s: ", number, noun) or ""
  return text .. table.concat(texts, " | ")
end

return exchange
