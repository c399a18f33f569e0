// codecs.c - the daemon's codecs: its table, and what it calls one, asked once per name (the thread of the context)
#include "client/library/codecs.h"

#include <stdlib.h>
#include <string.h>

#include "client/library/talk.h"

bool gl_read_codecs(gradlane_context* gl, size_t bytes) {
  const uint32_t count = gl->control->codecs;
  const uint32_t stride = gl->control->codec_row_bytes;
  gl->codecs.count = 0;
  if (count == 0) return true;
  const size_t from = gl_control_bytes(gl->welcome.lanes);
  if (count > GL_MAX_CODECS || stride < sizeof(struct gl_codec_row) || (bytes - from) / stride < count) return false;
  const uint8_t* const table = (const uint8_t*)gl->control + from;
  for (uint32_t i = 0; i < count; ++i) {
    struct gl_codec_row* const row = &gl->codecs.rows[i];
    memcpy(row, table + (size_t)i * stride, sizeof(*row));
    row->word[GL_NAME - 1] = row->usage[GL_NAME - 1] = row->example[GL_NAME - 1] = row->option[GL_OPTION - 1] = 0;
  }
  gl->codecs.count = count;
  return true;
}

const char* gl_codec_with(const gradlane_context* gl, uint32_t flag) {
  for (uint32_t i = 0; i < gl->codecs.count; ++i) {
    if ((gl->codecs.rows[i].flags & flag) != 0) return gl->codecs.rows[i].example;
  }
  return NULL;
}

static gradlane_code remember(gradlane_context* gl, const struct gl_codec_name* codec) {
  struct gl_codec_cache* const cache = &gl->names;
  struct gl_codec_name* const entries = realloc(cache->entries, (cache->count + 1) * sizeof(*entries));
  if (entries == NULL) return gl_fail(gl, GRADLANE_NO_MEMORY, "no memory for the name of a codec");
  cache->entries = entries;
  entries[cache->count++] = *codec;
  return GRADLANE_OK;
}

// `name` has `length` characters.
static gradlane_code find(gradlane_context* gl, const char* name, size_t length, struct gl_codec_name* codec) {
  if (length >= GL_NAME) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "codec '%.40s...': no codec has a name of more than %u characters", name,
                   GL_NAME - 1);
  }
  struct gl_codec_name request = {.type = GL_MSG_FIND_CODEC};
  memcpy(request.name, name, length);
  for (size_t i = 0; i < gl->names.count; ++i) {
    if (strcmp(gl->names.entries[i].name, request.name) == 0) {
      *codec = gl->names.entries[i];
      return GRADLANE_OK;
    }
  }
  union gl_message answer;
  const gradlane_code code =
      gl_ask(gl, &request, sizeof(request), GL_MSG_CODEC, sizeof(answer.codec), GRADLANE_BAD_ARGUMENT, &answer, NULL);
  if (code != GRADLANE_OK) return code;
  *codec = answer.codec;
  // Under the name it was asked for, whatever the daemon's spelling.
  memcpy(codec->name, request.name, GL_NAME);
  return remember(gl, codec);
}

gradlane_code gl_find_codecs(gradlane_context* gl, const char* name, struct gl_codec_pair* pair) {
  if (name == NULL) name = gl->welcome.codec;
  const size_t length = strcspn(name, "/");
  pair->has_back = name[length] != 0;
  const gradlane_code code = find(gl, name, length, &pair->there);
  if (code != GRADLANE_OK || !pair->has_back) return code;
  const char* const back = name + length + 1;
  return find(gl, back, strnlen(back, GL_NAME), &pair->back);
}

// ---- Questions of the caller

size_t gradlane_codecs(const gradlane_context* gl) { return gl != NULL ? gl->codecs.count : 0; }

// `flags` beside those of the row, which may be NULL.
static gradlane_code tell(gradlane_context* gl, const char* call, const struct gl_codec_row* row, uint32_t flags,
                          gradlane_codec_info* info) {
  gradlane_codec_info told = GRADLANE_CODEC_INFO_INIT;
  if (info == NULL || info->struct_size < sizeof(told)) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: struct_size is %zu; set it to %zu", call,
                   info != NULL ? info->struct_size : 0, sizeof(told));
  }
  told.struct_size = info->struct_size;
  told.word = row != NULL ? row->word : "";
  told.usage = row != NULL ? row->usage : "";
  told.example = row != NULL ? row->example : "";
  told.option = row != NULL ? row->option : "";
  told.least = row != NULL ? row->least : 0;
  told.most = row != NULL ? row->most : 0;
  told.flags = row != NULL ? row->flags : flags;
  memcpy(info, &told, sizeof(told));
  return GRADLANE_OK;
}

gradlane_code gradlane_get_codec(gradlane_context* gl, size_t number, gradlane_codec_info* info) {
  const char* const call = "gradlane_get_codec";
  const gradlane_code code = gl_check_context(gl, call);
  if (code != GRADLANE_OK) return code;
  if (number >= gl->codecs.count) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: there is no codec %zu; the daemon tells of %u", call, number,
                   gl->codecs.count);
  }
  return tell(gl, call, &gl->codecs.rows[number], 0, info);
}

gradlane_code gradlane_find_codec(gradlane_context* gl, const char* name, gradlane_codec_info* info) {
  const char* const call = "gradlane_find_codec";
  gradlane_code code = gl_check_context(gl, call);
  if (code != GRADLANE_OK) return code;
  struct gl_codec_pair pair;
  code = gl_find_codecs(gl, name, &pair);
  if (code != GRADLANE_OK) return code;
  const struct gl_codec_name found = pair.there;
  const struct gl_codec_row* row = NULL;
  for (uint32_t i = 0; i < gl->codecs.count && row == NULL; ++i) {
    if (gl->codecs.rows[i].id == found.id) row = &gl->codecs.rows[i];
  }
  const uint32_t exact = found.exact != 0 ? GL_CODEC_EXACT : 0;
  const uint32_t feedback = found.feedback != 0 ? GL_CODEC_FEEDBACK : 0;
  return tell(gl, call, row, exact | feedback, info);
}
