// writer.h - the writer of a tagged block into limited room; included by the kernels of every instruction set
//
// In a block, the tags precede the payload. So the payload's start depends on how many groups will fit. The writer
// knows that number only at the end. Nearly always all groups fit: then the payload is written to its final place, and
// nothing moves. Otherwise, groups that do not fit after the full set of tags are written to a buffer on the stack. At
// the end, both parts of the payload are joined after the tags that are really used.
//
// A source is a copyable object that knows the floats. Each of its functions writes groups from `group` on, their
// payload to the sink, and their tag words to their places in the block at `tags`. It returns the group at which it
// stopped, and changes nothing for groups that it did not write.
// - `size_t run(size_t group, Sink& sink, uint8_t* tags)` may stop at any group.
// - `size_t resume(size_t group, Sink& sink, uint8_t* tags)` may stop at any group, too, but writes more groups than
//   run() if little space is left.
// - `size_t step(size_t group, Sink& sink, uint8_t* tags)` writes at least the first group, of any kind, if the sink
//   has room. A source that cannot continue for another reason writes nothing from then on.
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/layout.h"

namespace gradlane {
namespace {

// Output for payload: from `at` on, up to `end`.
struct Sink {
  uint8_t* at;
  uintptr_t end;  // an integer, because it may lie before `at` when no space is left
  // bytes that a group takes in addition to its payload: kTagBytes if no space is reserved for its tag word, else 0
  size_t group_cost;

  [[nodiscard]] ptrdiff_t room() const { return static_cast<ptrdiff_t>(end - reinterpret_cast<uintptr_t>(at)); }
  // Returns a number of groups that certainly fit if each has at most `bytes` of payload.
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

// Continues where the first run() stopped, after `done` groups. If the tags of all groups fit into `room`, `sink`
// continues after the payload of these groups.
template <class Source>
[[gnu::noinline]] EncodeResult write_rest(Source source, size_t floats, size_t done, Sink sink, uint8_t* out,
                                          size_t room) noexcept {
  const size_t groups = groups_of(floats);
  size_t direct = 0;  // bytes of payload that already lie in `out`, after the space for the tags of all groups
  if (groups * kTagBytes <= room) {
    done = write_groups(source, done, groups, sink, out);
    direct = static_cast<size_t>(sink.at - out) - groups * kTagBytes;
    if (done == groups) return {floats, groups * kTagBytes + direct};
  }
  // any block of these floats fits, so the source has stopped because of an error
  if (room > kMaxPacket) return {0, 0};
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

// Writes a block of as many of `floats` values as fit into `room` bytes (see Codec::encode()). Most blocks are complete
// after the first run(). Others continue in write_rest(), which is out of line, so that this path needs none of its
// registers and stack.
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
