// op_kind.cc - sizes of elements, and names of types, kinds and reductions
#include "collectives/op_kind.h"

namespace gradlane {

size_t element_bytes(ElementType type) noexcept {
  switch (type) {
    case ElementType::kFloat64:
    case ElementType::kInt64:
      return 8;
    case ElementType::kFloat32:
    case ElementType::kInt32:
      return 4;
    case ElementType::kFloat16:
    case ElementType::kBfloat16:
      return 2;
    case ElementType::kBytes:
      break;
  }
  return 1;
}

const char* element_name(ElementType type) noexcept {
  switch (type) {
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kFloat64:
      return "float64";
    case ElementType::kFloat16:
      return "float16";
    case ElementType::kBfloat16:
      return "bfloat16";
    case ElementType::kInt32:
      return "int32";
    case ElementType::kInt64:
      return "int64";
    case ElementType::kBytes:
      return "bytes";
  }
  return "?";
}

const char* op_name(OpKind kind) noexcept {
  switch (kind) {
    case OpKind::kAllReduce:
      return "all-reduce";
    case OpKind::kReduceScatter:
      return "reduce-scatter";
    case OpKind::kAllGather:
      return "all-gather";
    case OpKind::kBroadcast:
      return "broadcast";
    case OpKind::kBarrier:
      return "barrier";
    case OpKind::kReduce:
      return "reduce";
    case OpKind::kGather:
      return "gather";
    case OpKind::kScatter:
      return "scatter";
    case OpKind::kAllToAll:
      return "all-to-all";
  }
  return "?";
}

const char* reduction_name(Reduction reduction) noexcept {
  switch (reduction) {
    case Reduction::kSum:
      return "sum";
    case Reduction::kAverage:
      return "average";
    case Reduction::kMin:
      return "minimum";
    case Reduction::kMax:
      return "maximum";
  }
  return "?";
}

}  // namespace gradlane
