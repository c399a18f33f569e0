// abi.h - the interface between daemon and client library: messages of the Unix socket, rings in shared memory (C and
// C++)
//
// Daemon and library may be of different builds. So widths are fixed, padding is explicit, there are no pointers, and
// sizes are asserted. Neither side trusts the other. The daemon copies a submission, then checks the copy. Each field
// has one writer. Fields that report progress are accessed with __atomic builtins (acquire and release). All others are
// plain memory ordered by them.
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
#define GL_ABI_VERSION 9u     // must be the same on both sides, or gl_hello is refused

#define GL_SLOTS 64u          // entries of a ring; a power of two
#define GL_MAX_LANES 16u      // most lanes of a node
#define GL_MAX_SEGMENTS 64u   // most segments of a client at a time
#define GL_TEXT 192u          // bytes of a completion's text, its final 0 included
#define GL_MESSAGE_TEXT 184u  // bytes of a message's text, its final 0 included
#define GL_NAME 64u           // bytes of a codec's name, its final 0 included; every codec's name fits
#define GL_OPTION 16u         // bytes of a codec's option, prefix or variant, its final 0 included
#define GL_LINE 96u           // bytes of a codec's promise or source, its final 0 included
#define GL_MAX_CODECS 64u     // most codecs of a daemon
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
  GL_MSG_FIND_CODEC = 7,  // client: gl_codec_name with the name only
  GL_MSG_CODEC = 8,       // daemon: gl_codec_name with all fields; the name is in the daemon's spelling
  GL_MSG_REFUSED = 9,     // daemon, as the answer to any client message: gl_text
  GL_MSG_GOODBYE = 10     // daemon: gl_text; the connection ends
};

struct gl_hello {
  uint32_t type;
  uint32_t magic;
  uint32_t version;
  int32_t rank;  // rank that the client wants; -1: any free one of this node
};

// local_reduce is on: operations that need links between all nodes are refused, and blocks of ranks must be contiguous
#define GL_WELCOME_LOCAL_REDUCE 1u
#define GL_WELCOME_AUTO_STRATEGY 2u  // operations that name no strategy use "auto"
#define GL_WELCOME_ALONE 4u          // there is no other node, and trainers reduce locally: nothing is exchanged
#define GL_WELCOME_VERIFY 8u         // results are verified where that is possible
struct gl_welcome {
  uint32_t type;
  uint32_t rank;
  uint32_t world;
  uint32_t lanes;
  uint64_t control_bytes;
  uint64_t max_bytes;   // most bytes of an operation's tensor
  uint32_t pid;         // process id of the daemon
  uint16_t flags;       // GL_WELCOME_...
  uint16_t trainers;    // trainers of a node; 0 means 1
  char codec[GL_NAME];  // codec of operations that name none
};

struct gl_allocate {
  uint32_t type;
  uint32_t reserved;
  uint64_t bytes;  // rounded up to whole pages
};

struct gl_segment {
  uint32_t type;
  uint32_t id;     // below GL_MAX_SEGMENTS
  uint64_t bytes;  // size of the shared memory, which is sealed against any change of size
};

struct gl_codec_name {
  uint32_t type;
  uint8_t id;
  uint8_t states;  // number of float arrays in its residual; 0: it takes none
  uint8_t reserved[2];
  uint32_t flags;  // GL_CODEC_...
  uint32_t reserved1;
  uint64_t arguments;  // parameters in the name, in the daemon's own form; submissions carry them
  char name[GL_NAME];
};

struct gl_text {
  uint32_t type;
  uint32_t version;  // the daemon's version, if it refuses a gl_hello because of the client's; else 0
  // The text of an older daemon has GL_TEXT bytes. If text[GL_MESSAGE_TEXT - 1] is not 0, the text goes on into the
  // next fields, and there is no `world`.
  char text[GL_MESSAGE_TEXT];
  uint32_t world;     // number of ranks of the ring, if a daemon refuses a gl_hello because of its rank; else 0
  uint32_t no_codec;  // 1 if this answers a gl_codec_name whose name no codec has, else 0
};

GL_ASSERT(sizeof(struct gl_hello) == 16 && sizeof(struct gl_allocate) == 16 && sizeof(struct gl_segment) == 16);
GL_ASSERT(sizeof(struct gl_welcome) == 104);
GL_ASSERT(sizeof(struct gl_codec_name) == 88 && sizeof(struct gl_text) == 200);

