// codecs.c - the daemon's codecs: its table, and lookups by name, sent to the daemon once per name (the thread of the
// context)
#include "client/library/codecs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/library/daemon_calls.h"
#include "client/tuner/auto_name.h"

enum {
  kLeastInfo = offsetof(gradlane_codec_info, variant),  // bytes of gradlane_codec_info before version 6
  kMostStates = 2,
};

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
    row->word[GL_NAME - 1] = row->usage[GL_NAME - 1] = row->example[GL_NAME - 1] = 0;
    row->option[GL_OPTION - 1] = row->prefix[GL_OPTION - 1] = row->variant[GL_OPTION - 1] = 0;
    row->promise[GL_LINE - 1] = row->source[GL_LINE - 1] = 0;
  }
  gl->codecs.count = count;
  return true;
}

const struct gl_codec_row* gl_codec_row_of(const gradlane_context* gl, uint8_t id) {
  for (uint32_t i = 0; i < gl->codecs.count; ++i) {
    if (gl->codecs.rows[i].id == id) return &gl->codecs.rows[i];
  }
  return NULL;
}

// Returns whether the name begins with the row's word, and then ends or goes on as a codec's name can.
static bool has_word(const struct gl_codec_row* row, const char* name) {
  const size_t length = strlen(row->word);
  return strncmp(name, row->word, length) == 0 && strchr(":,/+", name[length]) != NULL;
}

const char* gl_codec_with(const gradlane_context* gl, uint32_t flag, const char* name) {
  const char* found = NULL;
  for (uint32_t i = 0; i < gl->codecs.count; ++i) {
    const struct gl_codec_row* const row = &gl->codecs.rows[i];
    if ((row->flags & flag) == 0) continue;
    if (name != NULL && has_word(row, name)) return row->example;
    if (found == NULL) found = row->example;
  }
  return found;
}

static gradlane_code remember(gradlane_context* gl, const struct gl_codec_name* codec) {
  struct gl_codec_cache* const cache = &gl->names;
  struct gl_codec_name* const entries = realloc(cache->entries, (cache->count + 1) * sizeof(*entries));
  if (entries == NULL) return gl_fail(gl, GRADLANE_NO_MEMORY, "no memory for the name of a codec");
  cache->entries = entries;
  entries[cache->count++] = *codec;
  return GRADLANE_OK;
}

// Adds usage to the daemon's refusal of a name, whose messages have no space for it. It lists the forms of names with
// the same word. If no codec has the word, it lists all words.
static void add_usage(gradlane_context* gl, const char* name) {
  char text[GL_ERROR_TEXT];
  const size_t room = sizeof(text);
  memcpy(text, gl->base.error, room);
  bool known = false;
  for (uint32_t i = 0; i < gl->codecs.count; ++i) known = known || has_word(&gl->codecs.rows[i], name);
  const char* before = known ? "; usage: " : "; there are ";
  const char* last = "";
  size_t used = strlen(text);
  for (uint32_t i = 0; i < gl->codecs.count && used < room; ++i) {
    const struct gl_codec_row* const row = &gl->codecs.rows[i];
    if (known ? !has_word(row, name) : strcmp(last, row->word) == 0) continue;
    last = row->word;
    const int more = snprintf(text + used, room - used, "%s%s", before, known ? row->usage : row->word);
    before = known ? " or " : ", ";
    used += more > 0 ? (size_t)more : room;
  }
  (void)gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s", text);
}

static gradlane_code check_auto(gradlane_context* gl, const char* name) {
  struct gl_auto asked;
  if (!gl_parse_auto(name, &asked)) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "there is no codec '%.63s'; usage: %s", name, GL_AUTO_USAGE);
  }
  if (gl->choices.row_count == 0) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "codec %.63s: this daemon is too old for auto; update it, or name a codec", name);
  }
  return GRADLANE_OK;
}

// Finds the codec of a single name, which is the first `length` characters of `name`.
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
  if (code == GRADLANE_BAD_ARGUMENT && answer.text.no_codec != 0) add_usage(gl, request.name);
  if (code != GRADLANE_OK) return code;
  *codec = answer.codec;
  if (codec->states > kMostStates) {
    return gl_fail(gl, GRADLANE_VERSION,
                   "the daemon says that a residual of codec %s has %u arrays; the library's limit is %d", request.name,
                   codec->states, kMostStates);
  }
  // The entry has the name that was asked for, whatever the daemon's spelling.
  memcpy(codec->name, request.name, GL_NAME);
  return remember(gl, codec);
}

