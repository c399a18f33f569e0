// trainer.cc - the trainer's interface for commands that measure: errors are exceptions
#include "tools/perf/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"

namespace gradlane {

Trainer::Trainer(const TrainerPlace& place) {
  gradlane_options options = GRADLANE_OPTIONS_INIT;
  if (!place.socket.empty()) options.socket = place.socket.c_str();
  options.rank = place.rank;
  options.timeout_ms = place.patience_ms;
  options.operation_timeout_ms = place.limit_ms;
  options.keep_warnings = 1;  // keeps warnings off stderr: here the loss by codecs is measured
  if (gradlane_open(&gl_, &options) != GRADLANE_OK) {
    const char* const socket = std::getenv("GRADLANE_SOCKET");
    if (!place.socket.empty() || (socket != nullptr && *socket != 0)) throw SetupError(gradlane_error(nullptr));
    throw SetupError(
        fmt::format("{0} runs as a trainer and needs a ring: run 'gradlane run -n 2 -- gradlane {0} ...', or start it\n"
                    "on all nodes, where their daemons run: {1}",
                    place.command, gradlane_error(nullptr)));
  }
  try {
    gathered_ = static_cast<int64_t*>(allocate(world() * kMaxGathered * sizeof(int64_t)));
  } catch (...) {
    gradlane_close(gl_);
    throw;
  }
}

void* Trainer::allocate(size_t bytes) {
  void* buffer = nullptr;
  require(gradlane_alloc(gl_, bytes, &buffer), "allocate");
  return buffer;
}

void Trainer::free(void* buffer) { require(gradlane_free(gl_, buffer), "free"); }

std::vector<std::string> Trainer::strategies() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < gradlane_strategies(gl_); ++i) names.emplace_back(gradlane_get_strategy(gl_, i));
  return names;
}

std::string Trainer::fault_of(const std::string& codec) {
  gradlane_codec_info info = GRADLANE_CODEC_INFO_INIT;
  const gradlane_code code = gradlane_find_codec(gl_, codec.c_str(), &info);
  if (code != GRADLANE_BAD_ARGUMENT) require(code, "codec");
  return code == GRADLANE_OK ? "" : gradlane_error(gl_);
}

std::string Trainer::encoding_fault_of(const std::string& codec) {
  gradlane_how how = GRADLANE_HOW_INIT;
  how.codec = codec.c_str();
  void* const number = gathered_;  // it has space for one float, and for its encoded form
  const gradlane_code code =
      gradlane_encode(gl_, static_cast<float*>(number), 1, gathered_ + 1, gradlane_encoded_space(1), &how, nullptr);
  if (code != GRADLANE_BAD_ARGUMENT) require(code, "encode");
  return code == GRADLANE_OK ? "" : gradlane_error(gl_);
}

namespace {

gradlane_how how_of(const char* strategy, const std::string& codec, gradlane_reduction reduction, gradlane_type type) {
  gradlane_how how = GRADLANE_HOW_INIT;
  how.strategy = strategy;
  how.reduction = reduction;
  if (is_floating(static_cast<ElementType>(type))) how.codec = codec.c_str();
  return how;
}

}  // namespace

// Starts an operation. If `request` is null, waits for its end.
void Trainer::call(PerfOp op, void* data, size_t count, gradlane_type type, const gradlane_how& how, int root,
                   gradlane_request* request) {
  const char* const what = perf_op_name(op);
  switch (op) {
    case PerfOp::kAllReduce:
      return require(gradlane_all_reduce(gl_, data, count, type, &how, request), what);
    case PerfOp::kReduceScatter:
      return require(gradlane_reduce_scatter(gl_, data, count / world(), type, &how, request), what);
    case PerfOp::kAllGather:
      return require(gradlane_all_gather(gl_, data, count / world(), type, &how, request), what);
    case PerfOp::kBroadcast:
      return require(gradlane_broadcast(gl_, data, count, type, root, &how, request), what);
  }
}

