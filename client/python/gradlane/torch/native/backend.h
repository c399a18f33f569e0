// backend.h - a c10d::Backend that calls the methods of a Python object (any thread)
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fallback.h"
#include "fast_path.h"
#include "work.h"

namespace gradlane::native {

// Says whether a group's sums may bypass Python. It is closed when an operation of the group has lost a rank, in
// gradlane's engine or in the fallback. It is shared with fallback.py, which closes it.
class FastPathSwitch {
 public:
  void close() { open_.store(false, std::memory_order_relaxed); }
  bool is_open() const { return open_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> open_{true};
};

// The policy, a gradlane.torch.backend.Group, has a method for each operation that gradlane does itself. The method
// takes the same arguments and returns a Work. Its exceptions are raised where PyTorch was called. All other operations
// go to the fallback. PyTorch 2.6 lacks some of the methods: those without `override` are newer.
class Backend : public c10d::Backend {
 public:
  // `fast_path`: runs all-reduces without Python while the gate is open; may be nullptr. `fallback`: nullptr if there
  // is none. `unsupported_reason`: reason why gradlane itself does nothing for this group, or "".
  Backend(py::object policy, int rank, int size, std::string name, std::shared_ptr<FastPath> fast_path,
          std::shared_ptr<FastPathSwitch> gate, std::shared_ptr<Fallback> fallback, std::string unsupported_reason)
      : c10d::Backend(rank, size),
        policy_(policy),
        name_(std::move(name)),
        fast_path_(std::move(fast_path)),
        gate_(std::move(gate)),
        fallback_(std::move(fallback)),
        unsupported_reason_(std::move(unsupported_reason)) {
    note_timeout(policy.attr("get_timeout")().cast<std::chrono::milliseconds>());
    init();
  }

  const std::string getBackendName() const override { return name_; }

  // The caller must hold the interpreter lock.
  py::object policy() const { return policy_.get(); }

  virtual c10::intrusive_ptr<Options> getBackendOptions() {
    return c10::make_intrusive<Options>(name_, ask<std::chrono::milliseconds>("get_timeout"));
  }

  virtual void setTimeout(std::chrono::milliseconds timeout) {
    note_timeout(timeout);
    tell("set_timeout", timeout);
  }
  virtual void abort() { tell("abort"); }
  // Does nothing: operations in flight go on, as they do on the other ranks.
  virtual void shutdown() {}

  // Each rank counts operations of all kinds, so ranks that make the same calls have the same number.
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

