// wishes.c - the name `auto`: a codec that is to be chosen, within a bound (the thread of the context)
#include "client/library/wishes.h"

#include <stdlib.h>
#include <string.h>

static const char kWord[] = "auto";
enum { kMostBits = 30 };

bool gl_begins_auto(const char* name) {
  const size_t length = sizeof(kWord) - 1;
  return name != NULL && strncmp(name, kWord, length) == 0 && (name[length] == 0 || strchr(":,/+", name[length]));
}

bool gl_parse_auto(const char* name, struct gl_wish* wish) {
  if (!gl_begins_auto(name)) return false;
  *wish = (struct gl_wish){.bound = GL_BOUND_EXACT};
  const char* rest = name + sizeof(kWord) - 1;
  if (*rest == 0) return true;
  if (strncmp(rest, ":2^-", 4) == 0) {
    wish->bound = GL_BOUND_ABSOLUTE;
    rest += 4;
  } else if (strncmp(rest, ":rel=", 5) == 0) {
    wish->bound = GL_BOUND_RELATIVE;
    rest += 5;
  } else {
    return false;
  }
  const size_t digits = strspn(rest, "0123456789");
  if (digits < 1 || digits > 2 || rest[digits] != 0 || rest[0] == '0') return false;
  wish->bits = (unsigned)atoi(rest);
  return wish->bits <= kMostBits;
}

gradlane_code gl_check_auto(gradlane_context* gl, const char* name) {
  struct gl_wish wish;
  if (!gl_parse_auto(name, &wish)) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "there is no codec '%.63s'; usage: auto (exact), auto:2^-B or auto:rel=B, B 1 to %d", name,
                   kMostBits);
  }
  if (gl->choices.row_count == 0) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "codec %.63s: this daemon, an older one, has nothing to choose from",
                   name);
  }
  return GRADLANE_OK;
}
