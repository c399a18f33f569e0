// abi.h - what daemon and client library share: messages of the Unix socket, rings in shared memory (C and C++)
//
// The two may be of different builds, so: fixed widths, explicit padding, no pointers, sizes asserted. Neither trusts
// the other. The daemon copies a submission, then checks the copy. Fields have one writer each; those that tell of
// progress are accessed with __atomic builtins (acquire and release), all others are plain memory ordered by them.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#define GL_ASSERT(x) static_assert(x)
#else
#define GL_ASSERT(x) _Static_assert(x, #x)
#endif

#define GL_MAGIC 0x4e414c47u  // "GLAN"
#define GL_ABI_VERSION 8u     // both sides speak the same, or gl_hello is refused

#define GL_SLOTS 64u         // entries of a ring; a power of two
#define GL_MAX_LANES 16u     // of a node
#define GL_MAX_SEGMENTS 64u  // of a client at a time
#define GL_TEXT 192u         // bytes of a text, its final 0 included
#define GL_SAID 184u         // the same of a message
#define GL_NAME 64u          // bytes of a codec's name, its final 0 included; every codec's name fits
#define GL_OPTION 16u        // the same of its option, and of what else is a part of a name
#define GL_LINE 96u          // bytes of what is said of a codec in a line, its final 0 included
#define GL_MAX_CODECS 64u    // of a daemon
#define GL_MAX_STRATEGIES 64u

// ---- Socket: SOCK_SEQPACKET, one struct per message, `type` first. Client and daemon take turns, but for
// GL_MSG_GOODBYE, which the daemon sends at any time before it closes the connection.

enum gl_message_type {
  GL_MSG_HELLO = 1,       // client: gl_hello
  GL_MSG_WELCOME = 2,     // daemon: gl_welcome, with file descriptors: control segment, bell that the daemon rings,
                          // bell of each lane
  GL_MSG_ALLOCATE = 3,    // client: gl_allocate
  GL_MSG_SEGMENT = 4,     // daemon: gl_segment, with one file descriptor
  GL_MSG_FREE = 5,        // client: gl_segment (bytes is ignored)
  GL_MSG_FREED = 6,       // daemon: gl_segment
  GL_MSG_FIND_CODEC = 7,  // client: gl_codec_name
  GL_MSG_CODEC = 8,       // daemon: gl_codec_name, all but the name filled in
  GL_MSG_REFUSED = 9,     // daemon, in answer to any of the client's: gl_text
  GL_MSG_GOODBYE = 10     // daemon: gl_text; the connection ends
};

struct gl_hello {
  uint32_t type;
  uint32_t magic;
  uint32_t version;
  int32_t rank;  // wanted; -1: any free one of this node
};

#define GL_WELCOME_LOCAL_REDUCE 1u   // nothing that needs links between all; blocks of ranks lie side by side
#define GL_WELCOME_AUTO_STRATEGY 2u  // of operations that name none, as if they had named "auto"
#define GL_WELCOME_ALONE 4u          // there is no other node, and trainers reduce locally: nothing is exchanged
struct gl_welcome {
  uint32_t type;
  uint32_t rank;
  uint32_t world;
  uint32_t lanes;
  uint64_t control_bytes;
  uint64_t max_bytes;   // of an operation's tensor
  uint32_t pid;         // of the daemon
  uint16_t flags;       // GL_WELCOME_...
  uint16_t trainers;    // of a node; 0 is 1
  char codec[GL_NAME];  // of operations that name none
};

struct gl_allocate {
  uint32_t type;
  uint32_t reserved;
  uint64_t bytes;  // rounded up to whole pages
};

struct gl_segment {
  uint32_t type;
  uint32_t id;     // below GL_MAX_SEGMENTS
  uint64_t bytes;  // of the file descriptor, which is sealed against any change of size
};

struct gl_codec_name {
  uint32_t type;
  uint8_t id;
  uint8_t states;  // arrays of floats that a residual of it has; 0: it takes none
  uint8_t reserved[2];
  uint32_t flags;  // GL_CODEC_...
  uint32_t reserved1;
  uint64_t arguments;  // what the name says behind its word, in the daemon's own form: submissions carry it
  char name[GL_NAME];
};

