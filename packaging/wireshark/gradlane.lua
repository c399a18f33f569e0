-- gradlane.lua - Wireshark's dissector for gradlane: packets of the exchange, probes, bundles of accelerators
--
-- Wireshark and tshark load it from their plugin folders, or with -X lua_script:gradlane.lua. The other files of this
-- folder must be beside it. docs/wireshark.md says how to use it. It is for Lua 5.2 to 5.4, and is tested with Lua 5.2,
-- which is in Wireshark 4.0.
local function load(name, ...)
  local chunk, fault = loadfile(__DIR__ .. "/" .. name .. ".lua")
  if not chunk then error("gradlane: " .. fault) end
  return chunk(...)
end

local names, crc, numbers = load("names"), load("crc"), load("numbers")
local blocks = load("blocks", numbers, load("planes", numbers), load("votes", numbers), load("sparse", numbers),
  load("chunks", numbers), load("packed", numbers), load("deflate", numbers, load("inflate")))
local layouts = load("layouts", names)
local gradlane = Proto("gradlane", "gradlane: gradients between nodes")
local show = load("show", gradlane, layouts, names)
local operations = load("operations", numbers)
local segments = load("segments", numbers)
local exchange = load("exchange", show, names, crc, blocks, operations, segments)
local accelerator = load("accelerator", show, names, blocks)

gradlane.prefs.tos_wire = Pref.string("ToS of accelerators' packets", "0x30", "tos.wire of the configuration")

local tos_field, reserved_field = Field.new("ip.dsfield"), Field.new("ip.flags.rb")

-- Returns whether accelerators may have made the IP packet that is now dissected.
local function from_accelerator()
  local tos, reserved = { tos_field() }, { reserved_field() }
  local wanted = tonumber(gradlane.prefs.tos_wire)
  if #tos == 0 or not wanted then return false end
  local escaped = #reserved > 0 and reserved[#reserved].value
  return tos[#tos].value - tos[#tos].value % 4 == wanted and not escaped
end

function gradlane.init()
  operations.forget()
  segments.forget()
end

-- Returns the number of dissected bytes. It is 0 for a packet that is not gradlane's. Wireshark then shows its bytes.
function gradlane.dissector(tvb, pinfo, tree)
  local dissect = exchange.dissect
  if exchange.is_ours(tvb) then
    pinfo.conversation = gradlane -- because two bytes alone do not tell whose a later segment is
  elseif not exchange.is_segment(tvb) then
    if accelerator.is_ours(tvb, true) and from_accelerator() then
      dissect = accelerator.dissect
    elseif exchange.is_sealed(tvb) then
      dissect = exchange.dissect_sealed
    else
      return 0
    end
  end
  pinfo.cols.protocol = "gradlane"
  pinfo.cols.info = dissect(tvb, pinfo, tree)
  return tvb:len()
end

local function heuristic(is_ours)
  return function(tvb, pinfo, tree)
    if not is_ours(tvb) then return false end
    return gradlane.dissector(tvb, pinfo, tree) > 0
  end
end

gradlane:register_heuristic("udp", heuristic(function(tvb)
  return exchange.is_ours(tvb) or accelerator.is_ours(tvb, true) and from_accelerator()
end))
gradlane:register_heuristic("tcp", heuristic(function(tvb)
  return accelerator.is_ours(tvb, false) and from_accelerator()
end))
-- Registers the default port, which counts if no other protocol has it, and allows "Decode as".
DissectorTable.get("udp.port"):add(18400, gradlane)
