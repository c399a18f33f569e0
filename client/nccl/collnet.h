// collnet.h - the CollNet part of the plug-in: all-reduces by the daemon of this node (NCCL's threads)
#pragma once

#include "client/nccl/api.h"

namespace gradlane::nccl {

// The functions of NCCL's CollNet interface that depend on its version only in their arguments.
Result collnet_listen(int device, void* handle, void** listen_comm);
extern const CollNetTransfers kCollNetTransfers;

}  // namespace gradlane::nccl
