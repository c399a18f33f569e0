// context.h - all that a context holds, as plain structs (the thread of the context)
//
// A context belongs to one thread, so nothing here is locked. What a daemon writes into shared memory is copied, then
// checked: whatever is there, the worst that follows is GRADLANE_DAEMON_GONE.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#include "client/abi.h"
#include "client/gradlane.h"
#include "client/library/base.h"
#include "client/tuner/candidates.h"

// What the daemon has answered, by name.
struct gl_codec_cache {
  struct gl_codec_name* entries;
  size_t count;
};

// A copy of the daemon's table, with texts that end.
struct gl_codecs {
  struct gl_codec_row rows[GL_MAX_CODECS];
  uint32_t count;
};

// The same of strategies.
struct gl_strategies {
  struct gl_strategy_row rows[GL_MAX_STRATEGIES];
  uint32_t count;
};

// ---- What `auto` has to choose from, and has chosen

// Operations of a set of about one size, and of one row of the plan.
struct gl_choice_class {
  const struct gl_choice_set* set;
  unsigned size;  // below GL_SIZES
  int planned;    // that row; -1: none, or there is no plan
  unsigned number;
  uint8_t type;
  uint8_t why;                   // GL_REASON_... that the rounds do not know
  struct gl_request* agreement;  // about the trials of a round
  struct gl_rounds rounds;
  uint64_t bytes;
  uint64_t sent_bytes;
  struct gl_report_row* report;  // NULL: there is no room for it
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

  struct gl_choice_set* sets;  // a list; of more than GL_USUAL_SETS those that nobody refers to go
  unsigned set_count;
  struct gl_choice_class* classes[GL_MAX_CLASSES];
  unsigned class_count;

  // Ranks agree before anything is chosen, in this memory, which the daemon shares; each class has a place behind it.
  enum gl_choices_state state;
  uint8_t why;          // GL_CHOICES_OFF: GL_REASON_...
  uint32_t epoch;       // goes up whenever all of this begins afresh
  unsigned open;        // requests of a trial that is under way
  uint64_t agreements;  // in this epoch
  double* memory;
  uint32_t segment;
  uint64_t offset;
  struct gl_request* agreement;
  double predicted[GL_MAX_WAYS][GL_SIZES];  // agreed
};

// Memory shared with the daemon; several buffers lie in one.
struct gl_mapping {
  uint8_t* base;  // NULL: no such segment
  size_t bytes;
};

struct gl_buffer {
  uint8_t* base;
  size_t bytes;      // as asked for
  uint32_t segment;  // which it lies in
};

// Sorted by address.
struct gl_buffers {
  struct gl_buffer* entries;
  size_t count;
  size_t room;
};

// A block that a part of ordinary memory is copied to.
struct gl_stage {
  uint8_t* base;
  size_t bytes;  // 0: there is none
  uint32_t segment;
  uint64_t offset;
  bool taken;
};

// At most; they have so many bytes together, or one has as many as a part.
enum { GL_STAGES = 12, GL_STAGE_BYTES = 6 << 20 };

struct gl_range {
  uint8_t* base;  // NULL: none
  size_t bytes;
};

// What an operation's arguments say, checked.
struct gl_operation {
  struct gl_submission submission;     // of all parts: cookie and what is a part's own are not filled in
  struct gl_range data;                // in use until the caller knows of the end
  struct gl_range residual;            // its first state array; or where an all-to-all puts what comes
  uint32_t states;                     // of these, gl_state_of(); 0: there is no residual
  size_t state_bytes;                  // from one to the next
  uint64_t each;                       // elements of each part but the last
  uint64_t parts;                      // 0: it is but asked about
  uint64_t whole;                      // elements of the caller's tensor, of which this may be a part
  uint32_t width;                      // bytes of an element
  bool blocks;                         // one per rank
  bool staged;                         // the data is not in shared memory: parts are copied
  void* const* rows;                   // where the ranks' blocks lie, each on its own (gradlane_how); NULL: in `data`
  bool pays;                           // too small for a codec: the residual is added to the data,
  bool owes_states;                    //   and so are its other states: they are what owners of sums owe
  const struct gl_choice_set* choice;  // which way it goes is chosen when it has its turn; NULL: it is known
};

static inline struct gl_range gl_state_of(const struct gl_operation* operation, uint32_t state) {
  const struct gl_range first = operation->residual;
  return (struct gl_range){.base = first.base + state * operation->state_bytes, .bytes = first.bytes};
}

// A class of tensors that the caller is, or was, to be warned of.
struct gl_loss_warning {
  uint64_t elements;
  uint8_t kind;
  uint8_t codec;
  bool untold;
  uint64_t arguments;
  char text[GL_ERROR_TEXT];
};

// More are not warned of: whoever has not heeded so many has decided.
enum { GL_LOSS_WARNINGS = 16, GL_OTHER_WARNINGS = 4 };

