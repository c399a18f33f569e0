// gradlane.h - the trainer's interface: collectives over buffers that are shared with the node daemon (C and C++)
//
//   gradlane_context *gl;
//   if (gradlane_open(&gl, NULL) != GRADLANE_OK) die(gradlane_error(NULL));
//   float *gradients;
//   gradlane_alloc(gl, n * sizeof(float), (void **)&gradients);
//   ... fill gradients ...
//   if (gradlane_all_reduce(gl, gradients, n, GRADLANE_FLOAT32, NULL, NULL) != GRADLANE_OK) die(gradlane_error(gl));
//
// Every function returns GRADLANE_OK or one of the other codes below, and gradlane_error() then has a sentence that
// says what was wrong. A context, its buffers and requests belong to one thread at a time, unless gradlane_share() was
// called; the library starts no thread and installs no signal handler. A context belongs to the process that opened it:
// after fork() the child's calls are refused, the parent notices nothing of them, and gradlane_close() in the child
// frees what is the child's. Link with -lgradlane; it needs libc only.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

// The interface this header describes. It grows at the ends of structs only, by whole multiples of 8 bytes, and
// gradlane_version() is never below: programs that were built with an older header go on working, as the library takes
// what their shorter structs do not have for its default. Version 2 has gradlane_sum_of_squares(); version 3 time
// limits of operations, any number of requests, tensors of any size, and warnings; version 4 has gradlane_get_codec(),
// gradlane_find_codec() and gradlane_local_reduce(); version 5 has strategies, minima, maxima, a codec for the way
// back, and gradlane_reduce(), gradlane_gather(), gradlane_scatter() and gradlane_all_to_all(); version 6 residuals of
// several arrays, and says more of codecs; version 7 ordinary memory; version 8 has gradlane_get_cause() and
// gradlane_refused_by(); version 9 has `blocks` of gradlane_how, and tasks, gradlane_share().
#define GRADLANE_API_VERSION 9

typedef struct gradlane_context gradlane_context;  // a connection to the daemon of this node, as one rank

typedef enum gradlane_code {
  GRADLANE_OK = 0,
  GRADLANE_PENDING = 1,        // gradlane_test(): not over yet; gradlane_wait(): not within the time given
  GRADLANE_BAD_ARGUMENT = -1,  // nothing has happened
  GRADLANE_NO_DAEMON = -2,     // cannot connect, or it refused
  GRADLANE_DAEMON_GONE = -3,   // it ended or cut the connection: all requests fail, buffers are of no use (the daemon
                               // may still write to them for a moment), open a new context
  GRADLANE_FAILED = -4,        // the operation failed, here and (see docs/client.md) on the other ranks
  GRADLANE_NO_MEMORY = -5,
  GRADLANE_TOO_MANY = -6,  // not since version 3: what the daemon has no room for waits in the library
  GRADLANE_VERSION = -7    // daemon and library speak different versions
} gradlane_code;

// Why an operation has failed (GRADLANE_FAILED). Later versions may have more.
typedef enum gradlane_cause {
  GRADLANE_CAUSE_NONE = 0,           // it has not failed, or the daemon is of release 0.1
  GRADLANE_CAUSE_SILENT = 1,         // a node has not answered for timeouts.peer
  GRADLANE_CAUSE_RESTARTED = 2,      // a node has restarted, and knows nothing of the operation
  GRADLANE_CAUSE_CONFIGURED = 3,     // a node is configured differently
  GRADLANE_CAUSE_MISMATCH = 4,       // ranks have called different operations
  GRADLANE_CAUSE_TAG = 5,            // the same: they differ in their tags
  GRADLANE_CAUSE_CANCELLED = 6,      // a rank has cancelled it, or trainers of a node waited in vain for each other
  GRADLANE_CAUSE_NO_RING = 7,        // the nodes did not find each other in timeouts.start
  GRADLANE_CAUSE_TIMEOUT = 8,        // it took longer than its time limit
  GRADLANE_CAUSE_NODE_LEFT = 9,      // a rank has left: its daemon was shut down, or its trainer has gone
  GRADLANE_CAUSE_DUPLICATE = 10,     // two machines have the same address
  GRADLANE_CAUSE_TRAINER_GONE = 11,  // a trainer of this node has ended, or closed its context
  GRADLANE_CAUSE_RESUMED = 12,       // a trainer of this rank has begun afresh: gradlane_resume()
  GRADLANE_CAUSE_OTHER = 13          // gradlane_error() says it
} gradlane_cause;

