// gradlane.h - the trainer's interface: collectives over buffers that are shared with the node daemon (C and C++)
//
//   gradlane_context *gl;
//   if (gradlane_open(&gl, NULL) != GRADLANE_OK) die(gradlane_error(NULL));
//   float *gradients;
//   gradlane_alloc(gl, n * sizeof(float), (void **)&gradients);
//   ... fill gradients ...
//   if (gradlane_all_reduce(gl, gradients, n, GRADLANE_FLOAT32, NULL, NULL) != GRADLANE_OK) die(gradlane_error(gl));
//
// Most functions return a gradlane_code: GRADLANE_OK or one of the other codes below. After an error, gradlane_error()
// returns a sentence that says what was wrong. A context, its buffers and its requests belong to one thread at a time,
// unless gradlane_share() was called. The library starts no thread and installs no signal handler. A context belongs to
// the process that opened it. After fork(), the child's calls are refused and do not affect the parent;
// gradlane_close() in the child frees the child's copy. Link with -lgradlane; it needs libc only.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

// The version of the interface that this header describes. Structs grow only at their ends, by multiples of 8 bytes. So
// programs that were built with an older header keep working: the library uses its defaults for the fields that their
// shorter structs lack. A program needs a library whose gradlane_version() is at least this number. Versions have
// added:
//   2: gradlane_sum_of_squares()
//   3: time limits of operations, any number of requests, tensors of any size, and warnings
//   4: gradlane_get_codec(), gradlane_find_codec() and gradlane_local_reduce()
//   5: strategies, minima, maxima, a codec for results from an aggregator, gradlane_reduce(), gradlane_gather(),
//      gradlane_scatter() and gradlane_all_to_all()
//   6: residuals of several arrays, and more fields of gradlane_codec_info
//   7: operations on ordinary memory
//   8: gradlane_get_cause() and gradlane_refused_by()
//   9: `blocks` of gradlane_how, tasks, and gradlane_share()
//   10: hashes of results, and gradlane_add_rounded()
#define GRADLANE_API_VERSION 10

typedef struct gradlane_context gradlane_context;  // a connection to the daemon of this node, as one rank

typedef enum gradlane_code {
  GRADLANE_OK = 0,             // success
  GRADLANE_PENDING = 1,        // the request is not over yet; in gradlane_wait(): not within the given time
  GRADLANE_BAD_ARGUMENT = -1,  // an argument is wrong, and the call has done nothing -> correct the call
  GRADLANE_NO_DAEMON = -2,     // the library cannot connect, or the daemon refused -> start it, or see the text
  GRADLANE_DAEMON_GONE = -3,   // the daemon ended or cut the connection: all requests fail -> open a new context.
                               // Buffers are unusable, as the daemon may still write to them for a moment.
  GRADLANE_FAILED = -4,        // the operation failed, here and on all ranks that had not finished it -> see its cause
  GRADLANE_NO_MEMORY = -5,     // memory is used up -> free buffers, or raise memory.per_trainer
  // not returned since version 3: operations for which the daemon has no space wait in the library
  GRADLANE_TOO_MANY = -6,
  GRADLANE_VERSION = -7  // daemon and library speak different versions -> install the same version of both
} gradlane_code;