// Of several completions.
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
  unsigned others;  // of these, that are not about loss
  struct gl_loss_warning warnings[GL_LOSS_WARNINGS + GL_OTHER_WARNINGS];
};

enum gl_request_state { GL_FREE, GL_RUNNING, GL_OVER };

// An operation of the caller's, from the call until the caller knows how it ended. To the daemon it is one or more
// parts, each with a cookie.
struct gl_request {
  enum gl_request_state state;
  uint64_t number;  // count << GL_INDEX_BITS | index; the caller's gradlane_request
  struct gl_operation operation;
  uint64_t begun;                    // parts that have been put into the rings,
  uint64_t ended;                    //   and that all lanes have completed
  bool cancelled;                    // or a part has failed: what has not begun fails, too, and keeps its place
  gradlane_code code;                // how it has ended, as far as known
  uint32_t lanes_failed;             // bit i: lane i
  bool tells_end;                    // one of them said that a generation has ended
  uint32_t ends[GL_MAX_LANES];       // of each lane that failed, at that time
  uint32_t ends_seen[GL_MAX_LANES];  // at the time of the call
  struct gl_loss_sum loss;           // of all parts
  double ns;                         // that the lanes have worked on it
  uint64_t sent_bytes;               // as gl_completion's
  bool internal;                     // the library's own: nobody waits for it,
  bool orphan;                       //   and nobody will look at it
  bool settled;                      // which way it goes is
  uint32_t epoch;                    // of choices, at the time of the call
  struct gl_choice_class* of_class;  // NULL: none
  struct gl_turn_way turn;
  struct gl_request* next;   // in the queue, or free
  char text[GL_ERROR_TEXT];  // of the first lane that failed
  gradlane_cause cause;      // the same
};

enum { GL_INDEX_BITS = 24 };

// A part in the rings.
struct gl_flight {
  uint64_t cookie;
  struct gl_request* request;
  uint64_t part;
  uint32_t lanes_left;  // bit i: lane i has not completed it
  uint8_t slot;
  struct gl_stage* stage;  // its data is there; NULL: where the caller has it
  bool cancel;             // the lanes are to be told, when their rings have room
  double ns;               // of the lane that has worked on it longest
};

// The library's own counts of a ring: what others could have written over is not read back.
struct gl_ring {
  uint32_t submit_tail;
  uint32_t complete_head;
  uint32_t ends_seen;  // the lane's `ends`, as far as the caller has been told
  uint64_t ended_ns;   // of its latest completion
};

struct gradlane_context {
  struct gl_base base;  // first, so that base.c can find it
  int socket;
  int completion_fd;
  int doorbells[GL_MAX_LANES];
  struct sockaddr_un address;
  struct gl_welcome welcome;  // checked
  int spin_us;
  uint32_t timeout_ms;  // of operations that name none; 0: the daemon's

  struct gl_control* control;
  struct gl_lane* lanes;
  struct gl_ring rings[GL_MAX_LANES];

  struct gl_mapping segments[GL_MAX_SEGMENTS];
  struct gl_buffers buffers;
  struct gl_stage stages[GL_STAGES];
  struct gl_codecs codecs;
  struct gl_strategies strategies;
  struct gl_choices choices;
  struct gl_codec_cache names;  // the first is that of the daemon's configuration

  // All that there are, by index; `free` is a list of those in state GL_FREE.
  struct gl_request** requests;
  size_t request_count;
  size_t request_room;
  struct gl_request* free;
  size_t over;       // requests in state GL_OVER
  uint64_t started;  // requests, ever
  uint64_t next_tag;
  uint64_t operations;  // ended

  // On the way to the daemon, in this order: cancels, a resume, and requests of which not all parts have begun.
  struct gl_flight flights[GL_SLOTS];
  unsigned flight_count;
  uint64_t slots;    // bit i: a flight has slot i
  uint64_t cookies;  // ever used
  bool cancelling;   // some of these are to be
  bool resuming;
  struct gl_request* first;
  struct gl_request* last;
  bool blocked;  // something waits for room in a ring, of which the daemon does not tell

  // Of gradlane_fd(), -1 before: an epoll instance over completion_fd, socket and over_fd, the last of which is
  // readable while `over` is not 0, or `blocked`.
  int epoll_fd;
  int over_fd;
  bool over_signalled;

  // Whether the daemon runs: the sum of its lanes' beats, when it was looked at, and for how long it has not changed.
  uint64_t beats;
  int64_t looked_us;
  int64_t still_us;

  struct gl_losses losses;
  struct gl_tasks* tasks;  // NULL: the context is not shared

  bool gone;
  char gone_text[GL_ERROR_TEXT];
};
GL_ASSERT(offsetof(struct gradlane_context, base) == 0);
