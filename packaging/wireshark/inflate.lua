-- inflate.lua - DEFLATE, RFC 1951: conversion of its streams back into bytes (no side effects)
--
-- Codes are read bit by bit and looked up by their length. This is fast enough, as blocks are not longer than packets.
local inflate = {}

local floor = math.floor

-- By length symbol, from 257 on: the least length, and the number of extra bits that follow. By distance symbol: the
-- least distance, and the number of extra bits that follow.
local lengths, distances = {}, {}
do
  local least = 3
  for i = 0, 27 do
    local extra = i < 8 and 0 or floor(i / 4) - 1
    lengths[i] = { least, extra }
    least = least + 2 ^ extra
  end
  lengths[28] = { 258, 0 }
  least = 1
  for i = 0, 29 do
    local extra = i < 4 and 0 or floor(i / 2) - 1
    distances[i] = { least, extra }
    least = least + 2 ^ extra
  end
end
-- order of the lengths of the code length codes
local order = { 16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15 }
local kEnd, kMostBits = 256, 15

-- Throws a fault as a text in a table. Nothing else throws a table.
local function fail(text) error({ fault = text }, 0) end

-- ---- Bits

local Reader = {}
Reader.__index = Reader

function Reader:bit()
  if self.left == 0 then
    self.byte, self.at, self.left = self.bytes:byte(self.at + 1), self.at + 1, 8
    if not self.byte then fail("its stream ends too early") end
  end
  local bit = self.byte % 2
  self.byte, self.left = floor(self.byte / 2), self.left - 1
  return bit
end

function Reader:number(count)
  local value = 0
  for i = 0, count - 1 do value = value + self:bit() * 2 ^ i end
  return value
end

-- ---- Huffman codes

-- Returns symbols by length and code. of: length of each symbol's code, by symbols from 0 on; 0: the symbol has no
-- code.
local function table_of(of, count)
  local number, first, symbols = {}, {}, {}
  for bits = 0, kMostBits do number[bits], symbols[bits] = 0, {} end
  for symbol = 0, count - 1 do number[of[symbol]] = number[of[symbol]] + 1 end
  local code = 0
  number[0] = 0
  for bits = 1, kMostBits do
    code = 2 * (code + number[bits - 1])
    first[bits] = code
    if code + number[bits] > 2 ^ bits then fail("too many codes in its stream") end
  end
  for symbol = 0, count - 1 do
    local bits = of[symbol]
    if bits > 0 then
      symbols[bits][first[bits]] = symbol
      first[bits] = first[bits] + 1
    end
  end
  return symbols
end

function Reader:symbol(symbols)
  local code = 0
  for bits = 1, kMostBits do
    code = 2 * code + self:bit()
    local symbol = symbols[bits][code]
    if symbol then return symbol end
  end
  fail("an unknown code in its stream")
end

-- Returns the fixed tables: for literals and lengths, and for distances.
local function fixed_tables()
  local of, far = {}, {}
  for symbol = 0, 287 do of[symbol] = symbol < 144 and 8 or symbol < 256 and 9 or symbol < 280 and 7 or 8 end
  for symbol = 0, 29 do far[symbol] = 5 end
  return table_of(of, 288), table_of(far, 30)
end

local function read_tables(reader)
  local literals, far_ones, own = reader:number(5) + 257, reader:number(5) + 1, reader:number(4) + 4
  local of = {}
  for symbol = 0, 18 do of[symbol] = 0 end
  for i = 1, own do of[order[i]] = reader:number(3) end
  local symbols, found = table_of(of, 19), {}
  local count = 0
  while count < literals + far_ones do
    local symbol, times = reader:symbol(symbols), 1
    local bits = symbol
    if symbol == 16 then
      if count == 0 then fail("its stream repeats a length before the first") end
      bits, times = found[count - 1], 3 + reader:number(2)
    elseif symbol == 17 then
      bits, times = 0, 3 + reader:number(3)
    elseif symbol == 18 then
      bits, times = 0, 11 + reader:number(7)
    end
    if count + times > literals + far_ones then fail("more lengths of codes in its stream than it announces") end
    for _ = 1, times do
      found[count] = bits
      count = count + 1
    end
  end
  local far = {}
  for i = 0, far_ones - 1 do far[i] = found[literals + i] end
  return table_of(found, literals), table_of(far, far_ones)
end

-- ---- Blocks of a stream

local function put(out, byte, most)
  if #out == most then fail("more floats in its stream than it announces") end
  out[#out + 1] = byte
end

local function stored(reader, out, most)
  reader.left = 0
  local length, other = reader:number(16), reader:number(16)
  if length + other ~= 65535 then fail("an invalid length in its stream") end
  for _ = 1, length do put(out, reader:number(8), most) end
end

local function compressed(reader, out, most, symbols, far)
  while true do
    local symbol = reader:symbol(symbols)
    if symbol < kEnd then
      put(out, symbol, most)
    elseif symbol == kEnd then
      return
    else
      local row = lengths[symbol - 257] or fail("an invalid length in its stream")
      local length = row[1] + reader:number(row[2])
      local way = distances[reader:symbol(far)] or fail("an invalid distance in its stream")
      local distance = way[1] + reader:number(way[2])
      if distance > #out then fail("its stream repeats bytes before its start") end
      for _ = 1, length do put(out, out[#out + 1 - distance], most) end
    end
  end
end

local function read(bytes, most)
  local reader, out = setmetatable({ bytes = bytes, at = 0, left = 0 }, Reader), {}
  repeat
    local last, kind = reader:bit(), reader:number(2)
    if kind == 0 then
      stored(reader, out, most)
    elseif kind == 1 then
      compressed(reader, out, most, fixed_tables())
    elseif kind == 2 then
      compressed(reader, out, most, read_tables(reader))
    else
      fail("an invalid block in its stream")
    end
  until last == 1
  if #out < most then fail("fewer floats in its stream than it announces") end
  if reader.at < #bytes then fail("bytes behind its stream") end
  return out
end

-- Decompresses a stream that must become `wanted` bytes and must end with its last byte. Returns the bytes as an array
-- of numbers, or nil and what is wrong.
function inflate.bytes(stream, wanted)
  local good, found = pcall(read, stream, wanted)
  if good then return found end
  if type(found) ~= "table" then error(found, 0) end
  return nil, found.fault
end

return inflate
