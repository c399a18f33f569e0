-- layouts.lua - tables of every field of every header in docs/wire-format.md, docs/accelerator.md and
-- dataplane/udp/segments.h (no side effects)
--
-- A row is {offset, bytes, name, label, how to show it, names of its values, mask of its bits}. Bytes are
-- little-endian. A header that ends before a field does not have this field.
local names = ...
if not names then return end -- Wireshark also loads this file alone, without arguments
local layouts = {}

layouts.link = {
  { 0, 2, "magic", "Magic", "hex" },
  { 2, 1, "version", "Version" },
  { 3, 1, "kind", "Kind", "dec", names.kind },
  { 4, 4, "sequence", "Sequence" },
  { 8, 8, "session", "Session", "hex" },
  { 12, 4, "generation", "Generation" },
  { 16, 8, "sack", "Sack", "hex" },
  { 24, 4, "ack", "Ack" },
  { 28, 2, "credit", "Credit" },
  { 30, 2, "sack_from", "Sack from" },
  { 32, 4, "stamp", "Stamp (64 ns)" },
  { 36, 4, "echo", "Echo (64 ns)" },
  { 40, 4, "crc", "CRC32C", "hex" },
}

layouts.hello = {
  { 0, 8, "incarnation", "Incarnation", "hex" },
  { 8, 8, "challenge", "Challenge", "hex" },
  { 16, 8, "echo", "Echo of challenge", "hex" },
  { 24, 8, "rank_table", "Rank table", "hex" },
  { 32, 2, "world", "World" },
  { 34, 2, "rank", "Rank" },
  { 36, 2, "target", "Target" },
  { 38, 2, "mtu", "MTU", "dec", nil, 0x7fff },
  { 38, 2, "in_segments", "Longer packets go in segments", "dec", names.yes, 0x8000 },
  { 40, 1, "codec", "Codec", "dec", names.codec },
  { 41, 1, "param", "Parameter" },
  { 42, 2, "reach", "Reach" },
  { 44, 1, "cause_code", "Cause: code", "dec", names.failure },
  { 45, 1, "unsettled", "Unsettled" },
  { 46, 2, "cause_rank", "Cause: rank" },
  { 48, 8, "met", "Met", "hex" },
  { 56, 4, "since", "Since" },
  { 60, 1, "cause_field", "Cause: field", "dec", names.field },
  { 61, 1, "complaint", "Complaint", "dec", names.field },
  { 62, 2, "complaint_value", "Complaint: value", "hex" },
  { 64, 8, "cause_ours", "Cause: ours", "hex" },
  { 72, 8, "cause_theirs", "Cause: theirs", "hex" },
  { 80, 2, "nodes", "Nodes" },
  { 82, 2, "trainers", "Trainers" },
  { 84, 2, "lanes", "Lanes" },
  { 86, 2, "udp_port", "UDP port" },
  { 88, 1, "tos_compressed", "ToS of compressed", "hex" },
  { 89, 1, "tos_raw", "ToS of raw", "hex" },
  { 90, 1, "tos_control", "ToS of control", "hex" },
  { 91, 1, "local_reduce", "Local reduce" },
  { 92, 4, "addresses", "Addresses", "hex" },
  { 96, 8, "strategies", "Strategies", "hex" },
  { 104, 1, "plus_fixed", "Codec: b of +fixed:b" },
  { 105, 2, "number", "Codec: first number" },
  { 107, 4, "rate", "Codec: rate (of a million)" },
  { 112, 1, "auto_scope", "Left open: codec", "dec", names.auto_scope },
  { 113, 1, "left_open_bits", "Left open: B" },
  { 114, 1, "left_open_strategy", "Left open: strategy" },
}

layouts.segment = {
  { 0, 2, "magic", "Magic", "hex" },
  { 2, 1, "number", "Number", "dec", nil, 0x3f },
  { 2, 1, "last", "Last", "dec", names.yes, 0x40 },
  { 2, 1, "report", "Report", "dec", names.yes, 0x80 },
  { 3, 1, "session", "Session: low byte", "hex" },
  { 4, 4, "sequence", "Sequence" },
  { 8, 8, "arrived", "Arrived", "hex" },
}

