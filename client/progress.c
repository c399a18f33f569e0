// progress.c - completions, merged over the lanes (the thread of the context)
//
// A request is over when all lanes have completed it. It has failed if one of them has; the text is that of the first
// which did.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/internal.h"

struct gl_request* gl_find_request(gradlane_context* gl, gradlane_request request) {
  struct gl_request* const it = &gl->requests[(request & 0xff) % GL_SLOTS];
  return it->state != GL_FREE && it->cookie == request ? it : NULL;
}

static bool overlaps(struct gl_range range, uintptr_t base, size_t bytes) {
  const uintptr_t start = (uintptr_t)range.base;
  return range.bytes > 0 && bytes > 0 && base < start + range.bytes && start < base + bytes;
}

const struct gl_request* gl_find_user(const gradlane_context* gl, const void* base, size_t bytes) {
  for (unsigned i = 0; i < GL_SLOTS; ++i) {
    const struct gl_request* const it = &gl->requests[i];
    if (it->state == GL_FREE) continue;
    if (overlaps(it->data, (uintptr_t)base, bytes) || overlaps(it->residual, (uintptr_t)base, bytes)) return it;
  }
  return NULL;
}

static void end(gradlane_context* gl, struct gl_request* it) {
  // Some lanes may have updated their part, others cleared it or never touched it: one state for all of it.
  if (it->code == GRADLANE_FAILED && it->residual.bytes > 0) memset(it->residual.base, 0, it->residual.bytes);
  it->state = GL_OVER;
  ++gl->over;
  ++gl->operations;
}

// False: no daemon writes such a completion.
static bool take(gradlane_context* gl, unsigned lane, struct gl_completion* completion) {
  struct gl_request* const it = gl_find_request(gl, completion->cookie);
  const uint32_t bit = 1u << lane;
  if (it == NULL || it->state != GL_RUNNING || (it->lanes_left & bit) == 0) return false;
  if (completion->code != GRADLANE_OK && completion->code != GRADLANE_FAILED) return false;
  if (completion->code != GRADLANE_OK) {
    it->lanes_failed |= bit;
    it->ends[lane] = __atomic_load_n(&gl->lanes[lane].ends, __ATOMIC_RELAXED);  // written before the completion was
  }
  if (completion->code != GRADLANE_OK && it->code == GRADLANE_OK) {
    it->code = GRADLANE_FAILED;
    completion->text[GL_TEXT - 1] = 0;
    memcpy(it->text, completion->text, GL_TEXT);
  }
  it->lanes_left &= ~bit;
  if (it->lanes_left == 0) end(gl, it);
  return true;
}

// False: garbage.
static bool take_all(gradlane_context* gl, unsigned number) {
  struct gl_lane* const lane = &gl->lanes[number];
  uint32_t* const head = &gl->rings[number].complete_head;
  // seq_cst, for those who have set `waiting` before.
  const uint32_t tail = __atomic_load_n(&lane->complete_tail, __ATOMIC_SEQ_CST);
  if (tail == *head) return true;
  if (tail - *head > GL_SLOTS) return false;
  while (*head != tail) {
    struct gl_completion completion;
    memcpy(&completion, &lane->completions[*head % GL_SLOTS], sizeof(completion));
    if (!take(gl, number, &completion)) return false;
    ++*head;
  }
  __atomic_store_n(&lane->complete_head, *head, __ATOMIC_RELEASE);
  return true;
}

static bool take_from_lanes(gradlane_context* gl) {
  for (unsigned i = 0; i < gl->welcome.lanes; ++i) {
    if (!take_all(gl, i)) return false;
  }
  return true;
}

void gl_progress(gradlane_context* gl) {
  if (gl->gone || take_from_lanes(gl)) return;
  gl_gone(gl,
          "the daemon at %s (pid %u) has written what cannot be into the shared memory; it, or another part of "
          "this program, is broken",
          gl->address.sun_path, gl->welcome.pid);
}

void gl_gone(gradlane_context* gl, const char* format, ...) {
  if (gl->gone) return;
  gl->gone = true;
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(gl->gone_text, sizeof(gl->gone_text), format, arguments);
  va_end(arguments);
  // For the daemon to know, and for gradlane_fd() to stay readable.
  (void)shutdown(gl->socket, SHUT_RDWR);
  (void)take_from_lanes(gl);
  for (unsigned i = 0; i < GL_SLOTS; ++i) {
    struct gl_request* const it = &gl->requests[i];
    if (it->state != GL_RUNNING) continue;
    it->code = GRADLANE_DAEMON_GONE;
    memcpy(it->text, gl->gone_text, sizeof(it->text));
    end(gl, it);
  }
}

void gl_update_fd(gradlane_context* gl) {
  const bool wanted = gl->over > 0;
  if (gl->epoll_fd < 0 || gl->over_signalled == wanted) return;
  // Neither can block nor fail: the count of the eventfd is 0 or 1.
  uint64_t count = 1;
  const ssize_t moved = wanted ? write(gl->over_fd, &count, sizeof(count)) : read(gl->over_fd, &count, sizeof(count));
  if (moved == (ssize_t)sizeof(count)) gl->over_signalled = wanted;
}
