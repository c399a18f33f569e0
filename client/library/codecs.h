// codecs.h - what the daemon calls a codec, asked once per name (the thread of the context)
#pragma once

#include "client/library/context.h"

// What the daemon calls `name` (NULL: its configuration's).
gradlane_code gl_find_codec(gradlane_context* gl, const char* name, struct gl_codec_name* codec);
