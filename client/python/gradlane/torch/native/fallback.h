// fallback.h - another backend of PyTorch, Gloo or NCCL, over the same ranks, for what gradlane does not do itself (any
// thread)
#pragma once

#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "object.h"
#include "work.h"

namespace gradlane::native {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

inline std::string name_of(at::ScalarType type) {
  py::gil_scoped_acquire gil;
  return py::str(reinterpret_cast<PyObject*>(torch::getTHPDtype(type)));
}

[[noreturn]] inline void raise(const py::object& error) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

[[noreturn]] inline void raise_bad_argument(const std::string& text) {
  py::gil_scoped_acquire gil;
  raise(py::module_::import("gradlane.errors").attr("bad_argument")("gradlane: " + text));
}

// Turns a sum over `size` ranks into their average. Averages of integers are truncated towards zero, as NCCL does it.
inline void divide(at::Tensor& total, int size) {
  if (total.is_floating_point() || total.is_complex()) {
    total.div_(size);
  } else {
    total.div_(size, "trunc");
  }
}

// A tensor in the form that Gloo takes: contiguous, and of a type that all versions of Gloo have. `wire` is the flat
// tensor that is exchanged.
class GlooTensor {
 public:
  // kValues: numbers that Gloo adds, converted to a type that it has; kBytes: elements that Gloo only copies, as bytes
  // if it lacks their type; kUnchanged: the tensor itself, for example a sparse one
  enum class As { kValues, kBytes, kUnchanged };

  GlooTensor(const at::Tensor& tensor, const std::string& name, As as, bool average = false)
      : tensor_(tensor.detach()) {
    if (as == As::kUnchanged) {
      wire = tensor;  // not detached, because Gloo replaces the tensor's indices
      return;
    }
    if (tensor.layout() != at::kStrided || tensor.is_quantized()) {
      raise_bad_argument(name + " of a tensor that is sparse or quantized; make it dense, to_dense() or dequantize()");
    }
    if (average && tensor.scalar_type() == at::kBool) {
      raise_bad_argument(name + " of torch.bool has no average; convert the tensor to a floating type");
    }
    work_ = tensor_.resolve_neg();
    if (work_.is_complex()) work_ = at::view_as_real(work_.resolve_conj());
    if (as == As::kValues) work_ = work_.to(reduced_as(work_.scalar_type()));
    work_ = work_.contiguous();
    wire = work_.reshape(-1);
    if (as == As::kValues && !is_carried(wire.scalar_type())) {
      raise_bad_argument(name + " of " + name_of(tensor.scalar_type()) +
                         " is not supported by Gloo; convert the tensor, for example to float32");
    }
    if (as == As::kBytes && !is_carried(wire.scalar_type())) wire = wire.view(at::kByte);
  }

  // Copies the received data into the tensor, unless it was received there directly.
  void finish() const {
    if (!work_.defined() || work_.data_ptr() == tensor_.data_ptr()) return;
    at::Tensor result = tensor_.is_complex() ? at::view_as_complex(work_) : work_;
    if (tensor_.scalar_type() == at::kBool && result.scalar_type() != at::kBool) result = result.ne(0);
    tensor_.copy_(result);
  }

  // Returns the number of elements that `rows` rows have in `wire`.
  int64_t elements(int64_t rows) const {
    const int64_t all = tensor_.dim() > 0 ? tensor_.size(0) : 1;
    return all > 0 ? rows * (wire.numel() / all) : 0;
  }
  int64_t rows() const { return tensor_.dim() > 0 ? tensor_.size(0) : 1; }

  at::Tensor wire;

 private:
  static bool is_carried(at::ScalarType type) {
    return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kByte || type == at::kChar ||
           type == at::kInt || type == at::kLong;
  }
  static at::ScalarType reduced_as(at::ScalarType type) {
    if (type == at::kBFloat16) return at::kFloat;
    return type == at::kShort || type == at::kBool ? at::kInt : type;
  }