typedef enum gradlane_type {
  GRADLANE_FLOAT32 = 0,
  GRADLANE_FLOAT64 = 1,
  GRADLANE_FLOAT16 = 2,
  GRADLANE_BFLOAT16 = 3,
  GRADLANE_INT32 = 4,
  GRADLANE_INT64 = 5,
  GRADLANE_BYTES = 6
} gradlane_type;

// ---- Opening

typedef struct gradlane_options {
  size_t struct_size;  // sizeof(gradlane_options)
  const char* socket;  // path of the daemon's; NULL: what GRADLANE_SOCKET says, else the only one (docs/client.md)
  int rank;            // which of the daemon's ranks to be; -1: what RANK says, or if it is not set any free one
  int timeout_ms;      // to connect, while there is no daemon yet; 0: at once; -1: 10 s
  int spin_us;         // how long waits poll before they sleep; -1: 20
  // Of operations that name none (gradlane_how): how long they may take. 0: as the daemon's configuration says,
  // timeouts.operation and timeouts.start.
  int64_t operation_timeout_ms;
  int keep_warnings;  // 1: warnings are for gradlane_warning(), which the caller asks; 0: they go to stderr
  int reserved;       // 0
} gradlane_options;

// All fields at their defaults.
#define GRADLANE_OPTIONS_INIT \
  { sizeof(gradlane_options), NULL, -1, -1, -1, 0, 0, 0 }

// Connects. `options` may be NULL. On failure *gl is NULL and gradlane_error(NULL) says why.
gradlane_code gradlane_open(gradlane_context** gl, const gradlane_options* options);

// Cancels what is unfinished, unmaps all buffers. NULL does nothing.
void gradlane_close(gradlane_context* gl);

// The first half of gradlane_close(): gives the rank back, so that another context can have it, and fails what is
// unfinished with GRADLANE_DAEMON_GONE. Buffers can still be read and written until gradlane_close(). In a child of
// fork() it closes the child's side of the connection only: while that is open, the daemon does not see that the parent
// was killed.
void gradlane_disconnect(gradlane_context* gl);

int gradlane_version(void);                              // GRADLANE_API_VERSION of the library
int gradlane_rank(const gradlane_context* gl);           // 0 to world - 1
int gradlane_world(const gradlane_context* gl);          // number of trainers
const char* gradlane_codec(const gradlane_context* gl);  // of the daemon's configuration: of operations that name none

// Above 0: the daemon's local_reduce is on, and so many trainers of a node are one rank: no reduce, gather, scatter and
// all-to-all, and reduce-scatter and all-gather of at most 64 MiB of all ranks, or what the daemon takes.
int gradlane_local_reduce(const gradlane_context* gl);

// The last error of this context in words, or of gradlane_open() in this thread (NULL). Valid until the next call.
const char* gradlane_error(const gradlane_context* gl);
// The cause of the last error of this context, where that was GRADLANE_FAILED; gradlane_error() has it in words.
gradlane_cause gradlane_get_cause(const gradlane_context* gl);
// Of the last gradlane_open() in this thread: how many ranks the ring of a daemon has that has refused the rank, and
// the path of that daemon's socket in *socket (may be NULL; valid until this thread's next gradlane_open(), or its
// end). 0 and "": no daemon did, or it does not say.
int gradlane_refused_by(const char** socket);

