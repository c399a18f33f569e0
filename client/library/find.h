// find.h - the daemon's socket: a connection to the one that was named, or a search for the only one (the thread of the
// context)
#pragma once

#include <stddef.h>
#include <sys/un.h>

enum { GL_FIND_TEXT = 480 };

// What a search has come to.
struct gl_found {
  struct sockaddr_un address;  // of the socket that it has decided on
  char why[GL_FIND_TEXT];      // else: why there is none, and what to do
};

// One attempt. 0, or an errno with no file descriptor.
int gl_connect(const struct sockaddr_un* address, int* fd);

// The same with the only socket that accepts in the first folder that has such; of root's daemons and this user's, as
// nobody has named it. ENOENT: there is none yet; EEXIST: there are several. Any other errno is of `address`.
int gl_find(struct gl_found* found, int* fd);
