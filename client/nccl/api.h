// api.h - the plug-in interfaces of NCCL 2.27 to 2.30: net and CollNet v10 to v12, tuner v4 to v6 (no thread)
//
// NCCL has no header for plug-ins that it installs, so these declarations repeat its layouts. They were written after
// src/include/plugin/net/net_v10.h, net_v11.h, net_v12.h, src/include/plugin/tuner/tuner_v4.h, tuner_v5.h, tuner_v6.h,
// src/include/plugin/nccl_net.h, src/include/nccl_common.h and src/nccl.h.in of the tags v2.27.5-1 (net v10, tuner v4),
// v2.28.9-1 and v2.29.7-1 (v11, v5) and v2.30.7-1 (v12, v6). Tags that share a version have the same layout. The
// numbers in the assertions are what a program prints that includes those headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradlane::nccl {

enum Result : int {
  kSuccess = 0,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6
};

// ncclDataType_t, ncclRedOp_t, ncclFunc_t, and the columns and rows of a tuner's table
enum Type : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9
};
enum Reduction : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };
constexpr int kAllReduce = 4;
constexpr int kCollNetDirect = 2;
constexpr int kCollNetChain = 3;
constexpr int kSimple = 2;
constexpr float kIgnore = -1.0F;  // cost of an algorithm that cannot be used

constexpr int kHostMemory = 1;        // NCCL_PTR_HOST
constexpr size_t kHandleBytes = 128;  // NCCL_NET_HANDLE_MAXSIZE
constexpr int kMostRequests = 32;     // NCCL_NET_MAX_REQUESTS, of each communicator

enum LogLevel : int { kWarn = 2, kInfo = 3 };
constexpr unsigned long kLogInit = 0x1;
constexpr unsigned long kLogNet = 0x10;
using Logger = void (*)(LogLevel level, unsigned long subsystems, const char* file, int line, const char* format, ...);
using Profiler = Result (*)(void** event, int type, void* parent, int64_t plugin, void* data);

template <int kDevices>
struct VirtualDevice {
  int count;
  int devices[kDevices];
};

struct CommConfig {
  int traffic_class;
};

// The fields that all versions have in common, of which `virtual_device` differs in size.
template <int kDevices>
struct CommonProperties {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointers;
  int is_registration_global;
  int forces_flush;
  int speed;  // Mb/s
  int port;
  float latency;
  int most_comms;
  int most_receives;
  int device_type;     // 0: the host
  int device_version;  // 0: none
  VirtualDevice<kDevices> virtual_device;
  size_t most_point_to_point_bytes;
  size_t most_collective_bytes;
};
using PropertiesV10 = CommonProperties<4>;
struct PropertiesV11 {
  CommonProperties<4> common;
  int most_multi_requests;
};
struct PropertiesV12 {
  CommonProperties<8> common;
  int most_multi_requests;
  int16_t rail;   // -1: undefined
  int16_t plane;  // -1: undefined
};

// Functions are named as in NCCL's headers. These of point-to-point communication are the same in all versions.
struct NetTransfers {
  Result (*accept)(void* listen_comm, void** receive_comm, void** device_comm);
  Result (*regMr)(void* comm, void* data, size_t bytes, int type, void** memory);
  Result (*regMrDmaBuf)(void* comm, void* data, size_t bytes, int type, uint64_t offset, int fd, void** memory);
  Result (*deregMr)(void* comm, void* memory);
  Result (*isend)(void* send_comm, void* data, size_t bytes, int tag, void* memory, void* profile, void** request);
  Result (*irecv)(void* receive_comm, int count, void** data, size_t* bytes, int* tags, void** memory, void** profiles,
                  void** request);
  Result (*iflush)(void* receive_comm, int count, void** data, int* bytes, void** memory, void** request);
  Result (*test)(void* request, int* is_done, int* bytes);
  Result (*closeSend)(void* send_comm);
  Result (*closeRecv)(void* receive_comm);
  Result (*closeListen)(void* listen_comm);
  Result (*getDeviceMr)(void* comm, void* memory, void** device_memory);
  Result (*irecvConsumed)(void* receive_comm, int count, void* request);
  Result (*makeVDevice)(int* device, void* virtual_device);
};

struct NetV10 {
  const char* name;
  Result (*init)(Logger logger, Profiler profiler);
  Result (*devices)(int* count);
  Result (*getProperties)(int device, PropertiesV10* properties);
  Result (*listen)(int device, void* handle, void** listen_comm);
  Result (*connect)(int device, CommConfig* config, void* handle, void** send_comm, void** device_comm);
  NetTransfers transfers;
};

