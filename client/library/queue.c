// queue.c - operations on their way into the lanes' rings (the thread of the context)
//
// The daemon works on GL_SLOTS parts at a time. All others wait here, in the order of the calls: all lanes of all ranks
// must have the same order.
#include "client/library/queue.h"

#include <stdio.h>
#include <string.h>

#include "client/library/choices.h"
#include "client/library/requests.h"
#include "client/library/staging.h"
#include "client/library/verify.h"

// Returns the number of free entries in the ring that has the fewest; -1 if the daemon's count is garbage.
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

static void put(gradlane_context* gl, const struct gl_submission* submission, const uint32_t* ends_seen) {
  for (unsigned i = 0; i < gl->welcome.lanes; ++i) {
    struct gl_lane* const lane = &gl->lanes[i];
    struct gl_ring* const ring = &gl->rings[i];
    struct gl_submission* const entry = &lane->submissions[ring->submit_tail % GL_SLOTS];
    *entry = *submission;
    if (ends_seen != NULL) entry->ends_seen = ends_seen[i];
    // seq_cst: the lane either sees this, or we see that it sleeps.
    __atomic_store_n(&lane->submit_tail, ++ring->submit_tail, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&lane->asleep, __ATOMIC_SEQ_CST) != 0) gl_ring(gl->doorbells[i]);
  }
}

// Returns the tag of a part. All parts except the first get tags that callers are unlikely to choose (splitmix64, by
// Steele, Lea and Flood).
static uint64_t tag_of(uint64_t tag, uint64_t part) {
  if (part == 0) return tag;
  uint64_t z = tag + part * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static struct gl_submission part_of(const struct gl_operation* operation, uint64_t part) {
  struct gl_submission it = operation->submission;
  if (operation->parts == 1) return it;
  const uint64_t first = part * operation->each;
  const uint64_t left = it.count - first;
  if (operation->blocks && operation->rows == NULL) it.pitch = it.count;
  it.count = left < operation->each ? left : operation->each;
  it.offset += first * operation->width;
  if (operation->encoded.bytes > 0) {
    it.encoded_first = first;
  } else {
    it.residual_offset += first * operation->width;
  }
  it.tag = tag_of(it.tag, part);
  return it;
}

// Puts the next part of a request into the rings. Returns false if no block is free for it.
static bool begin_part(gradlane_context* gl, struct gl_request* request) {
  struct gl_submission part = part_of(&request->operation, request->begun);
  struct gl_stage* stage = NULL;
  if (request->operation.staged) {
    stage = gl_take_stage(gl, gl_part_bytes(gl, &request->operation, request->begun));
    if (stage == NULL) return false;
    if (!request->cancelled) gl_load_stage(gl, stage, &request->operation, request->begun);
    part.segment = (uint8_t)stage->segment;
    part.offset = stage->offset;
  }
  part.cookie = ++gl->cookies;
  part.slot = (uint8_t)__builtin_ctzll(~gl->slots);  // there are no more flights than slots
  gl->slots |= UINT64_C(1) << part.slot;
  if (request->internal && request->check != NULL) {
    part.segment = (uint8_t)gl->checksums.segment;
    part.offset = gl_load_checksums(gl, request->check, part.slot);
  }
  // A cancelled part must be submitted and use up its number, too, because other ranks may have begun it.
  if (request->cancelled) part.flags |= GL_FLAG_CANCELLED;
  gl->flights[gl->flight_count++] = (struct gl_flying_part){.cookie = part.cookie,
                                                            .request = request,
                                                            .part = request->begun,
                                                            .lanes_left = (1u << gl->welcome.lanes) - 1,
                                                            .slot = part.slot,
                                                            .stage = stage,
                                                            .cancel = false};
  ++request->begun;
  put(gl, &part, request->ends_seen);
  return true;
}

static bool send_cancels(gradlane_context* gl, int* places) {
  for (unsigned i = 0; i < gl->flight_count; ++i) {
    struct gl_flying_part* const it = &gl->flights[i];
    if (!it->cancel) continue;
    if (*places == 0) return false;
    const struct gl_submission cancel = {.cookie = it->cookie, .kind = GL_CANCEL};
    put(gl, &cancel, NULL);
    it->cancel = false;
    --*places;
  }
  gl->cancelling = false;
  return true;
}

static bool send_resume(gradlane_context* gl, int* places) {
  if (!gl->resuming) return true;
  if (*places == 0) return false;
  const struct gl_submission resume = {.kind = GL_RESUME};
  put(gl, &resume, NULL);
  gl->resuming = false;
  --*places;
  return true;
}

static bool send_parts(gradlane_context* gl, int* places) {
  while (gl->first != NULL && gl->flight_count < GL_SLOTS) {
    if (*places == 0) return false;
    // The daemon rings the bell when the operations end for which this one waits.
    if (!gl_choose(gl)) return true;
    struct gl_request* const it = gl->first;
    if (!begin_part(gl, it)) return true;
    --*places;
    if (it->begun == it->operation.parts) gl->first = it->next;
  }
  return true;
}

bool gl_fill_rings(gradlane_context* gl) {
  if (gl->gone || (gl->first == NULL && !gl->resuming && !gl->cancelling)) return true;
  int places = room(gl);
  if (places < 0) return false;
  gl->blocked = !send_cancels(gl, &places) || !send_resume(gl, &places) || !send_parts(gl, &places);
  return true;
}

void gl_enqueue(gradlane_context* gl, struct gl_request* request) {
  if (gl->first == NULL) {
    gl->first = request;
  } else {
    gl->last->next = request;
  }
  gl->last = request;
}

void gl_drop_queue(gradlane_context* gl, gradlane_code code, gradlane_cause cause, const char* text) {
  while (gl->first != NULL) {
    struct gl_request* const it = gl->first;
    gl->first = it->next;
    if (it->code == GRADLANE_OK) {
      it->code = code;
      it->cause = cause;
      (void)snprintf(it->text, sizeof(it->text), "%s", text);
    }
    it->operation.parts = it->begun;
    if (it->ended == it->begun) gl_end_request(gl, it);
  }
}

void gl_cancel_request(gradlane_context* gl, struct gl_request* request) {
  if (request->cancelled) return;
  request->cancelled = true;
  gl->cancelling = true;
  // If the request waits for ranks to agree, the agreement is cancelled, too.
  const bool waits = request == gl->first && request->begun == 0 && !request->internal;
  struct gl_request* const agreement = waits ? gl_agreement(gl) : NULL;
  if (agreement != NULL) gl_cancel_request(gl, agreement);
  if (request->check != NULL && request->check->reduction != NULL) gl_cancel_request(gl, request->check->reduction);
  for (unsigned i = 0; i < gl->flight_count; ++i) {
    if (gl->flights[i].request == request) gl->flights[i].cancel = true;
  }
}
