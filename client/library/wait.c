// wait.c - the ends of requests: waiting, testing, event loops (the thread of the context)
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/library/choices.h"
#include "client/library/clock.h"
#include "client/library/context.h"
#include "client/library/daemon_calls.h"
#include "client/library/progress.h"
#include "client/library/requests.h"
#include "client/library/waits.h"

// Interval at which the socket is read while the rings are polled.
static const int64_t kSocketPollUs = 5000;
// Interval at which a thread that sleeps checks whether the daemon runs. If the lanes' `beats` have not changed for
// kStoppedUs, the daemon counts as gone.
static const int kHeartbeatMs = 1000;
// Time to sleep if a ring is full. No bell rings when an entry becomes free. Lanes take entries within about 10 us.
static const int kRoomMs = 1;
static const int64_t kStoppedUs = 10000000;

// Sleeps until a lane has completed something, or the daemon says goodbye, or for timeout_ms (-1: no limit).
static void sleep_on_daemon(gradlane_context* gl, int timeout_ms) {
  struct pollfd wanted[2] = {{.fd = gl->completion_fd, .events = POLLIN}, {.fd = gl->socket, .events = POLLIN}};
  const unsigned count = gl->gone ? 1 : 2;
  // Other threads may add tasks meanwhile.
  gl_leave(gl->base.shared ? gl : NULL);
  const int ready = gl_poll(wanted, count, timeout_ms);
  (void)gl_enter(gl);
  if (ready <= 0) return;  // EINTR is treated like a timeout: the caller checks the time
  if (wanted[0].revents != 0) gl_drain_bell(gl->completion_fd);
  if (wanted[1].revents != 0) gl_receive_events(gl);
}

static void spin(gradlane_context* gl, const struct gl_request* it, int64_t until_us) {
  int64_t now_us = gl_now_us();
  int64_t socket_poll_us = now_us + kSocketPollUs;
  while (it->state == GL_RUNNING && now_us < until_us) {
    gl_yield();
    gl_progress(gl);
    now_us = gl_now_us();
    if (now_us >= socket_poll_us) {
      gl_receive_events(gl);
      socket_poll_us = now_us + kSocketPollUs;
    }
  }
}

static uint64_t beats(const gradlane_context* gl) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < gl->welcome.lanes; ++i) sum += __atomic_load_n(&gl->lanes[i].beats, __ATOMIC_RELAXED);
  return sum;
}

// Ends the connection to a daemon whose beats have not changed for kStoppedUs. Waits may be short and many, so the time
// adds up over calls. Between two checks, at most a second counts, as the trainer may have been stopped together with
// its daemon.
static void check_heartbeat(gradlane_context* gl, int64_t now_us) {
  const uint64_t sum = beats(gl);
  const int64_t since_us = now_us - gl->heartbeat_checked_us;
  gl->heartbeat_checked_us = now_us;
  gl->no_heartbeat_us =
      sum == gl->beats ? gl->no_heartbeat_us + (since_us < kHeartbeatMs * 1000 ? since_us : kHeartbeatMs * 1000) : 0;
  gl->beats = sum;
  if (gl->gone || gl->no_heartbeat_us <= kStoppedUs) return;
  gl_gone(gl, "the daemon at %s (pid %u) made no progress for %d s: it is stopped, or hangs", gl->address.sun_path,
          gl->welcome.pid, (int)(kStoppedUs / 1000000));
}

static void sleep_until(gradlane_context* gl, const struct gl_request* it, int64_t deadline_us) {
  __atomic_store_n(&gl->control->waiting, 1, __ATOMIC_SEQ_CST);
  for (;;) {
    gl_progress(gl);
    if (it->state != GL_RUNNING) break;
    const int64_t now_us = gl_now_us();
    check_heartbeat(gl, now_us);
    if (it->state != GL_RUNNING) break;
    int timeout_ms = gl->blocked ? kRoomMs : kHeartbeatMs;
    if (deadline_us >= 0) {
      const int64_t left_us = deadline_us - now_us;
      if (left_us <= 0) break;
      if (left_us < timeout_ms * 1000) timeout_ms = (int)((left_us + 999) / 1000);
    }
    sleep_on_daemon(gl, timeout_ms);
  }
  if (gl->epoll_fd < 0) __atomic_store_n(&gl->control->waiting, 0, __ATOMIC_RELAXED);
}

