// tasks.c - operations of several threads, which run one after the other (any thread)
//
// The lock of the context protects everything here. gradlane_wait() releases it while it sleeps. One thread at a time
// runs a task and waits for its request. It is the thread in gradlane_add() if the task is small, otherwise the thread
// that calls gradlane_next().
#include "client/library/tasks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/library/check.h"
#include "client/library/clock.h"
#include "client/library/waits.h"
#include "client/tuner/agreement.h"

// gradlane_add() waits for tasks of up to `small` bytes, for at most kPatienceMs. `small` adapts to how long tasks
// take.
enum { kPatienceMs = 1, kSmall = 1 << 20, kSmallest = 16 << 10 };
enum { kSliceMs = 1000, kNumberBits = 24 };

enum task_state {
  TASK_WAITS,  // waits for its turn, or for gradlane_add()'s thread
  TASK_ASKED,  // gradlane_next() has said that the task has its turn
  TASK_RUNS,
  TASK_OVER,     // has ended; gradlane_next() has not reported it yet
  TASK_REPORTED  // has been reported; the caller is busy with it
};

struct task {
  struct task* next;
  enum task_state state;
  gradlane_task given;  // `how` and `what` are not valid any more
  gradlane_how how;
  char codec[2 * GL_NAME + 1];
  char strategy[GL_NAME + 1];
  void** rows;    // copy of `how.blocks`
  uint64_t hash;  // where the hash goes if GRADLANE_HASHES is set and `how` names no place
  uint64_t bytes;
  uint64_t identity;   // hash of what ranks must agree on
  bool fails_at_turn;  // an earlier task has failed, so this one fails when it has its turn
  bool adder_waits;    // the thread in gradlane_add() waits for it
  gradlane_request request;
  uint64_t number;  // number of the task, from 1
  int64_t begun_us;
  gradlane_code code;
  gradlane_cause cause;
  bool is_late;
  char text[GL_ERROR_TEXT];
  char warning[GL_ERROR_TEXT];
};

struct gl_tasks {
  struct task* first;  // the task that has its turn
  struct task* last;
  struct task* free;
  uint64_t added;
  uint64_t begun;   // tasks that have had their turn
  uint64_t failed;  // hash of the numbers of tasks that failed on all ranks
  uint64_t small;   // bytes up to which gradlane_add() waits for a task
  int bell;         // eventfd that wakes gradlane_next()
  bool has_ended;
  bool is_reporting;   // a thread is in gradlane_next()
  bool has_reporter;   // gradlane_next() was called
  pthread_t reporter;  // the thread that called gradlane_next()
};

static const size_t kElement[] = {4, 8, 2, 2, 4, 8, 1};  // bytes, by gradlane_type

static uint64_t identity_of(const struct task* it, const char* what) {
  const uint64_t fields[] = {(uint64_t)it->given.collective, (uint64_t)it->given.type,    it->bytes,
                             (uint64_t)it->how.average,      (uint64_t)it->how.reduction, (uint64_t)it->given.root};
  const uint64_t sum = gl_digest(GL_DIGEST, fields, sizeof(fields));
  return what != NULL ? gl_digest(sum, what, strlen(what)) : sum;
}

// ---- One task

static void note_failure(gradlane_context* gl, const struct task* it) {
  struct gl_tasks* const tasks = gl->tasks;
  if (it->code != GRADLANE_FAILED && it->code != GRADLANE_DAEMON_GONE) return;
  // Ranks that disagree about which tasks failed may disagree about numbers, so their tags must differ.
  tasks->failed = gl_digest(tasks->failed ^ GL_DIGEST, &tasks->begun, sizeof(tasks->begun));
  for (struct task* other = tasks->first; other != NULL && !it->fails_at_turn; other = other->next) {
    if (other == it || other->state != TASK_WAITS || other->fails_at_turn) continue;
    other->fails_at_turn = true;
    other->code = it->code;
    other->cause = it->cause;
    const int room = GL_ERROR_TEXT - 40;
    (void)snprintf(other->text, sizeof(other->text), "%.*s (an earlier operation failed)", room, it->text);
  }
}