// The cause of a failed operation (GRADLANE_FAILED), -> and what to do. Later versions may have more causes.
typedef enum gradlane_cause {
  GRADLANE_CAUSE_NONE = 0,        // the operation has not failed, or the daemon is of release 0.1
  GRADLANE_CAUSE_SILENT = 1,      // a node has not answered for timeouts.peer -> see its log, and the network
  GRADLANE_CAUSE_RESTARTED = 2,   // a node has restarted, and knows nothing of the operation -> call it again
  GRADLANE_CAUSE_CONFIGURED = 3,  // a node is configured differently -> see the log for the key that differs
  GRADLANE_CAUSE_MISMATCH = 4,    // ranks have called different operations -> see the text, correct the program
  GRADLANE_CAUSE_TAG = 5,  // ranks have called operations with different tags -> see the text, correct the program
  GRADLANE_CAUSE_CANCELLED = 6,      // a rank has cancelled it, or a trainer of its node was too late -> see its output
  GRADLANE_CAUSE_NO_RING = 7,        // the nodes did not find each other within timeouts.start -> gradlane check
  GRADLANE_CAUSE_TIMEOUT = 8,        // it took longer than its time limit -> raise the limit, or see gradlane top
  GRADLANE_CAUSE_NODE_LEFT = 9,      // a rank has left: its daemon was shut down, or its trainer has gone -> restart it
  GRADLANE_CAUSE_DUPLICATE = 10,     // two machines claim to be the same rank -> give each node its own rank
  GRADLANE_CAUSE_TRAINER_GONE = 11,  // a trainer of this node has ended, or closed its context -> restart it
  GRADLANE_CAUSE_RESUMED = 12,       // a trainer of this node has called gradlane_resume() -> resume, and try again
  GRADLANE_CAUSE_OTHER = 13,         // any other reason -> see gradlane_error()
  GRADLANE_CAUSE_WRONG = 14          // a verified result is wrong -> see the text, and find the machine
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
  // path of the daemon's socket; NULL: the value of GRADLANE_SOCKET, else the only one found (docs/client.md)
  const char* socket;
  // rank to take; -1: as the environment variable RANK says, or any free one if it is not set; GRADLANE_ANY_RANK: any
  // free one (before release 0.2 as -1)
  int rank;
  int timeout_ms;  // time limit for connecting while there is no daemon yet; 0: a single attempt; -1: 10 s
  int spin_us;     // time for which waits poll before they sleep; -1: 20 us
  // Time limit of operations that name none (gradlane_how). 0: as in the daemon's configuration (timeouts.operation and
  // timeouts.start).
  int64_t operation_timeout_ms;
  int keep_warnings;  // 1 if the caller gets warnings from gradlane_warning(), 0 if they go to stderr
  // 1 to verify the results of all sums for which that is possible (gradlane_how); 0: if GRADLANE_VERIFY is 1 in the
  // environment, or `verify` is true in the daemon's configuration
  int verify;
} gradlane_options;

#define GRADLANE_ANY_RANK (-2)

// All fields at their defaults.
#define GRADLANE_OPTIONS_INIT \
  { sizeof(gradlane_options), NULL, -1, -1, -1, 0, 0, 0 }

// Connects to a daemon. `options` may be NULL. If the call fails, *gl is NULL and gradlane_error(NULL) says why.
gradlane_code gradlane_open(gradlane_context** gl, const gradlane_options* options);

// Cancels unfinished operations, unmaps all buffers and frees the context. Does nothing if `gl` is NULL.
void gradlane_close(gradlane_context* gl);

// Does the first half of gradlane_close(). It gives the rank back, so that another context can have it, and fails
// unfinished requests with GRADLANE_DAEMON_GONE. Buffers can still be read and written until gradlane_close(). In a
// child of fork(), it only closes the child's copy of the connection. While that copy is open, the daemon does not
// notice that the parent was killed.
void gradlane_disconnect(gradlane_context* gl);

int gradlane_version(void);                              // GRADLANE_API_VERSION of the library
int gradlane_rank(const gradlane_context* gl);           // 0 to world - 1
int gradlane_world(const gradlane_context* gl);          // number of trainers
const char* gradlane_codec(const gradlane_context* gl);  // the daemon's configured codec, the default of operations

// Returns how many trainers of a node form one rank of the ring if the daemon's local_reduce is on, else 0. With
// local_reduce, reduce, gather, scatter and all-to-all are refused. Reduce-scatter and all-gather without `blocks`
// (gradlane_how) take at most 64 MiB of all ranks together, or less if the daemon takes less.
int gradlane_local_reduce(const gradlane_context* gl);

// Returns the latest error of this context in words. If `gl` is NULL, returns the error of this thread's latest
// gradlane_open(). The text is valid until the next call.
const char* gradlane_error(const gradlane_context* gl);
// Returns the cause of this context's latest error if that was GRADLANE_FAILED, else GRADLANE_CAUSE_NONE.
// gradlane_error() describes the cause in words.
gradlane_cause gradlane_get_cause(const gradlane_context* gl);
// Returns the number of ranks in the ring of the daemon that refused the rank in this thread's latest gradlane_open(),
// and in *socket the path of its socket. `socket` may be NULL. The path is valid until this thread's next
// gradlane_open(), or until the thread ends. Returns 0 and "" if no daemon refused the rank, or if the daemon does not
// say how many ranks there are.
int gradlane_refused_by(const char** socket);

// ---- Buffers

