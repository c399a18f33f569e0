// net.cc - the net part of the plug-in: point-to-point messages over TCP (NCCL's threads)
//
// A connection carries messages in one direction: 8 bytes with the length, then the data. Both sides handle requests in
// the order of the calls, so tags need not travel. Each test() of an unfinished request reads or writes as much as the
// socket takes, for all requests of the connection. A connection belongs to one thread of NCCL at a time.
#include "client/nccl/net.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "client/nccl/interface.h"
#include "client/nccl/log.h"

namespace gradlane::nccl {
namespace {

constexpr uint64_t kMagic = 0x3174656E'6C6E6C67;  // "glnlnet1"
constexpr int kBacklog = 128;
constexpr size_t kMostBytes = size_t{1} << 30;  // a test() reports sizes as int
constexpr size_t kMostArriving = 8;
constexpr int64_t kHelloMs = 5'000;  // least time for a Hello, if others wait for the place
constexpr size_t kMostCollectiveBytes = size_t{64} << 20;

struct Connection;

struct Request {
  Connection* connection;
  Request* next;  // in the order of the calls
  uint8_t* data;
  size_t bytes;     // of the data; of a receive that has no length yet, the space
  uint64_t length;  // the 8 bytes before the data
  size_t done;      // bytes of length and data that have travelled
  bool is_used;
  bool is_complete;
};

// The side that connects sends this first, so that connections of other programs are refused.
struct Hello {
  uint64_t magic;
  uint64_t nonce;
};

struct Connection {
  int fd;
  bool sends;
  Result failure;
  Address other;        // address and port of the other side
  int64_t accepted_ms;  // time of accept()
  Hello hello;
  size_t hello_bytes;  // number of its bytes that have travelled
  Request* first;      // oldest unfinished request
  Request* last;
  Request requests[kMostRequests];
};

struct Listener {
  int fd;
  uint64_t nonce;
  Connection* arriving[kMostArriving];  // have not sent their Hellos yet; NULL: a free place
};

struct Handle {
  Hello hello;
  Address address;
  Connection* pending;  // on the side that connects: the connection that is being made
};
static_assert(sizeof(Handle) <= kHandleBytes);

constexpr size_t kLengthBytes = sizeof(Request::length);

Connection* make_connection(int fd, bool sends, const Address& other) {
  auto* const it = static_cast<Connection*>(calloc(1, sizeof(Connection)));
  if (it == nullptr) {
    if (fd >= 0) (void)close(fd);
    return nullptr;
  }
  it->fd = fd;
  it->sends = sends;
  it->other = other;
  const int on = 1;
  if (fd >= 0) (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return it;
}

void free_connection(Connection* it) {
  if (it == nullptr) return;
  if (it->fd >= 0) (void)close(it->fd);
  free(it);
}

struct Name {
  char text[NI_MAXHOST + NI_MAXSERV + 8];
};

// Returns "ADDRESS, port PORT" of the other side.
Name name_of(const Connection& it) {
  char host[NI_MAXHOST] = "an unknown address";
  char port[NI_MAXSERV] = "?";
  (void)getnameinfo(&it.other.any, bytes_of(it.other), host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV);
  Name name;
  (void)snprintf(name.text, sizeof(name.text), "%s, port %s", host, port);
  return name;
}

// Keeps the first failure of a connection and logs it. `what` ends with a preposition for the other side's address.
Result fail(Connection& it, const char* what, int error) {
  if (it.failure != kSuccess) return it.failure;
  it.failure = kRemoteError;
  log(kWarn, "%s %s: %s; see the log of that node's process", what, name_of(it).text,
      error != 0 ? std::strerror(error) : "it has closed the connection");
  return it.failure;
}

bool must_wait(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

// Sends or receives the rest of the Hello. Returns whether it has travelled.
Result exchange_hello(Connection& it, bool* is_done) {
  auto* const at = reinterpret_cast<uint8_t*>(&it.hello) + it.hello_bytes;
  const size_t left = sizeof(it.hello) - it.hello_bytes;
  const ssize_t moved =
      it.sends ? send(it.fd, at, left, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(it.fd, at, left, MSG_DONTWAIT);
  if (moved < 0 && !must_wait(errno)) return fail(it, "no handshake with", errno);
  if (moved == 0) return fail(it, "no handshake with", 0);
  if (moved > 0) it.hello_bytes += static_cast<size_t>(moved);
  *is_done = it.hello_bytes == sizeof(it.hello);
  return kSuccess;
}

// Moves bytes of the oldest request until it is complete or the socket is full or empty. Returns in *goes_on whether it
// is complete.
Result advance(Connection& it, Request& request, bool* goes_on) {
  *goes_on = false;
  for (;;) {
    const bool has_length = it.sends || request.done >= kLengthBytes;
    const size_t total = kLengthBytes + (has_length ? request.bytes : 0);
    if (has_length && request.done == total) break;
    iovec parts[2];
    int count = 0;
    if (request.done < kLengthBytes) {
      parts[count++] = {reinterpret_cast<uint8_t*>(&request.length) + request.done, kLengthBytes - request.done};
    }
    const size_t data_done = request.done < kLengthBytes ? 0 : request.done - kLengthBytes;
    if (has_length && data_done < request.bytes) {
      parts[count++] = {request.data + data_done, request.bytes - data_done};
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = static_cast<size_t>(count);
    const ssize_t moved =
        it.sends ? sendmsg(it.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) : recvmsg(it.fd, &message, MSG_DONTWAIT);
    if (moved < 0)
      return must_wait(errno) ? kSuccess : fail(it, it.sends ? "cannot send to" : "cannot receive from", errno);
    if (moved == 0) return fail(it, it.sends ? "cannot send to" : "cannot receive from", 0);
    request.done += static_cast<size_t>(moved);
    if (it.sends || has_length || request.done < kLengthBytes) continue;
    if (request.length > request.bytes) {
      log(kWarn, "%s sent a message of %llu bytes for a buffer of %zu: the nodes disagree about an operation",
          name_of(it).text, static_cast<unsigned long long>(request.length), request.bytes);
      return it.failure = kInvalidUsage;
    }
    request.bytes = request.length;
  }
  request.is_complete = true;
  *goes_on = true;
  return kSuccess;
}

Result progress(Connection& it) {
  while (it.failure == kSuccess && it.first != nullptr) {
    bool goes_on = false;
    const Result result = advance(it, *it.first, &goes_on);
    if (result != kSuccess) return result;
    if (!goes_on) break;
    it.first = it.first->next;
  }
  return it.failure;
}

// Starts a request. *request stays NULL if the connection has none left.
Result start(Connection& it, void* data, size_t bytes, void** out) {
  *out = nullptr;
  if (it.failure != kSuccess) return it.failure;
  Request* request = nullptr;
  for (Request& each : it.requests) {
    if (!each.is_used) request = &each;
  }
  if (request == nullptr) return kSuccess;
  *request = Request{&it, nullptr, static_cast<uint8_t*>(data), bytes, bytes, 0, true, false};
  (it.first == nullptr ? it.first : it.last->next) = request;
  it.last = request;
  *out = request;
  // A failure is reported by test(), so that this request is not lost.
  (void)progress(it);
  return kSuccess;
}

int make_socket(int family) { return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

// Returns the connection that has sent the right Hello, or NULL. Closes those that sent another one.
Connection* find_arrived(Listener& listener) {
  for (Connection*& place : listener.arriving) {
    Connection* const it = place;
    bool is_done = false;
    if (it == nullptr || (exchange_hello(*it, &is_done) == kSuccess && !is_done)) continue;
    place = nullptr;
    if (is_done && it->hello.magic == kMagic && it->hello.nonce == listener.nonce) return it;
    log(kInfo, "closed a connection from %s, which did not send the nonce of this communicator", name_of(*it).text);
    free_connection(it);
  }
  return nullptr;
}

// Returns a place for a connection: a free one, or that of the oldest, if it has been silent for kHelloMs; NULL: none.
Connection** find_place(Listener& listener) {
  Connection** oldest = &listener.arriving[0];
  for (Connection*& place : listener.arriving) {
    if (place == nullptr) return &place;
    if (place->accepted_ms < (*oldest)->accepted_ms) oldest = &place;
  }
  if (now_ms() - (*oldest)->accepted_ms < kHelloMs) return nullptr;
  log(kInfo, "closed a connection from %s, which sent nothing, as %zu of them wait", name_of(**oldest).text,
      kMostArriving);
  free_connection(*oldest);
  *oldest = nullptr;
  return oldest;
}

// A connection that sends nothing, of a port scanner for example, must not hold up the right one. So several are kept.
Result accept(void* listen_comm, void** receive_comm, void** /*device_comm*/) {
  auto& listener = *static_cast<Listener*>(listen_comm);
  *receive_comm = find_arrived(listener);
  if (*receive_comm != nullptr) return kSuccess;
  Connection** const place = find_place(listener);
  if (place == nullptr) return kSuccess;
  Address other{};
  socklen_t bytes = sizeof(other);
  const int fd = accept4(listener.fd, &other.any, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    if (must_wait(errno) || errno == ECONNABORTED) return kSuccess;
    log(kWarn, "cannot accept a connection: %s", std::strerror(errno));
    return kSystemError;
  }
  *place = make_connection(fd, false, other);
  if (*place == nullptr) return kSystemError;
  (*place)->accepted_ms = now_ms();
  *receive_comm = find_arrived(listener);
  return kSuccess;
}

Result register_memory(void* comm, void* /*data*/, size_t /*bytes*/, int type, void** memory) {
  *memory = comm;  // NCCL takes NULL for none
  return type == kHostMemory ? kSuccess : kInternalError;
}

Result deregister_memory(void* /*comm*/, void* /*memory*/) { return kSuccess; }

Result isend(void* comm, void* data, size_t bytes, int /*tag*/, void* /*memory*/, void* /*profile*/, void** request) {
  return start(*static_cast<Connection*>(comm), data, bytes, request);
}

Result irecv(void* comm, int count, void** data, size_t* bytes, int* /*tags*/, void** /*memory*/, void** /*profiles*/,
             void** request) {
  *request = nullptr;
  if (count != 1) return kInternalError;  // the properties say so
  return start(*static_cast<Connection*>(comm), data[0], bytes[0], request);
}

Result iflush(void* /*comm*/, int /*count*/, void** /*data*/, int* /*bytes*/, void** /*memory*/, void** request) {
  *request = nullptr;  // data is in host memory already
  return kSuccess;
}

Result test(void* request, int* is_done, int* bytes) {
  auto& it = *static_cast<Request*>(request);
  *is_done = 0;
  if (!it.is_complete) {
    const Result result = progress(*it.connection);
    if (!it.is_complete) return result;
  }
  *is_done = 1;
  if (bytes != nullptr) *bytes = static_cast<int>(it.bytes);
  it.is_used = false;
  return kSuccess;
}

Result close_connection(void* comm) {
  free_connection(static_cast<Connection*>(comm));
  return kSuccess;
}

Result close_listener(void* comm) {
  auto* const listener = static_cast<Listener*>(comm);
  if (listener == nullptr) return kSuccess;
  for (Connection* const it : listener->arriving) free_connection(it);
  (void)close(listener->fd);
  free(listener);
  return kSuccess;
}

Result fail_to_listen(int fd, Listener* listener) {
  log(kWarn, "cannot listen for connections: %s", std::strerror(errno));
  if (fd >= 0) (void)close(fd);
  free(listener);
  return kSystemError;
}

// Starts to connect. The socket is writable once it is connected.
Result begin_connection(Handle& handle, Connection** out) {
  const int fd = make_socket(handle.address.any.sa_family);
  Connection* const it = fd < 0 ? nullptr : make_connection(fd, true, handle.address);
  if (it == nullptr) {
    log(kWarn, "cannot make a socket to connect to another node: %s", std::strerror(errno));
    return kSystemError;
  }
  it->hello = handle.hello;
  *out = it;
  if (connect(fd, &handle.address.any, bytes_of(handle.address)) == 0 || errno == EINPROGRESS) return kSuccess;
  return fail(*it, "cannot connect to", errno);
}

Result continue_connection(Connection& it, bool* is_done) {
  pollfd waits{it.fd, POLLOUT, 0};
  if (poll(&waits, 1, 0) <= 0) return kSuccess;
  int error = 0;
  socklen_t bytes = sizeof(error);
  if (getsockopt(it.fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  if (error != 0) return fail(it, "cannot connect to", error);
  return exchange_hello(it, is_done);
}

}  // namespace

Result net_init() {
  if (find_interface() != nullptr) return kSuccess;
  log(kWarn,
      "no network interface is up that NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY allow, so NCCL uses another net");
  return kSystemError;
}

Result net_devices(int* count) {
  *count = find_interface() != nullptr ? 1 : 0;
  return kSuccess;
}

template <int kDevices>
Result get_common_properties(int device, CommonProperties<kDevices>* properties) {
  const Interface* const interface = find_interface();
  if (device != 0 || interface == nullptr) return kInvalidArgument;
  *properties = CommonProperties<kDevices>{};
  properties->name = const_cast<char*>(interface->name);
  properties->pci_path = interface->pci_path[0] == '\0' ? nullptr : const_cast<char*>(interface->pci_path);
  properties->guid = 0;
  properties->pointers = kHostMemory;
  properties->speed = interface->speed;
  properties->most_comms = 65536;
  properties->most_receives = 1;
  properties->virtual_device.count = 1;
  properties->most_point_to_point_bytes = kMostBytes;
  properties->most_collective_bytes = kMostCollectiveBytes;
  return kSuccess;
}
template Result get_common_properties(int, CommonProperties<4>*);
template Result get_common_properties(int, CommonProperties<8>*);

Result net_listen(int device, void* handle, void** listen_comm) {
  const Interface* const interface = find_interface();
  if (device != 0 || interface == nullptr) return kInvalidArgument;
  Handle given{};
  given.address = interface->address;
  // Port 0: the kernel chooses one.
  (given.address.any.sa_family == AF_INET6 ? given.address.v6.sin6_port : given.address.v4.sin_port) = 0;
  auto* const listener = static_cast<Listener*>(calloc(1, sizeof(Listener)));
  if (listener == nullptr) return kSystemError;
  const int fd = make_socket(given.address.any.sa_family);
  socklen_t bytes = sizeof(given.address);
  if (fd < 0 || bind(fd, &given.address.any, bytes_of(given.address)) != 0 || ::listen(fd, kBacklog) != 0 ||
      getsockname(fd, &given.address.any, &bytes) != 0 ||
      getrandom(&listener->nonce, sizeof(listener->nonce), 0) != sizeof(listener->nonce)) {
    return fail_to_listen(fd, listener);
  }
  listener->fd = fd;
  given.hello = {kMagic, listener->nonce};
  std::memset(handle, 0, kHandleBytes);
  std::memcpy(handle, &given, sizeof(given));
  *listen_comm = listener;
  return kSuccess;
}

// NCCL calls it with the same handle until *send_comm is set, so the handle keeps the pending connection.
Result net_connect(int /*device*/, void* handle, void** send_comm) {
  *send_comm = nullptr;
  Handle given;
  std::memcpy(&given, handle, sizeof(given));
  if (given.hello.magic != kMagic) {
    log(kWarn, "cannot connect to another node: it has another version of this plug-in, or none");
    return kInvalidUsage;
  }
  bool is_done = false;
  Result result = given.pending == nullptr ? begin_connection(given, &given.pending) : kSuccess;
  if (result == kSuccess) result = continue_connection(*given.pending, &is_done);
  if (result != kSuccess) {
    free_connection(given.pending);
    given.pending = nullptr;
  } else if (is_done) {
    *send_comm = given.pending;
    given.pending = nullptr;
  }
  std::memcpy(handle, &given, sizeof(given));
  return result;
}

const NetTransfers kNetTransfers = {
    accept, register_memory,  nullptr,          deregister_memory, isend,   irecv,   iflush,
    test,   close_connection, close_connection, close_listener,    nullptr, nullptr, nullptr};

}  // namespace gradlane::nccl