// ---- Shared memory
// The control segment has one gl_control, one gl_lane per lane, and then five tables:
//   one gl_codec_row per codec
//   one gl_strategy_row per strategy that operations may name
//   one gl_way_row per candidate of `auto`
//   one gl_plan_row per row of a plan
//   as many gl_report_rows as `reports` of gl_control says
// Each table begins at a multiple of 8 bytes from the start, because the sizes of all rows are such multiples.
//
// The client submits each operation to every lane, in the same order. Each lane works on its part of the tensor, and
// writes a completion for that part. An operation is over when all lanes have completed it.

enum gl_submission_kind {  // kinds of operations of the exchange, and two commands
  GL_ALL_REDUCE = 0,
  GL_REDUCE_SCATTER = 1,
  GL_ALL_GATHER = 2,
  GL_BROADCAST = 3,
  GL_BARRIER = 4,
  GL_REDUCE = 5,
  GL_GATHER = 6,
  GL_SCATTER = 7,
  GL_ALL_TO_ALL = 8,
  GL_CANCEL = 32,  // cancels the operation with this cookie; has no completion of its own
  GL_RESUME = 33,  // fails this trainer's operations in flight; numbers then start at 0 again; has no completion
  // Encodes a contribution for later operations (GL_FLAG_ENCODED). No other rank takes part. The `count` floats at
  // `offset` are those from encoded_first on, of a tensor of encoded_count floats. All before them have been encoded.
  // They are whole blocks, or reach to the tensor's end. residual_segment and residual_offset say where the encoded
  // tensor is; it has space for encoded_bytes.
  GL_ENCODE = 34
};

// The library divides a tensor that is longer than GL_PART_BYTES into several operations: the first elements, the next
// ones, and so on. If gl_welcome's max_bytes is less, parts have the largest power of two that fits it. If each rank
// has a block, as in reduce-scatter and all-gather, all blocks together count, and each part has the same elements of
// every block. So all ranks divide alike, unless a daemon takes less than GL_PART_BYTES. Then counts differ, and the
// operation fails on all ranks. All parts except the first have tags that depend on the part's number. So ranks that
// disagree about which part comes next never add different parts.
#define GL_PART_BYTES (UINT64_C(64) << 20)

#define GL_FLAG_AVERAGE 1u
#define GL_FLAG_CODEC 2u       // codec and codec_arguments are set
#define GL_FLAG_RESIDUAL 4u    // residual_segment and residual_offset are set
#define GL_FLAG_EXACT 8u       // uses no codec, whichever is named or configured
#define GL_FLAG_CANCELLED 16u  // cancelled before it began: it uses up its number in the order, and fails on all ranks
#define GL_FLAG_MIN 32u        // minimum instead of the sum; no codec, no residual, no average
#define GL_FLAG_MAX 64u        // maximum instead of the sum; no codec, no residual, no average
#define GL_FLAG_BACK 128u      // back_codec and back_arguments are set, for results from an aggregator
// This rank's contribution to an all-reduce of float32 is in an encoded tensor (docs/codec-format.md), from float
// encoded_first on: residual_segment, residual_offset and encoded_bytes say where. `offset` says where the result goes;
// the content there does not count. The codec is that of GL_FLAG_CODEC, or the configured one, even with GL_FLAG_EXACT.
#define GL_FLAG_ENCODED 256u
// The result of an all-reduce of float32 goes as encoded runs (gradlane_lane_runs) to runs_segment, at runs_offset. The
// content at `offset` is undefined then. There is no residual, because runs_offset has the place of state_pitch. Runs
// are by the operation's codec, so by raw with GL_FLAG_EXACT.
#define GL_FLAG_RUNS 512u
#define GL_RUNS_HEADER (GL_MAX_LANES * 32u)  // a gradlane_lane_runs for each lane
#define GL_RUN_GROUP 32u                     // floats of a group; no run divides one
#define GL_RUN_GROUP_BYTES 160u  // space for each group: for its longest block, and for an entry of the table
static inline size_t gl_runs_space(size_t count) {
  return GL_RUNS_HEADER + (count / GL_RUN_GROUP + 1) * GL_RUN_GROUP_BYTES;
}
#define GL_ENCODED_BLOCK 4096u  // floats of a block of an encoded tensor

