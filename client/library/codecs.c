// codecs.c - what the daemon calls a codec, asked once per name (the thread of the context)
#include "client/library/codecs.h"

#include <stdlib.h>
#include <string.h>

#include "client/library/talk.h"

static gradlane_code remember(gradlane_context* gl, const struct gl_codec_name* codec) {
  struct gl_codec_cache* const cache = &gl->codecs;
  struct gl_codec_name* const entries = realloc(cache->entries, (cache->count + 1) * sizeof(*entries));
  if (entries == NULL) return gl_fail(gl, GRADLANE_NO_MEMORY, "no memory for the name of a codec");
  cache->entries = entries;
  entries[cache->count++] = *codec;
  return GRADLANE_OK;
}

gradlane_code gl_find_codec(gradlane_context* gl, const char* name, struct gl_codec_name* codec) {
  if (name == NULL) name = gl->welcome.codec;
  const size_t length = strnlen(name, GL_NAME);
  if (length == GL_NAME) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "codec '%.40s...': no codec has a name of more than %u characters", name,
                   GL_NAME - 1);
  }
  for (size_t i = 0; i < gl->codecs.count; ++i) {
    if (strcmp(gl->codecs.entries[i].name, name) == 0) {
      *codec = gl->codecs.entries[i];
      return GRADLANE_OK;
    }
  }
  struct gl_codec_name request = {.type = GL_MSG_FIND_CODEC};
  memcpy(request.name, name, length);
  union gl_message answer;
  const gradlane_code code =
      gl_ask(gl, &request, sizeof(request), GL_MSG_CODEC, sizeof(answer.codec), GRADLANE_BAD_ARGUMENT, &answer, NULL);
  if (code != GRADLANE_OK) return code;
  *codec = answer.codec;
  // Under the name it was asked for, whatever the daemon's spelling.
  memcpy(codec->name, request.name, GL_NAME);
  return remember(gl, codec);
}
