// codecs.h - the daemon's codecs: its table, and lookups by name (the thread of the context)
#pragma once

#include "client/library/context.h"

// Copies the daemon's table out of the control segment of `bytes` bytes. Returns false if it makes no sense.
bool gl_read_codecs(gradlane_context* gl, size_t bytes);

struct gl_codec_pair {
  struct gl_codec_name there;
  struct gl_codec_name back;  // codec of results from an aggregator
  bool has_back;
};

// Finds the codec or codecs of `name` (NULL: that of the daemon's configuration), which may be two names with a '/'
// between them. A '/' before a digit belongs to one name. For `auto` it finds the exact codec, with which a choice
// begins.
gradlane_code gl_find_codecs(gradlane_context* gl, const char* name, struct gl_codec_pair* pair);
// Returns the row with this id in the daemon's table; NULL: there is none.
const struct gl_codec_row* gl_codec_row_of(const gradlane_context* gl, uint8_t id);
// Returns an example name of a codec with this capability, one of GL_CODEC_... It prefers a codec with the same word as
// `name`, if `name` is not NULL, and else takes the first. Returns NULL if the daemon lists none.
const char* gl_codec_with(const gradlane_context* gl, uint32_t flag, const char* name);
