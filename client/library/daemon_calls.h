// daemon_calls.h - the connection to the daemon: questions and answers (the thread of the context)
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "client/library/context.h"
#include "client/library/message.h"

// Sends a request and waits for the answer of type `wanted` and `bytes` bytes. If the daemon refuses, it returns
// `refused`, with the daemon's text. Any other message ends the connection.
gradlane_code gl_ask(gradlane_context* gl, const void* request, size_t request_bytes, uint32_t wanted, size_t bytes,
                     gradlane_code refused, union gl_message* answer, struct gl_fds* fds);

// Reads a message that answers no question, if there is one: a goodbye, or the end of the connection.
void gl_receive_events(gradlane_context* gl);
