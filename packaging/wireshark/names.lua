-- names.lua - names of numbers in docs/wire-format.md and docs/codec-format.md (no side effects)
local names = {}

names.yes = { [0] = "no", [1] = "yes" }

names.kind = { [1] = "hello", [2] = "acknowledgement", [3] = "data" }
names.probe_kind = { [1] = "request", [2] = "reply" }
names.envelope_kind = { [1] = "hello", [2] = "acknowledgement or data", [3] = "probe" }
names.bundle_kind = { [1] = "records", [2] = "hello", [3] = "answer" }

names.phase = {
  [0] = "reduce", [1] = "gather", [2] = "start", [3] = "abort", [4] = "credit", [5] = "padding",
}

names.operation = {
  [0] = "all-reduce", [1] = "reduce-scatter", [2] = "all-gather", [3] = "broadcast", [4] = "barrier", [5] = "reduce",
  [6] = "gather", [7] = "scatter", [8] = "all-to-all",
}

names.type = {
  [0] = "float32", [1] = "float64", [2] = "float16", [3] = "bfloat16", [4] = "int32", [5] = "int64", [6] = "bytes",
}
names.type_bytes = { [0] = 4, [1] = 8, [2] = 2, [3] = 2, [4] = 4, [5] = 8, [6] = 1 }

names.reduction = { [0] = "sum", [1] = "average", [2] = "minimum", [3] = "maximum" }

names.codec = {
  [0] = "raw", [1] = "bf16", [2] = "fp16", [3] = "inceptionn", [4] = "fixed", [5] = "fixed,stochastic",
  [6] = "fixed:rel", [7] = "terngrad", [8] = "tbq", [9] = "signsgd", [10] = "signsgd,ternary", [11] = "signsgd,ef",
  [12] = "topk", [13] = "mstopk", [14] = "dgc", [15] = "graddrop", [16] = "onebit", [17] = "qsgd", [18] = "int8",
  [19] = "fp8", [20] = "trunc", [21] = "deflate", [22] = "inceptionn,literal", [23] = "pack",
  [24] = "exact",
}

names.failure = {
  [0] = "none", [1] = "silent", [2] = "restarted", [3] = "refused", [4] = "mismatch", [5] = "aborted",
  [6] = "no ring", [7] = "stuck", [8] = "closed", [9] = "doubled",
}

names.field = {
  [0] = "none", [1] = "protocol version", [2] = "world", [3] = "rank", [4] = "rank table", [5] = "mtu", [6] = "codec",
  [7] = "kind", [8] = "type", [9] = "count", [10] = "root", [11] = "reduction", [12] = "tag", [13] = "nodes",
  [14] = "trainers", [15] = "local_reduce", [16] = "lanes", [17] = "udp_port", [18] = "tos compressed",
  [19] = "tos raw", [20] = "tos control", [21] = "addresses", [22] = "packets arrive with another ToS",
  [23] = "long packets do not arrive", [24] = "packets do not arrive", [25] = "strategy", [26] = "strategies",
  [27] = "codec of results", [28] = "long packets do not arrive, and probes know how long they may be",
  [29] = "scope of auto", [30] = "what the libraries choose", [31] = "a trainer wrote to a tensor in use",
}

names.auto_scope = { [0] = "nothing", [1] = "an exact codec", [2] = "a codec of an error up to 2^-B",
  [3] = "a codec of an error up to 2^-B of the largest value" }

-- Codecs whose parameter byte is the number after the colon.
local numbered = { [4] = "fixed:%d", [5] = "fixed:%d,stochastic", [6] = "fixed:rel=%d", [8] = "tbq:%d",
  [17] = "qsgd:%d", [20] = "trunc:%d", [22] = "inceptionn:%d,literal" }

-- Texts of the first number of a codec's arguments: the text before it, the default, which is not shown, and the
-- divisor.
local extras = { [7] = { ":", 250, 100 }, [14] = { ",m=", 900, 1000 }, [16] = { ":", 256, 1 }, [17] = { "/", 512, 1 },
  [18] = { ":", 256, 1 }, [19] = { ":", 256, 1 } }
local kPercent = 10000 -- millionths in a percent

-- Returns a codec as the configuration has it, as far as it is known. codec: {id, param}, and all or none of `plus`,
-- `number` and `rate`, which are in descriptors.
function names.codec_text(codec)
  local id, param = codec.id, codec.param
  if id == 3 then return string.format("inceptionn:%d%s", param % 128, param >= 128 and ",truncate" or "") end
  local text = names.codec[id] or string.format("codec %d", id)
  if numbered[id] then text = string.format(numbered[id], param) end
  if not codec.number then return text end
  local extra = extras[id]
  if codec.rate > 0 then text = string.format("%s:%.10g%%", text, codec.rate / kPercent) end
  if extra and codec.number ~= extra[2] then
    text = string.format("%s%s%.10g", text, extra[1], codec.number / extra[3])
  end
  if id == 14 and param > 0 then text = string.format("%s,clip=%.10g", text, param / 10) end
  return codec.plus > 0 and string.format("%s+fixed:%d", text, codec.plus) or text
end

-- Returns the strategy for the code in a descriptor. A code of 0 is the ring, because the descriptor then names no
-- strategy.
function names.strategy_text(code)
  local kind, number = code % 256, math.floor(code / 256) % 256
  if code == 0 or kind == 1 then return "ring" end
  if kind == 2 then return "direct" end
  if kind == 3 then return string.format("rings:%d", number + 1) end
  if kind == 4 then return string.format("aggregator:%d%s", number, code >= 65536 and ",stream" or "") end
  return string.format("strategy %d", code)
end

-- Returns the text of the strategies in `bytes`, a string of 8 bytes of a hello. Each of up to five strategies has 12
-- bits.
function names.strategies_text(bytes)
  local function nibble(i)
    local byte = bytes:byte(math.floor(i / 2) + 1)
    return i % 2 == 0 and byte % 16 or math.floor(byte / 16)
  end
  local found = {}
  for i = 0, 12, 3 do
    local kind = nibble(i)
    if kind ~= 0 then
      local number = nibble(i + 1) + 16 * nibble(i + 2)
      local stream = kind >= 8 and 65536 or 0
      found[#found + 1] = names.strategy_text(kind % 8 + 256 * number + stream)
    end
  end
  return #found > 0 and table.concat(found, ", ") or "ring"
end

return names
