// buffers.c - memory shared with the daemon (the thread of the context)
//
// A client may have at most GL_MAX_SEGMENTS segments, and a model may have more tensors than that. So each segment
// holds several buffers, and new segments are larger the more memory the client has. Buffers are sorted by address.
// Memory that belongs to no buffer is zero: it was never used, or its pages were given back to the kernel.
#include "client/library/buffers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/library/daemon_calls.h"
#include "client/library/progress.h"
#include "client/library/requests.h"

enum { kPage = 4096 };
static const size_t kMinSegment = (size_t)1 << 20;

static size_t round_up(size_t bytes) { return (bytes + kPage - 1) & ~(size_t)(kPage - 1); }

static size_t find_index(const gradlane_context* gl, const void* address) {
  // Finds the first buffer that begins after the address.
  size_t low = 0;
  size_t high = gl->buffers.count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if ((uintptr_t)gl->buffers.entries[middle].base > (uintptr_t)address) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

const struct gl_buffer* gl_find_buffer(const gradlane_context* gl, const void* address) {
  const size_t next = find_index(gl, address);
  if (next == 0) return NULL;
  const struct gl_buffer* const it = &gl->buffers.entries[next - 1];
  return (uintptr_t)address - (uintptr_t)it->base < it->bytes ? it : NULL;
}

// Returns the address of free space for `bytes` bytes in this segment, or NULL.
static uint8_t* find_gap(const gradlane_context* gl, const struct gl_mapping* segment, size_t bytes) {
  uint8_t* place = segment->base;
  uint8_t* const end = segment->base + segment->bytes;
  for (size_t i = find_index(gl, segment->base - 1); i < gl->buffers.count; ++i) {
    const struct gl_buffer* const it = &gl->buffers.entries[i];
    if (it->base >= end) break;
    if ((size_t)(it->base - place) >= bytes) return place;
    place = it->base + round_up(it->bytes);
  }
  return (size_t)(end - place) >= bytes ? place : NULL;
}

static gradlane_code free_segment(gradlane_context* gl, uint32_t id) {
  struct gl_mapping* const segment = &gl->segments[id];
  (void)munmap(segment->base, segment->bytes);
  segment->base = NULL;
  if (gl->gone) return GRADLANE_OK;
  const struct gl_segment request = {.type = GL_MSG_FREE, .id = id, .bytes = segment->bytes};
  union gl_message answer;
  return gl_ask(gl, &request, sizeof(request), GL_MSG_FREED, sizeof(answer.segment), GRADLANE_FAILED, &answer, NULL);
}

static gradlane_code new_segment(gradlane_context* gl, size_t bytes, uint32_t* id) {
  const struct gl_allocate request = {.type = GL_MSG_ALLOCATE, .bytes = bytes};
  union gl_message answer;
  struct gl_fds fds = {.count = 0};
  const gradlane_code code =
      gl_ask(gl, &request, sizeof(request), GL_MSG_SEGMENT, sizeof(answer.segment), GRADLANE_NO_MEMORY, &answer, &fds);
  if (code != GRADLANE_OK) return code;
  *id = answer.segment.id;
  struct stat status;
  if (fds.count != 1 || *id >= GL_MAX_SEGMENTS || gl->segments[*id].base != NULL || answer.segment.bytes < bytes ||
      answer.segment.bytes > PTRDIFF_MAX || fstat(fds.fd[0], &status) != 0 ||
      (uint64_t)status.st_size < answer.segment.bytes) {
    gl_close_fds(&fds);
    gl_gone(gl,
            "the daemon at %s (pid %u) sent an invalid segment: number %u of %llu bytes; install daemon and library of "
            "one version",
            gl->address.sun_path, gl->welcome.pid, *id, (unsigned long long)answer.segment.bytes);
    return gl_fail(gl, GRADLANE_DAEMON_GONE, "%s", gl->gone_text);
  }
  struct gl_mapping* const segment = &gl->segments[*id];
  void* const base = mmap(NULL, answer.segment.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds.fd[0], 0);
  const int error = errno;
  gl_close_fds(&fds);
  segment->bytes = answer.segment.bytes;
  if (base == MAP_FAILED) {
    const struct gl_segment back = {.type = GL_MSG_FREE, .id = *id};
    (void)gl_ask(gl, &back, sizeof(back), GL_MSG_FREED, sizeof(answer.segment), GRADLANE_FAILED, &answer, NULL);
    return gl_fail(gl, GRADLANE_NO_MEMORY, "cannot map %zu bytes: %s", segment->bytes, strerror(error));
  }
  segment->base = base;
  return GRADLANE_OK;
}

// Gets a segment for `bytes` bytes. If the daemon allows, the segment has at least half as many bytes as all others
// together, which leaves space for later buffers.
static gradlane_code grow(gradlane_context* gl, size_t bytes, uint32_t* id) {
  size_t total = 0;
  for (uint32_t i = 0; i < GL_MAX_SEGMENTS; ++i) {
    if (gl->segments[i].base != NULL) total += gl->segments[i].bytes;
  }
  size_t wanted = round_up(total / 2);
  if (wanted < kMinSegment) wanted = kMinSegment;
  if (bytes < wanted) {
    const gradlane_code code = new_segment(gl, wanted, id);
    if (code != GRADLANE_NO_MEMORY) return code;
  }
  return new_segment(gl, bytes, id);
}

static bool make_room(struct gl_buffers* buffers) {
  if (buffers->count < buffers->room) return true;
  const size_t room = buffers->room == 0 ? 64 : buffers->room * 2;
  struct gl_buffer* const entries = realloc(buffers->entries, room * sizeof(*entries));
  if (entries == NULL) return false;
  buffers->entries = entries;
  buffers->room = room;
  return true;
}

static void insert(gradlane_context* gl, struct gl_buffer buffer) {
  struct gl_buffers* const buffers = &gl->buffers;
  const size_t index = find_index(gl, buffer.base);
  memmove(&buffers->entries[index + 1], &buffers->entries[index], (buffers->count - index) * sizeof(buffer));
  buffers->entries[index] = buffer;
  ++buffers->count;
}

gradlane_code gradlane_alloc(gradlane_context* gl, size_t bytes, void** buffer) {
  GL_LOCK(gl);
  if (buffer == NULL) return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "gradlane_alloc: the argument `buffer` is NULL");
  *buffer = NULL;
  const gradlane_code usable = gl_check_context(gl, "gradlane_alloc");
  if (usable != GRADLANE_OK) return usable;
  if (bytes == 0 || bytes > PTRDIFF_MAX - kPage) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "gradlane_alloc: size is %zu bytes; allowed: 1 to less than 2^63", bytes);
  }
  if (gl->gone) return gl_fail(gl, GRADLANE_DAEMON_GONE, "%s", gl->gone_text);
  if (!make_room(&gl->buffers)) return gl_fail(gl, GRADLANE_NO_MEMORY, "no memory for the list of buffers");
  const size_t whole = round_up(bytes);
  uint8_t* place = NULL;
  uint32_t id = 0;
  for (uint32_t i = 0; i < GL_MAX_SEGMENTS && place == NULL; ++i) {
    id = i;
    if (gl->segments[i].base != NULL) place = find_gap(gl, &gl->segments[i], whole);
  }
  if (place == NULL) {
    const gradlane_code code = grow(gl, whole, &id);
    if (code != GRADLANE_OK) return code;
    place = gl->segments[id].base;
  }
  insert(gl, (struct gl_buffer){.base = place, .bytes = bytes, .segment = id});
  *buffer = place;
  return GRADLANE_OK;
}

