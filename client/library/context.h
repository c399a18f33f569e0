// context.h - all that a context holds, as plain structs (the thread of the context)
//
// One thread at a time uses a context, which the lock in base.h ensures for a shared one. So nothing here is locked.
// Data that a daemon writes into shared memory is copied, then checked. The worst that bad data can cause is
// GRADLANE_DAEMON_GONE.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#include "client/abi.h"
#include "client/gradlane.h"
#include "client/library/base.h"
#include "client/tuner/candidates.h"

// The daemon's answers about codecs, by name.
struct gl_codec_cache {
  struct gl_codec_name* entries;
  size_t count;
};

// A copy of the daemon's table of codecs, whose texts all end with 0.
struct gl_codecs {
  struct gl_codec_row rows[GL_MAX_CODECS];
  uint32_t count;
};

// A copy of the daemon's table of strategies, whose texts all end with 0.
struct gl_strategies {
  struct gl_strategy_row rows[GL_MAX_STRATEGIES];
  uint32_t count;
};

// ---- Choices of `auto`

// A class: the operations of one set, of about one size, and of one row of the plan.
struct gl_choice_class {
  const struct gl_choice_set* set;
  unsigned size;  // below GL_SIZES
  int planned;    // row of the plan; -1: none, or there is no plan
  unsigned number;
  uint8_t type;
  uint8_t why;                   // GL_REASON_... if something other than trials has decided, else GL_REASON_NONE
  struct gl_request* agreement;  // agreement on the trials of a round; NULL: none
  struct gl_tuner tuner;
  uint64_t bytes;
  uint64_t sent_bytes;
  struct gl_report_row* report;  // NULL: the table of reports has no row for it
};

enum gl_choices_state { GL_CHOICES_NEW, GL_CHOICES_ASKED, GL_CHOICES_AGREED, GL_CHOICES_OFF };
enum { GL_USUAL_SETS = 32, GL_MAX_CLASSES = 64, GL_PREDICTIONS = GL_MAX_WAYS * GL_SIZES + 4 };

struct gl_choices {
  struct gl_way_row rows[GL_MAX_WAYS];  // a copy of the daemon's table
  uint32_t row_count;
  struct gl_plan_row plan[GL_MAX_PLAN_ROWS];
  uint32_t plan_count;
  struct gl_report_row* reports;  // shared memory
  uint32_t report_count;

  struct gl_choice_set* sets;  // a list; when it has GL_USUAL_SETS sets, unused ones are dropped
  unsigned set_count;
  struct gl_choice_class* classes[GL_MAX_CLASSES];
  unsigned class_count;

  // Ranks agree before anything is chosen, by all-reduces of `memory`. It is shared with the daemon. It has the numbers
  // that all choices need, then the times of each class.
  enum gl_choices_state state;
  uint8_t why;          // GL_REASON_... of GL_CHOICES_OFF
  uint32_t epoch;       // goes up whenever all choices start again
  unsigned open;        // unfinished requests of the trial that is under way
  uint64_t agreements;  // number of agreements in this epoch
  double* memory;
  uint32_t segment;
  uint64_t offset;
  struct gl_request* agreement;
  double predicted[GL_MAX_WAYS][GL_SIZES];  // predictions that ranks agreed on
};

// A segment: memory shared with the daemon. Several buffers may lie in one segment.
struct gl_mapping {
  uint8_t* base;  // NULL: no such segment
  size_t bytes;
};

struct gl_buffer {
  uint8_t* base;
  size_t bytes;      // size that was asked for
  uint32_t segment;  // segment that it lies in
};

// Buffers, sorted by address.
struct gl_buffers {
  struct gl_buffer* entries;
  size_t count;
  size_t room;
};

// A block of shared memory that a part of ordinary memory is copied to.
struct gl_stage {
  uint8_t* base;
  size_t bytes;  // 0: there is none
  uint32_t segment;
  uint64_t offset;
  bool taken;
};

// There are at most GL_STAGES blocks, of GL_STAGE_BYTES bytes together. A single block may be larger, for a long part.
enum { GL_STAGES = 12, GL_STAGE_BYTES = 6 << 20 };

