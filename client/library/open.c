// open.c - opening a context (connect, hello, welcome), and closing it (the thread of the context)
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/library/buffers.h"
#include "client/library/choice_sets.h"
#include "client/library/choices.h"
#include "client/library/clock.h"
#include "client/library/codecs.h"
#include "client/library/context.h"
#include "client/library/find.h"
#include "client/library/message.h"
#include "client/library/progress.h"
#include "client/library/requests.h"
#include "client/library/strategies.h"
#include "client/library/tasks.h"
#include "client/library/waits.h"

enum {
  kConnectMs = 10000,  // default of timeout_ms
  kRetryMs = 20,
  kHelloMs = 2000,                                                   // least time for the daemon's answer
  kSpinUs = 20,                                                      // default of spin_us
  kLeastOptions = offsetof(gradlane_options, operation_timeout_ms),  // bytes of gradlane_options before version 3
};

// The settings of the caller and the environment.
struct settings {
  struct sockaddr_un address;  // empty path: nobody has named the socket
  int rank;
  int timeout_ms;
  int spin_us;
  uint32_t operation_timeout_ms;
  bool keep_warnings;
  bool verify;
  bool named;  // the caller has named the socket
};

static gradlane_code read_rank(int* rank) {
  const char* const text = getenv("RANK");
  if (*rank >= 0 || text == NULL || text[0] == 0) return GRADLANE_OK;
  char* end = NULL;
  errno = 0;
  const long value = strtol(text, &end, 10);
  if (errno != 0 || *end != 0 || value < 0 || value > INT_MAX) {
    return gl_fail(NULL, GRADLANE_BAD_ARGUMENT, "RANK is '%.40s'; allowed: a number, 0 or more", text);
  }
  *rank = (int)value;
  return GRADLANE_OK;
}

static gradlane_code read_settings(const gradlane_options* given, struct settings* settings) {
  gradlane_options options = GRADLANE_OPTIONS_INIT;
  memset(settings, 0, sizeof(*settings));
  if (given != NULL && !gl_read_struct(&options, sizeof(options), kLeastOptions, given)) {
    return gl_fail(NULL, GRADLANE_BAD_ARGUMENT,
                   "struct_size of gradlane_options is %zu; this library knows %d to %zu: start from "
                   "GRADLANE_OPTIONS_INIT, and use a library as new as gradlane.h",
                   given->struct_size, kLeastOptions, sizeof(options));
  }
  settings->named = options.socket != NULL;
  const char* path = settings->named ? options.socket : getenv("GRADLANE_SOCKET");
  if (path == NULL) path = "";
  if (strlen(path) >= sizeof(settings->address.sun_path)) {
    return gl_fail(NULL, GRADLANE_BAD_ARGUMENT, "socket path %.120s has %zu characters; the limit is %zu", path,
                   strlen(path), sizeof(settings->address.sun_path) - 1);
  }
  settings->address.sun_family = AF_UNIX;
  memcpy(settings->address.sun_path, path, strlen(path));
  settings->rank = options.rank < 0 ? -1 : options.rank;
  settings->timeout_ms = options.timeout_ms < 0 ? kConnectMs : options.timeout_ms;
  settings->spin_us = options.spin_us < 0 ? kSpinUs : options.spin_us;
  settings->keep_warnings = options.keep_warnings != 0;
  const char* const verify = getenv("GRADLANE_VERIFY");
  const bool asks = verify != NULL && strcmp(verify, "1") == 0;
  if (verify != NULL && !asks && verify[0] != 0 && strcmp(verify, "0") != 0) {
    return gl_fail(NULL, GRADLANE_BAD_ARGUMENT, "GRADLANE_VERIFY is '%.40s'; allowed: 0 and 1", verify);
  }
  settings->verify = options.verify != 0 || asks;
  const gradlane_code code =
      gl_read_limit(NULL, "gradlane_open", options.operation_timeout_ms, &settings->operation_timeout_ms);
  return code != GRADLANE_OK || options.rank == GRADLANE_ANY_RANK ? code : read_rank(&settings->rank);
}