gradlane_code gradlane_free(gradlane_context* gl, void* buffer) {
  GL_LOCK(gl);
  const gradlane_code usable = gl_check_context(gl, "gradlane_free");
  if (usable != GRADLANE_OK) return usable;
  if (buffer == NULL) return GRADLANE_OK;
  const size_t next = find_index(gl, buffer);
  if (next == 0 || (void*)gl->buffers.entries[next - 1].base != buffer) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "gradlane_free: %p is not the start of a buffer of this context", buffer);
  }
  const struct gl_buffer it = gl->buffers.entries[next - 1];
  const struct gl_request* const user = gl_find_user(gl, it.base, it.bytes);
  if (user != NULL) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "gradlane_free: request %llu uses the buffer; wait for it first",
                   (unsigned long long)user->number);
  }
  memmove(&gl->buffers.entries[next - 1], &gl->buffers.entries[next], (gl->buffers.count - next) * sizeof(it));
  --gl->buffers.count;

  bool last = true;
  for (size_t i = 0; i < gl->buffers.count; ++i) last = last && gl->buffers.entries[i].segment != it.segment;
  if (last) return free_segment(gl, it.segment);
  // Gives the pages back, which leaves zeros for the next buffer here.
  if (madvise(it.base, round_up(it.bytes), MADV_REMOVE) != 0) memset(it.base, 0, it.bytes);
  return GRADLANE_OK;
}

static gradlane_code make_stage(gradlane_context* gl, size_t bytes, struct gl_stage* it) {
  void* base = NULL;
  const gradlane_code code = gradlane_alloc(gl, bytes, &base);
  if (code != GRADLANE_OK) return code;
  // The old block is freed only now, as requests that wait may have no other one.
  if (it->base != NULL) (void)gradlane_free(gl, it->base);
  const uint32_t segment = gl_find_buffer(gl, base)->segment;
  *it = (struct gl_stage){.base = base,
                          .bytes = bytes,
                          .segment = segment,
                          .offset = (uint64_t)((uint8_t*)base - gl->segments[segment].base)};
  return GRADLANE_OK;
}

gradlane_code gl_get_stages(gradlane_context* gl, size_t bytes, uint64_t parts) {
  // The blocks of all trainers of a machine should stay in its cache. If there are links to other nodes, more parts
  // must be under way to fill these links.
  const bool alone = (gl->welcome.flags & GL_WELCOME_ALONE) != 0;
  uint64_t wanted = alone ? 3 : 2 + 2 * (uint64_t)gl->welcome.world;
  if (wanted > GL_STAGES) wanted = GL_STAGES;
  if (wanted > GL_STAGE_BYTES / bytes) wanted = GL_STAGE_BYTES / bytes;
  if (wanted > parts) wanted = parts;
  if (wanted == 0) wanted = 1;
  uint64_t there = 0;
  for (unsigned i = 0; i < GL_STAGES; ++i) there += gl->stages[i].bytes >= bytes;
  for (unsigned i = 0; i < GL_STAGES && there < wanted; ++i) {
    struct gl_stage* const it = &gl->stages[i];
    if (it->taken || it->bytes >= bytes) continue;
    const gradlane_code code = make_stage(gl, bytes, it);
    if (code != GRADLANE_OK && (there == 0 || code == GRADLANE_DAEMON_GONE)) return code;
    if (code != GRADLANE_OK) break;
    ++there;
  }
  if (there != 0) return GRADLANE_OK;
  return gl_fail(gl, GRADLANE_NO_MEMORY,
                 "no buffer for parts of %zu bytes while operations with smaller parts run: wait for those first",
                 bytes);
}

void gl_unmap_buffers(gradlane_context* gl) {
  for (uint32_t i = 0; i < GL_MAX_SEGMENTS; ++i) {
    if (gl->segments[i].base != NULL) (void)munmap(gl->segments[i].base, gl->segments[i].bytes);
  }
  free(gl->buffers.entries);
}
