// requests.c - the caller's requests: made, found, over, forgotten (the thread of the context)
#include "client/library/requests.h"

#include <stdlib.h>
#include <string.h>

#include "client/library/hash.h"
#include "client/library/loss.h"
#include "client/library/verify.h"

static const uint64_t kIndexMask = (UINT64_C(1) << GL_INDEX_BITS) - 1;

static bool grow_table(gradlane_context* gl) {
  if (gl->request_count < gl->request_room) return true;
  if (gl->request_count > kIndexMask) return false;
  const size_t room = gl->request_room == 0 ? 64 : gl->request_room * 2;
  struct gl_request** const requests = realloc(gl->requests, room * sizeof(*requests));
  if (requests == NULL) return false;
  gl->requests = requests;
  gl->request_room = room;
  return true;
}

struct gl_request* gl_new_request(gradlane_context* gl, const struct gl_operation* operation) {
  struct gl_request* it = gl->free;
  if (it != NULL) {
    gl->free = it->next;
  } else {
    if (!grow_table(gl)) return NULL;
    it = malloc(sizeof(*it));
    if (it == NULL) return NULL;
    it->number = gl->request_count;
    gl->requests[gl->request_count++] = it;
  }
  const uint64_t index = it->number & kIndexMask;
  // Sets all fields except `ends`, `text` and `turn`, which nobody reads before they are written.
  it->state = GL_RUNNING;
  it->number = ++gl->started << GL_INDEX_BITS | index;
  it->operation = *operation;
  it->begun = it->ended = 0;
  it->cancelled = false;
  it->code = GRADLANE_OK;
  it->cause = GRADLANE_CAUSE_NONE;
  it->lanes_failed = 0;
  it->tells_end = false;
  it->loss = (struct gl_loss_sum){0};
  it->ns = 0;
  it->sent_bytes = 0;
  it->check = NULL;
  it->internal = it->orphan = it->is_resolved = false;
  it->epoch = gl->choices.epoch;
  it->of_class = NULL;
  for (unsigned i = 0; i < gl->welcome.lanes; ++i) it->ends_seen[i] = gl->rings[i].ends_seen;
  it->next = NULL;
  return it;
}

void gl_release_request(gradlane_context* gl, struct gl_request* request) {
  if (request->state == GL_OVER && !request->internal) --gl->over;
  request->state = GL_FREE;
  request->check = NULL;
  request->next = gl->free;
  gl->free = request;
}

// Frees the checks of requests that have not ended. Each belongs to the request of its all-reduce as long as that runs.
static void free_checks(const gradlane_context* gl) {
  for (size_t i = 0; i < gl->request_count; ++i) {
    struct gl_request* const it = gl->requests[i];
    if (it->check == NULL || !it->internal) continue;
    if (it->check->checked != NULL) it->check->checked->check = NULL;
    free(it->check);
    it->check = NULL;
  }
  for (size_t i = 0; i < gl->request_count; ++i) free(gl->requests[i]->check);
}

void gl_free_requests(gradlane_context* gl) {
  free_checks(gl);
  for (size_t i = 0; i < gl->request_count; ++i) free(gl->requests[i]);
  free(gl->requests);
}

struct gl_request* gl_find_request(gradlane_context* gl, gradlane_request number) {
  const uint64_t index = number & kIndexMask;
  if (index >= gl->request_count) return NULL;
  struct gl_request* const it = gl->requests[index];
  return it->state != GL_FREE && it->number == number ? it : NULL;
}

static bool overlaps(struct gl_range range, uintptr_t base, size_t bytes) {
  const uintptr_t start = (uintptr_t)range.base;
  return range.bytes > 0 && bytes > 0 && base < start + range.bytes && start < base + bytes;
}

const struct gl_request* gl_find_user(const gradlane_context* gl, const void* base, size_t bytes) {
  for (size_t i = 0; i < gl->request_count; ++i) {
    const struct gl_request* const it = gl->requests[i];
    if (it->state == GL_FREE) continue;
    if (overlaps(it->operation.data, (uintptr_t)base, bytes)) return it;
    if (overlaps(it->operation.encoded, (uintptr_t)base, bytes)) return it;
    if (overlaps(it->operation.runs, (uintptr_t)base, bytes)) return it;
    for (uint32_t state = 0; state < it->operation.states; ++state) {
      if (overlaps(gl_state_of(&it->operation, state), (uintptr_t)base, bytes)) return it;
    }
  }
  return NULL;
}

void gl_clear_states(const struct gl_operation* operation) {
  for (uint32_t state = 0; state < operation->states; ++state) {
    const struct gl_range it = gl_state_of(operation, state);
    if (it.bytes > 0) memset(it.base, 0, it.bytes);
  }
}

// Adds the residual, times `times`, to the data. Data may lie at any address.
static void add_floats(struct gl_range data, struct gl_range owed, float times) {
  for (size_t at = 0; at < data.bytes; at += sizeof(float)) {
    float value;
    float more;
    memcpy(&value, data.base + at, sizeof(value));
    memcpy(&more, owed.base + at, sizeof(more));
    value += more * times;
    memcpy(data.base + at, &value, sizeof(value));
  }
}

