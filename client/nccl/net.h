// net.h - the net part of the plug-in: point-to-point messages over TCP (NCCL's threads)
#pragma once

#include "client/nccl/api.h"

namespace gradlane::nccl {

// NCCL's net interface. Versions of NCCL differ in the arguments of these functions only.
Result net_init();
Result net_devices(int* count);
Result net_listen(int device, void* handle, void** listen_comm);
Result net_connect(int device, void* handle, void** send_comm);
extern const NetTransfers kNetTransfers;

// Fills in the properties of the only device, which net and CollNet share.
template <int kDevices>
Result get_common_properties(int device, CommonProperties<kDevices>* properties);
extern template Result get_common_properties(int, CommonProperties<4>*);
extern template Result get_common_properties(int, CommonProperties<8>*);

}  // namespace gradlane::nccl
