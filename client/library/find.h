// find.h - the daemon's socket: a connection to the one that was named, or a search for the only one (the thread of the
// context)
#pragma once

#include <stddef.h>
#include <sys/un.h>

enum { GL_FIND_TEXT = 480 };

// The result of a search.
struct gl_found {
  struct sockaddr_un address;  // address of the socket that was chosen
  char why[GL_FIND_TEXT];      // if none was chosen: why there is none, and what to do
};

// Tries once to connect. Returns 0, or an errno with no file descriptor.
int gl_connect(const struct sockaddr_un* address, int* fd);

// Tries once to connect to the only socket that accepts, in the first folder that has such sockets. Nobody has named
// it, so the daemon must be one of root, of this user, or of the owner of /run/gradlane. Returns ENOENT if there is
// none yet, and EEXIST if there are several. Any other errno is the error of a connection to `address`.
int gl_find(struct gl_found* found, int* fd);
