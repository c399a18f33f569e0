// collnet.cc - the CollNet part of the plug-in: all-reduces by the daemon of this node (NCCL's threads)
//
// listen() never fails: NCCL 2.27 to 2.30 would leave the other nodes waiting (ncclTransportCollNetSetup() returns
// before its all-gather of handles). So it says in the handle what is wrong, and connect() fails on all nodes. NCCL
// then takes its other algorithms. NCCL compares only the ranks of one node, so connect() runs two barriers of the
// daemons: a node that has finished the second knows that all have finished the first. A fault during the second may
// still let one node succeed while others fall back. The others close their contexts, so that node's first all-reduce
// fails.
//
// All-reduces of a communicator are operations of one context, in the order of NCCL's calls, which is the same on all
// nodes. NCCL passes its own pinned buffers, which the daemon cannot see. So iallreduce() copies to a buffer of
// gradlane_alloc(), and test() copies the result back. NCCL fills chunks up with old bytes: codecs that look at a whole
// tensor (GRADLANE_CODEC_LOOKS, GRADLANE_CODEC_AGREES) are refused.
//
// NCCL calls from its service thread (listen, connect, regMr, close) and from its progress thread (iallreduce, test). A
// mutex, held within a call only, keeps each communicator with one thread at a time.
#include "client/nccl/collnet.h"

#include <pthread.h>
#include <sys/random.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "client/gradlane.h"
#include "client/nccl/agreement.h"
#include "client/nccl/log.h"