// Returns whether it helps to try again: the daemon may be starting, ending or busy.
static bool may_come(int error) {
  return error == ENOENT || error == ECONNREFUSED || error == EAGAIN || error == EINTR || error == ECONNRESET ||
         error == EPIPE;
}

static int left_ms(int64_t deadline_us) {
  const int64_t left_us = deadline_us - gl_now_us();
  return left_us > 0 ? (int)(left_us / 1000) : 0;
}

static gradlane_code fail_to_connect(const struct settings* settings, const struct gl_found* found, int error) {
  if (settings->address.sun_path[0] == 0 && (error == ENOENT || error == EEXIST)) {
    const gradlane_code code = error == EEXIST ? GRADLANE_BAD_ARGUMENT : GRADLANE_NO_DAEMON;
    return gl_fail(NULL, code, "no socket is named, and %s", found->why);
  }
  if (error == EACCES) {
    return gl_fail(NULL, GRADLANE_NO_DAEMON,
                   "cannot use the daemon's socket %s: %s; add this user to the socket's group, then log in again",
                   found->address.sun_path, strerror(error));
  }
  return gl_fail(NULL, GRADLANE_NO_DAEMON, "no daemon at %s: %s; is gradlaned running%s", found->address.sun_path,
                 strerror(error), settings->named ? "?" : ", and is GRADLANE_SOCKET the path of its socket?");
}

// Connects and sends a hello, again and again until there is an answer or no time is left. `found` has the address.
static gradlane_code greet(const struct settings* settings, struct gl_found* found, int* fd, union gl_message* answer,
                           ssize_t* bytes, struct gl_fds* fds) {
  const struct gl_hello hello = {
      .type = GL_MSG_HELLO, .magic = GL_MAGIC, .version = GL_ABI_VERSION, .rank = settings->rank};
  const int64_t deadline_us = gl_now_us() + (int64_t)settings->timeout_ms * 1000;
  for (;;) {
    // The search is repeated each time: a daemon that is starting may make its socket now.
    int error = settings->address.sun_path[0] == 0 ? gl_find(found, fd) : gl_connect(&found->address, fd);
    if (error == 0) {
      const int left = left_ms(deadline_us);
      // If hello cannot be sent there may still be a refusal to read.
      const int unsent = gl_send(*fd, &hello, sizeof(hello));
      *bytes = gl_receive(*fd, answer, fds, left > kHelloMs ? left : kHelloMs);
      error = *bytes > 0 ? 0 : *bytes < 0 ? errno : unsent != 0 ? unsent : ECONNRESET;
      if (error == 0) return GRADLANE_OK;
      gl_close_fd(fd);
      if (error == ETIMEDOUT) {
        return gl_fail(NULL, GRADLANE_NO_DAEMON,
                       "the daemon at %s does not answer; see its log, or run `gradlane stats`",
                       found->address.sun_path);
      }
    }
    if (!may_come(error) || left_ms(deadline_us) == 0) return fail_to_connect(settings, found, error);
    const int left = left_ms(deadline_us);
    gl_sleep_ms(left < kRetryMs ? left : kRetryMs);
  }
}

// The daemon that refused the rank in this thread's latest gradlane_open(). `world` is 0 if none did.
static _Thread_local struct {
  int world;
  char socket[sizeof(((struct sockaddr_un*)0)->sun_path)];
} refusal;

int gradlane_refused_by(const char** socket) {
  if (socket != NULL) *socket = refusal.socket;
  return refusal.world;
}