  const at::Tensor tensor_;
  at::Tensor work_;
};

using GlooTensors = std::vector<GlooTensor>;

inline GlooTensors carry(const Tensors& tensors, const std::string& name, GlooTensor::As as, bool average = false) {
  GlooTensors all;
  for (const at::Tensor& tensor : tensors) all.emplace_back(tensor, name, as, average);
  return all;
}

inline Tensors wires_of(const GlooTensors& all) {
  Tensors wires;
  for (const GlooTensor& it : all) wires.push_back(it.wire);
  return wires;
}

// Returns one flat tensor with the data of all tensors in `all`.
inline at::Tensor flat_of(const GlooTensors& all) { return all.size() == 1 ? all[0].wire : at::cat(wires_of(all)); }

// Copies the received data to all the tensors. flat: tensor of flat_of(), if that was exchanged.
inline void finish_all(const GlooTensors& all, const at::Tensor& flat = {}) {
  int64_t first = 0;
  for (const GlooTensor& it : all) {
    if (flat.defined() && !flat.is_same(it.wire)) it.wire.copy_(flat.narrow(0, first, it.wire.numel()));
    first += it.wire.numel();
    it.finish();
  }
}

// An operation of the other backend. `finish` copies the result to the caller's tensors. The first thread that learns
// that the operation is over calls it. `explained` turns an error of the other backend into a Python exception.
class WorkOfFallback : public c10d::Work {
 public:
  using Explained = std::function<std::shared_ptr<Object>(const std::exception_ptr&)>;

  // future: the future of `other`; nullptr for sends and receives, which have none.
  WorkOfFallback(WorkPtr other, FuturePtr future, Tensors result, std::function<void()> finish, Explained explained)
      : other_(std::move(other)),
        others_future_(std::move(future)),
        result_(std::move(result)),
        finish_(std::move(finish)),
        explained_(std::move(explained)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    const Unlocked unlocked;
    {
      // A second wait() for a receive of Gloo would wait for another message.
      const std::lock_guard lock(waiting_);
      if (!is_known()) wait_for(timeout);
    }
    end();
    return true;
  }
  void synchronize() override { (void)wait(std::chrono::milliseconds(0)); }

  // Gloo may complete the future before its work reports the end.
  bool isCompleted() override {
    if (is_known()) return true;
    if (!other_->isCompleted()) return false;
    try {
      (void)wait(std::chrono::milliseconds(0));
    } catch (...) {
      // exception() returns the error
    }
    return true;
  }
  bool isSuccess() const override { return const_cast<WorkOfFallback*>(this)->isCompleted() && !exception(); }
  std::exception_ptr exception() const override {
    const std::lock_guard lock(mutex_);
    if (!failure_) return error_;
    try {
      raise(*failure_);
    } catch (...) {
      return std::current_exception();
    }
  }
  Tensors result() override { return result_; }
  int sourceRank() const override { return other_->sourceRank(); }

  FuturePtr getFuture() override {
    const Unlocked unlocked;
    const std::lock_guard lock(future_mutex_);
    if (!future_) {
      const auto self = c10::intrusive_ptr<WorkOfFallback>::reclaim_copy(this);
      future_ = other_->getFuture()->then([self](c10::ivalue::Future& future) { return self->value(future); },
                                          c10::ListType::create(c10::TensorType::get()));
    }
    return future_;
  }

 private:
  // Raises the failure as a new C++ exception: py::error_already_set can be handed to Python only once.
  [[noreturn]] static void raise(const Object& failure) {
    py::gil_scoped_acquire gil;
    native::raise(failure.get());
  }

  // Returns the value of the future. If the operation has failed, it raises a RuntimeError with class and text of the
  // exception, as the futures of all operations do.
  c10::IValue value(c10::ivalue::Future& future) {
    try {
      if (future.hasError()) fail(future.exception_ptr());
      end();
    } catch (py::error_already_set& error) {
      py::gil_scoped_acquire gil;
      throw std::runtime_error(error.what());
    }
    return c10::IValue(result_);
  }

