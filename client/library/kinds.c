// kinds.c - the kinds of operations (any thread)
#include "client/library/kinds.h"

const char* gl_kind_name(enum gl_submission_kind kind) {
  switch (kind) {
    case GL_ALL_REDUCE:
      return "all_reduce";
    case GL_REDUCE_SCATTER:
      return "reduce_scatter";
    case GL_ALL_GATHER:
      return "all_gather";
    case GL_BROADCAST:
      return "broadcast";
    case GL_BARRIER:
      return "barrier";
    case GL_REDUCE:
      return "reduce";
    case GL_GATHER:
      return "gather";
    case GL_SCATTER:
      return "scatter";
    case GL_ALL_TO_ALL:
      return "all_to_all";
    case GL_CANCEL:
      return "cancel";
    case GL_RESUME:
      return "resume";
    case GL_ENCODE:
      return "encode";
  }
  return "operation";
}

bool gl_reduces(enum gl_submission_kind kind) {
  return kind == GL_ALL_REDUCE || kind == GL_REDUCE_SCATTER || kind == GL_REDUCE;
}

bool gl_has_blocks(enum gl_submission_kind kind) {
  return kind == GL_REDUCE_SCATTER || kind == GL_ALL_GATHER || kind == GL_GATHER || kind == GL_SCATTER ||
         kind == GL_ALL_TO_ALL;
}

bool gl_copies_as_is(enum gl_submission_kind kind) {
  return kind == GL_ALL_GATHER || kind == GL_BROADCAST || kind == GL_GATHER || kind == GL_SCATTER;
}
