// plugin.cc - libnccl-net-gradlane.so: the tables that NCCL 2.27 to 2.30 looks up (NCCL's threads)
//
// With this library, an unmodified NCCL program sums between nodes by gradlane's daemons; docs/pytorch.md names the
// variables. No line of it has run together with NCCL or a GPU: tests/scripts/client/nccl_test.py plays NCCL.
//
// NCCL loads one library and looks up three parts in it:
//   net      messages between two nodes, for all algorithms but CollNet, and for send and receive. NCCL disables a
//            library whose net part is missing or fails (ncclNetPluginLoad(), ncclNetPluginInit() in src/plugin/net.cc
//            of v2.30.7-1), and uses the net of the library that has the CollNet (ncclNetPluginAssignToComm()). Its own
//            ncclNetSocket is hidden in libnccl.so (-fvisibility=hidden). So calls cannot be forwarded to it, and
//            net.cc has a small one over TCP.
//   CollNet  all-reduces of one GPU of each node (collnet.cc). The daemon adds them.
//   tuner    makes CollNetChain the cheapest for all-reduces where CollNet works (tuner.cc). NCCL looks for it in the
//            net's library unless NCCL_TUNER_PLUGIN names one.
//
// NCCL calls init() for each communicator since v11, and once in v10. The plug-in has one device. The number of CollNet
// devices must be 1 on all nodes, with or without a daemon: NCCL 2.30 compares them.
//
// Limits. A daemon's ring must consist of the nodes of the communicator: one rank for each node. A daemon runs one
// operation after the other, and one context holds a rank. So the first communicator has the daemon until it is
// destroyed, and others fall back to NCCL's algorithms at the same time, on all nodes alike. Communicators that share
// resources (ncclCommSplit() with splitShare) share the CollNet communicator, too, so a program must order their
// all-reduces alike.
#include "client/nccl/api.h"
#include "client/nccl/collnet.h"
#include "client/nccl/log.h"
#include "client/nccl/net.h"
#include "client/nccl/tuner.h"

namespace gradlane::nccl {
namespace {

constexpr char kName[] = "gradlane";

// ---- Properties

Result get_properties(int device, PropertiesV10* properties) { return get_common_properties(device, properties); }

Result get_properties(int device, PropertiesV11* properties) {
  properties->most_multi_requests = 1;
  return get_common_properties(device, &properties->common);
}

Result get_properties(int device, PropertiesV12* properties) {
  properties->most_multi_requests = 1;
  properties->rail = properties->plane = -1;
  return get_common_properties(device, &properties->common);
}

// ---- Net

Result init_net_v10(Logger logger, Profiler /*profiler*/) {
  set_logger(logger);
  return net_init();
}

Result init_net(void** context, uint64_t /*comm*/, CommConfig* /*config*/, Logger logger, Profiler profiler) {
  *context = nullptr;
  return init_net_v10(logger, profiler);
}

Result listen_net(void* /*context*/, int device, void* handle, void** listen_comm) {
  return net_listen(device, handle, listen_comm);
}

Result connect_net_v10(int device, CommConfig* /*config*/, void* handle, void** send_comm, void** /*device_comm*/) {
  return net_connect(device, handle, send_comm);
}

Result connect_net(void* /*context*/, int device, void* handle, void** send_comm, void** /*device_comm*/) {
  return net_connect(device, handle, send_comm);
}

Result finalize(void* /*context*/) { return kSuccess; }

// ---- CollNet

Result init_collnet_v10(Logger logger) {
  set_logger(logger);
  return kSuccess;
}

Result init_collnet(void** context, uint64_t /*comm*/, Logger logger) {
  *context = nullptr;
  return init_collnet_v10(logger);
}

Result listen_collnet(void* /*context*/, int device, void* handle, void** listen_comm) {
  return collnet_listen(device, handle, listen_comm);
}

// ---- Tuner

Result init_tuner_v4(size_t /*ranks*/, size_t /*nodes*/, Logger logger, void** context) {
  *context = nullptr;
  set_logger(logger);
  return kSuccess;
}

Result init_tuner(void** context, uint64_t /*comm*/, size_t ranks, size_t nodes, Logger logger, void* /*nvlink*/,
                  void* /*constants*/) {
  return init_tuner_v4(ranks, nodes, logger, context);
}

}  // namespace
}  // namespace gradlane::nccl

#pragma GCC visibility push(default)
extern "C" {
using namespace gradlane::nccl;

// NCCL takes pointers to tables that it may change.
NetV10 ncclNetPlugin_v10 = {kName,      init_net_v10,    net_devices,  get_properties,
                            net_listen, connect_net_v10, kNetTransfers};
NetV11 ncclNetPlugin_v11 = {kName,       init_net,      net_devices, get_properties, listen_net,
                            connect_net, kNetTransfers, finalize,    nullptr};
NetV12 ncclNetPlugin_v12 = {kName,       init_net,      net_devices, get_properties, listen_net,
                            connect_net, kNetTransfers, finalize,    nullptr};
CollNetV10 ncclCollNetPlugin_v10 = {kName,          init_collnet_v10, net_devices,
                                    get_properties, collnet_listen,   kCollNetTransfers};
CollNetV11 ncclCollNetPlugin_v11 = {kName,          init_collnet,      net_devices, get_properties,
                                    listen_collnet, kCollNetTransfers, finalize};
CollNetV12 ncclCollNetPlugin_v12 = {kName,          init_collnet,      net_devices, get_properties,
                                    listen_collnet, kCollNetTransfers, finalize};
TunerV4 ncclTunerPlugin_v4 = {kName, init_tuner_v4, get_coll_info, finalize};
TunerV5 ncclTunerPlugin_v5 = {kName, init_tuner, get_coll_info, finalize};
TunerV6 ncclTunerPlugin_v6 = {{kName, init_tuner, get_coll_info, finalize}, nullptr};
}
#pragma GCC visibility pop