// Adds the result to the running hash. Tasks end in the same order on all ranks.
static void add_result(gradlane_context* gl, const struct task* it) {
  const int collective = it->given.collective;
  if ((it->given.flags & GRADLANE_HASHES) == 0 || it->code != GRADLANE_OK) return;
  if (collective == GRADLANE_REDUCE_SCATTER || collective == GRADLANE_BARRIER) return;
  const uint64_t pair[] = {gl->results_hash, *it->how.hash};
  gl->results_hash = gradlane_hash(pair, sizeof(pair));
  ++gl->hashed_results;
}

static void end_task(gradlane_context* gl, struct task* it, gradlane_code code) {
  it->state = TASK_OVER;
  it->code = code;
  add_result(gl, it);
  const int64_t took_us = gl_now_us() - it->begun_us;
  if (code != GRADLANE_OK && !it->fails_at_turn) {
    it->cause = code == GRADLANE_FAILED ? gl->base.cause : GRADLANE_CAUSE_NONE;
    memcpy(it->text, gl->base.error, sizeof(it->text));
    // The daemon reads its clock only once per polling round, so it may end an operation a little early.
    const bool timed_out = it->cause == GRADLANE_CAUSE_TIMEOUT && it->how.timeout_ms > 0;
    it->is_late = timed_out && took_us >= it->how.timeout_ms * 500;
  }
  const char* const warning = gradlane_warning(gl);
  if (warning != NULL) (void)snprintf(it->warning, sizeof(it->warning), "%s", warning);
  note_failure(gl, it);
  struct gl_tasks* const tasks = gl->tasks;
  if (it->bytes > kSmall || it->fails_at_turn) return;
  if (took_us > kPatienceMs * 1000) {
    // The time of tasks up to kSmallest bytes depends on other ranks, not on links. So they do not lower the limit.
    const uint64_t half = it->bytes / 2 > kSmallest ? it->bytes / 2 : kSmallest;
    if (it->bytes > kSmallest && half < tasks->small) tasks->small = half;
  } else if (tasks->small < 2 * it->bytes) {
    tasks->small = 2 * it->bytes < kSmall ? 2 * it->bytes : kSmall;
  }
}

static gradlane_code start_request(gradlane_context* gl, struct task* it) {
  const gradlane_task* const task = &it->given;
  const gradlane_type type = (gradlane_type)task->type;
  switch (task->collective) {
    case GRADLANE_ALL_REDUCE:
      return gradlane_all_reduce(gl, task->data, task->count, type, &it->how, &it->request);
    case GRADLANE_REDUCE_SCATTER:
      return gradlane_reduce_scatter(gl, task->data, task->count, type, &it->how, &it->request);
    case GRADLANE_ALL_GATHER:
      return gradlane_all_gather(gl, task->data, task->count, type, &it->how, &it->request);
    case GRADLANE_BROADCAST:
      return gradlane_broadcast(gl, task->data, task->count, type, task->root, &it->how, &it->request);
    default:
      return gradlane_barrier(gl, &it->how, &it->request);
  }
}

static void begin_task(gradlane_context* gl, struct task* it) {
  struct gl_tasks* const tasks = gl->tasks;
  it->begun_us = gl_now_us();
  const uint64_t number = tasks->begun++;
  if (it->fails_at_turn) {
    end_task(gl, it, it->code);
    return;
  }
  const uint64_t sum = gl_digest(it->identity, &tasks->failed, sizeof(tasks->failed));
  it->how.has_tag = 1;
  it->how.tag = sum << kNumberBits | (number & ((1 << kNumberBits) - 1));
  const gradlane_code code = start_request(gl, it);
  if (code == GRADLANE_OK) {
    it->state = TASK_RUNS;
  } else {
    end_task(gl, it, code);
  }
}

// Fails a task that has its turn, without starting it. It counts as begun, as other ranks may have begun it.
static void give_up_task(gradlane_context* gl, struct task* it, gradlane_code code) {
  it->begun_us = gl_now_us();
  ++gl->tasks->begun;
  (void)gl_fail(gl, code, "the caller cancelled the task");
  end_task(gl, it, code);
}

static void wait_for_task(gradlane_context* gl, struct task* it, int timeout_ms) {
  const gradlane_code code = gradlane_wait(gl, it->request, timeout_ms);
  if (code != GRADLANE_PENDING) end_task(gl, it, code);
}

