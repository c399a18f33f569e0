// submit.c - operations on their way into the lanes' rings (the thread of the context)
#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include "client/internal.h"

// How long to wait for room in a ring. Operations always have some; only cancels can fill it up.
static const int64_t kRoomUs = 100000;

// Of the ring that has the least, or -1: the daemon's count is garbage.
static int room(const gradlane_context* gl) {
  uint32_t least = GL_SLOTS;
  for (unsigned i = 0; i < gl->welcome.lanes; ++i) {
    const uint32_t head = __atomic_load_n(&gl->lanes[i].submit_head, __ATOMIC_ACQUIRE);
    const uint32_t used = gl->rings[i].submit_tail - head;
    if (used > GL_SLOTS) return -1;
    if (GL_SLOTS - used < least) least = GL_SLOTS - used;
  }
  return (int)least;
}

static gradlane_code await_room(gradlane_context* gl) {
  const int64_t deadline_us = gl_now_us() + kRoomUs;
  for (;;) {
    const int places = room(gl);
    if (places > 0) return GRADLANE_OK;
    if (places < 0) {
      gl_gone(gl, "the daemon at %s (pid %u) has written an impossible count into the shared memory",
              gl->address.sun_path, gl->welcome.pid);
    }
    gl_hear(gl);
    if (gl->gone) return gl_fail(gl, GRADLANE_DAEMON_GONE, "%s", gl->gone_text);
    if (gl_now_us() >= deadline_us) {
      return gl_fail(gl, GRADLANE_TOO_MANY,
                     "the daemon has %u operations and cancellations to begin with: wait for one", GL_SLOTS);
    }
    (void)usleep(200);
  }
}

static void put(gradlane_context* gl, unsigned number, const struct gl_submission* submission) {
  struct gl_lane* const lane = &gl->lanes[number];
  struct gl_ring* const ring = &gl->rings[number];
  struct gl_submission* const entry = &lane->submissions[ring->submit_tail % GL_SLOTS];
  *entry = *submission;
  entry->ends_seen = ring->ends_seen;
  // seq_cst: the lane either sees this, or we see that it sleeps.
  __atomic_store_n(&lane->submit_tail, ++ring->submit_tail, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&lane->asleep, __ATOMIC_SEQ_CST) == 0) return;
  gl_ring(gl->doorbells[number]);
}

gradlane_code gl_submit(gradlane_context* gl, const struct gl_submission* submission) {
  const gradlane_code code = await_room(gl);
  if (code != GRADLANE_OK) return code;
  for (unsigned i = 0; i < gl->welcome.lanes; ++i) put(gl, i, submission);
  return GRADLANE_OK;
}

static struct gl_request* free_request(gradlane_context* gl) {
  for (unsigned i = 0; i < GL_SLOTS; ++i) {
    if (gl->requests[i].state == GL_FREE) return &gl->requests[i];
  }
  return NULL;
}

static gradlane_code start(gradlane_context* gl, enum gl_submission_kind kind, void* data, size_t count,
                           gradlane_type type, int root, const gradlane_how* how, gradlane_request* request) {
  if (request != NULL) *request = 0;
  if (gl == NULL) return gl_fail(NULL, GRADLANE_BAD_ARGUMENT, "the context is NULL");
  struct gl_operation operation;
  gradlane_code code = gl_check_operation(gl, kind, data, count, type, root, how, &operation);
  if (code != GRADLANE_OK) return code;
  if (gl->gone) return gl_fail(gl, GRADLANE_DAEMON_GONE, "%s", gl->gone_text);
  struct gl_request* const it = free_request(gl);
  if (it == NULL) {
    return gl_fail(gl, GRADLANE_TOO_MANY, "%d requests are not finished: wait for one", GRADLANE_MAX_REQUESTS);
  }
  const uint64_t cookie = (gl->generation + 1) << 8 | (uint64_t)(it - gl->requests);
  operation.submission.cookie = cookie;
  *it = (struct gl_request){.state = GL_RUNNING,
                            .cookie = cookie,
                            .lanes_left = (1u << gl->welcome.lanes) - 1,
                            .code = GRADLANE_OK,
                            .data = operation.data,
                            .residual = operation.residual};
  code = gl_submit(gl, &operation.submission);
  if (code != GRADLANE_OK) {
    // No lane knows of it. If the daemon has gone it counts as over; nobody will ask.
    if (it->state == GL_OVER) --gl->over;
    it->state = GL_FREE;
    return code;
  }
  ++gl->generation;
  ++gl->next_tag;
  if (request == NULL) return gradlane_wait(gl, cookie, -1);
  *request = cookie;
  return GRADLANE_OK;
}

gradlane_code gradlane_all_reduce(gradlane_context* gl, void* data, size_t count, gradlane_type type,
                                  const gradlane_how* how, gradlane_request* request) {
  return start(gl, GL_ALL_REDUCE, data, count, type, 0, how, request);
}

gradlane_code gradlane_reduce_scatter(gradlane_context* gl, void* data, size_t count, gradlane_type type,
                                      const gradlane_how* how, gradlane_request* request) {
  return start(gl, GL_REDUCE_SCATTER, data, count, type, 0, how, request);
}

gradlane_code gradlane_all_gather(gradlane_context* gl, void* data, size_t count, gradlane_type type,
                                  const gradlane_how* how, gradlane_request* request) {
  return start(gl, GL_ALL_GATHER, data, count, type, 0, how, request);
}

gradlane_code gradlane_broadcast(gradlane_context* gl, void* data, size_t count, gradlane_type type, int root,
                                 const gradlane_how* how, gradlane_request* request) {
  return start(gl, GL_BROADCAST, data, count, type, root, how, request);
}

gradlane_code gradlane_barrier(gradlane_context* gl, const gradlane_how* how, gradlane_request* request) {
  return start(gl, GL_BARRIER, NULL, 0, GRADLANE_BYTES, 0, how, request);
}

gradlane_code gradlane_cancel(gradlane_context* gl, gradlane_request request) {
  if (gl == NULL) return gl_fail(NULL, GRADLANE_BAD_ARGUMENT, "gradlane_cancel: the context is NULL");
  const struct gl_request* const it = gl_find_request(gl, request);
  if (it == NULL) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "there is no request %llu, or it was waited for before",
                   (unsigned long long)request);
  }
  if (it->state == GL_OVER) return GRADLANE_OK;
  const struct gl_submission cancel = {.cookie = request, .kind = GL_CANCEL};
  return gl_submit(gl, &cancel);
}