// ---- Buffers

// Memory that the daemon can read and write, zeroed, aligned to 4096 bytes. Data and residuals of operations lie in
// such buffers: data at any offset, residuals at multiples of 4 bytes.
gradlane_code gradlane_alloc(gradlane_context* gl, size_t bytes, void** buffer);

// No unfinished request may use it.
gradlane_code gradlane_free(gradlane_context* gl, void* buffer);

// ---- Operations
//
// In place but for all-to-all, and collective: all ranks start the same operations in the same order. With `request`
// NULL the call waits for the end; else it returns at once, and the data belongs to the daemon until gradlane_wait() or
// gradlane_test() says that the request is over. Each operation ends in bounded time, on every rank: with a result, or
// with an error that names the rank and the reason. All ranks that succeed have the same bytes.
//
// Any number of requests may be unfinished. The daemon works on up to 64 operations at a time; others wait in the
// library, in the order of the calls, and move on in any call that waits, tests or starts an operation. Tensors may be
// of any size: of one that is longer than 64 MiB, or than the daemon takes, parts travel one behind the other (where
// the daemon's local_reduce is on, not those of which ranks have blocks).
//
// all-reduce      data: count elements; ends as their sum over the ranks
// reduce-scatter  data: world * count elements; block `rank` ends as the sum of the ranks' blocks, the others undefined
// all-gather      data: world * count elements, block `rank` is this rank's; ends as all ranks' blocks
// broadcast       data: count elements; ends as those of rank `root`
// barrier         ends when all ranks have started it
// reduce          data: count elements; ends as their sum on rank `root`, on the others as it was
// gather          data: world * count elements, block `rank` is this rank's; ends on rank `root` as all ranks' blocks,
//                 on the others as it was
// scatter         data: world * count elements; block `rank` ends as that of rank `root`, the others stay as they were
// all-to-all      data and out: world * count elements each; block i of `out` ends as block `rank` of rank i's data,
//                 which stays as it was
//
// The last four need links between all nodes: they go by the strategy "direct", which the daemon's configuration must
// allow.
//
// Instead of the sum, all-reduce, reduce-scatter and reduce can take the minimum or maximum (gradlane_how), of all
// types. Where an element is NaN on one rank, so is the result; -0 is less than +0; bytes are unsigned.
//
// Only sums of float32 go through a codec, and an all-to-all that names one; and only those of GRADLANE_EXACT_BELOW
// elements or more (of reduce-scatter and all-to-all: per block). All else arrives bit by bit. So does an all-to-all by
// a codec that is for sums only: one that selects, votes, waits for a threshold, rounds by chance or agrees on a
// scale (docs/client.md lists them). Integers are added modulo 2^32 or 2^64, bytes modulo 256.

typedef uint64_t gradlane_request;  // 0: none

#define GRADLANE_EXACT_BELOW 1024

typedef enum gradlane_reduction { GRADLANE_SUM = 0, GRADLANE_MIN = 1, GRADLANE_MAX = 2 } gradlane_reduction;