static gradlane_code report_task(const struct task* it, gradlane_outcome* outcome) {
  outcome->task = it->number;
  outcome->user = it->given.user;
  outcome->code = it->state == TASK_OVER ? it->code : GRADLANE_PENDING;
  outcome->cause = GRADLANE_CAUSE_NONE;
  outcome->asks = it->state == TASK_ASKED ? 1 : 0;
  outcome->late = 0;
  outcome->text[0] = outcome->warning[0] = 0;
  if (it->state != TASK_OVER) return (gradlane_code)outcome->code;
  if (it->warning[0] != 0) memcpy(outcome->warning, it->warning, sizeof(it->warning));
  if (it->code == GRADLANE_OK) return GRADLANE_OK;
  outcome->cause = (int)it->cause;
  outcome->late = it->is_late ? 1 : 0;
  memcpy(outcome->text, it->text, sizeof(it->text));
  return it->code;
}

// ---- The queue

static gradlane_code check_call(gradlane_context* gl, const char* call, const gradlane_outcome* outcome) {
  const gradlane_code code = gl_check_context(gl, call);
  if (code != GRADLANE_OK) return code;
  if (gl->tasks == NULL) return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: call gradlane_share() first", call);
  if (outcome != NULL && outcome->struct_size == sizeof(*outcome)) return GRADLANE_OK;
  if (outcome == NULL) return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: the outcome is NULL", call);
  return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: struct_size of gradlane_outcome is not %zu", call, sizeof(*outcome));
}

static gradlane_code check_task(gradlane_context* gl, const gradlane_task* task) {
  if (task == NULL) return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "gradlane_add: the task is NULL");
  if (task->struct_size != sizeof(*task)) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "gradlane_add: struct_size of gradlane_task is not %zu", sizeof(*task));
  }
  if (task->collective < GRADLANE_ALL_REDUCE || task->collective > GRADLANE_BARRIER) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "gradlane_add: there is no collective %d", task->collective);
  }
  if (task->type < GRADLANE_FLOAT32 || task->type > GRADLANE_BYTES) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "gradlane_add: there is no type %d", task->type);
  }
  const bool is_own = gl->tasks->has_reporter && pthread_equal(gl->tasks->reporter, pthread_self());
  const unsigned known = GRADLANE_HASHES | (is_own ? GRADLANE_FAILS : GRADLANE_ASKS);
  if ((task->flags & ~known) != 0) {
    return gl_fail(
        gl, GRADLANE_BAD_ARGUMENT,
        "gradlane_add: flags are %u; %s the thread of gradlane_next() only GRADLANE_HASHES and %s are allowed",
        task->flags, is_own ? "in" : "outside", is_own ? "GRADLANE_FAILS" : "GRADLANE_ASKS");
  }
  if (gl->gone) return gl_fail(gl, GRADLANE_DAEMON_GONE, "%s", gl->gone_text);
  return GRADLANE_OK;
}

static struct task* new_task(const gradlane_context* gl) {
  struct gl_tasks* const tasks = gl->tasks;
  struct task* it = tasks->free;
  if (it != NULL) {
    tasks->free = it->next;
    return it;
  }
  it = calloc(1, sizeof(*it));
  if (it == NULL) return NULL;
  it->rows = calloc(gl->welcome.world, sizeof(*it->rows));
  if (it->rows != NULL) return it;
  free(it);
  return NULL;
}

static void release_task(const gradlane_context* gl, struct task* it) {
  it->next = gl->tasks->free;
  gl->tasks->free = it;
}

// Wakes gradlane_next(). write() here and read() below cannot block, and fail only if they have nothing to do.
static void ring_bell(const struct gl_tasks* tasks) {
  const uint64_t one = 1;
  if (write(tasks->bell, &one, sizeof(one)) < 0) return;
}

static void drain_bell(const struct gl_tasks* tasks) {
  uint64_t count;
  if (read(tasks->bell, &count, sizeof(count)) < 0) return;
}

static void keep_name(const char** name, char* room, size_t bytes) {
  if (*name == NULL) return;
  (void)snprintf(room, bytes, "%s", *name);
  *name = room;
}