  bool is_known() const {
    const std::lock_guard lock(mutex_);
    return is_finished_ || failure_ || error_;
  }

  void wait_for(std::chrono::milliseconds timeout) {
    // The other backend's wait() does not react to Ctrl-C, so wait for the future first.
    if (others_future_ && !others_future_->completed()) (void)Waiting(others_future_).wait(timeout);
    try {
      (void)(timeout.count() > 0 ? other_->wait(timeout) : other_->wait());
    } catch (...) {
      if (timeout.count() > 0 && !other_->isCompleted()) raise_late(timeout);
      fail(std::current_exception());
    }
  }

  // Raises the Python exception for the error, or for an earlier failure of this operation.
  [[noreturn]] void fail(const std::exception_ptr& error) {
    std::shared_ptr<Object> failure = is_known() ? nullptr : explained_(error);  // calls Python, so mutex_ must be free
    {
      const std::lock_guard lock(mutex_);
      if (!failure_ && !error_ && !is_finished_) failure_ = std::move(failure);
      failure = failure_;
    }
    if (failure) raise(*failure);
    std::rethrow_exception(error_ ? error_ : error);
  }

  void end() {
    std::shared_ptr<Object> failure;
    {
      const std::lock_guard lock(mutex_);
      if (!failure_ && !error_ && !is_finished_) {
        try {
          finish_();
        } catch (...) {
          error_ = std::current_exception();
        }
        is_finished_ = true;
      }
      failure = failure_;
    }
    if (failure) raise(*failure);
    if (error_) std::rethrow_exception(error_);
  }

  const WorkPtr other_;
  const FuturePtr others_future_;
  const Tensors result_;
  const std::function<void()> finish_;
  const Explained explained_;
  std::mutex waiting_;
  std::mutex future_mutex_;
  mutable std::mutex mutex_;
  std::shared_ptr<Object> failure_;  // failure of the other backend, as a Python exception
  std::exception_ptr error_;         // exception that finish_ has thrown
  bool is_finished_ = false;
  FuturePtr future_;
};

// The other backend of a group. `state` is a gradlane.torch.fallback.State: it makes the backend and knows whether the
// group has failed. Methods are named as in torch.distributed. `why` is the reason that explain() shows.
class Fallback {
 public:
  Fallback(py::object state, int rank, int size)
      : state_(std::make_shared<Object>(std::move(state))), rank_(rank), size_(size) {}

  void set_timeout(std::chrono::milliseconds timeout) { timeout_ms_ = timeout.count(); }
  // Returns whether a collective was started after the last barrier. The answer is the same on all ranks.
  bool has_pending() const { return has_pending_; }

  WorkPtr all_reduce(const char* name, const std::string& why, Tensors& tensors, c10d::AllreduceOptions options) {
    const bool average = options.reduceOp.op_ == c10d::ReduceOp::AVG;
    check_reduction(name, tensors[0], options.reduceOp);
    check_types(name, tensors, {});
    const auto as = tensors[0].is_sparse() ? GlooTensor::As::kUnchanged : GlooTensor::As::kValues;
    const GlooTensors all = carry(tensors, name, as, average);
    at::Tensor flat = flat_of(all);
    set(options);
    const auto finish = [=, size = size_]() mutable {
      if (average) divide(flat, size);
      finish_all(all, flat);
    };
    return forward(name, why, tensors, {flat}, finish, [&](c10d::Backend& other) {
      Tensors wires{flat};
      return other.allreduce(wires, options);
    });
  }

