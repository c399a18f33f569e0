// kinds.h - the kinds of operations (anywhere)
#pragma once

#include <stdbool.h>

#include "client/abi.h"

const char* gl_kind_name(enum gl_submission_kind kind);
// Elements of ranks become one.
bool gl_reduces(enum gl_submission_kind kind);
// Each rank has a block.
bool gl_has_blocks(enum gl_submission_kind kind);
// What arrives is what was sent, whatever the daemon's codec.
bool gl_copies_as_is(enum gl_submission_kind kind);