struct gl_submission {
  uint64_t cookie;  // number that the client chooses, and that the completion repeats
  uint64_t tag;
  uint64_t count;   // number of elements, as in gradlane.h
  uint64_t offset;  // bytes from the start of the segment to the data
  // bytes from the start of residual_segment to the residual; in all-to-all, both fields describe the output
  uint64_t residual_offset;
  union {
    uint64_t root;   // root rank of broadcast and reduce
    uint64_t pitch;  // if each rank has a block: elements from one block to the next, also in residuals; 0: count
  };
  union {
    // Floats from the start of one state array of the residual to the start of the next. If it is 0, there are as many
    // as the data spans from its first element to its last.
    uint64_t state_pitch;
    uint64_t runs_offset;  // with GL_FLAG_RUNS
  };
  uint64_t codec_arguments;  // as in gl_codec_name
  uint64_t back_arguments;
  uint32_t timeout_ms;  // time limit from its turn in the lane, after which it fails on all ranks; 0: as configured
  uint8_t segment;
  uint8_t residual_segment;
  uint8_t kind;         // gl_submission_kind
  uint8_t type;         // gradlane_type
  uint32_t ends_seen;   // the lane's `ends` that the application knew of when it started the operation
  uint32_t strategy;    // code as in gl_strategy_row; 0: the daemon's
  uint32_t flags;       // GL_FLAG_...
  uint32_t block_root;  // root rank of gather and scatter
  uint8_t codec;        // id as in gl_codec_name
  uint8_t back_codec;
  uint8_t slot;  // below GL_SLOTS; no other operation of this client in flight has it
  uint8_t runs_segment;
  uint8_t reserved[4];
  uint64_t encoded_bytes;
  uint64_t encoded_first;
  uint64_t encoded_count;  // floats of the whole encoded tensor
};

// Loss by a codec without error feedback, in a sample of this trainer's values. All fields are 0 if there was no
// sample. They are sums, so they can be added: the lost share of the norm is sqrt(lost_squares / squares).
struct gl_loss {
  uint32_t values;  // number of finite values that are not 0
  uint32_t zeroed;  // number of these that became 0
  double squares;   // sum of the squares of the values
  double lost_squares;
};

struct gl_completion {
  uint64_t cookie;
  int32_t code;              // gradlane_code: GRADLANE_OK or GRADLANE_FAILED
  uint8_t residual_cleared;  // 1 if the residual was set to zeros, else 0
  uint8_t tells_end;         // 1 if it failed and a generation of the ring has ended since the submission, else 0
  uint8_t cause;             // gradlane_cause; 0: none, or an older daemon
  uint8_t reserved;
  char text[GL_TEXT];  // why it failed, or ""; always ends with 0
  struct gl_loss loss;
  // Times at which the lane took and finished the operation, in ns of the daemon's clock; both 0 if they are unknown.
  uint64_t begun_ns;
  uint64_t ended_ns;
  uint64_t sent_bytes;  // bytes of encoded elements that the lane has sent; without packet headers and retransmissions
};

GL_ASSERT(offsetof(struct gl_submission, pitch) == 40 && offsetof(struct gl_submission, timeout_ms) == 72);
GL_ASSERT(offsetof(struct gl_submission, encoded_bytes) == 104);
GL_ASSERT(offsetof(struct gl_submission, codec) == 96 && sizeof(struct gl_submission) == 128);
GL_ASSERT(sizeof(struct gl_completion) == 256);

// When a generation of the ring ends, the operations of all ranks fail, and the next submission has number 0. An
// application that does not know of the end yet submits operations of the old count. So `ends` counts the generations
// that have ended with operations of this client in them. It goes up before the completions that report the end. A
// submission with a lower `ends_seen` fails at once with the same cause, gets no number, and reports the end like any
// other failure. GL_RESUME says that the application knows of all ends up to now. GL_RESUME may also end a generation,
// and no completion reports that end. So ranks that must restart something together go by `tells_end` of completions,
// not by `ends`.
//
// Counts go up and wrap. Entry i of a ring is at i % GL_SLOTS. A ring holds `tail - head` entries.
struct gl_lane {
  // Client writes.
  uint32_t submit_tail;
  uint32_t complete_head;
  uint8_t padding0[56];
  // Daemon writes.
  uint32_t submit_head;
  uint32_t complete_tail;
  uint32_t asleep;  // 1 if the lane sleeps: the client must ring its bell after raising submit_tail; else 0
  uint32_t ends;    // number of generations that have ended, see above
  uint8_t padding1[48];
  // Daemon writes: figures since the client was attached.
  uint64_t data_bytes;
  uint64_t data_packets;
  uint64_t retransmitted;
  uint64_t beats;  // goes up several times a second while the lane runs
  uint8_t padding2[32];
  struct gl_submission submissions[GL_SLOTS];
  struct gl_completion completions[GL_SLOTS];
};
GL_ASSERT(sizeof(struct gl_lane) == 192 + GL_SLOTS * (128 + 256));

