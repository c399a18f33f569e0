-- show.lua - Wireshark's fields, made from layouts, and its expert remarks (loaded once, by gradlane.lua)
local gradlane, layouts, names = ...
if not gradlane then return end -- Wireshark also loads this file alone, without arguments
local show = {}

local fields, list = {}, {}

local function add(path, field)
  fields[path] = field
  list[#list + 1] = field
end

local makers = { [1] = ProtoField.uint8, [2] = ProtoField.uint16, [3] = ProtoField.uint24, [4] = ProtoField.uint32,
  [8] = ProtoField.uint64 }

for section, rows in pairs(layouts) do
  for _, row in ipairs(section == "words" and {} or rows) do
    local _, bytes, name, label, style, values, mask = (table.unpack or unpack)(row, 1, 7)
    local path = (section == "link" and "" or section .. ".") .. name
    local filter = "gradlane." .. path
    if style == "float" then
      add(path, ProtoField.float(filter, label))
    elseif style == "bytes" then
      add(path, ProtoField.bytes(filter, label))
    else
      add(path, makers[bytes](filter, label, style == "hex" and base.HEX or base.DEC, values, mask))
    end
  end
end

-- Fields for values that follow from bytes but are not in a header.
add("packet", ProtoField.none("gradlane.packet", "Packet"))
add("datagram", ProtoField.none("gradlane.datagram", "Datagram"))
add("packet.number", ProtoField.uint16("gradlane.packet.number", "Number in its superpacket"))
add("packet.length", ProtoField.uint16("gradlane.packet.length", "Bytes"))
add("lives", ProtoField.bytes("gradlane.lives", "Lives"))
add("sealed", ProtoField.bytes("gradlane.sealed", "Encrypted bytes"))
add("superpacket", ProtoField.uint16("gradlane.superpacket", "Datagrams of a superpacket"))
add("crc.status", ProtoField.string("gradlane.crc.status", "CRC"))
add("crc.computed", ProtoField.uint32("gradlane.crc.computed", "Expected CRC32C", base.HEX))
add("codec", ProtoField.string("gradlane.codec", "Codec"))
add("codec.back", ProtoField.string("gradlane.codec.back", "Codec of results"))
add("strategy", ProtoField.string("gradlane.strategy", "Strategy"))
add("run", ProtoField.none("gradlane.run", "Run"))
add("run.type", ProtoField.uint8("gradlane.run.type", "Type", base.DEC, names.type))
add("run.padding", ProtoField.bytes("gradlane.run.padding", "Padding"))
add("block", ProtoField.bytes("gradlane.block", "Block"))
add("block.value", ProtoField.double("gradlane.block.value", "Value"))
add("block.steps", ProtoField.double("gradlane.block.steps", "Steps"))
add("block.place", ProtoField.uint16("gradlane.block.place", "Place"))
-- Fields of a block's first group, record or chunk.
add("block.tag", ProtoField.uint8("gradlane.block.tag", "Tag"))
add("block.planes", ProtoField.uint8("gradlane.block.planes", "Planes"))
add("block.raw", ProtoField.uint32("gradlane.block.raw", "Raw floats", base.HEX))
add("block.plane", ProtoField.bytes("gradlane.block.plane", "Plane"))
add("block.base", ProtoField.uint8("gradlane.block.base", "Largest exponent"))
add("block.mask", ProtoField.uint32("gradlane.block.mask", "Floats that travel", base.HEX))
add("block.mantissas", ProtoField.bytes("gradlane.block.mantissas", "Mantissas and signs"))
add("block.codes", ProtoField.bytes("gradlane.block.codes", "Codes"))
add("block.packed", ProtoField.bytes("gradlane.block.packed", "Values, packed"))
add("block.tags", ProtoField.uint64("gradlane.block.tags", "Tags", base.HEX))
add("block.head", ProtoField.uint16("gradlane.block.head", "Head", base.HEX))
add("block.range", ProtoField.uint16("gradlane.block.range", "Range"))
add("block.sent", ProtoField.uint16("gradlane.block.sent", "Values in all"))
add("block.count", ProtoField.uint8("gradlane.block.count", "Count"))
add("block.places", ProtoField.bytes("gradlane.block.places", "Places"))
add("block.bitmap", ProtoField.bytes("gradlane.block.bitmap", "Bitmap of places"))
add("block.width", ProtoField.uint8("gradlane.block.width", "Bits of a value"))
add("block.low", ProtoField.float("gradlane.block.low", "Low"))
add("block.high", ProtoField.float("gradlane.block.high", "High"))
add("block.half_least", ProtoField.float("gradlane.block.half_least", "Half of the least"))
add("block.half_step", ProtoField.float("gradlane.block.half_step", "Half of a step"))
add("block.step", ProtoField.float("gradlane.block.step", "Step"))
add("block.floats", ProtoField.uint16("gradlane.block.floats", "Floats"))
add("block.deflated", ProtoField.bool("gradlane.block.deflated", "Deflated"))
add("block.stream", ProtoField.bytes("gradlane.block.stream", "Stream"))
add("rest", ProtoField.bytes("gradlane.rest", "Not decoded"))
add("bundle.kind", ProtoField.uint8("gradlane.bundle.kind", "Kind", base.DEC, names.bundle_kind))
add("record", ProtoField.none("gradlane.record", "Record"))
add("record.word", ProtoField.uint32("gradlane.record.word", "Header word", base.HEX))
add("record.lead", ProtoField.bytes("gradlane.record.lead", "Lead"))
add("record.trail", ProtoField.bytes("gradlane.record.trail", "Trail"))
add("record.floats", ProtoField.uint16("gradlane.record.floats", "Floats"))
gradlane.fields = list
show.proto = gradlane

local experts, group, level = {}, expert.group, expert.severity
for name, row in pairs({
  bad_crc = { "The CRC is wrong: damaged on its way; receivers drop it", group.CHECKSUM, level.ERROR },
  bad_version = { "Another version of the protocol: these nodes do not work together", group.PROTOCOL, level.ERROR },
  bad_kind = { "Unknown kind", group.PROTOCOL, level.ERROR },
  too_short = { "Shorter than its headers", group.PROTOCOL, level.ERROR },
  bad_run = { "A run that does not fit its packet", group.PROTOCOL, level.ERROR },
  bad_digest = { "The digest is not that of the descriptor", group.PROTOCOL, level.ERROR },
  bad_block = { "The payload is no block of this codec", group.PROTOCOL, level.ERROR },
  bad_segment = { "The segments are no packet", group.PROTOCOL, level.ERROR },
  bad_record = { "A record that does not fit its bundle", group.PROTOCOL, level.ERROR },
  cut = { "The capture has less of this packet than was sent", group.UNDECODED, level.NOTE },
  failed = { "An operation has failed", group.SEQUENCE, level.WARN },
  ended = { "The generation before this one ended by a failure", group.SEQUENCE, level.WARN },
  complaint = { "A node complains that packets do not arrive correctly", group.SEQUENCE, level.WARN },
}) do
  experts[name] = ProtoExpert.new("gradlane.expert." .. name, row[1], row[2], row[3])
end
local all = {}
for _, one in pairs(experts) do all[#all + 1] = one end
gradlane.experts = all

-- Adds an expert remark to an item. text: details beyond the remark itself, or nil.
function show.expert(item, name, text)
  if text then
    item:add_proto_expert_info(experts[name], text)
  else
    item:add_proto_expert_info(experts[name])
  end
end

function show.add(tree, path, range, ...) return tree:add(fields[path], range, ...) end

function show.generated(tree, path, range, ...) return tree:add(fields[path], range, ...):set_generated() end

-- Shows all fields of that section that the header (a TvbRange) has. Returns the items by name.
function show.layout(tree, section, range)
  local items = {}
  for _, row in ipairs(layouts[section]) do
    local offset, bytes, name = row[1], row[2], row[3]
    if offset + bytes <= range:len() then
      items[name] = tree:add_le(fields[(section == "link" and "" or section .. ".") .. name], range(offset, bytes))
    end
  end
  return items
end

-- Shows a block as blocks.decode() has found it.
function show.block(tree, range, found)
  local item = tree:add(fields.block, range)
  for _, row in ipairs(found.fields) do
    local name, at, length, value = (table.unpack or unpack)(row, 1, 4)
    local field, part = fields["block." .. name], range(at, length)
    if value == nil then
      item:add_le(field, part)
    else
      item:add(field, part, value):set_generated()
    end
  end
  for _, row in ipairs(found.values) do
    local number, in_steps, place = (table.unpack or unpack)(row, 1, 3)
    local one = tree:add(fields[in_steps and "block.steps" or "block.value"], range, number):set_generated()
    if place then
      one:append_text(string.format(" at %d", place))
      one:add(fields["block.place"], range, place):set_generated()
    end
  end
  if found.wrong then show.expert(item, "bad_block", "The payload is no block of this codec: " .. found.wrong) end
end

function show.word(tree, bit, range)
  local label = layouts.words[math.min(bit, 4)]
  tree:add(fields["record.word"], range):prepend_text(label .. ", ")
end

return show