typedef struct gradlane_how {
  size_t struct_size;  // sizeof(gradlane_how)
  // Of sums of float32, "raw" or "fixed:10" say; NULL: the daemon's. Of an all-to-all, NULL is raw. For all-gather,
  // broadcast, gather, scatter, minima and maxima "raw" is the only one that can be named. With an aggregator,
  // all-reduce takes two, "fixed:10/raw": to the aggregator, and back from it; where one is named, it is for the way to
  // the aggregator, and "raw" for the way back. "auto:2^-10" or "auto:rel=10": one that the library chooses, for each
  // size of tensors, whose error in a contribution is at most 2^-10, or 2^-10 of any rank's largest value; "auto":
  // exact one (docs/plan.md). All ranks name the same, and have a residual on all of them or on none. An operation that
  // is left to the library may wait in it for those before, as if there were too many: between its start and its wait,
  // do not wait for other ranks by other means.
  const char* codec;
  // Error feedback (codecs with GRADLANE_CODEC_FEEDBACK; all-reduce, reduce-scatter, reduce): as many arrays as the
  // codec has `states` (gradlane_codec_info), each of as many floats as data, one behind the other; from
  // gradlane_alloc(), zeros at first and kept from step to step; NULL: none. After GRADLANE_FAILED zeros again, or as
  // it was, where the operation still waited: rely on neither. A sum that is too small for a codec pays what is owed:
  // the residual is added to the data by the call, and is zeros then. Where an average is of trainers that are one rank
  // (gradlane_local_reduce()), a residual is what is owed of their mean: so many times as much of one trainer's data.
  // One that was kept for a codec is for no other of another `word`.
  float* residual;
  int average;  // 1: divide sums by the number of ranks; floating types only
  // Must be equal on all ranks, or the operation fails: a step and bucket number, say. By default it counts the
  // operations of this context; gradlane_resume() sets that count.
  int has_tag;
  uint64_t tag;
  // How long the operation may take from its turn in the daemon on, which is when those before it have begun. Then it
  // fails, on all ranks. 0: the context's. Ranks need not agree: the shortest that is over ends it.
  int64_t timeout_ms;
  // Elements (of reduce-scatter: per block) of the tensor that this is a part of, where the caller divides one: whether
  // it is small goes by this. 0: it is all.
  size_t whole;
  // Which way round, the same on all ranks: one of those that the daemon's configuration allows
  // (gradlane_strategies()), "ring", "direct", "rings:4" or "aggregator:0" say. NULL: the first of these; where that
  // one cannot do such an operation, or not by this codec (GRADLANE_CODEC_OWNED), the ring; and where the ring cannot
  // either, the first that can. "auto": the library chooses, as it does for a codec of that name if this is NULL.
  const char* strategy;
  int reduction;  // a gradlane_reduction; not with average
  int reserved;   // 0
  // Floats from the start of one array of the residual to that of the next, where the data is a part of a tensor whose
  // residual is longer; 0: as many as data has.
  size_t state_pitch;
  // How long the parts are that all-reduce, broadcast and reduce travel in, the same on all ranks: a power of two, 4096
  // to 2^26. Then the data may be ordinary memory, from malloc() say: the library copies parts to shared memory of its
  // own and back, in this and in all calls that wait, test or start, while others are under way. 1 MiB is good. 0: 64
  // MiB, and data lies in buffers of gradlane_alloc().
  size_t part_bytes;
  // NULL, or with part_bytes and without a residual, where the blocks of reduce-scatter and all-gather lie: one pointer
  // for each rank, to `count` elements each, in any memory. The array and the blocks stay until the request is over.
  // `data` then has `count` elements: the result of reduce-scatter, or this rank's block of all-gather, which is copied
  // to blocks[rank] as well.
  void* const* blocks;
} gradlane_how;

#define GRADLANE_HOW_INIT \
  { sizeof(gradlane_how), NULL, NULL, 0, 0, 0, 0, 0, NULL, GRADLANE_SUM, 0, 0, 0, NULL }

gradlane_code gradlane_all_reduce(gradlane_context* gl, void* data, size_t count, gradlane_type type,
                                  const gradlane_how* how, gradlane_request* request);
gradlane_code gradlane_reduce_scatter(gradlane_context* gl, void* data, size_t count, gradlane_type type,
                                      const gradlane_how* how, gradlane_request* request);
gradlane_code gradlane_all_gather(gradlane_context* gl, void* data, size_t count, gradlane_type type,
                                  const gradlane_how* how, gradlane_request* request);
gradlane_code gradlane_broadcast(gradlane_context* gl, void* data, size_t count, gradlane_type type, int root,
                                 const gradlane_how* how, gradlane_request* request);
gradlane_code gradlane_reduce(gradlane_context* gl, void* data, size_t count, gradlane_type type, int root,
                              const gradlane_how* how, gradlane_request* request);
