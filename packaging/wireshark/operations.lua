-- operations.lua - for exchange.lua: what hellos and starts say about operations: types, codecs, and the values that
-- ranks agree on
--
-- The facts are kept until a capture is read again. Codecs are {id, param, plus, number, rate}: arguments as in a
-- descriptor.
local numbers = ...
if not numbers then return end -- Wireshark also loads this file alone, without arguments
local operations = {}

local described -- by digest: {type, codec, back}
local members -- by address and port: {rank, world}
local offers -- by session, operation and digest: offers by rank

function operations.forget() described, members, offers = {}, {}, {} end
operations.forget()

function operations.hello(sender, rank, world) members[sender] = { rank = rank, world = world } end

local function key(session, run) return session .. run.operation .. " " .. run.digest end

-- ---- Descriptors

-- Returns a codec from id and parameter byte at `at`, and from 7 bytes more at `arguments` if the range has them.
function operations.codec_at(range, at, arguments)
  local codec = { id = range(at, 1):uint(), param = range(at + 1, 1):uint(), plus = 0, number = 0, rate = 0 }
  if range:len() >= arguments + 8 then
    codec.plus, codec.number = range(arguments, 1):uint(), range(arguments + 1, 2):le_uint()
    codec.rate = range(arguments + 3, 4):le_uint()
  end
  return codec
end

-- Returns the codecs of sums and of results in a descriptor.
function operations.codecs(range)
  local codec = operations.codec_at(range, 21, 32)
  return codec, range:len() >= 32 and operations.codec_at(range, 28, 40) or codec
end

-- Notes a start whose digest is right. type: nil if it is not known.
function operations.start(session, sender, run, range, type)
  local codec, back = operations.codecs(range)
  described[run.digest] = { type = type, codec = codec, back = back }
  local member = members[sender]
  if range:len() < 56 or not member then return end
  local offer, of = range(48, 4):le_float(), key(session, run)
  if offer < 0 or offer >= math.huge or offer ~= offer then return end
  offers[of] = offers[of] or {}
  offers[of][member.rank], offers[of].world = offer, member.world
end

function operations.type(digest) return described[digest] and described[digest].type end

-- ---- What ranks agree on, as docs/codec-format.md has it

local kLeast, kMostStep, kMostScale = -126, 103, 119

local function within(exponent, most) return 2 ^ math.max(kLeast, math.min(exponent, most)) end

-- Returns the exponent of the greatest power of two that is not above `agreed`.
local function below(agreed)
  return agreed > 0 and numbers.exponent(agreed) or kLeast
end

local steps = {
  [6] = function(codec, greatest) return within(below(greatest) + 1 - codec.param, kMostStep) end,
  [7] = function(_, greatest)
    return within(2 ^ below(greatest) < greatest and below(greatest) + 1 or below(greatest), kMostStep)
  end,
  [11] = function(_, _, mean)
    local scaled = numbers.rounded(numbers.rounded(mean) * numbers.rounded(1.41421356))
    return mean > 0 and within(scaled == math.huge and kMostScale or numbers.exponent(scaled), kMostScale) or 2 ^ kLeast
  end,
}

-- Returns the step that ranks agree on. Returns nil if an offer of a rank or the rank's hello has not been captured.
local function agreed_step(codec, of)
  if not of or not steps[codec.id] or of.world == 0 then return nil end
  local greatest, sum = 0, 0
  for rank = 0, of.world - 1 do
    if not of[rank] then return nil end
    greatest, sum = math.max(greatest, of[rank]), sum + of[rank]
  end
  return steps[codec.id](codec, greatest, sum / of.world)
end

-- ---- Runs

-- Returns the codec of a run of elements, for blocks.decode(). It has as many members as are known from headers and
-- starts.
function operations.codec(session, run)
  local known = described[run.digest]
  local function is(codec) return codec.id == run.codec and codec.param == run.param end
  local codec = known and (run.phase == 1 and is(known.back) and known.back or is(known.codec) and known.codec)
  if not codec then return { id = run.codec, param = run.param } end
  return {
    id = codec.id, param = codec.param, plus = codec.plus, number = codec.number, rate = codec.rate,
    step = agreed_step(codec, offers[key(session, run)]),
  }
end

return operations