struct gl_text {
  uint32_t type;
  uint32_t version;  // of a daemon that refuses a gl_hello because of the client's; else 0
  // Older daemons had GL_TEXT bytes here: where the last of these is not 0, the text goes on, and there is no `world`.
  char text[GL_SAID];
  uint32_t world;     // of a daemon that refuses a gl_hello for its rank: ranks of its ring; else 0
  uint32_t no_codec;  // 1: of a gl_codec_name: no codec has that name; else 0
};

GL_ASSERT(sizeof(struct gl_hello) == 16 && sizeof(struct gl_allocate) == 16 && sizeof(struct gl_segment) == 16);
GL_ASSERT(sizeof(struct gl_welcome) == 104);
GL_ASSERT(sizeof(struct gl_codec_name) == 88 && sizeof(struct gl_text) == 200);

// ---- Shared memory: the control segment is one gl_control, then one gl_lane per lane, then one gl_codec_row per
// codec, one gl_strategy_row per strategy that operations may name, one gl_way_row per way that `auto` may choose, one
// gl_plan_row per row of a plan, and room for so many gl_report_rows, each table at a multiple of 8 bytes from the
// start as all rows are. The client submits each operation to every lane, in the same order; each lane works on its
// part of the tensor and completes it by itself. An operation is over when all lanes have completed it.

enum gl_submission_kind {  // those of the exchange, and two more
  GL_ALL_REDUCE = 0,
  GL_REDUCE_SCATTER = 1,
  GL_ALL_GATHER = 2,
  GL_BROADCAST = 3,
  GL_BARRIER = 4,
  GL_REDUCE = 5,
  GL_GATHER = 6,
  GL_SCATTER = 7,
  GL_ALL_TO_ALL = 8,
  GL_CANCEL = 32,  // the operation with this cookie; has no completion of its own
  GL_RESUME = 33   // begin afresh: what this trainer has in flight fails, and numbers begin at 0; has no completion
};

// A tensor (where each rank has a block, as in reduce-scatter and all-gather: of all blocks) that is longer than
// GL_PART_BYTES, or than the greatest power of two that gl_welcome's max_bytes has room for if that is less, is several
// operations to the daemon: the first elements (of each block), the next ones, and so on. So ranks divide alike, unless
// a daemon takes less than GL_PART_BYTES: then counts differ, and the operation fails on all. Parts but the first have
// tags of their own, so that ranks that lost count of each other never add different parts.
#define GL_PART_BYTES (UINT64_C(64) << 20)

#define GL_FLAG_AVERAGE 1u
#define GL_FLAG_CODEC 2u       // codec and codec_arguments are set
#define GL_FLAG_RESIDUAL 4u    // residual_segment and residual_offset are set
#define GL_FLAG_EXACT 8u       // through no codec, whichever is named or configured
#define GL_FLAG_CANCELLED 16u  // given up already: it has its number, and fails on all ranks
#define GL_FLAG_MIN 32u        // the least element instead of the sum; no codec, no residual, no average
#define GL_FLAG_MAX 64u        // the greatest one, likewise
#define GL_FLAG_BACK 128u      // back_codec and back_arguments are set: what comes back from an aggregator

struct gl_submission {
  uint64_t cookie;  // comes back in the completion
  uint64_t tag;
  uint64_t count;            // elements, as in gradlane.h
  uint64_t offset;           // of the data in its segment, bytes
  uint64_t residual_offset;  // all-to-all: of where the blocks come to; its segment, too
  union {
    uint64_t root;   // broadcast, reduce
    uint64_t pitch;  // where each rank has a block: elements from one to the next, of residuals too; 0: count
  };
  // Floats from the start of one state array of the residual to that of the next; 0: from the data's first element to
  // its last.
  uint64_t state_pitch;
  uint64_t codec_arguments;  // as gl_codec_name's
  uint64_t back_arguments;
  uint32_t timeout_ms;  // from its turn in the lane until it fails, on all ranks; 0: as configured
  uint8_t segment;
  uint8_t residual_segment;
  uint8_t kind;         // gl_submission_kind
  uint8_t type;         // gradlane_type
  uint32_t ends_seen;   // the lane's `ends`, as far as the application had been told when it asked for this
  uint32_t strategy;    // as gl_strategy_row's code; 0: the daemon's
  uint32_t flags;       // GL_FLAG_...
  uint32_t block_root;  // gather, scatter
  uint8_t codec;        // as gl_codec_name's id
  uint8_t back_codec;
  uint8_t slot;  // below GL_SLOTS; of no other operation of this client that is in flight
  uint8_t reserved[29];
};