namespace gradlane::nccl {
namespace {

constexpr char kDefaultCodec[] = "raw";
constexpr int64_t kAgreeMs = 30'000;  // for all barriers of a connect()
constexpr long kRetryNs = 10'000'000;
// Ranks of NCCL may wait for each other for hours, for example while one of them writes a checkpoint. Nodes that die
// are noticed by the daemons (timeouts.peer).
constexpr int64_t kOperationMs = int64_t{30} * 24 * 3600 * 1000;
constexpr size_t kLeastBuffer = size_t{64} << 10;

struct Comm;

struct Request {
  Comm* comm;
  void* buffer;  // shared with the daemon; kept for later requests
  size_t capacity;
  gradlane_request operation;
  void* result;  // NCCL's buffer
  size_t bytes;
  bool is_used;
  bool is_over;  // `result` has the sum, and test() has not said so yet
};

struct Comm {
  pthread_mutex_t mutex;
  gradlane_context* gl;
  Offer offer;
  unsigned codec_flags;
  bool is_connected;
  Result failure;
  Request requests[kMostRequests];
};

struct Lock {
  explicit Lock(Comm& comm) : mutex(comm.mutex) { pthread_mutex_lock(&mutex); }
  ~Lock() { pthread_mutex_unlock(&mutex); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  pthread_mutex_t& mutex;
};

void free_comm(Comm* comm) {
  gradlane_close(comm->gl);
  pthread_mutex_destroy(&comm->mutex);
  free(comm);
}

// ---- Before the first operation

void refuse(Offer& offer, const char* why) {
  offer.world = 0;
  // The other nodes get the end of "the daemon at PATH has refused: REASON".
  constexpr char kRefused[] = " has refused: ";
  const char* const reason = std::strstr(why, kRefused);
  (void)snprintf(offer.text, sizeof(offer.text), "%s", reason == nullptr ? why : reason + std::strlen(kRefused));
  log(kWarn, "this node cannot use a daemon: %s", why);
}

// Checks that the codec can be used for chunks of tensors, and keeps its flags.
bool check_codec(Comm& comm) {
  gradlane_codec_info info = GRADLANE_CODEC_INFO_INIT;
  if (gradlane_find_codec(comm.gl, comm.offer.text, &info) != GRADLANE_OK ||
      gradlane_check_codec(comm.gl, comm.offer.text, nullptr) != GRADLANE_OK) {
    refuse(comm.offer, gradlane_error(comm.gl));
    return false;
  }
  if ((info.flags & (GRADLANE_CODEC_LOOKS | GRADLANE_CODEC_AGREES)) != 0) {
    char why[sizeof(comm.offer.text)];
    (void)snprintf(why, sizeof(why),
                   "%.20s needs whole tensors, but NCCL sends chunks; use another GRADLANE_NCCL_CODEC",
                   comm.offer.text);
    refuse(comm.offer, why);
    return false;
  }
  comm.codec_flags = info.flags;
  return true;
}

// Connects to the daemon, and says in the offer whether that worked.
void open_daemon(Comm& comm) {
  const char* const named = getenv("GRADLANE_NCCL_CODEC");
  const char* const codec = named == nullptr || *named == '\0' ? kDefaultCodec : named;
  if (std::strlen(codec) >= sizeof(comm.offer.text)) return refuse(comm.offer, "GRADLANE_NCCL_CODEC is too long");
  (void)snprintf(comm.offer.text, sizeof(comm.offer.text), "%s", codec);
  if (std::strncmp(codec, "auto", 4) == 0) return refuse(comm.offer, "GRADLANE_NCCL_CODEC cannot be auto");
  gradlane_options options = GRADLANE_OPTIONS_INIT;
  options.rank = GRADLANE_ANY_RANK;  // RANK counts processes, not nodes
  options.timeout_ms = 0;
  options.keep_warnings = 1;
  options.operation_timeout_ms = kOperationMs;
  if (gradlane_open(&comm.gl, &options) != GRADLANE_OK) return refuse(comm.offer, gradlane_error(nullptr));
  if (!check_codec(comm)) {
    gradlane_close(comm.gl);
    comm.gl = nullptr;
    return;
  }
  comm.offer.rank = gradlane_rank(comm.gl);
  comm.offer.world = gradlane_world(comm.gl);
}

Comm* make_comm() {
  auto* const comm = static_cast<Comm*>(calloc(1, sizeof(Comm)));
  if (comm == nullptr) return nullptr;
  pthread_mutex_init(&comm->mutex, nullptr);
  for (Request& each : comm->requests) each.comm = comm;
  comm->offer.magic = kOfferMagic;
  if (getrandom(&comm->offer.nonce, sizeof(comm->offer.nonce), 0) != sizeof(comm->offer.nonce)) comm->offer.nonce = 0;
  open_daemon(*comm);
  return comm;
}

// Runs two barriers in a row, and returns whether both have succeeded. After a failure it runs both again, because
// earlier communicators of these daemons may be closing. A node that is at another barrier than this one has another
// tag, so both fail and begin again.
bool agree(Comm& comm, uint64_t tag) {
  const int64_t end = now_ms() + kAgreeMs;
  for (;;) {
    int passed = 0;
    while (passed < 2) {
      gradlane_how how = GRADLANE_HOW_INIT;
      const int64_t left = end - now_ms();
      how.timeout_ms = left > 1 ? left : 1;
      how.has_tag = 1;
      how.tag = tag + static_cast<uint64_t>(passed);
      if (gradlane_barrier(comm.gl, &how, nullptr) != GRADLANE_OK) break;
      ++passed;
    }
    if (passed == 2) return gradlane_resume(comm.gl, 0) == GRADLANE_OK;
    const gradlane_cause cause = gradlane_get_cause(comm.gl);
    const bool is_transient = cause == GRADLANE_CAUSE_RESTARTED || cause == GRADLANE_CAUSE_MISMATCH ||
                              cause == GRADLANE_CAUSE_TAG || cause == GRADLANE_CAUSE_CANCELLED ||
                              cause == GRADLANE_CAUSE_NODE_LEFT || cause == GRADLANE_CAUSE_TRAINER_GONE ||
                              cause == GRADLANE_CAUSE_RESUMED;
    log(kInfo, "the nodes do not agree yet: %s", gradlane_error(comm.gl));
    const timespec pause{0, kRetryNs};
    (void)nanosleep(&pause, nullptr);
    if (!is_transient || now_ms() >= end || gradlane_resume(comm.gl, 0) != GRADLANE_OK) return false;
  }
}

// The handles of all nodes are those of their listen(). NCCL forgets the listening object if connect() fails, so it is
// freed then.
Result connect(void* handles[], int ranks, int rank, void* listen_comm, void** out) {
  *out = nullptr;
  auto* const comm = static_cast<Comm*>(listen_comm);
  if (comm == nullptr) return kSystemError;  // a connect() with these handles has failed before
  Verdict verdict = decide(handles, ranks);
  if (verdict.refusal[0] == '\0' && comm->gl != nullptr && !agree(*comm, verdict.tag)) {
    (void)snprintf(verdict.refusal, sizeof(verdict.refusal), "the daemons cannot sum: %s", gradlane_error(comm->gl));
  }
  if (verdict.refusal[0] != '\0') {
    log(kWarn, "node %d of %d: no sums by gradlane's daemons, NCCL uses its own algorithms: %s", rank, ranks,
        verdict.refusal);
    free_comm(comm);
    return kSystemError;
  }
  log(kInfo, "node %d of %d: sums by gradlane's daemon, as rank %d, codec %s", rank, ranks, comm->offer.rank,
      comm->offer.text);
  comm->is_connected = true;
  *out = comm;
  return kSuccess;
}

// After a connect() that succeeded, the listening object has become the communicator.
Result close_listen(void* listen_comm) {
  auto* const comm = static_cast<Comm*>(listen_comm);
  if (comm != nullptr && !comm->is_connected) free_comm(comm);
  return kSuccess;
}

// ---- Operations

struct TypeInfo {
  int type;  // a gradlane_type, or -1
  size_t bytes;
  bool has_order;  // minima and maxima are those of NCCL's type
};

TypeInfo info_of(Type type) {
  switch (type) {
    case kInt8:
      return {GRADLANE_BYTES, 1, false};
    case kUint8:
      return {GRADLANE_BYTES, 1, true};
    case kInt32:
      return {GRADLANE_INT32, 4, true};
    case kUint32:
      return {GRADLANE_INT32, 4, false};
    case kInt64:
      return {GRADLANE_INT64, 8, true};
    case kUint64:
      return {GRADLANE_INT64, 8, false};
    case kFloat16:
      return {GRADLANE_FLOAT16, 2, true};
    case kFloat32:
      return {GRADLANE_FLOAT32, 4, true};
    case kFloat64:
      return {GRADLANE_FLOAT64, 8, true};
    case kBfloat16:
      return {GRADLANE_BFLOAT16, 2, true};
  }
  return {-1, 0, false};
}

bool is_supported(TypeInfo info, Reduction reduction) {
  if (info.type < 0) return false;
  return reduction == kSum || ((reduction == kMin || reduction == kMax) && info.has_order);
}

// Returns the named codec for sums that it applies to, and "raw" for all others.
const char* codec_for(const Comm& comm, Type type, Reduction reduction) {
  const bool is_half = type == kFloat16 || type == kBfloat16;
  const bool applies = type == kFloat32 || (is_half && (comm.codec_flags & GRADLANE_CODEC_HALVES) != 0) ||
                       (type == kFloat64 && (comm.codec_flags & GRADLANE_CODEC_ROUNDS_ONCE) != 0);
  return applies && reduction == kSum ? comm.offer.text : kDefaultCodec;
}

Result reduce_support(Type type, Reduction reduction, int* supported) {
  *supported = is_supported(info_of(type), reduction) ? 1 : 0;
  return kSuccess;
}

Result fail(Comm& comm, gradlane_code code, const char* what) {
  if (comm.failure != kSuccess) return comm.failure;
  comm.failure = code == GRADLANE_BAD_ARGUMENT ? kInvalidArgument
                 : code == GRADLANE_NO_MEMORY  ? kSystemError
                                               : kRemoteError;
  log(kWarn, "rank %d: %s has failed: %s", comm.offer.rank, what, gradlane_error(comm.gl));
  return comm.failure;
}

// Makes space for `bytes` in the request's buffer. Buffers grow to powers of two.
gradlane_code reserve(Comm& comm, Request& request, size_t bytes) {
  if (request.capacity >= bytes) return GRADLANE_OK;
  size_t capacity = kLeastBuffer;
  while (capacity < bytes) capacity *= 2;
  if (request.buffer != nullptr) (void)gradlane_free(comm.gl, request.buffer);
  request.buffer = nullptr;
  request.capacity = 0;
  const gradlane_code code = gradlane_alloc(comm.gl, capacity, &request.buffer);
  if (code == GRADLANE_OK) request.capacity = capacity;
  return code;
}

// Frees the buffers that no operation uses.
void free_idle_buffers(Comm& comm) {
  for (Request& each : comm.requests) {
    if ((each.is_used && !each.is_over) || each.buffer == nullptr) continue;
    (void)gradlane_free(comm.gl, each.buffer);
    each.buffer = nullptr;
    each.capacity = 0;
  }
}

Request* find_free(Comm& comm, size_t bytes) {
  Request* found = nullptr;
  for (Request& each : comm.requests) {
    if (each.is_used) continue;
    if (each.capacity >= bytes) return &each;
    if (found == nullptr) found = &each;
  }
  return found;
}

// Copies the result if the operation has ended. Returns kSuccess if it has not.
Result progress(Comm& comm, Request& request) {
  const gradlane_code code = gradlane_test(comm.gl, request.operation);
  if (code == GRADLANE_PENDING) return kSuccess;
  if (code != GRADLANE_OK) return fail(comm, code, "an all-reduce");
  if (request.bytes != 0) std::memcpy(request.result, request.buffer, request.bytes);
  request.is_over = true;
  return kSuccess;
}

// Takes the results of operations that have ended: NCCL does not call test() while iallreduce() returns NULL
// (sendProxyProgress() in src/transport/coll_net.cc). Returns in *is_unfinished whether others still run.
Result progress_all(Comm& comm, bool* is_unfinished) {
  *is_unfinished = false;
  for (Request& each : comm.requests) {
    if (!each.is_used || each.is_over) continue;
    if (const Result result = progress(comm, each); result != kSuccess) return result;
    if (!each.is_over) *is_unfinished = true;
  }
  return kSuccess;
}

// *out stays NULL if 32 requests are unfinished, or if memory is used up while any are. NCCL then calls again.
Result iallreduce(void* coll_comm, void* send, void* receive, size_t count, Type type, Reduction reduction,
                  void* /*send_memory*/, void* /*receive_memory*/, void** out) {
  Comm& comm = *static_cast<Comm*>(coll_comm);
  *out = nullptr;
  const Lock lock(comm);
  if (comm.failure != kSuccess) return comm.failure;
  const TypeInfo info = info_of(type);
  if (!is_supported(info, reduction) || count > (size_t{1} << 40)) return kInvalidArgument;
  const size_t bytes = count * info.bytes;
  Request* const request = find_free(comm, bytes);
  if (request == nullptr) return kSuccess;
  gradlane_code code = reserve(comm, *request, bytes);
  if (code == GRADLANE_NO_MEMORY) {
    bool is_unfinished = false;
    if (const Result result = progress_all(comm, &is_unfinished); result != kSuccess) return result;
    free_idle_buffers(comm);
    code = reserve(comm, *request, bytes);
    if (code == GRADLANE_NO_MEMORY && is_unfinished) return kSuccess;
  }
  if (code != GRADLANE_OK) return fail(comm, code, "allocating a buffer");
  if (bytes != 0) std::memcpy(request->buffer, send, bytes);
  gradlane_how how = GRADLANE_HOW_INIT;
  how.codec = codec_for(comm, type, reduction);
  how.reduction = reduction == kSum ? GRADLANE_SUM : reduction == kMin ? GRADLANE_MIN : GRADLANE_MAX;
  code = gradlane_all_reduce(comm.gl, request->buffer, count, static_cast<gradlane_type>(info.type), &how,
                             &request->operation);
  if (code != GRADLANE_OK) return fail(comm, code, "an all-reduce");
  request->result = receive;
  request->bytes = bytes;
  request->is_used = true;
  request->is_over = false;
  *out = request;
  return kSuccess;
}

Result test(void* given, int* is_done, int* bytes) {
  Request& request = *static_cast<Request*>(given);
  Comm& comm = *request.comm;
  *is_done = 0;
  const Lock lock(comm);
  if (comm.failure != kSuccess) return comm.failure;
  if (!request.is_over) {
    if (const Result result = progress(comm, request); result != kSuccess) return result;
    if (!request.is_over) return kSuccess;
  }
  request.is_used = false;
  *is_done = 1;
  if (bytes != nullptr) *bytes = static_cast<int>(request.bytes);
  for (const char* warning = gradlane_warning(comm.gl); warning != nullptr; warning = gradlane_warning(comm.gl)) {
    log(kWarn, "%s. For NCCL, set GRADLANE_NCCL_CODEC to bf16, pack or raw", warning);
  }
  return kSuccess;
}

Result register_memory(void* comm, void* /*data*/, size_t /*bytes*/, int type, void** memory) {
  *memory = comm;  // NCCL takes NULL for none
  return type == kHostMemory ? kSuccess : kInternalError;
}

Result deregister_memory(void* /*comm*/, void* /*memory*/) { return kSuccess; }

Result iflush(void* /*comm*/, void* /*data*/, int /*bytes*/, void* /*memory*/, void** request) {
  *request = nullptr;  // data is in host memory already
  return kSuccess;
}

// Cancels unfinished operations: they fail on all nodes.
Result close_coll(void* comm) {
  if (comm != nullptr) free_comm(static_cast<Comm*>(comm));
  return kSuccess;
}

}  // namespace

Result collnet_listen(int /*device*/, void* handle, void** listen_comm) {
  Comm* const comm = make_comm();
  *listen_comm = comm;
  if (comm != nullptr) {
    std::memcpy(handle, &comm->offer, sizeof(comm->offer));
    return kSuccess;
  }
  Offer offer{};
  offer.magic = kOfferMagic;
  refuse(offer, "no memory");
  std::memcpy(handle, &offer, sizeof(offer));
  return kSuccess;
}

const CollNetTransfers kCollNetTransfers = {connect,    reduce_support, register_memory, nullptr, deregister_memory,
                                            iallreduce, nullptr,        nullptr,         iflush,  test,
                                            close_coll, close_listen,   nullptr};

}  // namespace gradlane::nccl
