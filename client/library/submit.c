// submit.c - the calls that start operations, or end them early (the thread of the context)
#include <stdlib.h>
#include <string.h>

#include "client/library/buffers.h"
#include "client/library/check.h"
#include "client/library/choices.h"
#include "client/library/context.h"
#include "client/library/progress.h"
#include "client/library/queue.h"
#include "client/library/requests.h"
#include "client/library/verify.h"

// Allocates the shared memory for checksums.
static gradlane_code get_checksum_memory(gradlane_context* gl) {
  struct gl_checksum_memory* const it = &gl->checksums;
  if (it->base != NULL) return GRADLANE_OK;
  void* base = NULL;
  const gradlane_code code = gradlane_alloc(gl, GL_SLOTS * gl_check_bytes(gl), &base);
  if (code != GRADLANE_OK) return code;
  it->segment = gl_find_buffer(gl, base)->segment;
  it->base = base;
  it->offset = (uint64_t)(it->base - gl->segments[it->segment].base);
  return GRADLANE_OK;
}

// Returns the request of the checksums' all-reduce, not yet in the queue; NULL if there is no memory.
static struct gl_request* new_check_request(gradlane_context* gl, struct gl_request* of) {
  struct gl_check* const check = gl_new_check(gl, &of->operation);
  if (check == NULL) return NULL;
  const struct gl_operation operation = gl_describe_check(check, &of->operation);
  struct gl_request* const it = gl_new_request(gl, &operation);
  if (it == NULL) {
    free(check);
    return NULL;
  }
  it->internal = it->is_resolved = it->orphan = true;
  it->check = of->check = check;
  check->checked = of;
  check->reduction = it;
  return it;
}

static gradlane_code start_with(gradlane_context* gl, enum gl_submission_kind kind, void* data, void* out, size_t count,
                                gradlane_type type, int root, const gradlane_how* how, gradlane_request* request) {
  if (request != NULL) *request = 0;
  struct gl_operation operation;
  const gradlane_code code = gl_check_operation(gl, kind, data, out, count, type, root, how, &operation);
  if (code != GRADLANE_OK) return code;
  if (gl->gone) return gl_fail(gl, GRADLANE_DAEMON_GONE, "%s", gl->gone_text);
  if (operation.staged) {
    // Blocks are as long as any part of such operations, so that they serve all of them.
    const gradlane_code got = gl_get_stages(gl, how->part_bytes, operation.parts);
    if (got != GRADLANE_OK) return got;
  }
  const bool verifies = operation.steps_per_one != 0;
  if (verifies) {
    const gradlane_code got = get_checksum_memory(gl);
    if (got != GRADLANE_OK) return got;
  }
  struct gl_request* const it = gl_new_request(gl, &operation);
  struct gl_request* const check = it != NULL && verifies ? new_check_request(gl, it) : NULL;
  if (it == NULL || (verifies && check == NULL)) {
    if (it != NULL) gl_release_request(gl, it);
    return gl_fail(gl, GRADLANE_NO_MEMORY, "no memory for another request");
  }
  if (operation.runs.bytes > 0) memset(operation.runs.base, 0, GL_RUNS_HEADER);
  if (operation.adds_residual) gl_add_residual(gl, &operation);
  gl_enqueue(gl, it);
  if (check != NULL) gl_enqueue(gl, check);
  if (gl->first == it && gl->flight_count < GL_SLOTS) {
    gl_advance(gl);
  } else {
    gl_progress(gl);
  }
  if (gl->gone) {
    // The request ends as if it had not been started: the caller does not know its number.
    gl_release_request(gl, it);
    gl_update_fd(gl);
    return gl_fail(gl, GRADLANE_DAEMON_GONE, "%s", gl->gone_text);
  }
  if (kind != GL_ENCODE) ++gl->next_tag;  // other ranks need not encode
  if (request == NULL) return gradlane_wait(gl, it->number, -1);
  *request = it->number;
  gl_update_fd(gl);
  return GRADLANE_OK;
}