template <class Properties>
struct NetSinceV11 {
  const char* name;
  Result (*init)(void** context, uint64_t comm, CommConfig* config, Logger logger, Profiler profiler);
  Result (*devices)(int* count);
  Result (*getProperties)(int device, Properties* properties);
  Result (*listen)(void* context, int device, void* handle, void** listen_comm);
  Result (*connect)(void* context, int device, void* handle, void** send_comm, void** device_comm);
  NetTransfers transfers;
  Result (*finalize)(void* context);
  Result (*setNetAttr)(void* context, void* attributes);
};

// The functions of collectives that are the same in all versions.
struct CollNetTransfers {
  Result (*connect)(void* handles[], int ranks, int rank, void* listen_comm, void** comm);
  Result (*reduceSupport)(Type type, Reduction reduction, int* is_supported);
  Result (*regMr)(void* comm, void* data, size_t bytes, int type, void** memory);
  Result (*regMrDmaBuf)(void* comm, void* data, size_t bytes, int type, uint64_t offset, int fd, void** memory);
  Result (*deregMr)(void* comm, void* memory);
  Result (*iallreduce)(void* comm, void* send, void* receive, size_t count, Type type, Reduction reduction,
                       void* send_memory, void* receive_memory, void** request);
  void (*iallgather)();      // NULL: unsupported
  void (*ireducescatter)();  // NULL: unsupported
  Result (*iflush)(void* comm, void* data, int bytes, void* memory, void** request);
  Result (*test)(void* request, int* is_done, int* bytes);
  Result (*closeColl)(void* comm);
  Result (*closeListen)(void* listen_comm);
  Result (*makeVDevice)(int* device, void* virtual_device);
};

struct CollNetV10 {
  const char* name;
  Result (*init)(Logger logger);
  Result (*devices)(int* count);
  Result (*getProperties)(int device, PropertiesV10* properties);
  Result (*listen)(int device, void* handle, void** listen_comm);
  CollNetTransfers transfers;
};

template <class Properties>
struct CollNetSinceV11 {
  const char* name;
  Result (*init)(void** context, uint64_t comm, Logger logger);
  Result (*devices)(int* count);
  Result (*getProperties)(int device, Properties* properties);
  Result (*listen)(void* context, int device, void* handle, void** listen_comm);
  CollNetTransfers transfers;
  Result (*finalize)(void* context);
};

// `table` is an array of float[algorithms][protocols].
using GetCollInfo = Result (*)(void* context, int function, size_t bytes, int operations, float** table, int algorithms,
                               int protocols, int is_registered, int* channels);

struct TunerV4 {
  const char* name;
  Result (*init)(size_t ranks, size_t nodes, Logger logger, void** context);
  GetCollInfo getCollInfo;
  Result (*destroy)(void* context);
};
struct TunerV5 {
  const char* name;
  Result (*init)(void** context, uint64_t comm, size_t ranks, size_t nodes, Logger logger, void* nvlink,
                 void* constants);
  GetCollInfo getCollInfo;
  Result (*finalize)(void* context);
};
struct TunerV6 {
  TunerV5 base;
  Result (*getChunkSize)(void* context, int function, size_t bytes, int algorithm, int protocol, int channels,
                         size_t* chunk_bytes);
};

using NetV11 = NetSinceV11<PropertiesV11>;
using NetV12 = NetSinceV11<PropertiesV12>;
using CollNetV11 = CollNetSinceV11<PropertiesV11>;
using CollNetV12 = CollNetSinceV11<PropertiesV12>;

static_assert(sizeof(Result) == 4 && sizeof(Type) == 4 && sizeof(Reduction) == 4 && sizeof(LogLevel) == 4);
static_assert(sizeof(CommConfig) == 4);
static_assert(sizeof(PropertiesV10) == 104 && sizeof(PropertiesV11) == 112 && sizeof(PropertiesV12) == 128);
static_assert(offsetof(PropertiesV10, virtual_device) == 64 && offsetof(PropertiesV10, most_collective_bytes) == 96);
static_assert(sizeof(NetV10) == 160 && offsetof(NetV10, transfers) == 48);
static_assert(sizeof(NetV11) == 176 && sizeof(NetV12) == 176 && offsetof(NetV12, finalize) == 160);
static_assert(offsetof(NetTransfers, isend) == 32 && offsetof(NetTransfers, makeVDevice) == 104);
static_assert(sizeof(CollNetV10) == 144 && offsetof(CollNetV10, transfers) == 40);
static_assert(sizeof(CollNetV11) == 152 && sizeof(CollNetV12) == 152 && offsetof(CollNetV12, finalize) == 144);
static_assert(offsetof(CollNetTransfers, iallreduce) == 40 && offsetof(CollNetTransfers, makeVDevice) == 96);
static_assert(sizeof(TunerV4) == 32 && sizeof(TunerV5) == 32 && sizeof(TunerV6) == 40);

}  // namespace gradlane::nccl