// Shared memory for the checksums of verified sums (verify.h), one piece for each slot.
struct gl_checksum_memory {
  uint8_t* base;  // NULL: nothing has been verified yet
  uint32_t segment;
  uint64_t offset;
};

struct gl_range {
  uint8_t* base;  // NULL: none
  size_t bytes;
};

// The checked arguments of an operation.
struct gl_operation {
  struct gl_submission submission;  // submission of all parts; cookie and fields of a single part are not filled in
  struct gl_range data;             // in use until the caller knows of the end
  struct gl_range residual;         // first state array of the residual; or the output of an all-to-all
  struct gl_range encoded;          // encoded contribution, which the operation reads or writes; no bytes: none
  struct gl_range runs;             // where the result goes as encoded runs; no bytes: it goes to `data`
  uint32_t states;                  // number of state arrays, see gl_state_of(); 0: there is no residual
  size_t state_bytes;               // bytes from one state array to the next
  uint64_t each;                    // elements of each part except the final one, which may be shorter
  uint64_t parts;                   // number of parts; 0: the caller only asks about the operation
  uint64_t whole;                   // elements of the caller's tensor, of which this may be a part
  uint32_t width;                   // bytes of an element
  bool blocks;                      // each rank has a block
  bool staged;                      // the data is not in shared memory: parts are copied
  void* const* rows;                // addresses of the ranks' blocks (gradlane_how); NULL: they lie in `data`
  uint64_t* hash;                   // where the hash of the result goes; NULL: nobody wants it
  float steps_per_one;              // the result is verified: the lattice of its codec; 0: it is not
  bool adds_residual;               // too small for a codec: the call adds the residual to the data
  bool adds_all_states;  // with `adds_residual`: other states are added, too; they are residuals of sum owners
  // candidates to choose from when it has its turn; NULL: strategy and codec are known
  const struct gl_choice_set* choice;
};

static inline struct gl_range gl_state_of(const struct gl_operation* operation, uint32_t state) {
  const struct gl_range first = operation->residual;
  return (struct gl_range){.base = first.base + state * operation->state_bytes, .bytes = first.bytes};
}

// A class of tensors that the caller was warned of, or is to be warned of.
struct gl_loss_warning {
  uint64_t elements;
  uint8_t kind;
  uint8_t codec;
  bool untold;
  uint64_t arguments;
  char text[GL_ERROR_TEXT];
};

// Most warnings of a context. A caller that has ignored this many does not want more.
enum { GL_LOSS_WARNINGS = 16, GL_OTHER_WARNINGS = 4 };

// The loss of several completions.
struct gl_loss_sum {
  uint64_t values;
  uint64_t zeroed;
  double squares;
  double lost_squares;
};

struct gl_losses {
  struct gl_loss_sum total;
  bool keep;  // warnings are for gradlane_warning(), not for stderr
  unsigned count;
  unsigned others;  // number of these that are not about loss
  struct gl_loss_warning warnings[GL_LOSS_WARNINGS + GL_OTHER_WARNINGS];
};

enum gl_request_state { GL_FREE, GL_RUNNING, GL_OVER };

// An operation of the caller's, from the call until the caller knows how it ended. To the daemon it is one or more
// parts, each with a cookie.
struct gl_request {
  enum gl_request_state state;
  uint64_t number;  // count << GL_INDEX_BITS | index; the caller's gradlane_request
  struct gl_operation operation;
  uint64_t begun;      // number of parts that have been put into the rings
  uint64_t ended;      // number of parts that all lanes have completed
  bool cancelled;      // the caller or a failed part has cancelled it: later parts fail, too, but use up their numbers
  gradlane_code code;  // result, as far as it is known
  uint32_t lanes_failed;             // lanes that have failed; bit i: lane i
  bool tells_end;                    // a lane has said that a generation has ended
  uint32_t ends[GL_MAX_LANES];       // `ends` of each lane that failed, at that time
  uint32_t ends_seen[GL_MAX_LANES];  // `ends` of each lane that the caller knew of at the time of the call
  struct gl_loss_sum loss;           // loss of all parts
  double ns;                         // time that the lanes have worked on it
  uint64_t sent_bytes;               // as in gl_completion
  struct gl_check* check;            // check of the result; of an internal request: what it is for; NULL: none
  bool internal;                     // belongs to the library itself: no caller waits for it
  bool orphan;                       // internal, and its result is not needed any more
  bool is_resolved;                  // its strategy and codec are known
  uint32_t epoch;                    // epoch of choices at the time of the call
  struct gl_choice_class* of_class;  // class of the operation; NULL: none
  struct gl_selection turn;
  struct gl_request* next;   // next in the queue, or in the list of free requests
  char text[GL_ERROR_TEXT];  // text of the first lane that failed
  gradlane_cause cause;      // cause of the first lane that failed
};