// The daemon writes one gl_codec_row for each of its codecs before its welcome: names, the range of B, and
// capabilities. Several codecs may have the same word; their prefix or variant tells them apart.
#define GL_CODEC_EXACT 1u       // values arrive as they were sent
#define GL_CODEC_FEEDBACK 2u    // takes residuals
#define GL_CODEC_EXACT_SUMS 4u  // adds without rounding: sums do not depend on the order of the ranks
#define GL_CODEC_ADAPTIVE 8u    // errors are at most 2^-B, so trainers may change B from step to step
#define GL_CODEC_OWNED 16u      // encoded values cannot be added: only strategies with GL_STRATEGY_OWNERS can use it
#define GL_CODEC_AGREES 32u     // ranks first agree on a number: needs a strategy with GL_STRATEGY_LINKS
#define GL_CODEC_LOOKS 64u      // scales or thresholds hold for a whole operation
#define GL_CODEC_RATE 128u      // its parameter is a rate instead of B
#define GL_CODEC_LATTICE 256u   // "+fixed:B" may follow
#define GL_CODEC_UNBIASED 512u  // on average, values arrive as they were sent: errors cancel out
#define GL_CODEC_HALVES 1024u   // also for sums of float16 and bfloat16
// rounds sums of all floating types once, whatever their size: for float64 and for fewer than 1024 elements, too
#define GL_CODEC_ROUNDS_ONCE 2048u

struct gl_codec_row {
  char word[GL_NAME];      // name up to the colon
  char usage[GL_NAME];     // form of the whole name
  char example[GL_NAME];   // example of a name
  char option[GL_OPTION];  // word that may follow B and a comma; empty: none
  uint8_t id;              // as in gl_codec_name
  uint8_t least;           // least B
  uint8_t most;            // greatest B; 0: the codec has no B
  uint8_t states;          // as in gl_codec_name
  uint32_t flags;          // GL_CODEC_...
  uint8_t reserved[8];
  char prefix[GL_OPTION];   // text before B; empty: none
  char variant[GL_OPTION];  // word after a comma; empty: none
  char promise[GL_LINE];
  char source[GL_LINE];  // paper
};
GL_ASSERT(sizeof(struct gl_codec_row) == 448);

// A strategy that operations may name. The first one is the default of operations that name none, as far as it can do
// them.
#define GL_STRATEGY_BACK 1u    // results have a codec that is named separately, as with an aggregator
#define GL_STRATEGY_OWNERS 2u  // one rank computes the whole sum of a block, so codecs with GL_CODEC_OWNED can be used
#define GL_STRATEGY_LINKS 4u   // all ranks have links to all others; the same in all rows

struct gl_strategy_row {
  uint32_t code;
  uint32_t kinds;  // bit i: it can do operations of the gl_submission_kind i
  uint32_t flags;  // GL_STRATEGY_...
  uint32_t reserved;
  char name[GL_NAME];  // "rings:4"
};
GL_ASSERT(sizeof(struct gl_strategy_row) == 80);

// A candidate of `auto`: a strategy and a codec, with the times that the daemon predicts for an all-reduce. ns[i] is
// for tensors of 2^(GL_LEAST_SIZE + i) bytes, with i below GL_SIZES. It serves for all sizes from there up to the next
// one.
#define GL_MAX_WAYS 64u
#define GL_LEAST_SIZE 12u
#define GL_SIZES 15u

struct gl_way_row {
  uint32_t strategy;  // code as in gl_strategy_row
  uint8_t codec;      // id as in gl_codec_name
  uint8_t bound;      // gl_bound (client/tuner/auto_name.h) that it keeps
  uint8_t bits;
  // 1 if the codec may have another B than `bits`, for which ns is predicted. It then keeps the bound of that B, and ns
  // is about right if that B is near `bits`. 0 if only the codec as named is a candidate.
  uint8_t scales;
  uint8_t reserved[8];
  char name[GL_NAME];   // name of the codec
  double ns[GL_SIZES];  // predicted times
  double reserved1;
};
GL_ASSERT(sizeof(struct gl_way_row) == 208);

// A row of a plan file, which replaces trials. The first row whose range has an operation's size in it counts.
#define GL_MAX_PLAN_ROWS 64u

struct gl_plan_row {
  uint64_t from;  // bytes of a tensor: from <= bytes < to
  uint64_t to;
  uint32_t strategy;
  uint8_t bound;  // gl_bound of the codec
  uint8_t bits;
  uint8_t reserved[10];
  char codec[GL_NAME];
};
GL_ASSERT(sizeof(struct gl_plan_row) == 96);