// What a codec has taken away from a sample of this trainer's values, without error feedback; all 0 where nothing was
// looked at. Sums, for adding: the lost share of the norm is sqrt(lost_squares / squares).
struct gl_loss {
  uint32_t values;  // not 0, finite
  uint32_t zeroed;  // of these, became 0
  double squares;   // of the values
  double lost_squares;
};

struct gl_completion {
  uint64_t cookie;
  int32_t code;              // gradlane_code: GRADLANE_OK or GRADLANE_FAILED
  uint8_t residual_cleared;  // 1: the residual is all zeros now
  uint8_t tells_end;         // 1: a generation has ended since it was submitted; only of what has failed
  uint8_t cause;             // gradlane_cause; 0: none, or an older daemon
  uint8_t reserved;
  char text[GL_TEXT];  // why it failed; always ends with 0
  struct gl_loss loss;
  // When the lane took the operation, and was through with it: ns, of the daemon's clock. 0, 0: it does not say.
  uint64_t begun_ns;
  uint64_t ended_ns;
  uint64_t sent_bytes;  // of its elements that the lane has sent, encoded; without packets' headers and repeats
};

GL_ASSERT(offsetof(struct gl_submission, pitch) == 40 && offsetof(struct gl_submission, timeout_ms) == 72);
GL_ASSERT(offsetof(struct gl_submission, codec) == 96 && sizeof(struct gl_submission) == 128);
GL_ASSERT(sizeof(struct gl_completion) == 256);

// When a generation of the ring ends, all ranks' operations fail and numbers begin at 0 with what is submitted next. An
// application that has not been told of that yet submits what belongs to the old count. So `ends` counts the
// generations that have ended with something of this client in them. It goes up before the completions that tell of it.
// What is submitted with a lesser `ends_seen` fails at once with the same cause, is given no number, and tells of the
// end like any other failure. GL_RESUME says that the application knows of all so far, and may end one itself that no
// failure tells of: what ranks do afresh goes by `tells_end` of completions.
//
// Counts go up and wrap; entry i of a ring is at i % GL_SLOTS. `tail - head` entries are there.
struct gl_lane {
  // Client writes.
  uint32_t submit_tail;
  uint32_t complete_head;
  uint8_t padding0[56];
  // Daemon writes.
  uint32_t submit_head;
  uint32_t complete_tail;
  uint32_t asleep;  // 1: after raising submit_tail, ring the lane's bell
  uint32_t ends;    // see above
  uint8_t padding1[48];
  // Daemon writes: figures since the client was attached.
  uint64_t data_bytes;
  uint64_t data_packets;
  uint64_t retransmitted;
  uint64_t beats;  // goes up some times a second, as long as the lane runs
  uint8_t padding2[32];
  struct gl_submission submissions[GL_SLOTS];
  struct gl_completion completions[GL_SLOTS];
};
GL_ASSERT(sizeof(struct gl_lane) == 192 + GL_SLOTS * (128 + 256));