// Allocates memory that the daemon can read and write, zeroed and aligned to 4096 bytes. Data and residuals of
// operations lie in such buffers: data at any offset, residuals at multiples of 4 bytes. With `part_bytes` of
// gradlane_how, data may be ordinary memory.
gradlane_code gradlane_alloc(gradlane_context* gl, size_t bytes, void** buffer);

// Frees a buffer, which no unfinished request may use. Does nothing if `buffer` is NULL.
gradlane_code gradlane_free(gradlane_context* gl, void* buffer);

// ---- Operations
//
// Operations are collective: all ranks start the same operations in the same order. They work in place, except
// all-to-all. If `request` is NULL, the call waits for the end. Otherwise it returns at once, and the data belongs to
// the daemon until gradlane_wait() or gradlane_test() says that the request is over. Each operation ends in bounded
// time on every rank, with a result or with an error that names the rank and the reason. All ranks that succeed have
// the same bytes.
//
// Any number of requests may be unfinished. The daemon works on up to 64 operations at a time. The others wait in the
// library, in the order of the calls. They advance in any call that waits, tests or starts an operation. Tensors may
// have any size. A tensor that is longer than 64 MiB, or than the daemon takes, travels in parts, one after the other.
// With the daemon's local_reduce, tensors in which each rank has a block are not divided, so their size is limited
// (gradlane_local_reduce()).
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
// The last four need links between all nodes. They use the strategy "direct", which the daemon's configuration must
// allow.
//
// All-reduce, reduce-scatter and reduce can take the minimum or maximum instead of the sum, for all types
// (gradlane_how). Where an element is NaN on one rank, the result is NaN. -0 is less than +0. Bytes are unsigned.
//
// A codec applies to sums of float32, and to an all-to-all of float32 that names one; with GRADLANE_CODEC_HALVES
// ("pack", "exact") to float16 and bfloat16, too. Only GRADLANE_CODEC_ROUNDS_ONCE ("exact") applies to float64, and to
// fewer than GRADLANE_EXACT_BELOW elements (per block in reduce-scatter and all-to-all). All other data arrives bit by
// bit. Some codecs are for sums only, and an all-to-all that names one of them also arrives bit by bit. Codecs for sums
// only send selected elements or votes, wait for a threshold, round at random, or need a scale on which ranks agree
// (docs/client.md lists them). Integers are added modulo 2^32 or 2^64, bytes modulo 256.

typedef uint64_t gradlane_request;  // 0: no request

#define GRADLANE_EXACT_BELOW 1024

typedef enum gradlane_reduction { GRADLANE_SUM = 0, GRADLANE_MIN = 1, GRADLANE_MAX = 2 } gradlane_reduction;

