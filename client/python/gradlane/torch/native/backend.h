// backend.h - a c10d::Backend whose methods are those of a Python object (any thread)
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "express.h"
#include "work.h"

namespace gradlane::native {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Whether a group's sums may go without Python: until one of its operations has lost a rank, in whichever engine.
// Shared with delegate.py, which closes it.
class Gate {
 public:
  void close() { open_.store(false, std::memory_order_relaxed); }
  bool is_open() const { return open_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> open_{true};
};

// The policy, gradlane.torch.backend.Group, has a method for each virtual one here, which takes the same arguments and
// returns a Work. What it raises comes out where PyTorch was called. PyTorch 2.6 does not have all of the methods:
// those without `override` are newer.
class Backend : public c10d::Backend {
 public:
  // express: the way of all-reduces without Python, as long as the gate is open; may be nullptr.
  Backend(py::object policy, int rank, int size, std::string name, std::shared_ptr<Express> express,
          std::shared_ptr<Gate> gate)
      : c10d::Backend(rank, size),
        policy_(policy),
        name_(std::move(name)),
        express_(std::move(express)),
        gate_(std::move(gate)) {
    timeout_ms_ = policy.attr("get_timeout")().cast<std::chrono::milliseconds>().count();
    init();
  }

  const std::string getBackendName() const override { return name_; }

  // With the interpreter lock held.
  py::object policy() const { return policy_.get(); }

  virtual c10::intrusive_ptr<Options> getBackendOptions() {
    return c10::make_intrusive<Options>(name_, ask<std::chrono::milliseconds>("get_timeout"));
  }

  virtual void setTimeout(std::chrono::milliseconds timeout) {
    timeout_ms_ = timeout.count();
    tell("set_timeout", timeout);
  }
  virtual void abort() { tell("abort"); }
  // What is under way goes on, as it does on other ranks.
  virtual void shutdown() {}

  // Each rank counts operations of all kinds, so the number is that of the others if the calls are.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_.load(std::memory_order_relaxed); }

  bool supportsSplitting() const override { return true; }
  virtual c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const std::vector<int>& ranks,
                                                  const c10::intrusive_ptr<Options>& options) {
    const Interpreter interpreter;
    const auto timeout = options ? options->timeout : ask<std::chrono::milliseconds>("get_timeout");
    const py::object part = policy_.get().attr("split")(store, ranks, timeout);
    return part.is_none() ? nullptr : part.cast<c10::intrusive_ptr<c10d::Backend>>();
  }

  // Of the CPU alone, which has no number.
  virtual bool supportsTensorAlloc(c10::DeviceIndex device) { return device < 0 && ask<bool>("supports_tensor_alloc"); }
  virtual at::Tensor allocateTensor(long size, at::TensorOptions options) {
    const Interpreter interpreter;
    const auto type = c10::typeMetaToScalarType(options.dtype());
    const auto dtype = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPDtype(type)));
    return policy_.get().attr("allocate_tensor")(size, dtype).cast<at::Tensor>();
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    sequence_.fetch_add(1, std::memory_order_relaxed);
    if (express_ && gate_->is_open() && interpreter_is_there() && Express::can(tensors, options)) {
      WorkPtr work = by_express(tensors, options);
      if (work) return work;
    }
    return call("allreduce", tensors, options);
  }
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return start("allreduce_sparse", tensors, options);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return start("allreduce_coalesced", tensors, options);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return start("reduce", tensors, options);
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return start("broadcast", tensors, options);
  }

  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return start("allgather", outputs, inputs, options);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    return start("all_gather_single", output, input, options);
  }
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return start("allgather_coalesced", outputs, inputs, options);
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    return start("all_gather_single_coalesced", outputs, inputs, options);
  }

  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override {
    return start("reduce_scatter", outputs, inputs, options);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    return start("reduce_scatter_single", output, input, options);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    return start("reduce_scatter_single_coalesced", outputs, inputs, options);
  }

  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    return start("gather", outputs, inputs, options);
  }
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    return start("scatter", outputs, inputs, options);
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& options) override {
    return start("all_to_all_single", output, input, output_sizes, input_sizes, options);
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    return start("alltoall", outputs, inputs, options);
  }

  // Between two ranks, so that others do not count it.
  WorkPtr send(Tensors& tensors, int rank, int tag) override { return call("send", tensors, rank, tag); }
  WorkPtr recv(Tensors& tensors, int rank, int tag) override { return call("recv", tensors, rank, tag); }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override { return call("recv_anysource", tensors, tag); }

  WorkPtr barrier(const c10d::BarrierOptions& options) override { return start("barrier", options); }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
    tell("monitored_barrier", options.timeout, wait_all_ranks);
  }

 private:
  template <class... Arguments>
  WorkPtr start(const char* method, Arguments&... arguments) {
    sequence_.fetch_add(1, std::memory_order_relaxed);
    return call(method, arguments...);
  }

  template <class... Arguments>
  WorkPtr call(const char* method, Arguments&... arguments) {
    const Interpreter interpreter;
    return work_of(policy_.get().attr(method)(arguments...));
  }

  template <class... Arguments>
  void tell(const char* method, Arguments... arguments) {
    if (!interpreter_is_there()) return;
    const Interpreter interpreter;
    (void)policy_.get().attr(method)(arguments...);
  }

  template <class Answer>
  Answer ask(const char* method) {
    const Interpreter interpreter;
    return policy_.get().attr(method)().template cast<Answer>();
  }

  // nullptr: it could not go so.
  WorkPtr by_express(Tensors& tensors, const c10d::AllreduceOptions& options) {
    gradlane_outcome outcome = GRADLANE_OUTCOME_INIT;
    const int64_t timeout_ms = std::clamp<int64_t>(timeout_ms_, 1, kLongestMs);
    if (!express_->all_reduce(tensors[0], options, timeout_ms, &outcome)) return nullptr;
    if (outcome.code != GRADLANE_OK) return resume(tensors, options, outcome);
    if (outcome.warning[0] != 0) {
      const Interpreter interpreter;
      (void)policy_.get().attr("warn")(static_cast<const char*>(outcome.warning));
    }
    return c10::make_intrusive<WorkOver>(tensors);
  }

  WorkPtr resume(Tensors& tensors, const c10d::AllreduceOptions& options, const gradlane_outcome& outcome) {
    const Interpreter interpreter;
    try {
      return work_of(policy_.get().attr("resume_all_reduce")(tensors, options.reduceOp.op_ == c10d::ReduceOp::AVG,
                                                             static_cast<int>(Express::reduction_of(options)),
                                                             reinterpret_cast<uint64_t>(&outcome)));
    } catch (...) {
      express_->keep(tensors[0]);
      throw;
    }
  }

  static constexpr int64_t kLongestMs = 1000000000;  // operations._LONGEST_MS

  const Object policy_;
  const std::string name_;
  const std::shared_ptr<Express> express_;
  const std::shared_ptr<Gate> gate_;
  std::atomic<int64_t> timeout_ms_{0};
  std::atomic<uint64_t> sequence_{0};
};

}  // namespace gradlane::native