  WorkPtr reduce(const std::string& why, Tensors& tensors, c10d::ReduceOptions options) {
    const bool average = options.reduceOp.op_ == c10d::ReduceOp::AVG;
    check_reduction("reduce", tensors[0], options.reduceOp);
    const GlooTensor it(tensors[0], "reduce", GlooTensor::As::kValues, average);
    const bool root = options.rootRank == rank_;
    at::Tensor flat = root ? it.wire : it.wire.clone();  // tensors of other ranks stay unchanged
    set(options);
    const auto finish = [=, size = size_]() mutable {
      if (!root) return;
      if (average) divide(flat, size);
      it.finish();
    };
    return forward("reduce", why, tensors, {flat}, finish, [&](c10d::Backend& other) {
      Tensors wires{flat};
      return other.reduce(wires, options);
    });
  }

  // Runs an all-reduce of all blocks. Only newer versions of Gloo have reduce-scatter, and they do the same.
  WorkPtr reduce_scatter(const std::string& why, Tensors& outputs, Tensors& blocks,
                         const c10d::ReduceScatterOptions& given) {
    const char* const name = "reduce_scatter";
    const bool average = given.reduceOp.op_ == c10d::ReduceOp::AVG;
    check_reduction(name, outputs[0], given.reduceOp);
    check_types(name, outputs, blocks);
    const GlooTensor output(outputs[0], name, GlooTensor::As::kValues, average);
    const at::Tensor whole = at::cat(wires_of(carry(blocks, name, GlooTensor::As::kValues)));
    c10d::AllreduceOptions options;
    options.reduceOp = given.reduceOp;
    options.timeout = given.timeout;
    set(options);
    const auto finish = [=, size = size_, rank = rank_] {
      at::Tensor own = output.wire;
      own.copy_(whole.view({size, -1}).select(0, rank));
      if (average) divide(own, size);
      output.finish();
    };
    return forward(name, why, outputs, {whole}, finish, [&](c10d::Backend& other) {
      Tensors wires{whole};
      return other.allreduce(wires, options);
    });
  }

  WorkPtr broadcast(const std::string& why, Tensors& tensors, c10d::BroadcastOptions options) {
    const GlooTensor it(tensors[0], "broadcast", GlooTensor::As::kBytes);
    options.rootTensor = 0;
    options.timeout = limit(options.timeout);
    return forward(
        "broadcast", why, tensors, {it.wire}, [=] { it.finish(); },
        [&](c10d::Backend& other) {
          Tensors wires{it.wire};
          return other.broadcast(wires, options);
        });
  }

  WorkPtr all_gather(const std::string& why, Tensors& outputs, const at::Tensor& tensor,
                     c10d::AllgatherOptions options) {
    check_types("all_gather", outputs, {tensor});
    const GlooTensor own(tensor, "all_gather", GlooTensor::As::kBytes);
    const GlooTensors theirs = carry(outputs, "all_gather", GlooTensor::As::kBytes);
    options.timeout = limit(options.timeout);
    return forward(
        "all_gather", why, outputs, wires_of(theirs), [=] { finish_all(theirs); },
        [&](c10d::Backend& other) {
          TensorLists all{wires_of(theirs)};
          Tensors wires{own.wire};
          return other.allgather(all, wires, options);
        });
  }

  // outputs: one list with a tensor per rank on the root; empty on other ranks.
  WorkPtr gather(const std::string& why, TensorLists& outputs, const at::Tensor& tensor, c10d::GatherOptions options) {
    const Tensors many = outputs.empty() ? Tensors{} : outputs[0];
    check_types("gather", many, {tensor});
    const GlooTensor own(tensor, "gather", GlooTensor::As::kBytes);
    const GlooTensors theirs = carry(many, "gather", GlooTensor::As::kBytes);
    options.timeout = limit(options.timeout);
    return forward(
        "gather", why, many, many.empty() ? Tensors{own.wire} : wires_of(theirs), [=] { finish_all(theirs); },
        [&](c10d::Backend& other) {
          TensorLists all;
          if (!outputs.empty()) all.push_back(wires_of(theirs));
          Tensors wires{own.wire};
          return other.gather(all, wires, options);
        });
  }