typedef struct gradlane_how {
  size_t struct_size;  // sizeof(gradlane_how)
  // Codec of sums, for example "raw" or "fixed:10". NULL: the daemon's, but "raw" for an all-to-all. All-gather and
  // broadcast accept codecs without loss, of which "pack" compresses them. Gather, scatter, minima and maxima accept
  // these, too, but compress nothing. All ranks name the same codec, and have a residual on all of them or on none.
  //
  // With an aggregator, all-reduce takes two codecs, as in "fixed:10/raw": the first for contributions, the second for
  // results. If only one is named, it is for contributions, and results are "raw".
  //
  // "auto:2^-10" and "auto:rel=10" let the library choose a codec for each size of tensors. The error in a contribution
  // is then at most 2^-10, or at most 2^-10 of the largest value of any rank. "auto" keeps elements exact, and the
  // library chooses the strategy only (docs/plan.md). Such an operation may wait in the library until earlier ones have
  // ended, even if the daemon has space for it. So between its start and its wait, do not wait for other ranks by other
  // means, or all ranks may wait forever.
  const char* codec;
  // Residual for error feedback; NULL: none. It is for all-reduce, reduce-scatter and reduce, and for codecs with
  // GRADLANE_CODEC_FEEDBACK. It consists of `states` arrays (gradlane_codec_info), one after the other, each with as
  // many floats as data. It comes from gradlane_alloc(), is zero at first and is kept from step to step. A residual
  // that was kept for a codec cannot be used for a codec with another `word`. After GRADLANE_FAILED it is zero, or
  // unchanged if the operation still waited: rely on neither.
  //
  // If a sum is too small for a codec, the call adds the residual to the data and makes the residual zero. With
  // gradlane_local_reduce(), an average has the residual of the mean of a node's trainers. To add this residual to the
  // data of one trainer, multiply it by the number of these trainers.
  float* residual;
  int average;  // 1 to divide sums by the number of ranks (floating types only), else 0
  // Tags must be equal on all ranks, or the operation fails. If has_tag is 1, `tag` is the tag, for example a step and
  // bucket number. If it is 0, the tag counts the operations of this context; gradlane_resume() sets that count.
  int has_tag;
  uint64_t tag;
  // Time limit, after which the operation fails on all ranks. It starts with the operation's turn in the daemon, when
  // all earlier operations have begun. 0: the context's limit. Ranks need not agree: the first limit that runs out ends
  // the operation.
  int64_t timeout_ms;
  // Number of elements (per block in reduce-scatter) of the tensor, if the caller divides a tensor and this is a piece
  // of it. It decides whether a sum is too small for a codec. 0: this is the complete tensor.
  size_t whole;
  // Strategy, the same on all ranks, for example "ring", "direct", "rings:4" or "aggregator:0". It must be one that the
  // daemon's configuration allows (gradlane_strategies()). "auto": the library chooses the strategy. NULL: the library
  // chooses it if the codec is an "auto" one, or if the configuration's strategy is "auto". Otherwise NULL means the
  // first allowed strategy. If that one cannot do the operation, or not with this codec (GRADLANE_CODEC_OWNED), NULL
  // means the ring. If the ring cannot either, NULL means the first allowed strategy that can.
  const char* strategy;
  int reduction;  // a value of gradlane_reduction; `average` is allowed with GRADLANE_SUM only
  // 1 to verify the result: sums of float32 by all-reduce or reduce-scatter with a codec fixed:B (docs/determinism.md).
  // 0: as gradlane_options or the daemon say. It must be the same on all ranks. If the result is wrong, the operation
  // fails with GRADLANE_CAUSE_WRONG on the ranks that have the wrong result. Sums that are too small for a codec are
  // not verified.
  int verify;
  // Floats from the start of one array of the residual to the start of the next; 0: as many floats as data. Set it if
  // data is a part of a tensor, and the residual belongs to the whole tensor.
  size_t state_pitch;
  // Bytes of the parts in which all-reduce, broadcast and reduce travel, the same on all ranks: a power of two from
  // 4096 to 2^26. The data may then be ordinary memory, for example from malloc(). The library copies each part to
  // shared memory and back while other parts are under way. It does so in this call and in all calls that wait, test or
  // start an operation. A good value is 1 MiB. If it is 0, parts have 64 MiB, and the data lies in a buffer of
  // gradlane_alloc().
  size_t part_bytes;
  // Blocks of reduce-scatter or all-gather, in any memory: one pointer for each rank, to `count` elements each. NULL:
  // the blocks lie in `data`. They need part_bytes, and no residual is allowed. The array and the blocks must stay
  // until the request is over. `data` then has `count` elements: the result of reduce-scatter, or this rank's block of
  // all-gather, which is also copied to blocks[rank].
  void* const* blocks;
  // The library writes gradlane_hash() of the result here when the operation succeeds. NULL: it computes none. The hash
  // is the same on all ranks after all-reduce, all-gather and broadcast; `blocks` count one after the other. It covers
  // block `rank` after reduce-scatter and scatter, and `out` after all-to-all. If reduce or gather gives this rank no
  // result, it is the hash of no bytes. The pointer must be valid until the request is over.
  uint64_t* hash;
  // This rank's contribution to an all-reduce of float32, encoded before it: `encoded_bytes` bytes in a buffer of
  // gradlane_alloc(), written by gradlane_encode() or as docs/codec-format.md says, with the same codec and count. They
  // stay as they are, so that the all-reduce can be repeated. `data`, in a buffer of gradlane_alloc() as well, gets the
  // result, and its content does not count. NULL: the contribution is in `data`. Ranks need not agree. There is no
  // residual, no codec or strategy "auto", no verification, no warning of what rounding has lost, and no local_reduce.
  // If it is malformed, the operation fails on all ranks (GRADLANE_CAUSE_OTHER).
  const void* encoded;
  size_t encoded_bytes;
  // Buffer for the result of an all-reduce of float32 as encoded runs, which the program decodes
  // (docs/codec-format.md). NULL: the result goes to `data`. It has `runs_bytes` bytes, at least
  // gradlane_runs_space(count), lies at a multiple of 8 in a buffer of gradlane_alloc(), and overlaps neither `data`
  // nor `encoded`. It begins with GRADLANE_MAX_LANES gradlane_lane_runs. Each float is in exactly one run, as a sum
  // even if `average` is 1: divide it by the number of ranks. `data`, also of gradlane_alloc(), is undefined
  // afterwards, and `runs` is, too, if the operation fails. Ranks need not agree. The codec is fixed:B, raw (blocks are
  // the floats themselves) or pack. `whole`, or count if it is 0, is at least GRADLANE_EXACT_BELOW, and the data is one
  // part: 64 MiB, or less with part_bytes or a smaller exchange.max_tensor. There is no residual, no verification, no
  // hash, no local_reduce, no aggregator, and no codec or strategy "auto".
  void* runs;
  size_t runs_bytes;
} gradlane_how;