static void fill_task(gradlane_context* gl, struct task* it, const gradlane_task* task, const gradlane_how* how) {
  it->next = NULL;
  it->state = TASK_WAITS;
  it->given = *task;
  it->how = *how;
  keep_name(&it->how.codec, it->codec, sizeof(it->codec));
  keep_name(&it->how.strategy, it->strategy, sizeof(it->strategy));
  if (how->blocks != NULL) {
    memcpy(it->rows, how->blocks, gl->welcome.world * sizeof(*it->rows));
    it->how.blocks = it->rows;
  }
  if ((task->flags & GRADLANE_HASHES) != 0 && how->hash == NULL) it->how.hash = &it->hash;
  const bool has_blocks = task->collective == GRADLANE_REDUCE_SCATTER || task->collective == GRADLANE_ALL_GATHER;
  it->bytes = (uint64_t)task->count * kElement[task->type] * (has_blocks ? gl->welcome.world : 1);
  it->identity = identity_of(it, task->what);
  it->fails_at_turn = it->adder_waits = it->is_late = false;
  it->number = ++gl->tasks->added;
  it->code = GRADLANE_OK;
  it->cause = GRADLANE_CAUSE_NONE;
  it->text[0] = it->warning[0] = 0;
}

static void append_task(struct gl_tasks* tasks, struct task* it) {
  if (tasks->first == NULL) {
    tasks->first = it;
  } else {
    tasks->last->next = it;
  }
  tasks->last = it;
}

static void drop_first_task(gradlane_context* gl) {
  struct task* const it = gl->tasks->first;
  gl->tasks->first = it->next;
  release_task(gl, it);
}

// Runs a task of gradlane_next()'s thread to its end, before those that wait.
static gradlane_code run_nested(gradlane_context* gl, struct task* it, gradlane_outcome* outcome) {
  if ((it->given.flags & GRADLANE_FAILS) != 0) {
    give_up_task(gl, it, GRADLANE_BAD_ARGUMENT);
  } else {
    begin_task(gl, it);
  }
  while (it->state == TASK_RUNS) wait_for_task(gl, it, kSliceMs);
  const gradlane_code code = report_task(it, outcome);
  release_task(gl, it);
  return code;
}

// Tries to run the task, the only one in the queue, in the thread that adds it.
static gradlane_code run_briefly(gradlane_context* gl, struct task* it, gradlane_outcome* outcome) {
  it->adder_waits = true;
  begin_task(gl, it);
  if (it->state == TASK_RUNS) wait_for_task(gl, it, kPatienceMs);
  it->adder_waits = false;
  const gradlane_code code = report_task(it, outcome);
  if (it->state == TASK_OVER) drop_first_task(gl);
  if (gl->tasks->first != NULL || gl->tasks->has_ended) ring_bell(gl->tasks);
  return code;
}

gradlane_code gradlane_add(gradlane_context* gl, const gradlane_task* task, gradlane_outcome* outcome) {
  GL_LOCK(gl);
  gradlane_how how;
  gradlane_code code = check_call(gl, "gradlane_add", outcome);
  if (code == GRADLANE_OK) code = check_task(gl, task);
  if (code == GRADLANE_OK) code = gl_read_how(gl, "gradlane_add", task->how, &how);
  struct task* const it = code == GRADLANE_OK ? new_task(gl) : NULL;
  if (code == GRADLANE_OK && it == NULL) {
    code = gl_fail(gl, GRADLANE_NO_MEMORY, "gradlane_add: no memory for another task");
  }
  if (code != GRADLANE_OK) {
    if (outcome == NULL || outcome->struct_size != sizeof(*outcome)) return code;
    *outcome = (gradlane_outcome){.struct_size = sizeof(*outcome), .code = code};
    (void)snprintf(outcome->text, sizeof(outcome->text), "%s", gradlane_error(gl));
    return code;
  }
  fill_task(gl, it, task, &how);
  struct gl_tasks* const tasks = gl->tasks;
  if (tasks->has_reporter && pthread_equal(tasks->reporter, pthread_self())) return run_nested(gl, it, outcome);
  const bool is_first = tasks->first == NULL;
  append_task(tasks, it);
  if (is_first && (task->flags & GRADLANE_ASKS) == 0 && it->bytes <= tasks->small) return run_briefly(gl, it, outcome);
  if (is_first) ring_bell(tasks);
  return report_task(it, outcome);
}

// Sleeps until a task is added, gradlane_add() no longer waits for the first one, or the connection has ended.
static void sleep_on_bell(gradlane_context* gl) {
  struct pollfd bell = {.fd = gl->tasks->bell, .events = POLLIN};
  gl_leave(gl);
  (void)gl_poll(&bell, 1, -1);
  (void)gl_enter(gl);
  drain_bell(gl->tasks);
}