layouts.run = {
  { 0, 4, "operation", "Operation" },
  { 4, 4, "digest", "Digest", "hex" },
  { 8, 4, "first", "First granule, stage or limit" },
  { 12, 2, "count", "Elements" },
  { 14, 2, "bytes", "Bytes" },
  { 16, 1, "block", "Block, or rank of an abort" },
  { 17, 1, "phase", "Phase", "dec", names.phase },
  { 18, 1, "codec", "Codec", "dec", names.codec },
  { 19, 1, "param", "Parameter" },
}

layouts.descriptor = {
  { 0, 8, "tag", "Tag" },
  { 8, 8, "count", "Elements" },
  { 16, 2, "root", "Root" },
  { 18, 1, "kind", "Operation", "dec", names.operation },
  { 19, 1, "type", "Type", "dec", names.type },
  { 20, 1, "reduction", "Reduction", "dec", names.reduction },
  { 21, 1, "codec", "Codec", "dec", names.codec },
  { 22, 1, "param", "Parameter" },
  { 23, 1, "reserved", "Reserved", "hex" },
  { 24, 4, "strategy", "Strategy", "hex" },
  { 28, 1, "back_codec", "Codec of results", "dec", names.codec },
  { 29, 1, "back_param", "Parameter of results" },
  { 30, 2, "back_reserved", "Reserved", "hex" },
  { 32, 1, "plus_fixed", "Codec: b of +fixed:b" },
  { 33, 2, "number", "Codec: first number" },
  { 35, 4, "rate", "Codec: rate (of a million)" },
  { 40, 1, "back_plus_fixed", "Codec of results: b of +fixed:b" },
  { 41, 2, "back_number", "Codec of results: first number" },
  { 43, 4, "back_rate", "Codec of results: rate (of a million)" },
  { 48, 4, "offer", "Offer", "float" },
}

layouts.abort = {
  { 0, 8, "ours", "Ours" },
  { 8, 8, "theirs", "Theirs" },
  { 16, 2, "rank", "Rank" },
  { 18, 1, "code", "Failure", "dec", names.failure },
  { 19, 1, "field", "Field that differs", "dec", names.field },
  { 20, 4, "reserved", "Reserved", "hex" },
}

layouts.probe = {
  { 0, 2, "magic", "Magic", "hex" },
  { 2, 1, "version", "Version" },
  { 3, 1, "kind", "Kind", "dec", names.probe_kind },
  { 4, 4, "id", "Id", "hex" },
  { 8, 8, "nonce", "Nonce", "hex" },
  { 16, 8, "rank_table", "Rank table", "hex" },
  { 24, 2, "nodes", "Nodes" },
  { 26, 2, "node", "Node" },
  { 28, 2, "mtu", "MTU" },
  { 30, 1, "codec", "Codec", "dec", names.codec },
  { 31, 1, "param", "Parameter" },
  { 32, 1, "protocol", "Version of link headers" },
  { 33, 3, "arguments", "Arguments of the codec, digest", "hex" },
  { 36, 1, "tos", "ToS as sent", "hex" },
  { 37, 1, "arrived_tos", "ToS as arrived", "hex" },
  { 38, 2, "arrived", "Length as arrived" },
  { 40, 4, "crc", "CRC32C", "hex" },
}

layouts.envelope = {
  { 0, 8, "counter", "Counter" },
  { 8, 2, "key", "Id of the key", "hex" },
  { 10, 1, "kind", "Kind", "dec", names.envelope_kind },
  { 12, 16, "tag", "Tag", "bytes" },
}

layouts.bundle = {
  { 0, 1, "magic", "Magic", "hex" },
  { 1, 1, "version", "Version and kind", "hex" },
  { 2, 1, "codec", "Codec", "dec", names.codec },
  { 3, 1, "param", "Parameter" },
}

layouts.bundle_hello = { { 0, 8, "nonce", "Nonce", "hex" } }

layouts.record = {
  { 0, 2, "payload_bytes", "Bytes of the host's payload" },
  { 2, 2, "block_bytes", "Bytes of the block" },
  { 4, 1, "shape", "Shape", "hex" },
  { 5, 1, "zero", "Zero" },
  { 6, 2, "mask", "Mask of header words", "hex" },
}

-- Header words of a record, by the bits of its mask.
layouts.words = { [0] = "IP identification and flags", [1] = "TCP sequence number", [2] = "TCP acknowledgement",
  [3] = "TCP flags and window", [4] = "TCP option word" }

return layouts