static gradlane_code check_welcome(const char* path, const union gl_message* answer, ssize_t bytes,
                                   const struct gl_fds* fds) {
  if (answer->type == GL_MSG_REFUSED || answer->type == GL_MSG_GOODBYE) {
    const bool version = answer->type == GL_MSG_REFUSED && answer->text.version != 0;
    if (answer->type == GL_MSG_REFUSED && answer->text.world != 0 && answer->text.world <= INT_MAX) {
      refusal.world = (int)answer->text.world;
      (void)snprintf(refusal.socket, sizeof(refusal.socket), "%s", path);
    }
    return gl_fail(NULL, version ? GRADLANE_VERSION : GRADLANE_NO_DAEMON, "the daemon at %s has refused: %s", path,
                   answer->text.text);
  }
  const struct gl_welcome* const welcome = &answer->welcome;
  if (answer->type != GL_MSG_WELCOME || bytes != (ssize_t)sizeof(*welcome)) {
    return gl_fail(NULL, GRADLANE_VERSION,
                   "the program at %s answered with message %u of %zd bytes: it is not a daemon of this version", path,
                   answer->type, bytes);
  }
  const uint32_t lanes = welcome->lanes;
  if (lanes == 0 || lanes > GL_MAX_LANES || fds->count != 2 + lanes || welcome->world == 0 ||
      welcome->world > INT_MAX || welcome->rank >= welcome->world || welcome->control_bytes < gl_control_bytes(lanes) ||
      memchr(welcome->codec, 0, GL_NAME) == NULL) {
    return gl_fail(
        NULL, GRADLANE_VERSION,
        "the daemon at %s sent an invalid welcome: rank %u of %u, %u lanes, %u file descriptors; install daemon and "
        "library of one version",
        path, welcome->rank, welcome->world, lanes, fds->count);
  }
  return GRADLANE_OK;
}

// Maps the control segment. The file descriptors then belong to the context.
static gradlane_code attach(gradlane_context* gl, struct gl_fds* fds) {
  const uint32_t lanes = gl->welcome.lanes;
  int control_fd = fds->fd[0];
  gl->completion_fd = fds->fd[1];
  for (uint32_t i = 0; i < lanes; ++i) gl->doorbells[i] = fds->fd[2 + i];
  fds->count = 0;

  const size_t bytes = gl->welcome.control_bytes;
  struct stat status;
  // Access to memory after the end of the file would raise SIGBUS.
  const bool whole = fstat(control_fd, &status) == 0 && (uint64_t)status.st_size >= bytes;
  void* const base = whole ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, control_fd, 0) : MAP_FAILED;
  const int error = whole ? errno : EINVAL;
  gl_close_fd(&control_fd);
  if (base == MAP_FAILED) {
    return gl_fail(NULL, GRADLANE_NO_MEMORY, "cannot map the daemon's control segment of %zu bytes: %s", bytes,
                   strerror(error));
  }
  gl->control = base;
  gl->lanes = (struct gl_lane*)(gl->control + 1);
  if (gl->control->magic != GL_MAGIC || gl->control->version != GL_ABI_VERSION || gl->control->lanes != lanes) {
    return gl_fail(
        NULL, GRADLANE_VERSION,
        "the daemon at %s speaks version %u with %u lanes, this library version %u: install both of one version",
        gl->address.sun_path, gl->control->version, gl->control->lanes, GL_ABI_VERSION);
  }
  if (!gl_read_codecs(gl, bytes)) {
    return gl_fail(
        NULL, GRADLANE_VERSION,
        "the daemon at %s has an invalid table of codecs: %u of %u bytes; install daemon and library of one version",
        gl->address.sun_path, gl->control->codecs, gl->control->codec_row_bytes);
  }
  if (!gl_read_strategies(gl, bytes)) {
    return gl_fail(NULL, GRADLANE_VERSION,
                   "the daemon at %s has an invalid table of strategies: %u of %u bytes; install daemon and library of "
                   "one version",
                   gl->address.sun_path, gl->control->strategies, gl->control->strategy_row_bytes);
  }
  if (!gl_read_candidates(gl, bytes)) {
    return gl_fail(NULL, GRADLANE_VERSION,
                   "the daemon at %s has an invalid table of candidates: %u of %u bytes; install daemon and library of "
                   "one version",
                   gl->address.sun_path, gl->control->ways, gl->control->way_row_bytes);
  }
  for (uint32_t i = 0; i < lanes; ++i) {
    gl->rings[i].submit_tail = __atomic_load_n(&gl->lanes[i].submit_tail, __ATOMIC_ACQUIRE);
    gl->rings[i].complete_head = __atomic_load_n(&gl->lanes[i].complete_head, __ATOMIC_ACQUIRE);
  }
  return GRADLANE_OK;
}