gradlane_code gradlane_gather(gradlane_context* gl, void* data, size_t count, gradlane_type type, int root,
                              const gradlane_how* how, gradlane_request* request);
gradlane_code gradlane_scatter(gradlane_context* gl, void* data, size_t count, gradlane_type type, int root,
                               const gradlane_how* how, gradlane_request* request);
// Neither of them has anything of the other.
gradlane_code gradlane_all_to_all(gradlane_context* gl, void* data, void* out, size_t count, gradlane_type type,
                                  const gradlane_how* how, gradlane_request* request);
gradlane_code gradlane_barrier(gradlane_context* gl, const gradlane_how* how, gradlane_request* request);

// Waits until the request is over, at most timeout_ms (-1: for ever). Returns how it ended, or GRADLANE_PENDING, after
// which it can be waited for again. What ended is forgotten, and its number used again later.
gradlane_code gradlane_wait(gradlane_context* gl, gradlane_request request, int timeout_ms);
gradlane_code gradlane_test(gradlane_context* gl, gradlane_request request);

// Has it fail on all ranks, if it is not over: at once, or when its turn comes. It still must be waited for.
gradlane_code gradlane_cancel(gradlane_context* gl, gradlane_request request);

// A file descriptor that is readable while a request is over that nobody was told of, or may be, or one that waits in
// the library can move on, or the daemon has gone: for poll(), select() or an event loop, which then calls
// gradlane_test() for each request. It belongs to the context. -1: gradlane_error() says why.
int gradlane_fd(gradlane_context* gl);

// After an error, on all ranks: sets the count that default tags come from, to the same number everywhere. What this
// rank has unfinished fails, on other ranks too; so if the next operation fails because another rank was later, resume
// and try again (docs/client.md). It also says that the caller knows of all failures so far: without it, what is
// submitted before gradlane_wait() or gradlane_test() has told of one that ended everything fails at once as well.
gradlane_code gradlane_resume(gradlane_context* gl, uint64_t next_tag);

// ---- Tasks: operations of several threads
//
// After gradlane_share() several threads may add tasks to one context. A task is an operation. Tasks run one after the
// other, in the order of the calls. One thread of the caller's calls gradlane_next() in a loop: this call moves tasks
// on and returns each time that one has ended. The next task begins with the next call. What this thread adds between
// two calls runs to its end inside gradlane_add(), so it has the same place in the order on all ranks. gradlane_add()
// also ends small tasks of other threads, if nothing else is under way and the links are fast enough.
//
// The order of all threads together must be the same on all ranks, as of any operations. Threads that add tasks without
// agreeing on an order give each of them a `what` of its own: ranks that mix them up then fail, instead of adding what
// does not belong together. After a failure add tasks again: there is nothing to resume.
//
// On a shared context these functions may be called by any thread: gradlane_add(), gradlane_alloc(), gradlane_free(),
// gradlane_find_codec(), gradlane_check_codec(), gradlane_get_codec(), gradlane_get_figures(), gradlane_error(), which
// has the last error of the calling thread, and gradlane_disconnect(), after which all tasks fail. gradlane_next() and
// gradlane_answer() belong to one thread. Functions that start operations or wait for requests are refused.
//
// After fork() the child's calls are refused, as of any context. A signal handler may not call any of these. At the end
// of the process call gradlane_disconnect(): gradlane_next() then returns, its thread can be joined, and
// gradlane_close() is safe.

typedef enum gradlane_collective {
  GRADLANE_ALL_REDUCE = 1,
  GRADLANE_REDUCE_SCATTER = 2,
  GRADLANE_ALL_GATHER = 3,
  GRADLANE_BROADCAST = 4,
  GRADLANE_BARRIER = 5
} gradlane_collective;

