// message.c - messages to and from the daemon, with file descriptors (the thread of the context)
#include "client/library/message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "client/library/base.h"
#include "client/library/clock.h"
#include "client/library/waits.h"

int gl_send(int socket, const void* message, size_t bytes) {
  for (;;) {
    const ssize_t sent = send(socket, message, bytes, MSG_NOSIGNAL);
    if (sent == (ssize_t)bytes) return 0;
    if (sent >= 0) return EPROTO;
    if (errno != EINTR) return errno;
  }
}

void gl_close_fds(struct gl_fds* fds) {
  for (unsigned i = 0; i < fds->count; ++i) gl_close_fd(&fds->fd[i]);
  fds->count = 0;
}

// Takes all file descriptors out of a message. It closes those that do not fit, which would leak otherwise.
static void take_fds(struct msghdr* header, struct gl_fds* fds) {
  for (struct cmsghdr* c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      if (fds->count < GL_MAX_FDS) {
        fds->fd[fds->count++] = fd;
      } else {
        gl_close_fd(&fd);
      }
    }
  }
}

// Waits until there is something to read. Returns 0 or an errno.
static int await_message(int socket, int timeout_ms) {
  const int64_t deadline = gl_now_us() + (int64_t)timeout_ms * 1000;
  for (;;) {
    struct pollfd wanted = {.fd = socket, .events = POLLIN};
    const int64_t left_us = deadline - gl_now_us();
    const int ready = gl_poll(&wanted, 1, left_us > 0 ? (int)((left_us + 999) / 1000) : 0);
    if (ready > 0) return 0;
    if (ready == 0) return ETIMEDOUT;
    if (errno != EINTR) return errno;
  }
}

static ssize_t receive_now(int socket, union gl_message* message, struct gl_fds* fds) {
  union {
    struct cmsghdr header;  // for its alignment
    char bytes[CMSG_SPACE(GL_MAX_FDS * sizeof(int))];
  } control;
  struct iovec room = {.iov_base = message, .iov_len = sizeof(*message)};
  struct msghdr header = {
      .msg_iov = &room, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
  ssize_t bytes;
  do {
    bytes = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (bytes < 0 && errno == EINTR);
  if (bytes < 0) return -1;
  take_fds(&header, fds);
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    gl_close_fds(fds);
    errno = EPROTO;
    return -1;
  }
  return bytes;
}

ssize_t gl_receive(int socket, union gl_message* message, struct gl_fds* fds, int timeout_ms) {
  struct gl_fds none = {.count = 0};
  if (fds == NULL) fds = &none;
  fds->count = 0;
  memset(message, 0, sizeof(*message));
  const int error = await_message(socket, timeout_ms);
  if (error != 0) {
    errno = error;
    return -1;
  }
  ssize_t bytes = receive_now(socket, message, fds);
  // The other side has closed without reading all of our data. Its last message can be read after this error.
  if (bytes < 0 && errno == ECONNRESET) bytes = receive_now(socket, message, fds);
  if (bytes < 0 && (errno == ECONNRESET || errno == EAGAIN)) bytes = 0;
  if (message->type == GL_MSG_REFUSED || message->type == GL_MSG_GOODBYE) {
    if (message->text.text[GL_MESSAGE_TEXT - 1] != 0) message->text.world = message->text.no_codec = 0;
    message->text.text[GL_MESSAGE_TEXT - 1] = 0;
  }
  if (fds == &none) gl_close_fds(fds);
  return bytes;
}