// Records that the caller learns of a failure, and so of the ends of generations up to this one. Operations that it
// submits from now on carry these counts (`ends_seen`). Lanes that completed the operation before the end do not report
// the end by a failure, so their `ends` is read now.
static void see_ends(gradlane_context* gl, const struct gl_request* it) {
  for (uint32_t i = 0; i < gl->welcome.lanes; ++i) {
    const bool failed = (it->lanes_failed >> i & 1) != 0;
    const uint32_t ends = failed ? it->ends[i] : __atomic_load_n(&gl->lanes[i].ends, __ATOMIC_RELAXED);
    uint32_t* const seen = &gl->rings[i].ends_seen;
    if ((int32_t)(ends - *seen) > 0) *seen = ends;
  }
  // Choices start again when a failure reports an end, because failures are the same on all ranks. In contrast, `ends`
  // also counts generations that this rank's own gradlane_resume() has ended.
  if (it->tells_end && it->epoch == gl->choices.epoch) gl_reset_choices(gl);
}

// Returns how a request ended and forgets it. Returns GRADLANE_PENDING if it is not over.
static gradlane_code finish(gradlane_context* gl, struct gl_request* it) {
  gradlane_code code = GRADLANE_PENDING;
  if (it->state == GL_OVER) {
    code = it->code;
    if (code != GRADLANE_OK) {
      (void)gl_fail(gl, code, "%s", it->text);
      gl->base.cause = code == GRADLANE_FAILED ? it->cause : GRADLANE_CAUSE_NONE;
      if (it->cause != GRADLANE_CAUSE_WRONG) see_ends(gl, it);  // a wrong result ends nothing
    }
    gl_release_request(gl, it);
  }
  gl_update_fd(gl);
  return code;
}

static gradlane_code no_such_request(gradlane_context* gl, gradlane_request request) {
  return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "there is no request %llu, or a call has already waited for it",
                 (unsigned long long)request);
}

gradlane_code gradlane_wait(gradlane_context* gl, gradlane_request request, int timeout_ms) {
  const gradlane_code usable = gl_check_context(gl, "gradlane_wait");
  if (usable != GRADLANE_OK) return usable;
  if (timeout_ms == 0) return gradlane_test(gl, request);
  struct gl_request* const it = gl_find_request(gl, request);
  if (it == NULL) return no_such_request(gl, request);
  gl_progress(gl);
  if (it->state == GL_RUNNING) {
    const int64_t start_us = gl_now_us();
    const int64_t deadline_us = timeout_ms < 0 ? -1 : start_us + (int64_t)timeout_ms * 1000;
    const int64_t spin_us = start_us + gl->spin_us;
    spin(gl, it, deadline_us >= 0 && deadline_us < spin_us ? deadline_us : spin_us);
    if (it->state == GL_RUNNING) sleep_until(gl, it, deadline_us);
  }
  return finish(gl, it);
}

gradlane_code gradlane_test(gradlane_context* gl, gradlane_request request) {
  const gradlane_code usable = gl_check_context(gl, "gradlane_test");
  if (usable != GRADLANE_OK) return usable;
  struct gl_request* const it = gl_find_request(gl, request);
  if (it == NULL) return no_such_request(gl, request);
  if (gl->epoll_fd < 0) gl_progress(gl);
  // If it is not over, the daemon may have ended. With an event loop, the bell is drained before the rings are read, so
  // that no wake-up is lost.
  if (it->state == GL_RUNNING || gl->epoll_fd >= 0) {
    check_heartbeat(gl, gl_now_us());
    sleep_on_daemon(gl, 0);
    gl_progress(gl);
  }
  return finish(gl, it);
}

// Adds a descriptor to the epoll instance. Only the presence of events matters, not what they are.
static bool watch(int epoll_fd, int fd) {
  struct epoll_event event = {.events = EPOLLIN};
  return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

int gradlane_fd(gradlane_context* gl) {
  if (gl_check_context(gl, "gradlane_fd") != GRADLANE_OK) return -1;
  if (gl->epoll_fd >= 0) return gl->epoll_fd;
  int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  int progress_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll_fd < 0 || progress_fd < 0 || !watch(epoll_fd, gl->completion_fd) || !watch(epoll_fd, gl->socket) ||
      !watch(epoll_fd, progress_fd)) {
    (void)gl_fail(gl, GRADLANE_NO_MEMORY, "gradlane_fd: %s", strerror(errno));
    gl_close_fd(&epoll_fd);
    gl_close_fd(&progress_fd);
    return -1;
  }
  gl->epoll_fd = epoll_fd;
  gl->progress_fd = progress_fd;
  __atomic_store_n(&gl->control->waiting, 1, __ATOMIC_SEQ_CST);
  gl_progress(gl);  // takes what was completed before `waiting` was set
  gl_update_fd(gl);
  return epoll_fd;
}