// Returns the length of the first name, up to the slash before a second one. A slash before a digit belongs to the
// first name, as in "qsgd:4/512".
static size_t first_of(const char* name) {
  size_t length = strcspn(name, "/");
  while (name[length] != 0 && name[length + 1] >= '0' && name[length + 1] <= '9') {
    length += 1 + strcspn(name + length + 1, "/");
  }
  return length;
}

gradlane_code gl_find_codecs(gradlane_context* gl, const char* name, struct gl_codec_pair* pair) {
  if (name == NULL) name = gl->welcome.codec;
  pair->has_back = false;
  if (gl_begins_auto(name)) {
    const gradlane_code code = check_auto(gl, name);
    if (code != GRADLANE_OK) return code;
    const char* const exact = gl_codec_with(gl, GL_CODEC_EXACT, NULL);
    name = exact != NULL ? exact : "raw";
  }
  const size_t length = first_of(name);
  pair->has_back = name[length] != 0;
  const gradlane_code code = find(gl, name, length, &pair->there);
  if (code != GRADLANE_OK || !pair->has_back) return code;
  const char* const back = name + length + 1;
  return find(gl, back, strnlen(back, GL_NAME), &pair->back);
}

// ---- Questions of the caller

size_t gradlane_codecs(const gradlane_context* gl) { return gl != NULL ? gl->codecs.count : 0; }

// Returns the description of a codec by its row; if `row` is NULL, its texts are empty.
static gradlane_codec_info describe(const struct gl_codec_row* row) {
  gradlane_codec_info told = GRADLANE_CODEC_INFO_INIT;
  told.word = row != NULL ? row->word : "";
  told.usage = row != NULL ? row->usage : "";
  told.example = row != NULL ? row->example : "";
  told.option = row != NULL ? row->option : "";
  told.variant = row != NULL ? row->variant : "";
  told.promise = row != NULL ? row->promise : "";
  told.source = row != NULL ? row->source : "";
  if (row == NULL) return told;
  told.least = row->least;
  told.most = row->most;
  told.flags = row->flags;
  told.states = row->states;
  return told;
}

// Copies what fits into the caller's struct, which may be that of an older header.
static gradlane_code tell(gradlane_context* gl, const char* call, gradlane_codec_info* told,
                          gradlane_codec_info* info) {
  const size_t given = info != NULL ? info->struct_size : 0;
  if (given < kLeastInfo || given % 8 != 0) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: struct_size is %zu; set it to %zu", call, given, sizeof(*told));
  }
  told->struct_size = given;
  memcpy(info, told, given < sizeof(*told) ? given : sizeof(*told));
  return GRADLANE_OK;
}

gradlane_code gradlane_get_codec(gradlane_context* gl, size_t number, gradlane_codec_info* info) {
  GL_LOCK(gl);
  const char* const call = "gradlane_get_codec";
  const gradlane_code code = gl_check_context(gl, call);
  if (code != GRADLANE_OK) return code;
  if (number >= gl->codecs.count) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: there is no codec %zu; the daemon has %u", call, number,
                   gl->codecs.count);
  }
  gradlane_codec_info told = describe(&gl->codecs.rows[number]);
  return tell(gl, call, &told, info);
}

// Describes `auto`, which is no codec but a name that stands for one.
static gradlane_codec_info told_of_auto(const struct gl_auto* asked) {
  gradlane_codec_info told = describe(NULL);
  told.word = "auto";
  told.usage = "auto, auto:2^-B or auto:rel=B";
  told.example = "auto:2^-10";
  told.promise = asked->bound == GL_BOUND_EXACT ? "exact" : "the bound that is named";
  told.states = asked->bound != GL_BOUND_EXACT;
  told.flags =
      asked->bound == GL_BOUND_EXACT ? GRADLANE_CODEC_EXACT : GRADLANE_CODEC_FEEDBACK | GRADLANE_CODEC_ADAPTIVE;
  return told;
}

gradlane_code gradlane_find_codec(gradlane_context* gl, const char* name, gradlane_codec_info* info) {
  GL_LOCK(gl);
  const char* const call = "gradlane_find_codec";
  gradlane_code code = gl_check_context(gl, call);
  if (code != GRADLANE_OK) return code;
  struct gl_auto asked;
  if (gl_parse_auto(name != NULL ? name : gl->welcome.codec, &asked) && gl->choices.row_count > 0) {
    gradlane_codec_info told = told_of_auto(&asked);
    return tell(gl, call, &told, info);
  }
  struct gl_codec_pair pair;
  code = gl_find_codecs(gl, name, &pair);
  if (code != GRADLANE_OK) return code;
  gradlane_codec_info told = describe(gl_codec_row_of(gl, pair.there.id));
  told.flags = pair.there.flags;
  told.states = pair.there.states;
  return tell(gl, call, &told, info);
}
