// daemon_calls.c - questions to the daemon, and its messages that answer none (the thread of the context)
#include "client/library/daemon_calls.h"

#include <errno.h>
#include <string.h>

#include "client/library/progress.h"

// A daemon that does not answer within this time never will. It answers within about 10 ms unless its CPU is taken
// away.
enum { kAnswerMs = 30000 };

// Ends the connection. The message or error that came instead of an answer is the reason.
static void lose_connection(gradlane_context* gl, ssize_t bytes, int error, const union gl_message* message) {
  const char* path = gl->address.sun_path;
  const unsigned pid = gl->welcome.pid;
  if (bytes > 0 && message->type == GL_MSG_GOODBYE) {
    gl_gone(gl, "the daemon at %s (pid %u) has closed the connection: %s", path, pid, message->text.text);
  } else if (bytes > 0) {
    gl_gone(gl, "the daemon at %s (pid %u) sent an unexpected message, type %u of %zd bytes", path, pid, message->type,
            bytes);
  } else if (bytes == 0) {
    gl_gone(gl, "the daemon at %s (pid %u) has ended", path, pid);
  } else if (error == ETIMEDOUT) {
    gl_gone(gl, "the daemon at %s (pid %u) has not answered for %d s", path, pid, kAnswerMs / 1000);
  } else {
    gl_gone(gl, "the connection to the daemon at %s (pid %u) failed: %s", path, pid, strerror(error));
  }
}

void gl_receive_events(gradlane_context* gl) {
  union gl_message message;
  const ssize_t bytes = gl_receive(gl->socket, &message, NULL, 0);
  const int error = bytes < 0 ? errno : 0;
  if (error == ETIMEDOUT) return;  // there is nothing to read
  lose_connection(gl, bytes, error, &message);
}

gradlane_code gl_ask(gradlane_context* gl, const void* request, size_t request_bytes, uint32_t wanted, size_t bytes,
                     gradlane_code refused, union gl_message* answer, struct gl_fds* fds) {
  if (!gl->gone) {
    // There may be a goodbye to read, even if nothing can be sent any more.
    (void)gl_send(gl->socket, request, request_bytes);
    const ssize_t got = gl_receive(gl->socket, answer, fds, kAnswerMs);
    const int error = got < 0 ? errno : 0;
    if (got == (ssize_t)bytes && answer->type == wanted) return GRADLANE_OK;
    if (fds != NULL) gl_close_fds(fds);
    if (got > 0 && answer->type == GL_MSG_REFUSED) return gl_fail(gl, refused, "%s", answer->text.text);
    lose_connection(gl, got, error, answer);
  }
  return gl_fail(gl, GRADLANE_DAEMON_GONE, "%s", gl->gone_text);
}
