// writer.h - how a tagged block grows in an output of limited room; included by the kernels of every instruction set
//
// Tags stand in front of the payload, so where the payload begins depends on how many groups will fit, which is known
// only at the end. Nearly always all groups offered fit: the payload is written where it belongs then, and nothing
// moves. Else the groups that did not fit behind the full set of tags go on in a buffer on the stack, and the two parts
// of the payload are joined behind the tags that were really used.
//
// A source is a copyable object that knows the floats. All of its functions write groups from `group` on, payload to
// the sink, tag words where they belong in the block at `tags`, and return the group they stopped at. Of groups that
// were not written they change nothing.
// - `size_t run(size_t group, Sink& sink, uint8_t* tags)` stops wherever it likes to.
// - `size_t resume(size_t group, Sink& sink, uint8_t* tags)` does so, too, but gets further where room is scarce.
// - `size_t step(size_t group, Sink& sink, uint8_t* tags)` writes the first one, of any kind, if the sink has room, and
//   may write more. A source that cannot go on for another reason writes nothing from then on.
//
// In an unnamed namespace for the same reason as layout.h.
#pragma once

#include "compress/layout.h"

namespace gradlane {
namespace {

// Where payload goes: from `at` on, up to `end`.
struct Sink {
  uint8_t* at;
  uintptr_t end;      // an address, since it may lie before `at` when there is no room left
  size_t group_cost;  // room that every group takes beside its payload: its tag word, where that is not set aside yet

  [[nodiscard]] ptrdiff_t room() const { return static_cast<ptrdiff_t>(end - reinterpret_cast<uintptr_t>(at)); }
  // As many groups of `bytes` payload each surely fit.
  [[nodiscard]] size_t fitting(size_t bytes) const {
    const ptrdiff_t left = room();
    return left < static_cast<ptrdiff_t>(bytes) ? 0 : static_cast<size_t>(left) / (bytes + kTagBytes);
  }
  void advance(size_t bytes) {
    at += bytes;
    end -= group_cost;
  }
};

template <class Source>
GRADLANE_INLINE size_t write_groups(Source& source, size_t done, size_t groups, Sink& sink, uint8_t* out) {
  for (;;) {
    done = source.resume(done, sink, out);
    if (done == groups) return done;
    const size_t stop = source.step(done, sink, out);
    if (stop == done || stop == groups) return stop;
    done = stop;
  }
}

// Goes on where the first run() stopped, after `done` groups. `sink` stands behind their payload if there was room for
// the full set of tags.
template <class Source>
[[gnu::noinline]] EncodeResult write_rest(Source source, size_t floats, size_t done, Sink sink, uint8_t* out,
                                          size_t room) noexcept {
  const size_t groups = groups_of(floats);
  size_t direct = 0;  // bytes of payload behind the full set of tags
  if (groups * kTagBytes <= room) {
    done = write_groups(source, done, groups, sink, out);
    direct = static_cast<size_t>(sink.at - out) - groups * kTagBytes;
    if (done == groups) return {floats, groups * kTagBytes + direct};
  }
  if (room > kMaxPacket) return {0, 0};  // room for all: the source has given up
  uint8_t buffer[kMaxPacket];
  sink = {buffer, reinterpret_cast<uintptr_t>(buffer) + room - (done + 1) * kTagBytes - direct, kTagBytes};
  done = write_groups(source, done, groups, sink, out);
  if (done == 0) return {0, 0};
  const auto spilt = static_cast<size_t>(sink.at - buffer);
  uint8_t* const begin = out + done * kTagBytes;
  if (direct != 0) std::memmove(begin, out + groups * kTagBytes, direct);
  std::memcpy(begin + direct, buffer, spilt);
  return {done * kGroupFloats, done * kTagBytes + direct + spilt};
}

// Writes a block of as many of `floats` values as fit into `room` bytes (see Codec::encode()). Most blocks end with the
// first run(); all else is out of line, which keeps that path free of its registers and stack.
template <class Source>
GRADLANE_INLINE EncodeResult write_block(Source source, size_t floats, uint8_t* out, size_t room) {
  room = usable_room(floats, room);
  const size_t groups = groups_of(floats);
  Sink sink{out, 0, 0};
  size_t done = 0;
  if (groups * kTagBytes <= room) [[likely]] {
    sink = {out + groups * kTagBytes, reinterpret_cast<uintptr_t>(out) + room, 0};
    done = source.run(0, sink, out);
    if (done == groups) [[likely]]
      return {floats, static_cast<size_t>(sink.at - out)};
  }
  return write_rest(source, floats, done, sink, out, room);
}

}  // namespace
}  // namespace gradlane