enum { GL_INDEX_BITS = 24 };

// A part in the rings.
struct gl_flying_part {
  uint64_t cookie;
  struct gl_request* request;
  uint64_t part;
  uint32_t lanes_left;  // lanes that have not completed it; bit i: lane i
  uint8_t slot;
  struct gl_stage* stage;  // block with its data; NULL: the data is in a buffer of the caller
  bool cancel;             // lanes must be told to cancel it when their rings have free entries
  double ns;               // time of the lane that has worked on it longest
};

// The library's own counts of a ring. It does not read them back from shared memory, where others could change them.
struct gl_ring {
  uint32_t submit_tail;
  uint32_t complete_head;
  uint32_t ends_seen;  // the lane's `ends` that the caller knows of
  uint64_t ended_ns;   // time at which its latest completion ended
};

struct gradlane_context {
  struct gl_base base;  // first, so that base.c can find it
  int socket;
  int completion_fd;
  int doorbells[GL_MAX_LANES];
  struct sockaddr_un address;
  struct gl_welcome welcome;  // checked welcome of the daemon
  int spin_us;
  bool verify;          // sums are verified where that is possible, even if the daemon does not ask for it
  uint32_t timeout_ms;  // time limit of operations that name none; 0: the daemon's

  struct gl_control* control;
  struct gl_lane* lanes;
  struct gl_ring rings[GL_MAX_LANES];

  struct gl_mapping segments[GL_MAX_SEGMENTS];
  struct gl_buffers buffers;
  struct gl_stage stages[GL_STAGES];
  struct gl_codecs codecs;
  struct gl_strategies strategies;
  struct gl_choices choices;
  struct gl_codec_cache names;  // the first one is the codec of the daemon's configuration

  // All requests, by index. `free` is a list of those in state GL_FREE.
  struct gl_request** requests;
  size_t request_count;
  size_t request_room;
  struct gl_request* free;
  size_t over;       // number of requests in state GL_OVER, without internal ones
  uint64_t started;  // number of requests, ever
  uint64_t next_tag;
  uint64_t operations;      // number of operations that have ended
  uint64_t hashed_results;  // as in gradlane_figures
  uint64_t results_hash;
  struct gl_checksum_memory checksums;
  uint64_t verified_blocks;
  uint64_t unverified_blocks;

  // Requests and parts on their way to the daemon. Cancels are sent first, then a resume, then requests of which not
  // all parts have begun.
  struct gl_flying_part flights[GL_SLOTS];
  unsigned flight_count;
  uint64_t slots;    // bit i: a flight has slot i
  uint64_t cookies;  // number of cookies ever used
  bool cancelling;   // some flights must be cancelled
  bool resuming;
  struct gl_request* first;
  struct gl_request* last;
  bool blocked;  // something waits for a free entry in a ring; the daemon rings no bell when one becomes free

  // Descriptors for gradlane_fd(); -1 before its first call. epoll_fd is an epoll instance over completion_fd, socket
  // and progress_fd. progress_fd is readable while `over` is not 0 or `blocked` is true.
  int epoll_fd;
  int progress_fd;
  bool progress_signalled;

  // Check that the daemon runs: the sum of its lanes' beats, the time of the latest check, and for how long the sum has
  // not changed.
  uint64_t beats;
  int64_t heartbeat_checked_us;
  int64_t no_heartbeat_us;

  struct gl_losses losses;
  struct gl_tasks* tasks;  // NULL: the context is not shared

  bool gone;
  char gone_text[GL_ERROR_TEXT];
};
GL_ASSERT(offsetof(struct gradlane_context, base) == 0);