#define GRADLANE_ASKS 1u   // gradlane_next() says when it is this task's turn; gradlane_answer() lets it begin
#define GRADLANE_FAILS 2u  // by the thread of gradlane_next(): the task has its place in the order, and fails there

typedef struct gradlane_task {
  size_t struct_size;  // sizeof(gradlane_task)
  int collective;      // a gradlane_collective
  int type;            // a gradlane_type
  int root;            // of broadcast
  unsigned flags;      // GRADLANE_ASKS, GRADLANE_FAILS
  void* data;          // as of the function of the collective; it stays until the task has ended
  size_t count;
  // NULL, or as of other operations. The struct is copied; the memory of data, residual and blocks is not. has_tag is
  // ignored: the library makes tags of what the task is, how many there were before, and which of these have failed.
  const gradlane_how* how;
  const char* what;  // NULL, or what else ranks must agree on: the name of the tensor, say
  uint64_t user;     // for the caller, who gets it back
} gradlane_task;

#define GRADLANE_TASK_INIT \
  { sizeof(gradlane_task), 0, 0, 0, 0, NULL, 0, NULL, NULL, 0 }

// How a task ended, or that it asks.
typedef struct gradlane_outcome {
  size_t struct_size;  // sizeof(gradlane_outcome)
  uint64_t task;       // number of the task, from 1
  uint64_t user;       // of gradlane_task
  int code;            // a gradlane_code; GRADLANE_PENDING: it has not ended
  int cause;           // a gradlane_cause
  int asks;            // 1: it is its turn, and it waits for gradlane_answer()
  int late;            // 1: this rank's time limit was over first
  char text[512];      // what was wrong, or ""
  char warning[512];   // what gradlane_warning() would have said, or ""
} gradlane_outcome;

#define GRADLANE_OUTCOME_INIT                              \
  {                                                        \
    sizeof(gradlane_outcome), 0, 0, 0, 0, 0, 0, {0}, { 0 } \
  }

// Prepares the context for several threads. It may be called again.
gradlane_code gradlane_share(gradlane_context* gl);
// Adds a task and returns GRADLANE_PENDING, or how it has ended already: gradlane_next() does not say that again. After
// a task has failed with GRADLANE_FAILED or GRADLANE_DAEMON_GONE, those that wait behind it fail, too.
gradlane_code gradlane_add(gradlane_context* gl, const gradlane_task* task, gradlane_outcome* outcome);
// Waits until a task has ended or asks. GRADLANE_DAEMON_GONE: gradlane_disconnect() was called, and there are none.
gradlane_code gradlane_next(gradlane_context* gl, gradlane_outcome* outcome);
// Starts the task that asks. `code` GRADLANE_OK: by this codec (NULL: the one of its `how`); any other code: it
// fails with that, on this rank.
gradlane_code gradlane_answer(gradlane_context* gl, gradlane_code code, const char* codec);

// ---- Codecs

#define GRADLANE_CODEC_EXACT 1u       // values arrive as they were sent
#define GRADLANE_CODEC_FEEDBACK 2u    // takes residuals
#define GRADLANE_CODEC_EXACT_SUMS 4u  // adds without rounding: sums do not depend on the order of the ranks
#define GRADLANE_CODEC_ADAPTIVE 8u    // errors are at most 2^-B, so that B may be chosen from step to step
#define GRADLANE_CODEC_OWNED 16u      // does not add: goes only by strategies where blocks have owners, as direct
#define GRADLANE_CODEC_AGREES 32u     // ranks agree on a number first: all need links to all, as with direct
#define GRADLANE_CODEC_LOOKS 64u      // has scales or thresholds, each of a whole operation: one per tensor is best
#define GRADLANE_CODEC_RATE 128u      // the share of the elements that travel stands where B would
#define GRADLANE_CODEC_LATTICE 256u   // "+fixed:B" may follow: how values travel
#define GRADLANE_CODEC_UNBIASED 512u  // what it takes from one value it gives to another, so that means are kept