  // Returns false for all devices but the CPU, whose index is negative.
  virtual bool supportsTensorAlloc(c10::DeviceIndex device) { return device < 0 && ask<bool>("supports_tensor_alloc"); }
  virtual at::Tensor allocateTensor(long size, at::TensorOptions options) {
    const Interpreter interpreter;
    const auto type = c10::typeMetaToScalarType(options.dtype());
    const auto dtype = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPDtype(type)));
    return policy_.get().attr("allocate_tensor")(size, dtype).cast<at::Tensor>();
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& given) override {
    count();
    c10d::AllreduceOptions options = given;
    if (tensors.size() == 1) scale(tensors, options.reduceOp, true);
    if (fast_path_ && gate_->is_open() && interpreter_is_there() && fast_path_->can(tensors, options)) {
      WorkPtr work = by_fast_path(tensors, options);
      if (work) return work;
    }
    const std::string why = why_not(tensors, options.reduceOp);
    if (why.empty()) return call("allreduce", tensors, options);
    return reducer("all_reduce", options.reduceOp).all_reduce("all_reduce", why, tensors, options);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& given) override {
    count();
    c10d::AllreduceCoalescedOptions options = given;
    scale(tensors, options.reduceOp, true);
    const std::string why = why_not(tensors, options.reduceOp);
    if (why.empty()) return call("allreduce_coalesced", tensors, options);
    return reducer("all_reduce_coalesced", options.reduceOp).all_reduce("all_reduce_coalesced", why, tensors, options);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& given) override {
    count();
    c10d::ReduceOptions options = given;
    Tensors scaled = tensors;
    scale(scaled, options.reduceOp, options.rootRank == getRank());
    const std::string why = why_not(scaled, options.reduceOp);
    if (why.empty()) return call("reduce", scaled, options);
    return reducer("reduce", options.reduceOp).reduce(why, scaled, options);
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    count();
    if (unsupported_reason_.empty()) return call("broadcast", tensors, options);
    return fallback("broadcast").broadcast(unsupported_reason_, tensors, options);
  }

  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    count();
    if (unsupported_reason_.empty()) return call("allgather", outputs, inputs, options);
    return fallback("all_gather").all_gather(unsupported_reason_, outputs.at(0), inputs.at(0), options);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    count();
    if (unsupported_reason_.empty()) return call("all_gather_single", output, input, options);
    Tensors blocks = blocks_of("all_gather_into_tensor", output, input);
    return fallback("all_gather").all_gather(unsupported_reason_, blocks, input.reshape(-1), options);
  }
  // Each outputs[rank][i] receives inputs[i] of that rank.
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    std::vector<WorkPtr> works;
    Tensors all;
    for (size_t i = 0; i < inputs.size(); ++i) {
      TensorLists column(1);
      for (Tensors& row : outputs) column[0].push_back(row.at(i));
      all.insert(all.end(), column[0].begin(), column[0].end());
      Tensors one{inputs[i]};
      works.push_back(allgather(column, one, options));
    }
    return c10::make_intrusive<CombinedWork>(std::move(works), std::move(all));
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    std::vector<WorkPtr> works;
    for (size_t i = 0; i < inputs.size(); ++i) works.push_back(_allgather_base(outputs.at(i), inputs[i], options));
    return c10::make_intrusive<CombinedWork>(std::move(works), outputs);
  }

  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& given) override {
    count();
    c10d::ReduceScatterOptions options = given;
    TensorLists scaled = inputs;
    if (scaled.size() == 1) scale(scaled[0], options.reduceOp, false);
    const std::string why = why_not(outputs, options.reduceOp);
    if (why.empty()) return call("reduce_scatter", outputs, scaled, options);
    return reducer("reduce_scatter", options.reduceOp).reduce_scatter(why, outputs, scaled.at(0), options);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    Tensors outputs{output};
    TensorLists blocks{blocks_of("reduce_scatter_tensor", input, output)};
    return reduce_scatter(outputs, blocks, options);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    std::vector<WorkPtr> works;
    for (size_t i = 0; i < inputs.size(); ++i) works.push_back(_reduce_scatter_base(outputs.at(i), inputs[i], options));
    return c10::make_intrusive<CombinedWork>(std::move(works), outputs);
  }

  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    count();
    return fallback("gather").gather(absent(), outputs, inputs.at(0), options);
  }
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    count();
    return fallback("scatter").scatter(absent(), outputs.at(0), inputs, options);
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& options) override {
    count();
    return fallback("all_to_all_single").all_to_all_single(absent(), output, input, output_sizes, input_sizes, options);
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    count();
    return fallback("all_to_all").all_to_all(absent(), outputs, inputs, options);
  }

  // Sends and receives are not counted, because only two ranks take part in each.
  WorkPtr send(Tensors& tensors, int rank, int tag) override {
    return fallback("send").send(absent(), tensors, rank, tag);
  }
  WorkPtr recv(Tensors& tensors, int rank, int tag) override {
    return fallback("recv").recv(absent(), tensors, rank, tag);
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return fallback("recv from any rank").recv(absent(), tensors, -1, tag);
  }

  // Waits also for the operations that have gone to the fallback.
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    count();
    if (!unsupported_reason_.empty()) return fallback("barrier").barrier(unsupported_reason_);
    WorkPtr work = call("barrier", options);
    if (!fallback_ || !fallback_->has_pending()) return work;
    std::vector<WorkPtr> both{std::move(work), fallback_->barrier("earlier operations went there")};
    return c10::make_intrusive<CombinedWork>(std::move(both), Tensors{});
  }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
    fallback("monitored_barrier").monitored_barrier(options, wait_all_ranks);
  }

 private:
  void count() { sequence_.fetch_add(1, std::memory_order_relaxed); }

  void note_timeout(std::chrono::milliseconds timeout) {
    timeout_ms_ = timeout.count();
    if (fallback_) fallback_->set_timeout(timeout);
  }

  // Returns the fallback. If there is none, it raises the error of Group.refuse() in Python.
  Fallback& fallback(const char* name) {
    if (!fallback_) tell("refuse", name);
    return *fallback_;
  }
  Fallback& reducer(const char* name, const c10d::ReduceOp& op) {
    if (!fallback_) tell("refuse", name, op);
    return *fallback_;
  }

  // Returns the reason that explain() shows for an operation that gradlane does not have.
  std::string absent() const { return unsupported_reason_.empty() ? "gradlane does not have it" : unsupported_reason_; }

  // Returns the reason why a reduction is not for gradlane's engine; "" if it is.
  std::string why_not(const Tensors& tensors, const c10d::ReduceOp& op) const {
    if (!unsupported_reason_.empty()) return unsupported_reason_;
    switch (op.op_) {
      case c10d::ReduceOp::SUM:
      case c10d::ReduceOp::AVG:
      case c10d::ReduceOp::MIN:
      case c10d::ReduceOp::MAX:
        return fallback_ && tensors.at(0).is_sparse() ? "a sparse tensor" : "";
      case c10d::ReduceOp::PRODUCT:
        return "PRODUCT";
      case c10d::ReduceOp::BAND:
        return "BAND";
      case c10d::ReduceOp::BOR:
        return "BOR";
      case c10d::ReduceOp::BXOR:
        return "BXOR";
      default:
        return "a reduction that gradlane does not have";
    }
  }

  // Turns PREMUL_SUM into a sum of the tensors times its factor.
  void scale(Tensors& tensors, c10d::ReduceOp& op, bool in_place) {
    if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return;
    const Interpreter interpreter;
    const py::object scaled = policy_.get().attr("premultiplied")(op, tensors, in_place);
    if (scaled.is_none()) return;
    tensors = scaled.cast<Tensors>();
    op = c10d::ReduceOp(c10d::ReduceOp::SUM);
  }

  // Returns the flat parts of `large`, one per rank.
  Tensors blocks_of(const char* name, const at::Tensor& large, const at::Tensor& small) {
    const Interpreter interpreter;
    return policy_.get().attr("blocks")(name, large, small).cast<Tensors>();
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

  // Runs the all-reduce by the fast path and returns its Work. Returns nullptr if it must go through Python.
  WorkPtr by_fast_path(Tensors& tensors, const c10d::AllreduceOptions& options) {
    gradlane_outcome outcome = GRADLANE_OUTCOME_INIT;
    const int64_t timeout_ms = std::clamp<int64_t>(timeout_ms_, 1, kLongestMs);
    if (!fast_path_->all_reduce(tensors[0], options, timeout_ms, &outcome)) return nullptr;
    if (outcome.code != GRADLANE_OK) return adopt(tensors, outcome);
    if (outcome.warning[0] != 0) {
      const Interpreter interpreter;
      (void)policy_.get().attr("warn")(static_cast<const char*>(outcome.warning));
    }
    return c10::make_intrusive<CompletedWork>(tensors);
  }

  WorkPtr adopt(Tensors& tensors, const gradlane_outcome& outcome) {
    const Interpreter interpreter;
    try {
      return work_of(policy_.get().attr("adopt")(tensors, reinterpret_cast<uint64_t>(&outcome)));
    } catch (...) {
      fast_path_->keep(tensors[0]);
      throw;
    }
  }

  static constexpr int64_t kLongestMs = 1000000000;  // equal to operations._LONGEST_MS in Python

  const Object policy_;
  const std::string name_;
  const std::shared_ptr<FastPath> fast_path_;
  const std::shared_ptr<FastPathSwitch> gate_;
  const std::shared_ptr<Fallback> fallback_;
  const std::string unsupported_reason_;
  std::atomic<int64_t> timeout_ms_{0};
  std::atomic<uint64_t> sequence_{0};
};

}  // namespace gradlane::native