// Waits until a task has ended or asks, and reports it.
static gradlane_code await_news(gradlane_context* gl, gradlane_outcome* outcome) {
  struct gl_tasks* const tasks = gl->tasks;
  for (;;) {
    struct task* const it = tasks->first;
    if (it == NULL && tasks->has_ended) return gl_fail(gl, GRADLANE_DAEMON_GONE, "%s", gl->gone_text);
    if (it == NULL || it->adder_waits) {
      sleep_on_bell(gl);
      continue;
    }
    if (it->state == TASK_ASKED)
      return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "gradlane_next: call gradlane_answer() first");
    if (it->state == TASK_WAITS && (it->given.flags & GRADLANE_ASKS) != 0 && !it->fails_at_turn) {
      it->state = TASK_ASKED;
      (void)report_task(it, outcome);
      return GRADLANE_OK;
    }
    if (it->state == TASK_WAITS) begin_task(gl, it);
    if (it->state == TASK_RUNS) wait_for_task(gl, it, kSliceMs);
    if (it->state != TASK_OVER) continue;
    (void)report_task(it, outcome);
    it->state = TASK_REPORTED;
    return GRADLANE_OK;
  }
}

gradlane_code gradlane_next(gradlane_context* gl, gradlane_outcome* outcome) {
  GL_LOCK(gl);
  const gradlane_code code = check_call(gl, "gradlane_next", outcome);
  if (code != GRADLANE_OK) return code;
  struct gl_tasks* const tasks = gl->tasks;
  if (tasks->is_reporting) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "gradlane_next: another thread is in this call; only one thread may use it");
  }
  tasks->reporter = pthread_self();
  tasks->has_reporter = true;
  if (tasks->first != NULL && tasks->first->state == TASK_REPORTED) drop_first_task(gl);
  tasks->is_reporting = true;
  const gradlane_code news = await_news(gl, outcome);
  tasks->is_reporting = false;
  return news;
}

gradlane_code gradlane_answer(gradlane_context* gl, gradlane_code answer, const char* codec) {
  GL_LOCK(gl);
  const gradlane_code code = gl_check_context(gl, "gradlane_answer");
  if (code != GRADLANE_OK) return code;
  struct task* const it = gl->tasks != NULL ? gl->tasks->first : NULL;
  if (it == NULL || it->state != TASK_ASKED) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "gradlane_answer: no task waits for an answer");
  }
  it->state = TASK_WAITS;
  it->given.flags &= ~GRADLANE_ASKS;
  if (answer != GRADLANE_OK) {
    give_up_task(gl, it, answer);
  } else if (codec != NULL) {
    it->how.codec = codec;
    keep_name(&it->how.codec, it->codec, sizeof(it->codec));
  }
  return GRADLANE_OK;
}

gradlane_code gradlane_share(gradlane_context* gl) {
  GL_LOCK(gl);
  const gradlane_code code = gl_check_context(gl, "gradlane_share");
  if (code != GRADLANE_OK || gl->tasks != NULL) return code;
  struct gl_tasks* const tasks = calloc(1, sizeof(*tasks));
  const int bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (tasks == NULL || bell < 0) {
    free(tasks);
    if (bell >= 0) (void)close(bell);
    return gl_fail(gl, GRADLANE_NO_MEMORY, "gradlane_share: no memory, or no file descriptor");
  }
  tasks->bell = bell;
  tasks->small = kSmall;
  pthread_mutexattr_t recursive;
  (void)pthread_mutexattr_init(&recursive);
  (void)pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  (void)pthread_mutex_init(&gl->base.lock, &recursive);
  (void)pthread_mutexattr_destroy(&recursive);
  gl->tasks = tasks;
  gl->base.shared = true;
  return GRADLANE_OK;
}

void gl_end_tasks(gradlane_context* gl) {
  if (gl->tasks == NULL) return;
  gl->tasks->has_ended = true;
  ring_bell(gl->tasks);
}

static void free_list(struct task* it) {
  while (it != NULL) {
    struct task* const next = it->next;
    free(it->rows);
    free(it);
    it = next;
  }
}

void gl_free_tasks(gradlane_context* gl) {
  if (gl->tasks == NULL) return;
  free_list(gl->tasks->first);
  free_list(gl->tasks->free);
  (void)close(gl->tasks->bell);
  free(gl->tasks);
  if (getpid() == gl->base.owner) (void)pthread_mutex_destroy(&gl->base.lock);
}