// A codec of the daemon. Texts are valid until gradlane_close().
typedef struct gradlane_codec_info {
  size_t struct_size;   // sizeof(gradlane_codec_info)
  const char* word;     // its name up to the colon: "fixed"
  const char* usage;    // how to write the whole name: "fixed:B"
  const char* example;  // one such name: "fixed:10"
  const char* option;   // what may stand behind B and a comma: "truncate"; "": nothing
  unsigned least;       // of B
  unsigned most;        // 0: it has no B
  unsigned flags;       // GRADLANE_CODEC_...
  unsigned states;      // arrays that a residual has, each of as many floats as data; 0: it takes none
  const char* variant;  // a word behind a comma that tells codecs of one `word` apart; "": none
  const char* promise;  // in a few words: "error <= 2^-B, exact sums"
  const char* source;   // the paper, or ""
} gradlane_codec_info;

#define GRADLANE_CODEC_INFO_INIT \
  { sizeof(gradlane_codec_info), NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL }

// How many the daemon has; 0 of an older one, which does not say.
size_t gradlane_codecs(const gradlane_context* gl);
// The one with this number, below gradlane_codecs().
gradlane_code gradlane_get_codec(gradlane_context* gl, size_t number, gradlane_codec_info* info);
// The one that this name ("fixed:10", say; NULL: the daemon's; of two, as for an aggregator: the first) is of.
// GRADLANE_BAD_ARGUMENT if there is none, or its shortest run does not fit the daemons' packets. Where the daemon has
// no table, texts are empty.
gradlane_code gradlane_find_codec(gradlane_context* gl, const char* name, gradlane_codec_info* info);
// Whether an all-reduce of float32 by this codec can go this way (NULL: the daemon's, of both). GRADLANE_BAD_ARGUMENT,
// and gradlane_error() says what is missing, if not.
gradlane_code gradlane_check_codec(gradlane_context* gl, const char* codec, const char* strategy);

// ---- Strategies

// How many operations of this daemon may name, and the name of each, the daemon's default first. NULL: there is no such
// number. Texts are valid until gradlane_close().
size_t gradlane_strategies(const gradlane_context* gl);
const char* gradlane_get_strategy(const gradlane_context* gl, size_t number);

// ---- Figures

typedef struct gradlane_figures {
  size_t struct_size;      // sizeof(gradlane_figures)
  uint64_t operations;     // ended, on this context
  uint64_t data_bytes;     // sent by this rank in data packets, behind the UDP header, retransmissions included
  uint64_t data_packets;   // the same in packets
  uint64_t retransmitted;  // of these
  // What lossy codecs have taken away without error feedback, of samples of what this rank gave to its sums: up to 2048
  // values of each. The lost share of the norm is the root of lossy_lost_squares / lossy_squares.
  uint64_t lossy_values;      // that were not zero
  uint64_t lossy_zeroed;      // of these, became zero
  double lossy_squares;       // sum of the squares of the values
  double lossy_lost_squares;  // the same of what rounding has taken from them
} gradlane_figures;

// What this rank's daemon has sent since the context was opened; as of the latest completion or, if none comes, some
// 100 ms ago.
gradlane_code gradlane_get_figures(gradlane_context* gl, gradlane_figures* figures);

// Where a codec takes a tenth of the norm of what this rank gives to a sum, or makes zero of half of its values,
// without error feedback, the library says so: on stderr, or with keep_warnings (gradlane_options) here. Once for each
// operation, number of elements and codec, of which it knows 16. Returns the next warning that nobody has had, or NULL;
// it is valid until gradlane_close().
const char* gradlane_warning(gradlane_context* gl);

// ---- Looking at results

// The sum of the squares of `count` floats at any address, as good as double precision is: the same bits on every
// machine, so that all ranks, which have the same result, decide alike by it. NaN or Inf where data has one. It
// needs no context, and any thread may call it.
double gradlane_sum_of_squares(const float* data, size_t count);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
