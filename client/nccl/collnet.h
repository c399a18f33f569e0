// collnet.h - the CollNet part of the plug-in: all-reduces by the daemon of this node (NCCL's threads)
#pragma once

#include "client/nccl/api.h"

namespace gradlane::nccl {

// NCCL's CollNet interface. Versions of NCCL differ in the arguments of these functions only.
Result collnet_listen(int device, void* handle, void** listen_comm);
extern const CollNetTransfers kCollNetTransfers;

}  // namespace gradlane::nccl