void gl_add_residual(const gradlane_context* gl, const struct gl_operation* operation) {
  // For an average, the daemon rounds the mean of a node's trainers, so the residual is that of the mean.
  const int trainers = gradlane_local_reduce(gl);
  const bool of_mean = trainers > 1 && (operation->submission.flags & GL_FLAG_AVERAGE) != 0;
  const float times = of_mean ? (float)trainers : 1.0F;
  add_floats(operation->data, gl_state_of(operation, 0), times);
  for (uint32_t i = 1; operation->adds_all_states && i < operation->states; ++i) {
    add_floats(operation->data, gl_state_of(operation, i), times);
  }
  gl_clear_states(operation);
}

// Adds the results of a request to its class, if the class still exists.
static void end_in_class(gradlane_context* gl, struct gl_request* request) {
  struct gl_choice_class* const it = request->of_class;
  request->of_class = NULL;
  if (it == NULL || request->epoch != gl->choices.epoch) return;
  it->sent_bytes += request->sent_bytes;
  if (it->report != NULL) it->report->sent_bytes = it->sent_bytes;
  if (request->turn.trial < 0) return;
  --gl->choices.open;
  const struct gl_operation* const operation = &request->operation;
  double bytes = (double)operation->submission.count * operation->width;
  if (operation->blocks) bytes *= gl->welcome.world;
  if (request->code == GRADLANE_OK) gl_tuner_note(&it->tuner, &request->turn, request->ns, bytes);
}

// Returns the hash of the bytes that this rank has received.
static uint64_t hash_result(const gradlane_context* gl, const struct gl_operation* operation) {
  const struct gl_submission* const submission = &operation->submission;
  const uint32_t rank = gl->welcome.rank;
  const size_t block = submission->count * operation->width;
  struct gl_range result = operation->data;
  struct gl_hash hash;
  gl_start_hash(&hash);
  switch (submission->kind) {
    case GL_REDUCE_SCATTER:
    case GL_SCATTER:
      if (operation->rows == NULL) result = (struct gl_range){.base = result.base + rank * block, .bytes = block};
      break;
    case GL_ALL_GATHER:
      for (uint32_t i = 0; operation->rows != NULL && i < gl->welcome.world; ++i) {
        gl_add_to_hash(&hash, operation->rows[i], block);
      }
      if (operation->rows != NULL) result.bytes = 0;
      break;
    case GL_REDUCE:
      if (submission->root != rank) result.bytes = 0;
      break;
    case GL_GATHER:
      if (submission->block_root != rank) result.bytes = 0;
      break;
    case GL_ALL_TO_ALL:
      result = operation->residual;
      break;
    default:
      break;
  }
  gl_add_to_hash(&hash, result.base, result.bytes);
  return gl_end_hash(&hash);
}

// Ends the all-reduce of a check. The operation may have waited for it.
static void end_check(gradlane_context* gl, const struct gl_request* request) {
  struct gl_check* const check = request->check;
  struct gl_request* const of = check->checked;
  check->reduction = NULL;
  if (of == NULL) {
    free(check);
    return;
  }
  if (request->code != GRADLANE_OK && of->code == GRADLANE_OK) {
    of->code = request->code;
    of->cause = request->cause;
    memcpy(of->text, request->text, sizeof(of->text));
    of->tells_end = request->tells_end;
    of->lanes_failed = request->lanes_failed;
    memcpy(of->ends, request->ends, sizeof(of->ends));
  }
  if (check->awaited) gl_end_request(gl, of);
}

// Returns whether a request that has succeeded so far must wait for the checksums of all ranks. Otherwise ends its
// check: compares the result, if the request has succeeded.
static bool check_waits(gradlane_context* gl, struct gl_request* request) {
  struct gl_check* const check = request->check;
  if (check == NULL) return false;
  check->awaited = request->code == GRADLANE_OK && check->reduction != NULL;
  if (check->awaited) return true;
  if (request->code == GRADLANE_OK) gl_compare(gl, check, request);
  check->checked = NULL;
  request->check = NULL;
  if (check->reduction == NULL) free(check);
  return false;
}

void gl_end_request(gradlane_context* gl, struct gl_request* request) {
  end_in_class(gl, request);
  if (request->internal) {
    request->state = GL_OVER;
    if (request->check != NULL) end_check(gl, request);
    if (request->orphan) gl_release_request(gl, request);
    return;
  }
  if (check_waits(gl, request)) return;
  // Some lanes may have updated their part of the residual, others cleared it or never touched it. Clearing gives all
  // of it one state.
  if (request->code == GRADLANE_FAILED) gl_clear_states(&request->operation);
  if (request->code == GRADLANE_OK) {
    gl_note_loss(gl, &request->operation, &request->loss);
    uint64_t* const hash = request->operation.hash;
    if (hash != NULL) *hash = hash_result(gl, &request->operation);
  }
  request->state = GL_OVER;
  ++gl->over;
  ++gl->operations;
}

static bool is_used(const gradlane_context* gl, const struct gl_choice_set* set) {
  for (unsigned i = 0; i < gl->choices.class_count; ++i) {
    if (gl->choices.classes[i]->set == set) return true;
  }
  for (size_t i = 0; i < gl->request_count; ++i) {
    if (gl->requests[i]->state != GL_FREE && gl->requests[i]->operation.choice == set) return true;
  }
  return false;
}

void gl_drop_sets(gradlane_context* gl) {
  struct gl_choice_set** at = &gl->choices.sets;
  while (*at != NULL) {
    struct gl_choice_set* const it = *at;
    if (is_used(gl, it)) {
      at = &it->next;
      continue;
    }
    *at = it->next;
    --gl->choices.set_count;
    free(it);
  }
}
