// progress.c - completions, merged over the lanes (the thread of the context)
//
// A request is over when all lanes have completed all of its parts. It has failed if one part has failed in one lane.
// Its text is that of the first failure.
#include "client/library/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/library/loss.h"
#include "client/library/queue.h"
#include "client/library/requests.h"
#include "client/library/staging.h"
#include "client/library/verify.h"

// Notes the text of the first lane that failed. If there are several parts, it says which one failed.
static void note_failure(gradlane_context* gl, struct gl_request* it, uint64_t part,
                         const struct gl_completion* completion) {
  it->code = GRADLANE_FAILED;
  it->cause = (gradlane_cause)completion->cause;
  if (it->operation.parts > 1) gl_cancel_request(gl, it);
  char where[128] = "";
  const bool differ = it->cause == GRADLANE_CAUSE_MISMATCH || it->cause == GRADLANE_CAUSE_TAG;
  if (differ && it->check != NULL) {
    (void)snprintf(where, sizeof(where), " (this rank verifies sums: all ranks must, or none)");
  }
  if (it->operation.parts > 1) {
    const bool small = gl->welcome.max_bytes < GL_PART_BYTES;
    (void)snprintf(where, sizeof(where), " (part %llu of %llu%s)", (unsigned long long)part + 1,
                   (unsigned long long)it->operation.parts,
                   small ? "; exchange.max_tensor sets the size of parts: it must be equal on all nodes" : "");
  }
  (void)snprintf(it->text, sizeof(it->text), "%s%s", completion->text, where);
}

// Returns how long the lane has worked on an operation. If the operation waited for earlier ones, its time starts when
// these are finished.
static double worked(struct gl_ring* ring, const struct gl_completion* completion) {
  const uint64_t begun = completion->begun_ns > ring->ended_ns ? completion->begun_ns : ring->ended_ns;
  const double ns = completion->ended_ns > begun ? (double)(completion->ended_ns - begun) : 0;
  if (completion->ended_ns > ring->ended_ns) ring->ended_ns = completion->ended_ns;
  return ns;
}

static struct gl_flying_part* find_flight(gradlane_context* gl, uint64_t cookie) {
  for (unsigned i = 0; i < gl->flight_count; ++i) {
    if (gl->flights[i].cookie == cookie) return &gl->flights[i];
  }
  return NULL;
}

// Takes a completion. Returns false if it is invalid, so that no daemon can have written it.
static bool take(gradlane_context* gl, unsigned lane, struct gl_completion* completion) {
  struct gl_flying_part* const flight = find_flight(gl, completion->cookie);
  const uint32_t bit = 1u << lane;
  if (flight == NULL || (flight->lanes_left & bit) == 0) return false;
  if (completion->code != GRADLANE_OK && completion->code != GRADLANE_FAILED) return false;
  struct gl_request* const it = flight->request;
  if (completion->code != GRADLANE_OK) {
    it->lanes_failed |= bit;
    it->tells_end |= completion->tells_end != 0;
    // The daemon raises `ends` before it writes the completion.
    it->ends[lane] = __atomic_load_n(&gl->lanes[lane].ends, __ATOMIC_RELAXED);
  }
  if (completion->code != GRADLANE_OK && it->code == GRADLANE_OK) {
    completion->text[GL_TEXT - 1] = 0;
    note_failure(gl, it, flight->part, completion);
  }
  const struct gl_loss* const loss = &completion->loss;
  gl_add_loss(&it->loss, &(struct gl_loss_sum){loss->values, loss->zeroed, loss->squares, loss->lost_squares});
  it->sent_bytes += completion->sent_bytes;
  const double ns = worked(&gl->rings[lane], completion);
  if (ns > flight->ns) flight->ns = ns;
  flight->lanes_left &= ~bit;
  if (flight->lanes_left != 0) return true;
  if (flight->stage != NULL) {
    gl_unload_stage(gl, flight->stage, &it->operation, flight->part, it->code == GRADLANE_OK);
  }
  if (it->internal && it->check != NULL) gl_unload_checksums(gl, it->check, flight->slot);
  it->ns += flight->ns;
  gl->slots &= ~(UINT64_C(1) << flight->slot);
  *flight = gl->flights[--gl->flight_count];
  if (++it->ended == it->operation.parts) gl_end_request(gl, it);
  return true;
}

// Takes all completions of a lane. Returns false if they are garbage.
static bool take_all(gradlane_context* gl, unsigned number) {
  struct gl_lane* const lane = &gl->lanes[number];
  uint32_t* const head = &gl->rings[number].complete_head;
  // This is seq_cst, so that a caller that has set `waiting` before does not miss a completion.
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

void gl_advance(gradlane_context* gl) {
  if (gl_fill_rings(gl)) return;
  gl_gone(gl, "the daemon at %s (pid %u) wrote an impossible count into the shared memory", gl->address.sun_path,
          gl->welcome.pid);
}

void gl_progress(gradlane_context* gl) {
  if (gl->gone) return;
  if (take_from_lanes(gl)) {
    gl_advance(gl);
    return;
  }
  gl_gone(
      gl,
      "the memory shared with the daemon at %s (pid %u) has impossible contents: the daemon, or another part of this "
      "program, has a bug",
      gl->address.sun_path, gl->welcome.pid);
}

void gl_gone(gradlane_context* gl, const char* format, ...) {
  if (gl->gone) return;
  gl->gone = true;
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(gl->gone_text, sizeof(gl->gone_text), format, arguments);
  va_end(arguments);
  // This tells the daemon, and keeps the descriptor of gradlane_fd() readable.
  (void)shutdown(gl->socket, SHUT_RDWR);
  (void)take_from_lanes(gl);
  gl->first = NULL;
  gl->flight_count = 0;
  gl_drop_stages(gl);
  gl->blocked = false;
  for (size_t i = 0; i < gl->request_count; ++i) {
    struct gl_request* const it = gl->requests[i];
    if (it->state != GL_RUNNING) continue;
    it->code = GRADLANE_DAEMON_GONE;
    memcpy(it->text, gl->gone_text, sizeof(it->text));
    gl_end_request(gl, it);
  }
}

void gl_update_fd(gradlane_context* gl) {
  const bool wanted = gl->over > 0 || gl->blocked;
  if (gl->epoll_fd < 0 || gl->progress_signalled == wanted) return;
  // write() and read() can neither block nor fail here, as the count of the eventfd is 0 or 1.
  uint64_t count = 1;
  const ssize_t moved =
      wanted ? write(gl->progress_fd, &count, sizeof(count)) : read(gl->progress_fd, &count, sizeof(count));
  if (moved == (ssize_t)sizeof(count)) gl->progress_signalled = wanted;
}