// What the daemon says of each of its codecs before its welcome: names, which B there is, what it can do. Several may
// have one word, apart by their prefix or variant.
#define GL_CODEC_EXACT 1u       // values arrive as they were sent
#define GL_CODEC_FEEDBACK 2u    // takes residuals
#define GL_CODEC_EXACT_SUMS 4u  // adds without rounding: sums do not depend on the order of the ranks
#define GL_CODEC_ADAPTIVE 8u    // errors are at most 2^-B, so that trainers may choose B from step to step
#define GL_CODEC_OWNED 16u      // does not add: only by strategies where blocks have owners, GL_STRATEGY_OWNERS
#define GL_CODEC_AGREES 32u     // ranks agree on a number first: only where there is a GL_STRATEGY_LINKS
#define GL_CODEC_LOOKS 64u      // scales or thresholds are of a whole operation
#define GL_CODEC_RATE 128u      // a rate stands where B would
#define GL_CODEC_LATTICE 256u   // "+fixed:B" may follow
#define GL_CODEC_UNBIASED 512u  // what it takes from one value it gives to another, on average: nothing is lost

struct gl_codec_row {
  char word[GL_NAME];      // its name up to the colon
  char usage[GL_NAME];     // how to write the whole name
  char example[GL_NAME];   // one such name
  char option[GL_OPTION];  // what may stand behind B and a comma; empty: nothing
  uint8_t id;              // as gl_codec_name's
  uint8_t least;           // of B
  uint8_t most;            // 0: it has no B
  uint8_t states;          // as gl_codec_name's
  uint32_t flags;          // GL_CODEC_...
  uint8_t reserved[8];
  char prefix[GL_OPTION];   // stands before B; empty: nothing
  char variant[GL_OPTION];  // a word that stands behind a comma; empty: nothing
  char promise[GL_LINE];
  char source[GL_LINE];  // the paper
};
GL_ASSERT(sizeof(struct gl_codec_row) == 448);

// A strategy that operations may name. The first one is that of operations that name none, as far as it can do them.
#define GL_STRATEGY_BACK 1u    // what comes back has a codec of its own
#define GL_STRATEGY_OWNERS 2u  // somebody has all of a block's sum before others get it: codecs need not add
#define GL_STRATEGY_LINKS 4u   // of all in the table: all ranks have links to all others

struct gl_strategy_row {
  uint32_t code;
  uint32_t kinds;  // bit i: it can do operations of the gl_submission_kind i
  uint32_t flags;  // GL_STRATEGY_...
  uint32_t reserved;
  char name[GL_NAME];  // "rings:4"
};
GL_ASSERT(sizeof(struct gl_strategy_row) == 80);

// What `auto` chooses from: a strategy and a codec, and how long the daemon thinks that an all-reduce takes that way.
// Of tensors of 2^(GL_LEAST_SIZE + i) bytes, i below GL_SIZES; each class goes up to the next one.
#define GL_MAX_WAYS 64u
#define GL_LEAST_SIZE 12u
#define GL_SIZES 15u

struct gl_way_row {
  uint32_t strategy;  // as gl_strategy_row's code
  uint8_t codec;      // as gl_codec_name's id
  uint8_t bound;      // gl_bound, client/tuner/auto_name.h
  uint8_t bits;
  uint8_t scales;  // 1: the codec's B is `bits`, and with another B it keeps that bound; ns is about that of near ones
  uint8_t reserved[8];
  char name[GL_NAME];   // the codec's
  double ns[GL_SIZES];  // predicted
  double reserved1;
};
GL_ASSERT(sizeof(struct gl_way_row) == 208);

// What a file has chosen, in place of trials: the first row whose sizes have an operation's in them counts.
#define GL_MAX_PLAN_ROWS 64u

struct gl_plan_row {
  uint64_t from;  // bytes of a tensor: from <= bytes < to
  uint64_t to;
  uint32_t strategy;
  uint8_t bound;  // of the codec
  uint8_t bits;
  uint8_t reserved[10];
  char codec[GL_NAME];
};
GL_ASSERT(sizeof(struct gl_plan_row) == 96);

// What became of a class of operations that `auto` has chosen for, and of others that were to be compressed and were
// not. The client writes, the daemon reads it for people, and believes nothing.
#define GL_MAX_REPORTS 64u