  // inputs: one list with a tensor per rank on the root; empty on other ranks.
  WorkPtr scatter(const std::string& why, const at::Tensor& output, TensorLists& inputs, c10d::ScatterOptions options) {
    const Tensors many = inputs.empty() ? Tensors{} : inputs[0];
    check_types("scatter", many, {output});
    const GlooTensor own(output, "scatter", GlooTensor::As::kBytes);
    const GlooTensors theirs = carry(many, "scatter", GlooTensor::As::kBytes);
    options.timeout = limit(options.timeout);
    return forward(
        "scatter", why, {output}, many.empty() ? Tensors{own.wire} : wires_of(theirs), [=] { own.finish(); },
        [&](c10d::Backend& other) {
          TensorLists all;
          if (!inputs.empty()) all.push_back(wires_of(theirs));
          Tensors wires{own.wire};
          return other.scatter(wires, all, options);
        });
  }

  // Exchanges one tensor per rank in each direction, of any sizes. All of them travel in one flat tensor.
  WorkPtr all_to_all(const std::string& why, Tensors& outputs, Tensors& inputs, c10d::AllToAllOptions options) {
    check_types("all_to_all", outputs, inputs);
    const GlooTensors theirs = carry(outputs, "all_to_all", GlooTensor::As::kBytes);
    const GlooTensors ours = carry(inputs, "all_to_all", GlooTensor::As::kBytes);
    at::Tensor here = at::cat(wires_of(theirs));
    at::Tensor there = at::cat(wires_of(ours));
    std::vector<int64_t> from;
    std::vector<int64_t> to;
    for (const GlooTensor& it : theirs) from.push_back(it.wire.numel());
    for (const GlooTensor& it : ours) to.push_back(it.wire.numel());
    options.timeout = limit(options.timeout);
    return forward(
        "all_to_all", why, outputs, {here}, [=] { finish_all(theirs, here); },
        [&](c10d::Backend& other) { return other.alltoall_base(here, there, from, to, options); });
  }

  // output_splits, input_splits: rows from and for each rank. If empty, the rows are divided equally.
  WorkPtr all_to_all_single(const std::string& why, at::Tensor& output, at::Tensor& tensor,
                            const std::vector<int64_t>& output_splits, const std::vector<int64_t>& input_splits,
                            c10d::AllToAllOptions options) {
    check_types("all_to_all_single", {output}, {tensor});
    const GlooTensor here(output, "all_to_all_single", GlooTensor::As::kBytes);
    const GlooTensor there(tensor, "all_to_all_single", GlooTensor::As::kBytes);
    std::vector<int64_t> from = counts(here, output_splits);
    std::vector<int64_t> to = counts(there, input_splits);
    options.timeout = limit(options.timeout);
    return forward(
        "all_to_all_single", why, {output}, {here.wire}, [=] { here.finish(); },
        [&](c10d::Backend& other) {
          at::Tensor taken = here.wire;
          at::Tensor given = there.wire;
          return other.alltoall_base(taken, given, from, to, options);
        });
  }

  // rank: rank within the group.
  WorkPtr send(const std::string& why, Tensors& tensors, int rank, int tag) {
    const GlooTensor it(tensors[0], "send", GlooTensor::As::kBytes);
    const std::string told = "send to rank " + std::to_string(rank) + " of the group";
    return forward(
        "send", why, tensors, {it.wire}, [] {},
        [&](c10d::Backend& other) {
          Tensors wires{it.wire};
          return other.send(wires, rank, tag);
        },
        told);
  }

  // rank: rank within the group; -1 for any.
  WorkPtr recv(const std::string& why, Tensors& tensors, int rank, int tag) {
    const GlooTensor it(tensors[0], "recv", GlooTensor::As::kBytes);
    const std::string told =
        rank < 0 ? "recv from any rank" : "recv from rank " + std::to_string(rank) + " of the group";
    return forward(
        "recv", why, tensors, {it.wire}, [=] { it.finish(); },
        [&](c10d::Backend& other) {
          Tensors wires{it.wire};
          return rank < 0 ? other.recvAnysource(wires, tag) : other.recv(wires, rank, tag);
        },
        told);
  }