void Trainer::run(PerfOp op, void* data, size_t count, gradlane_type type, const char* strategy,
                  const std::string& codec, gradlane_reduction reduction, float* states, int root) {
  gradlane_how how = how_of(strategy, codec, reduction, type);
  how.residual = states;
  how.whole = std::max(count, size_t{GRADLANE_EXACT_BELOW} * world());  // so that the codec is used at all sizes
  call(op, data, count, type, how, root, nullptr);
}

void Trainer::encode(float* data, size_t count, std::span<uint8_t> encoded, const std::string& codec) {
  gradlane_how how = GRADLANE_HOW_INIT;
  how.codec = codec.c_str();
  require(gradlane_encode(gl_, data, count, encoded.data(), encoded.size(), &how, nullptr), "encode");
}

void Trainer::run_encoded(void* data, size_t count, const char* strategy, const std::string& codec,
                          std::span<const uint8_t> encoded, std::span<uint8_t> runs) {
  gradlane_how how = how_of(strategy, codec, GRADLANE_SUM, GRADLANE_FLOAT32);
  how.encoded = encoded.data();
  how.encoded_bytes = encoded.size();
  how.runs = runs.empty() ? nullptr : runs.data();
  how.runs_bytes = runs.size();
  how.whole = std::max(count, size_t{GRADLANE_EXACT_BELOW} * world());
  call(PerfOp::kAllReduce, data, count, GRADLANE_FLOAT32, how, 0, nullptr);
}

gradlane_request Trainer::start(PerfOp op, void* data, size_t count, gradlane_type type, const char* strategy,
                                const std::string& codec, gradlane_reduction reduction) {
  gradlane_how how = how_of(strategy, codec, reduction, type);
  how.whole = std::max(count, size_t{GRADLANE_EXACT_BELOW} * world());
  gradlane_request request = 0;
  call(op, data, count, type, how, 0, &request);
  return request;
}

void Trainer::wait(PerfOp op, gradlane_request request) { require(gradlane_wait(gl_, request, -1), perf_op_name(op)); }

void Trainer::run_together(unsigned together, void* data, size_t count, const PerfType& type, const char* strategy,
                           const std::string& codec, gradlane_reduction reduction) {
  gradlane_how how = how_of(strategy, codec, reduction, type.type);
  how.whole = std::max(count, size_t{GRADLANE_EXACT_BELOW});
  requests_.resize(together);
  for (unsigned part = 0; part < together; ++part) {
    const size_t begin = part_begin(count, part, together);
    require(gradlane_all_reduce(gl_, static_cast<uint8_t*>(data) + begin * type.bytes,
                                part_begin(count, part + 1, together) - begin, type.type, &how, &requests_[part]),
            "allreduce");
  }
  for (const gradlane_request request : requests_) require(gradlane_wait(gl_, request, -1), "allreduce");
}

void Trainer::barrier() { require(gradlane_barrier(gl_, nullptr, nullptr), "barrier"); }

std::vector<int64_t> Trainer::gather(std::span<const int64_t> numbers) {
  std::vector<int64_t> all;
  const size_t n = numbers.size();
  std::ranges::copy(numbers, gathered_ + rank() * n);
  require(gradlane_all_gather(gl_, gathered_, n, GRADLANE_INT64, nullptr, nullptr), "sharing figures");
  all.assign(gathered_, gathered_ + world() * n);
  return all;
}

gradlane_figures Trainer::figures() {
  gradlane_figures figures{};
  figures.struct_size = sizeof figures;
  require(gradlane_get_figures(gl_, &figures), "figures");
  return figures;
}

uint64_t Trainer::data_bytes() { return figures().data_bytes; }

void Trainer::require(gradlane_code code, const char* what) const {
  if (code != GRADLANE_OK) throw PerfError(fmt::format("{}: {}", what, gradlane_error(gl_)));
}

}  // namespace gradlane