#define GRADLANE_MAX_LANES 16  // most lanes of a daemon

// A run of a result: one encoded block, of the floats from `first` on.
typedef struct gradlane_run {
  uint64_t first;
  uint64_t at;      // bytes from the start of `runs` to the block, which is not aligned
  uint32_t floats;  // floats of the block
  uint32_t bytes;   // bytes of the block
} gradlane_run;

// The runs of one lane of the daemon.
typedef struct gradlane_lane_runs {
  uint64_t at;     // bytes from the start of `runs` to the blocks, which lie without gaps, in any order
  uint64_t bytes;  // bytes of all these blocks
  uint64_t table;  // bytes from the start of `runs` to the table, a multiple of 8: a gradlane_run for each run
  uint64_t count;  // number of runs; 0: the lane has none
} gradlane_lane_runs;

#define GRADLANE_HOW_INIT \
  { sizeof(gradlane_how), NULL, NULL, 0, 0, 0, 0, 0, NULL, GRADLANE_SUM, 0, 0, 0, NULL, NULL, NULL, 0, NULL, 0 }

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
// `data` and `out` must not overlap.
gradlane_code gradlane_all_to_all(gradlane_context* gl, void* data, void* out, size_t count, gradlane_type type,
                                  const gradlane_how* how, gradlane_request* request);
gradlane_code gradlane_barrier(gradlane_context* gl, const gradlane_how* how, gradlane_request* request);

// Encodes `count` floats (at least one), a contribution to later all-reduces (`encoded` of gradlane_how), by raw, pack,
// exact or fixed:B. `data`, which stays as it is, and `encoded` are in buffers of gradlane_alloc(). `encoded` has
// `bytes` bytes, at least gradlane_encoded_space(count). Other ranks need not call it. Only the codec and the time
// limit of `how` count. It has its place in the order of this rank's operations, and fails with them if the ring loses
// a rank; then call it again.
gradlane_code gradlane_encode(gradlane_context* gl, float* data, size_t count, void* encoded, size_t bytes,
                              const gradlane_how* how, gradlane_request* request);
// Returns the bytes of memory that any encoded tensor of `count` floats fits into, whatever its codec.
size_t gradlane_encoded_space(size_t count);
// Returns the bytes that an encoded tensor of `count` floats has.
size_t gradlane_encoded_bytes(const void* encoded, size_t count);
// Returns the bytes of memory that a result of `count` floats needs as runs (`runs` of gradlane_how).
size_t gradlane_runs_space(size_t count);
// Checks whether an all-reduce of `count` floats by this codec and strategy (NULL: the daemon's) can take an encoded
// contribution and give its result as runs. Returns GRADLANE_BAD_ARGUMENT if not, and gradlane_error() says why.
gradlane_code gradlane_check_runs(gradlane_context* gl, const char* codec, const char* strategy, size_t count);

// Waits until the request is over, for at most timeout_ms (-1: forever). Returns how it ended, or GRADLANE_PENDING; it
// can then be waited for again. gradlane_test() does the same without waiting. The library forgets a request whose end
// it has returned, and may use its number again later.
gradlane_code gradlane_wait(gradlane_context* gl, gradlane_request request, int timeout_ms);
gradlane_code gradlane_test(gradlane_context* gl, gradlane_request request);

// Makes the request fail on all ranks if it is not over, either at once or when its turn comes. It must still be waited
// for.
gradlane_code gradlane_cancel(gradlane_context* gl, gradlane_request request);

