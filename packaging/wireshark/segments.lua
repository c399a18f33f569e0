-- segments.lua - reassembles packets that were sent in segments (docs/wire-format.md), and shows reports of segments
--
-- Segments are kept until their packet is complete, or another packet takes its place. Reassembled packets are kept
-- until the capture is read again, because Wireshark dissects frames more than once, in any order.
local numbers = ...
if not numbers then return end -- Wireshark also loads this file alone, without arguments
local segments = {}

local kPlaces = 128 -- incomplete packets of one sender that are kept; a later packet takes the place of an older one

local places -- by flow and place: {session, sequence, last, [number] = part}
local joined -- by frame and offset: packets that became complete there

function segments.forget() places, joined = {}, {} end
segments.forget()

segments.kHeader, segments.kReport = 8, 16

-- Returns the header of the segment or report at offset `at` of a string, or nil.
function segments.read(bytes, at)
  if bytes:sub(at + 1, at + 2) ~= "GS" or #bytes - at <= segments.kHeader then return nil end
  local bits, session = bytes:byte(at + 3, at + 4)
  local report = bits >= 128
  if report and #bytes - at < segments.kReport then return nil end
  return { number = bits % 64, last = bits % 128 >= 64, report = report, session = session,
    sequence = numbers.unsigned(bytes, at + 4, 4) }
end

function segments.same_packet(a, b) return a.session == b.session and a.sequence == b.sequence end

-- Adds a segment. Returns its packet if no other segment is missing, else nil.
--   flow:  text that is the same for all packets from one socket to another
--   part:  bytes of the packet in this segment
--   here:  text that no other segment of the capture has
--   again: whether this segment was dissected before
function segments.join(flow, it, part, here, again)
  if again then return joined[here] end
  local place = it.sequence % kPlaces
  places[flow] = places[flow] or {}
  local packet = places[flow][place]
  if not (packet and segments.same_packet(packet, it)) then
    packet = { session = it.session, sequence = it.sequence }
    places[flow][place] = packet
  end
  packet[it.number] = part
  if it.last then packet.last = it.number end
  if not packet.last then return nil end
  for i = 0, packet.last do
    if not packet[i] then return nil end
  end
  places[flow][place] = nil
  joined[here] = table.concat(packet, "", 0, packet.last)
  return joined[here]
end

return segments