// A report on a class of operations that `auto` has chosen for, or on operations that were to be compressed and were
// not. The client writes it. The daemon shows it to people, and does not rely on it.
#define GL_MAX_REPORTS 64u

enum gl_report_reason {
  GL_REASON_NONE = 0,      // a codec that rounds is chosen
  GL_REASON_TRYING = 1,    // not settled yet
  GL_REASON_EXACT = 2,     // nobody asked for a codec that rounds
  GL_REASON_NO_CODEC = 3,  // no codec keeps the bound, with any of the strategies
  GL_REASON_SLOWER = 4,    // the best codec that rounds, `rival`, takes longer
  GL_REASON_UNLIKELY = 5,  // codecs that round are predicted to take longer, so none was tried
  GL_REASON_DIFFER = 6,    // the daemons of the ranks have different codecs, strategies or plans
  GL_REASON_FAILED = 7,    // ranks could not agree
  GL_REASON_TYPE = 8,      // the type is not float32, and codecs are for sums of float32
  GL_REASON_PLAN = 9,      // the plan says so
  // The plan's codec rounds more than was asked for, or has another kind of bound: only the plan's strategy is used.
  GL_REASON_ROUNDS = 10,
  GL_REASON_NO_PLAN = 11  // the plan has no row that such an operation can use: the first candidate is used
};

struct gl_report_row {
  uint32_t version;   // goes up when anything except counts has changed; 0: the row is empty
  uint32_t strategy;  // code of the strategy; 0: the daemon's first
  uint8_t kind;       // gl_submission_kind
  uint8_t type;       // gradlane_type
  uint8_t size;       // size class: tensors of 2^size bytes and more
  uint8_t reason;     // gl_report_reason
  uint8_t exact;      // 1 if the chosen candidate is exact, else 0
  uint8_t frozen;     // 1 if a plan has fixed the choice, else 0
  uint16_t tried;     // number of candidates that the present round tries, or the next one if none runs
  uint32_t changes;   // number of times that the choice changed
  uint32_t rival_strategy;
  uint64_t operations;
  uint64_t bytes;       // bytes of the tensors
  uint64_t sent_bytes;  // as in gl_completion, for operations that are over
  double predicted;     // predicted time of the chosen candidate, ns per byte
  double measured;      // measured time of the chosen candidate, ns per byte; 0 if there is none
  double baseline;      // measured time of the first candidate, which is exact, in ns per byte; 0 if there is none
  // Measured time of `rival`: the best exact candidate if the chosen one rounds, else the best one that rounds.
  double rival_measured;
  char asked[GL_NAME];  // "auto:2^-10"
  char codec[GL_NAME];
  char rival[GL_NAME];
};
GL_ASSERT(sizeof(struct gl_report_row) == 272);

struct gl_control {
  uint32_t magic;
  uint32_t version;
  uint32_t lanes;
  uint32_t codecs;           // at most GL_MAX_CODECS; 0: this daemon does not list them
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
  uint32_t waiting;  // 1 if the client sleeps: the daemon must ring its bell after raising a complete_tail; else 0
  uint8_t padding1[60];
};
GL_ASSERT(sizeof(struct gl_control) == 128);

// Both sides sleep without missing a wake-up. The client sets waiting = 1 (seq_cst), reads the complete_tail of all
// lanes once more, and calls poll() on the bell and the socket. The lane sets asleep = 1 (seq_cst), reads submit_tail
// once more, and sleeps. The side that raises a tail does so with seq_cst before it reads the other side's flag.

// A bell is one end of a stream socketpair. It can be rung without ever blocking, whatever the other side does with its
// end. An eventfd cannot, as its O_NONBLOCK is shared by all processes that have it.
static inline void gl_ring(int bell) {
  const uint8_t one = 1;
  // The call fails if the bell's buffer is full, so that the other side will wake up anyway, or if that side has
  // closed.
  if (send(bell, &one, sizeof(one), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) return;
}

static inline void gl_drain_bell(int bell) {
  uint8_t rings[256];
  if (recv(bell, rings, sizeof(rings), MSG_DONTWAIT) < 0) return;
}

// Returns the offset in bytes of the table of codecs in the control segment.
static inline size_t gl_control_bytes(uint32_t lanes) {
  return sizeof(struct gl_control) + lanes * sizeof(struct gl_lane);
}

#ifdef __cplusplus
}
#endif