// Returns a file descriptor for poll(), select() or an event loop, which then calls gradlane_test() for each request.
// It is readable while a request has ended, or may have ended, and no call has returned that yet. It is also readable
// while a request that waits in the library can advance, and when the daemon has gone. It belongs to the context.
// Returns -1 if it fails, and gradlane_error() says why.
int gradlane_fd(gradlane_context* gl);

// Sets the count that default tags come from. After an error, call it on all ranks with the same number. Unfinished
// requests of this rank fail, on other ranks too. So the next operation may fail because another rank resumed later:
// then resume and try again (docs/client.md). The call also tells the daemon that the caller knows of all failures up
// to now. Without it, an operation fails at once if an earlier failure has ended all operations, and gradlane_wait() or
// gradlane_test() has not reported such a failure yet.
gradlane_code gradlane_resume(gradlane_context* gl, uint64_t next_tag);

// ---- Tasks: operations of several threads
//
// After gradlane_share(), several threads may add tasks to one context. A task is an operation. Tasks run one after the
// other, in the order of the calls. One thread of the caller calls gradlane_next() in a loop. This call advances the
// tasks and returns each time one of them has ended; the next task begins with the next call. If this thread adds a
// task between two calls, the task runs to its end inside gradlane_add(). So it has the same place in the order on all
// ranks. If nothing else is under way and the links are fast enough, gradlane_add() also completes small tasks of other
// threads.
//
// All ranks must add their tasks in the same order, counted over all threads. If threads cannot guarantee that, give
// each task a `what` that no other task has (the same on all ranks). Tasks that ranks add in different orders then
// fail, instead of adding data that does not belong together. After a failure, just add tasks again: gradlane_resume()
// is not needed.
//
// On a shared context, any thread may call gradlane_add(), gradlane_alloc(), gradlane_free(), gradlane_find_codec(),
// gradlane_check_codec(), gradlane_get_codec() and gradlane_get_figures(). Any thread may also call gradlane_error(),
// which returns that thread's latest error, and gradlane_disconnect(), after which all tasks fail. Only one thread may
// call gradlane_next() and gradlane_answer(). Functions that start operations or wait for requests are refused.
//
// After fork(), the child's calls are refused, as with any context. A signal handler must not call any of these
// functions. At the end of the process call gradlane_disconnect(): gradlane_next() then returns, its thread can be
// joined, and gradlane_close() is safe.

typedef enum gradlane_collective {
  GRADLANE_ALL_REDUCE = 1,
  GRADLANE_REDUCE_SCATTER = 2,
  GRADLANE_ALL_GATHER = 3,
  GRADLANE_BROADCAST = 4,
  GRADLANE_BARRIER = 5
} gradlane_collective;

#define GRADLANE_ASKS 1u   // gradlane_next() says when it is this task's turn; gradlane_answer() lets it begin
#define GRADLANE_FAILS 2u  // for the thread of gradlane_next() only: the task fails at its place in the order
// The result joins `results_hash` of gradlane_figures. The flag has no effect on reduce-scatter and barrier.
#define GRADLANE_HASHES 4u

typedef struct gradlane_task {
  size_t struct_size;  // sizeof(gradlane_task)
  int collective;      // a gradlane_collective
  int type;            // a gradlane_type
  int root;            // root rank of a broadcast
  unsigned flags;      // GRADLANE_ASKS, GRADLANE_FAILS, GRADLANE_HASHES
  void* data;          // as for the function of the collective; it must stay until the task has ended
  size_t count;
  // Options, as for other operations, or NULL. The struct is copied; what data, residual, blocks and hash point to is
  // not. Its has_tag is ignored. The library makes the tag from the task, the number of tasks before it, and which of
  // these failed.
  const gradlane_how* how;
  const char* what;  // text that ranks must agree on as well, such as the tensor's name, or NULL
  uint64_t user;     // value for the caller, which gradlane_outcome returns
} gradlane_task;

#define GRADLANE_TASK_INIT \
  { sizeof(gradlane_task), 0, 0, 0, 0, NULL, 0, NULL, NULL, 0 }