enum gl_report_reason {
  GL_REASON_NONE = 0,      // a codec that rounds is chosen
  GL_REASON_TRYING = 1,    // not settled yet
  GL_REASON_EXACT = 2,     // nobody asked for a codec that rounds
  GL_REASON_NO_CODEC = 3,  // none keeps the bound, by none of the strategies
  GL_REASON_SLOWER = 4,    // the best one that rounds, `rival`, takes longer,
  GL_REASON_UNLIKELY = 5,  //   or is thought to, so that it was not tried
  GL_REASON_DIFFER = 6,    // ranks' daemons do not offer the same
  GL_REASON_FAILED = 7,    // ranks could not agree
  GL_REASON_TYPE = 8,      // codecs are for sums of float32
  GL_REASON_PLAN = 9,      // the plan says so
  GL_REASON_ROUNDS = 10,   // the plan's codec rounds more than was asked for, or in another way: its strategy alone
  GL_REASON_NO_PLAN = 11   // the plan has nothing that such an operation can do: the first way
};

struct gl_report_row {
  uint32_t version;   // goes up when something else than counts has changed; 0: nothing is here
  uint32_t strategy;  // code; 0: the daemon's first
  uint8_t kind;       // gl_submission_kind
  uint8_t type;       // gradlane_type
  uint8_t size;       // the class: 2^size bytes and more
  uint8_t reason;     // gl_report_reason
  uint8_t exact;      // of the chosen way
  uint8_t frozen;     // by a plan
  uint16_t tried;     // how many ways, in the last round
  uint32_t changes;   // of the choice
  uint32_t rival_strategy;
  uint64_t operations;
  uint64_t bytes;         // of tensors
  uint64_t sent_bytes;    // as gl_completion's, of operations that are over
  double predicted;       // ns per byte
  double measured;        // the same of the last round; 0: nothing was
  double baseline;        // of exact elements by the first strategy
  double rival_measured;  // of the best of those that are the other of exact and rounded
  char asked[GL_NAME];    // "auto:2^-10"
  char codec[GL_NAME];
  char rival[GL_NAME];
};
GL_ASSERT(sizeof(struct gl_report_row) == 272);

struct gl_control {
  uint32_t magic;
  uint32_t version;
  uint32_t lanes;
  uint32_t codecs;           // at most GL_MAX_CODECS; 0: this daemon does not say
  uint32_t codec_row_bytes;  // from one gl_codec_row to the next: a newer daemon's may be longer
  uint32_t strategies;       // at most GL_MAX_STRATEGIES; 0: operations cannot name any
  uint32_t strategy_row_bytes;
  uint32_t ways;  // at most GL_MAX_WAYS; 0: operations cannot ask for `auto`
  uint32_t way_row_bytes;
  uint32_t plan_rows;  // at most GL_MAX_PLAN_ROWS; 0: there is no plan
  uint32_t plan_row_bytes;
  uint32_t reports;  // at most GL_MAX_REPORTS
  uint32_t report_row_bytes;
  uint8_t padding0[12];
  // Client writes.
  uint32_t waiting;  // 1: after raising a complete_tail, ring the client's bell
  uint8_t padding1[60];
};
GL_ASSERT(sizeof(struct gl_control) == 128);

// Sleep without missing a wake-up. Client: waiting = 1 (seq_cst), look at all complete_tail once more, poll() the
// bell and the socket. Lane: asleep = 1 (seq_cst), look at submit_tail once more, sleep. Whoever raises a tail does
// so with seq_cst before it reads the other side's flag.

// A bell is one end of a stream socketpair. Other than an eventfd, whose O_NONBLOCK is shared by all who have it, it
// can be rung without ever blocking, whatever the other side does with its end.
static inline void gl_ring(int bell) {
  const uint8_t one = 1;
  // Fails where it has been rung often enough, or nobody listens.
  if (send(bell, &one, sizeof(one), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) return;
}

static inline void gl_silence(int bell) {
  uint8_t rings[256];
  if (recv(bell, rings, sizeof(rings), MSG_DONTWAIT) < 0) return;
}

// Up to the table of codecs.
static inline size_t gl_control_bytes(uint32_t lanes) {
  return sizeof(struct gl_control) + lanes * sizeof(struct gl_lane);
}

#ifdef __cplusplus
}
#endif