  // Starts a barrier. It ends when all ranks have started it and all earlier collectives are over.
  WorkPtr barrier(const std::string& why) {
    c10d::BarrierOptions options;
    options.timeout = limit(options.timeout);
    WorkPtr work = forward(
        "barrier", why, {}, {}, [] {}, [&](c10d::Backend& other) { return other.barrier(options); });
    has_pending_ = false;
    return work;
  }

  void monitored_barrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
    other(false)->monitoredBarrier(options, wait_all_ranks);
  }

 private:
  using OtherPtr = c10::intrusive_ptr<c10d::Backend>;

  std::chrono::milliseconds limit(std::chrono::milliseconds given) const {
    return given.count() > 0 ? given : std::chrono::milliseconds(timeout_ms_);
  }

  // Sets the time limit, and replaces an average by a sum: not all backends have averages.
  template <class Options>
  void set(Options& options) const {
    options.timeout = limit(options.timeout);
    if (options.reduceOp.op_ == c10d::ReduceOp::AVG) options.reduceOp = c10d::ReduceOp::SUM;
  }

  // Raises BadArgument for reductions without a meaning. Complex numbers are reduced as pairs of reals, which gives
  // neither products nor minima or maxima.
  static void check_reduction(const std::string& name, const at::Tensor& tensor, const c10d::ReduceOp& reduce) {
    const auto op = reduce.op_;
    const bool sums = op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG;
    const bool bits = op == c10d::ReduceOp::BAND || op == c10d::ReduceOp::BOR || op == c10d::ReduceOp::BXOR;
    if (tensor.is_complex() && !sums) {
      raise_bad_argument(name + " of " + name_of(tensor.scalar_type()) + " can only be a sum or an average");
    }
    if (tensor.is_floating_point() && bits) {
      raise_bad_argument(name + " by BAND, BOR and BXOR needs whole numbers, not " + name_of(tensor.scalar_type()));
    }
  }

  // Raises BadArgument for tensors of several types: the bytes of one would be read as another.
  static void check_types(const std::string& name, const Tensors& some, const Tensors& others) {
    std::set<at::ScalarType> types;
    for (const Tensors* tensors : {&some, &others}) {
      for (const at::Tensor& tensor : *tensors) types.insert(tensor.scalar_type());
    }
    if (types.size() < 2) return;
    std::set<std::string> names;
    for (const at::ScalarType type : types) names.insert(name_of(type));
    std::string all;
    for (const std::string& it : names) all += (all.empty() ? "" : " and ") + it;
    raise_bad_argument(name + " of " + all + "; all must be of one type");
  }

  std::vector<int64_t> counts(const GlooTensor& it, std::vector<int64_t> splits) const {
    const int64_t rows = it.rows();
    if (splits.empty()) {
      if (rows % size_ != 0) {
        raise_bad_argument("all_to_all_single of " + std::to_string(rows) +
                           " rows without sizes: they cannot be divided among " + std::to_string(size_) + " ranks");
      }
      splits.assign(static_cast<size_t>(size_), rows / size_);
    }
    const int64_t sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
    if (sum != rows) {
      raise_bad_argument("all_to_all_single with sizes of " + std::to_string(sum) + " rows; the tensor has " +
                         std::to_string(rows));
    }
    for (int64_t& split : splits) split = it.elements(split);
    return splits;
  }

  // Returns the other backend. Raises if the group has failed.
  OtherPtr other(bool cuda) {
    const Interpreter interpreter;
    return state_->get().attr("backend")(cuda).cast<OtherPtr>();
  }

