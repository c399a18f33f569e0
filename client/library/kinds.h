// kinds.h - the kinds of operations (any thread)
#pragma once

#include <stdbool.h>

#include "client/abi.h"

const char* gl_kind_name(enum gl_submission_kind kind);
// Returns whether elements of the ranks become one.
bool gl_reduces(enum gl_submission_kind kind);
// Returns whether each rank has a block.
bool gl_has_blocks(enum gl_submission_kind kind);
// Returns whether data arrives as it was sent, whatever the daemon's codec.
bool gl_copies_as_is(enum gl_submission_kind kind);