static gradlane_context* make_context(const struct settings* settings) {
  gradlane_context* const gl = calloc(1, sizeof(*gl));
  if (gl == NULL) return NULL;
  gl->socket = gl->completion_fd = gl->epoll_fd = gl->progress_fd = -1;
  for (unsigned i = 0; i < GL_MAX_LANES; ++i) gl->doorbells[i] = -1;
  gl->spin_us = settings->spin_us;
  gl->timeout_ms = settings->operation_timeout_ms;
  gl->losses.keep = settings->keep_warnings;
  gl->verify = settings->verify;
  gl->base.owner = getpid();
  return gl;
}

static void close_descriptors(gradlane_context* gl) {
  gl_close_fd(&gl->socket);
  gl_close_fd(&gl->epoll_fd);
  gl_close_fd(&gl->progress_fd);
  gl_close_fd(&gl->completion_fd);
  for (unsigned i = 0; i < GL_MAX_LANES; ++i) gl_close_fd(&gl->doorbells[i]);
}

void gradlane_close(gradlane_context* gl) {
  if (gl == NULL) return;
  // The end of the connection cancels everything in the daemon. Closing the socket does not end it while a child of
  // fork() has the socket, too. A child must not end it.
  if (gl->socket >= 0 && getpid() == gl->base.owner) (void)shutdown(gl->socket, SHUT_RDWR);
  close_descriptors(gl);
  gl_free_tasks(gl);
  gl_unmap_buffers(gl);
  if (gl->control != NULL) (void)munmap(gl->control, gl->welcome.control_bytes);
  gl_free_requests(gl);
  gl_free_choices(gl);
  free(gl->names.entries);
  free(gl);
}

void gradlane_disconnect(gradlane_context* gl) {
  GL_LOCK(gl);
  if (gl_check_context(gl, "gradlane_disconnect") != GRADLANE_OK) {
    // While a child of fork() has the socket, the daemon does not notice that the parent was killed.
    if (gl != NULL) close_descriptors(gl);
    return;
  }
  gl_gone(gl, "this program has disconnected from the daemon at %s", gl->address.sun_path);
  gl_update_fd(gl);
  gl_end_tasks(gl);
}

gradlane_code gradlane_open(gradlane_context** out, const gradlane_options* options) {
  refusal.world = 0;
  refusal.socket[0] = 0;
  if (out == NULL) return gl_fail(NULL, GRADLANE_BAD_ARGUMENT, "gradlane_open: the argument `gl` is NULL");
  *out = NULL;
  struct settings settings;
  gradlane_code code = read_settings(options, &settings);
  if (code != GRADLANE_OK) return code;
  gradlane_context* const gl = make_context(&settings);
  if (gl == NULL) return gl_fail(NULL, GRADLANE_NO_MEMORY, "no memory for a context");

  union gl_message answer;
  struct gl_fds fds = {.count = 0};
  ssize_t bytes = 0;
  struct gl_found found = {.address = settings.address};
  code = greet(&settings, &found, &gl->socket, &answer, &bytes, &fds);
  gl->address = found.address;
  if (code == GRADLANE_OK) code = check_welcome(gl->address.sun_path, &answer, bytes, &fds);
  if (code == GRADLANE_OK) {
    gl->welcome = answer.welcome;
    code = attach(gl, &fds);
  }
  struct gl_codec_pair codec;
  if (code == GRADLANE_OK) {
    code = gl_find_codecs(gl, NULL, &codec);
    if (code != GRADLANE_OK) (void)gl_fail(NULL, code, "%s", gl->base.error);
  }
  gl_close_fds(&fds);
  if (code != GRADLANE_OK) {
    gradlane_close(gl);
    return code;
  }
  *out = gl;
  return GRADLANE_OK;
}
