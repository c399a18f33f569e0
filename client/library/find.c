// find.c - the daemon's socket: a connection to the one that was named, or a search for the only one (the thread of the
// context)
#include "client/library/find.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/library/base.h"

// The folders in which daemons make their sockets, in the order of the search (docs/client.md). base/socket_folders.h
// has the same for the daemon.
enum { kFolders = 3, kFolderBytes = sizeof(((struct sockaddr_un*)NULL)->sun_path) };

static const char kSystemFolder[] = "/run/gradlane";

// Reasons why there is no daemon, from the least to the most important for the user.
enum remark { kNothing, kStale, kTrouble, kStranger };

static const char kAdvice[] =
    "is gradlaned running? Set GRADLANE_SOCKET to the path of its socket, or start the job with `gradlane run`";

struct search {
  struct gl_found* found;
  enum remark remark;  // reason in `why`
  uid_t keeper;        // user whose daemons are trusted in this folder, like those of root and of this user
  unsigned live;       // number of sockets in this folder that accept, or would if they were not busy
};

int gl_connect(const struct sockaddr_un* address, int* fd) {
  // The socket is non-blocking, as a full backlog would block for any length of time.
  *fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (*fd < 0) return errno;
  if (connect(*fd, (const struct sockaddr*)address, sizeof(*address)) == 0) return 0;
  const int error = errno;
  gl_close_fd(fd);
  return error;
}

static void say(struct search* search, enum remark remark, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

// Keeps the most important remark. If several are equally important, it keeps the first.
static void say(struct search* search, enum remark remark, const char* format, ...) {
  if (remark <= search->remark) return;
  search->remark = remark;
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(search->found->why, GL_FIND_TEXT, format, arguments);
  va_end(arguments);
}

// Returns whether the folder is this user's alone. Anybody may make a folder in /tmp.
static bool is_own(const char* folder) {
  struct stat what;
  return lstat(folder, &what) == 0 && S_ISDIR(what.st_mode) && what.st_uid == geteuid() && (what.st_mode & 077) == 0;
}

static bool is_known(const struct search* search, uid_t user) {
  return user == 0 || user == geteuid() || user == search->keeper;
}

// Returns whether gradients may be sent to this daemon, although nobody has named its socket.
static bool is_trusted(struct search* search, const char* path, int fd) {
  struct ucred peer = {.uid = (uid_t)-1};
  socklen_t bytes = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return false;
  if (is_known(search, peer.uid)) return true;
  say(search, kStranger,
      "the daemon at %s belongs to user %u, not to root or this user (%u); to trust it, set GRADLANE_SOCKET=%s", path,
      (unsigned)peer.uid, (unsigned)geteuid(), path);
  return false;
}

// Counts the socket if it is live. The first live one is the result, with its connection, or without one if it is busy.
// A busy daemon does not say who it is, so `owner`, the owner of its socket, must be trusted.
static void try_socket(struct search* search, const struct sockaddr_un* address, uid_t owner, int* fd) {
  int it = -1;
  const int error = gl_connect(address, &it);
  if (error == ECONNREFUSED) {
    say(search, kStale, "no daemon listens on %s: %s", address->sun_path, kAdvice);
  } else if (error != 0 && error != EAGAIN && error != ENOENT) {
    say(search, kTrouble, "cannot connect to %s: %s; %s", address->sun_path, strerror(error), kAdvice);
  }
  const bool live = error == 0 ? is_trusted(search, address->sun_path, it) : error == EAGAIN && is_known(search, owner);
  if (live && search->live++ == 0) {
    search->found->address = *address;
    *fd = it;
  } else {
    gl_close_fd(&it);
  }
}

enum { kNobody = 65534 };

static void look_into(struct search* search, const char* path, int* fd) {
  static const char kSuffix[] = ".sock";
  DIR* const folder = opendir(path);
  if (folder == NULL) {
    if (errno != ENOENT) say(search, kTrouble, "%s cannot be read: %s; %s", path, strerror(errno), kAdvice);
    return;
  }
  // Only root makes folders in /run. So the owner of this one runs the machine's daemons, as a service does, and is
  // trusted. There are two exceptions: others may write to the folder, or the owner is "nobody". In a user namespace,
  // all users that it does not map appear as "nobody".
  struct stat given;
  const bool system = strcmp(path, kSystemFolder) == 0 && fstat(dirfd(folder), &given) == 0 &&
                      (given.st_mode & (S_IWGRP | S_IWOTH)) == 0 && given.st_uid != kNobody;
  search->keeper = system ? given.st_uid : geteuid();
  for (const struct dirent* it = NULL; (it = readdir(folder)) != NULL;) {
    const size_t length = strlen(it->d_name);
    if (length < sizeof(kSuffix) || strcmp(it->d_name + length + 1 - sizeof(kSuffix), kSuffix) != 0) continue;
    struct stat what;
    if (fstatat(dirfd(folder), it->d_name, &what, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISSOCK(what.st_mode)) continue;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int bytes = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", path, it->d_name);
    if (bytes > 0 && (size_t)bytes < sizeof(address.sun_path)) try_socket(search, &address, what.st_uid, fd);
  }
  closedir(folder);
}

// Lists the folders and returns their number. A folder whose path is too long for a socket is left out.
static unsigned list_folders(char folders[kFolders][kFolderBytes]) {
  unsigned count = 0;
  snprintf(folders[count++], kFolderBytes, "%s", kSystemFolder);
  const char* const runtime = getenv("XDG_RUNTIME_DIR");
  if (runtime != NULL && runtime[0] == '/') {
    const int bytes = snprintf(folders[count], kFolderBytes, "%s/gradlane", runtime);
    if (bytes > 0 && bytes < kFolderBytes) ++count;
  }
  snprintf(folders[count], kFolderBytes, "/tmp/gradlane-%u", (unsigned)geteuid());
  return count + 1;
}

int gl_find(struct gl_found* found, int* fd) {
  char folders[kFolders][kFolderBytes];
  const unsigned count = list_folders(folders);
  struct search search = {.found = found};
  memset(found, 0, sizeof(*found));
  *fd = -1;
  for (unsigned i = 0; i < count; ++i) {
    if (i + 1 == count && !is_own(folders[i])) {
      struct stat what;
      if (lstat(folders[i], &what) == 0)
        say(&search, kTrouble, "%s is not a folder of this user alone, mode 0700", folders[i]);
      break;
    }
    look_into(&search, folders[i], fd);
    if (search.live == 1) return *fd >= 0 ? 0 : EAGAIN;
    if (search.live == 0) continue;
    gl_close_fd(fd);
    snprintf(found->why, GL_FIND_TEXT, "there are %u in %s: set GRADLANE_SOCKET to the path of one socket", search.live,
             folders[i]);
    return EEXIST;
  }
  if (search.remark != kNothing) return ENOENT;
  const bool runtime = count == kFolders;
  snprintf(found->why, GL_FIND_TEXT, "there is none in %s%s%s or %s: %s", folders[0], runtime ? ", " : "",
           runtime ? folders[1] : "", folders[count - 1], kAdvice);
  return ENOENT;
}