static gradlane_code start(gradlane_context* gl, enum gl_submission_kind kind, void* data, size_t count,
                           gradlane_type type, int root, const gradlane_how* how, gradlane_request* request) {
  return start_with(gl, kind, data, NULL, count, type, root, how, request);
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

gradlane_code gradlane_reduce(gradlane_context* gl, void* data, size_t count, gradlane_type type, int root,
                              const gradlane_how* how, gradlane_request* request) {
  return start(gl, GL_REDUCE, data, count, type, root, how, request);
}

gradlane_code gradlane_gather(gradlane_context* gl, void* data, size_t count, gradlane_type type, int root,
                              const gradlane_how* how, gradlane_request* request) {
  return start(gl, GL_GATHER, data, count, type, root, how, request);
}

gradlane_code gradlane_scatter(gradlane_context* gl, void* data, size_t count, gradlane_type type, int root,
                               const gradlane_how* how, gradlane_request* request) {
  return start(gl, GL_SCATTER, data, count, type, root, how, request);
}

gradlane_code gradlane_all_to_all(gradlane_context* gl, void* data, void* out, size_t count, gradlane_type type,
                                  const gradlane_how* how, gradlane_request* request) {
  return start_with(gl, GL_ALL_TO_ALL, data, out, count, type, 0, how, request);
}

gradlane_code gradlane_barrier(gradlane_context* gl, const gradlane_how* how, gradlane_request* request) {
  return start(gl, GL_BARRIER, NULL, 0, GRADLANE_BYTES, 0, how, request);
}

gradlane_code gradlane_encode(gradlane_context* gl, float* data, size_t count, void* encoded, size_t bytes,
                              const gradlane_how* how, gradlane_request* request) {
  gradlane_how own;
  const gradlane_code code = gl_read_how(gl, "encode", how, &own);
  if (code != GRADLANE_OK) return code;
  const gradlane_how wanted = {.struct_size = sizeof(wanted),
                               .codec = own.codec,
                               .residual = own.residual,
                               .timeout_ms = own.timeout_ms,
                               .encoded = encoded,
                               .encoded_bytes = bytes};
  return start(gl, GL_ENCODE, data, count, GRADLANE_FLOAT32, 0, &wanted, request);
}

static size_t table_bytes(size_t count) {
  return ((count + GL_ENCODED_BLOCK - 1) / GL_ENCODED_BLOCK + 1) * sizeof(uint64_t);
}

size_t gradlane_encoded_space(size_t count) {
  const size_t groups = (count + 31) / 32;
  return table_bytes(count) + groups * 5 * 32;  // no codec that has encoded tensors takes more than 5 bytes a float
}

size_t gradlane_runs_space(size_t count) { return gl_runs_space(count); }

size_t gradlane_encoded_bytes(const void* encoded, size_t count) {
  uint64_t end = 0;
  memcpy(&end, (const uint8_t*)encoded + table_bytes(count) - sizeof(end), sizeof(end));
  return (size_t)end;
}

gradlane_code gradlane_cancel(gradlane_context* gl, gradlane_request request) {
  const gradlane_code code = gl_check_context(gl, "gradlane_cancel");
  if (code != GRADLANE_OK) return code;
  struct gl_request* const it = gl_find_request(gl, request);
  if (it == NULL) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "there is no request %llu, or a call has already waited for it",
                   (unsigned long long)request);
  }
  if (it->state == GL_OVER) return GRADLANE_OK;
  gl_cancel_request(gl, it);
  gl_progress(gl);
  gl_update_fd(gl);
  return GRADLANE_OK;
}

gradlane_code gradlane_resume(gradlane_context* gl, uint64_t next_tag) {
  const gradlane_code code = gl_check_context(gl, "gradlane_resume");
  if (code != GRADLANE_OK) return code;
  if (gl->gone) return gl_fail(gl, GRADLANE_DAEMON_GONE, "%s", gl->gone_text);
  gl->next_tag = next_tag;
  // Requests in the queue belong to the old count and fail here. The daemon fails those that it has.
  gl_drop_queue(gl, GRADLANE_FAILED, GRADLANE_CAUSE_RESUMED,
                "this rank called gradlane_resume() before the operation started");
  gl_reset_choices(gl);
  gl->resuming = true;
  gl_advance(gl);
  gl_update_fd(gl);
  return gl->gone ? gl_fail(gl, GRADLANE_DAEMON_GONE, "%s", gl->gone_text) : GRADLANE_OK;
}
