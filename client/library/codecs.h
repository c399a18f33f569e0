// codecs.h - the daemon's codecs: its table, and what it calls one (the thread of the context)
#pragma once

#include "client/library/context.h"

// Copies the daemon's table out of the control segment of `bytes` bytes. False: it makes no sense.
bool gl_read_codecs(gradlane_context* gl, size_t bytes);

struct gl_codec_pair {
  struct gl_codec_name there;
  struct gl_codec_name back;  // from an aggregator
  bool has_back;
};

// What the daemon calls `name` (NULL: its configuration's), which may be two with a '/' between them. A '/' before a
// digit belongs to one name. Of `auto` it is the exact one, which there is to begin with.
gradlane_code gl_find_codecs(gradlane_context* gl, const char* name, struct gl_codec_pair* pair);
// What the daemon's table has of it; NULL: nothing.
const struct gl_codec_row* gl_codec_row_of(const gradlane_context* gl, uint8_t id);
// The name of a codec with this capability, one of GL_CODEC_...: of the same word as `name` if there is one, and `name`
// is not NULL; else the first. NULL: the daemon tells of none.
const char* gl_codec_with(const gradlane_context* gl, uint32_t flag, const char* name);
