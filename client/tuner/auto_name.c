// auto_name.c - the name of the codec `auto`, which is chosen within a bound (pure)
#include "client/tuner/auto_name.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char kWord[] = "auto";
enum { kMostBits = 30 };

bool gl_begins_auto(const char* name) {
  const size_t length = sizeof(kWord) - 1;
  return name != NULL && strncmp(name, kWord, length) == 0 && (name[length] == 0 || strchr(":,/+", name[length]));
}

bool gl_parse_auto(const char* name, struct gl_auto* it) {
  if (!gl_begins_auto(name)) return false;
  *it = (struct gl_auto){.bound = GL_BOUND_EXACT};
  const char* rest = name + sizeof(kWord) - 1;
  if (*rest == 0) return true;
  if (strncmp(rest, ":2^-", 4) == 0) {
    it->bound = GL_BOUND_ABSOLUTE;
    rest += 4;
  } else if (strncmp(rest, ":rel=", 5) == 0) {
    it->bound = GL_BOUND_RELATIVE;
    rest += 5;
  } else {
    return false;
  }
  const size_t digits = strspn(rest, "0123456789");
  if (digits < 1 || digits > 2 || rest[digits] != 0 || rest[0] == '0') return false;
  it->bits = (unsigned)atoi(rest);
  return it->bits <= kMostBits;
}