// The end of a task, or its question to the caller (`asks`).
typedef struct gradlane_outcome {
  size_t struct_size;  // sizeof(gradlane_outcome)
  uint64_t task;       // number of the task, from 1
  uint64_t user;       // as in gradlane_task
  int code;            // a gradlane_code; GRADLANE_PENDING: it has not ended
  int cause;           // a gradlane_cause
  int asks;            // 1 if the task has its turn and waits for gradlane_answer(), else 0
  int late;            // 1 if this rank's own time limit ran out first, else 0
  char text[512];      // error in words, or ""
  char warning[512];   // warning that gradlane_warning() would have returned, or ""
} gradlane_outcome;

#define GRADLANE_OUTCOME_INIT                              \
  {                                                        \
    sizeof(gradlane_outcome), 0, 0, 0, 0, 0, 0, {0}, { 0 } \
  }

// Prepares the context for several threads. It may be called again.
gradlane_code gradlane_share(gradlane_context* gl);
// Adds a task. Returns GRADLANE_PENDING, or the result of the task if it has already ended. gradlane_next() does not
// report such a task again. After a task has failed with GRADLANE_FAILED or GRADLANE_DAEMON_GONE, the tasks that wait
// after it fail, too.
gradlane_code gradlane_add(gradlane_context* gl, const gradlane_task* task, gradlane_outcome* outcome);
// Waits until a task has ended or asks. Returns GRADLANE_DAEMON_GONE if gradlane_disconnect() was called and no task is
// left.
gradlane_code gradlane_next(gradlane_context* gl, gradlane_outcome* outcome);
// Answers the task that asks. With `code` GRADLANE_OK it starts, with this codec (NULL: the one of its `how`). With any
// other code it fails on this rank, with that code.
gradlane_code gradlane_answer(gradlane_context* gl, gradlane_code code, const char* codec);

// ---- Codecs

#define GRADLANE_CODEC_EXACT 1u       // values arrive as they were sent
#define GRADLANE_CODEC_FEEDBACK 2u    // takes residuals
#define GRADLANE_CODEC_EXACT_SUMS 4u  // adds without rounding: sums do not depend on the order of the ranks
#define GRADLANE_CODEC_ADAPTIVE 8u    // errors are at most 2^-B, so B may change from step to step
// encoded values cannot be added: needs a strategy where blocks have owners, such as direct
#define GRADLANE_CODEC_OWNED 16u
// ranks first agree on a number: needs links between all ranks, which strategy direct has
#define GRADLANE_CODEC_AGREES 32u
#define GRADLANE_CODEC_LOOKS 64u      // has scales or thresholds of a whole operation: use one operation per tensor
#define GRADLANE_CODEC_RATE 128u      // its parameter is the share of elements that travel, instead of B
#define GRADLANE_CODEC_LATTICE 256u   // "+fixed:B" may follow, as the encoding of the values that travel
#define GRADLANE_CODEC_UNBIASED 512u  // on average, values arrive as they were sent: errors cancel out
#define GRADLANE_CODEC_HALVES 1024u   // also for sums of float16 and bfloat16
// rounds sums of all floating types once, whatever their size: for float64 and for fewer than 1024 elements, too
#define GRADLANE_CODEC_ROUNDS_ONCE 2048u

// A codec of the daemon. Texts are valid until gradlane_close().
typedef struct gradlane_codec_info {
  size_t struct_size;   // sizeof(gradlane_codec_info)
  const char* word;     // name up to the colon: "fixed"
  const char* usage;    // form of the whole name: "fixed:B"
  const char* example;  // example of a name: "fixed:10"
  const char* option;   // word that may follow B and a comma: "truncate"; "": none
  unsigned least;       // least B
  unsigned most;        // greatest B; 0: the codec has no B
  unsigned flags;       // GRADLANE_CODEC_...
  unsigned states;      // number of arrays of a residual, each with as many floats as data; 0: it takes none
  const char* variant;  // word after a comma that tells codecs of one `word` apart; "": none
  const char* promise;  // promise in a few words: "error <= 2^-B, exact sums"
  const char* source;   // paper, or ""
} gradlane_codec_info;

#define GRADLANE_CODEC_INFO_INIT \
  { sizeof(gradlane_codec_info), NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL }

// Returns the number of codecs of the daemon; 0 if it is an older one that does not list them.
size_t gradlane_codecs(const gradlane_context* gl);
// Gets the codec with this number, which must be below gradlane_codecs().
gradlane_code gradlane_get_codec(gradlane_context* gl, size_t number, gradlane_codec_info* info);
// Gets the codec of a name, for example "fixed:10". NULL: the daemon's. If the name has two codecs, as for an
// aggregator, it is the first. Returns GRADLANE_BAD_ARGUMENT if there is no such codec, or if its shortest run does not
// fit the daemons' packets. Texts are empty if the daemon has no table of codecs.
gradlane_code gradlane_find_codec(gradlane_context* gl, const char* name, gradlane_codec_info* info);
// Checks whether an all-reduce of float32 can use this codec with this strategy (NULL: the daemon's codec or strategy).
// Returns GRADLANE_BAD_ARGUMENT if not, and gradlane_error() says what is missing.
gradlane_code gradlane_check_codec(gradlane_context* gl, const char* codec, const char* strategy);

// ---- Strategies

// Returns the number of strategies that operations of this daemon may name. Their names, the daemon's default first,
// are returned by gradlane_get_strategy(), which returns NULL if there is no such number. Texts are valid until
// gradlane_close().
size_t gradlane_strategies(const gradlane_context* gl);
const char* gradlane_get_strategy(const gradlane_context* gl, size_t number);

// ---- Figures

typedef struct gradlane_figures {
  size_t struct_size;      // sizeof(gradlane_figures)
  uint64_t operations;     // operations that have ended on this context
  uint64_t data_bytes;     // bytes that this rank sent in data packets, after the UDP header, with retransmissions
  uint64_t data_packets;   // number of these packets
  uint64_t retransmitted;  // number of retransmissions among them
  // Loss by lossy codecs without error feedback. It is measured in samples of this rank's contributions to sums, up to
  // 2048 values of each. The lost share of the norm is sqrt(lossy_lost_squares / lossy_squares).
  uint64_t lossy_values;      // values that were not zero
  uint64_t lossy_zeroed;      // number of these that became zero
  double lossy_squares;       // sum of the squares of the values
  double lossy_lost_squares;  // sum of the squares of what rounding has taken from them
  // Running hash of the results of tasks with GRADLANE_HASHES: all-reduces, all-gathers and broadcasts that succeeded.
  // It is the same on all ranks that have the same number of them. It is 0 at first. A result with hash h changes it to
  // gradlane_hash() of 16 bytes: the old results_hash and h.
  uint64_t hashed_results;  // number of these results
  uint64_t results_hash;
  // Blocks of results that were verified, and those that could not be, because a rank had a value that is not finite,
  // or above 2^(23-B) / ranks.
  uint64_t verified_blocks;
  uint64_t unverified_blocks;
} gradlane_figures;

// Gets figures since the context was opened. Figures of packets are those at the latest completion. If no operation
// completes, they are about 100 ms old.
gradlane_code gradlane_get_figures(gradlane_context* gl, gradlane_figures* figures);

// Returns the next warning that was not returned or printed yet, or NULL. The text is valid until gradlane_close(). The
// library warns if a codec without error feedback takes a tenth of the norm of this rank's contribution to a sum, or
// makes half of its nonzero values zero. It warns once for each combination of collective, number of elements and
// codec, and for 16 combinations at most. It also warns if ranks cannot use "auto" because their daemons offer
// different choices. Warnings go to stderr, or with keep_warnings (gradlane_options) to this function.
const char* gradlane_warning(gradlane_context* gl);

// ---- Looking at results

// Returns the sum of the squares of `count` floats at any address, with double precision. It has the same bits on every
// machine. So all ranks, which have the same result of an all-reduce, make the same decisions by it. The sum is NaN or
// Inf if data has one. It needs no context, and any thread may call it.
double gradlane_sum_of_squares(const float* data, size_t count);

// Rounds data[i] * scale to the nearest integer, to an even one if two are as near, and adds it to sums[i]. Both have
// `count` elements, at any address. Returns the largest magnitude of data, or NaN if data has a NaN. The sums have the
// same bits on every machine if all sums and all data[i] * scale are below 2^31 in magnitude; otherwise they are
// undefined. It needs no context, and any thread may call it.
float gradlane_add_rounded(const float* data, int32_t* sums, size_t count, float scale);

// Returns XXH64 of these bytes, with seed 0, as `xxhsum -H64` prints it. It needs no context, and any thread may call
// it. `data` may be NULL if there are no bytes.
uint64_t gradlane_hash(const void* data, size_t bytes);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