  static std::string text_of(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const c10::Error& reason) {
      return reason.what_without_backtrace();
    } catch (const std::exception& reason) {
      return reason.what();
    }
  }

  static std::shared_ptr<Object> explain(const std::shared_ptr<Object>& state, const std::string& told,
                                         const std::exception_ptr& error) {
    const Interpreter interpreter;
    return std::make_shared<Object>(state->get().attr("failed")(told + ": " + text_of(error)));
  }

  // Starts an operation by `start` and returns its Work. data: tensors that ranks exchange; their bytes are counted.
  // told: description for error texts; `name` if empty.
  template <class Start>
  WorkPtr forward(const char* name, const std::string& why, const Tensors& result, const Tensors& data,
                  std::function<void()> finish, Start start, std::string told = "") {
    const bool cuda = std::any_of(data.begin(), data.end(), [](const at::Tensor& it) { return it.is_cuda(); });
    const OtherPtr engine = other(cuda);
    const std::string where = engine->getBackendName() == "nccl" ? "NCCL" : "Gloo";
    told = "gradlane: " + (told.empty() ? name : told) + " by " + where;
    int64_t bytes = 0;
    for (const at::Tensor& it : data) bytes += it.layout() == at::kStrided ? it.numel() * it.element_size() : 0;
    {
      const Interpreter interpreter;
      (void)state_->get().attr("note")(name, where, why, bytes);
    }
    const bool inference =
        std::any_of(result.begin(), result.end(), [](const at::Tensor& it) { return it.is_inference(); });
    const auto end = [finish = std::move(finish), inference] {
      const c10::InferenceMode mode(inference);
      const at::NoGradGuard no_gradients;
      finish();
    };
    const bool collective = name != std::string("send") && name != std::string("recv");
    WorkPtr work;
    try {
      work = start(*engine);
    } catch (const py::error_already_set&) {
      throw;
    } catch (...) {
      if (!collective) {
        const Interpreter interpreter;
        raise(explain(state_, told, std::current_exception())->get());
      }
      raise_bad_argument(told.substr(std::string("gradlane: ").size()) + ": " + text_of(std::current_exception()));
    }
    has_pending_ = has_pending_ || collective;
    return c10::make_intrusive<WorkOfFallback>(
        work, collective ? work->getFuture() : nullptr, result, end,
        [state = state_, told](const std::exception_ptr& error) { return explain(state, told, error); });
  }

  const std::shared_ptr<Object> state_;
  const int rank_;
  const int size_;
  std::atomic<int64_t> timeout_ms_{0};
  std::atomic<bool> has_pending_{false};
};

// Several operations as one Work, which is over when all its operations are over.
class CombinedWork : public c10d::Work {
 public:
  CombinedWork(std::vector<WorkPtr> works, Tensors result) : works_(std::move(works)), result_(std::move(result)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    for (const WorkPtr& work : works_) (void)work->wait(timeout);
    return true;
  }
  void synchronize() override { (void)wait(std::chrono::milliseconds(0)); }
  bool isCompleted() override {
    return std::all_of(works_.begin(), works_.end(), [](const WorkPtr& it) { return it->isCompleted(); });
  }
  bool isSuccess() const override {
    return std::all_of(works_.begin(), works_.end(), [](const WorkPtr& it) { return it->isSuccess(); });
  }
  std::exception_ptr exception() const override {
    for (const WorkPtr& work : works_) {
      if (std::exception_ptr error = work->exception()) return error;
    }
    return nullptr;
  }
  Tensors result() override { return result_; }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(
        c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
    for (const WorkPtr& work : works_) futures.push_back(work->getFuture());
    return c10::collectAll(futures)->then(
        [result = result_](c10::ivalue::Future& all) {
          for (const c10::IValue& it : all.value().toListRef()) {
            if (it.toFuture()->hasError()) std::rethrow_exception(it.toFuture()->exception_ptr());
          }
          return c10::IValue(result);
        },
        c10::ListType::create(c10::TensorType::get()));
  }

 private:
  const std::vector<WorkPtr> works_;
  const Tensors result_;
};

}  // namespace gradlane::native
