"""Backend "gradlane" of torch.distributed: a process group on top of the engine.

    torch.distributed.init_process_group("gradlane")

Sums of float32, and with some codecs of other floating types, go through the codec. Other data is exact.
docs/pytorch.md lists the operations.
"""

from __future__ import annotations

import contextlib
import datetime
import types
import weakref
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist
from torch.futures import Future

from .. import _losses, errors
from . import call_statistics, extension, gpu, interrupts, staging
from .bootstrap import joining, launch
from .engine import TORCH, Engine
from .fallback import State, wanted
from .bootstrap.joining import refusal, watch
from .default_options import DefaultOptions
from .work import Work

_ANOTHER = "make a group of another backend for that: dist.new_group(backend='gloo')"
# Causes of failures after which the group cannot be used any more.
_LOST = (errors.Cause.TIMEOUT, errors.Cause.NODE_LEFT, errors.Cause.TRAINER_GONE)


def create(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    """Returns the c10d::Backend of a new process group.

    Raises CannotBuild if the C++ extension cannot be built or loaded, and what joining.rendezvous_and_join() raises.
    """
    # _connect() calls load() again, and reports the error to all ranks
    with contextlib.suppress(extension.CannotBuild):
        extension.load()  # may build for half a minute, so it runs before ranks wait for one another
    group = _connect(store, rank, size, timeout)
    native = extension.load()
    gate, fallback = native.FastPathSwitch(), None
    if group.state is not None:
        group.state.gate = gate
        fallback = native.Fallback(group.state, rank, size)
    return native.Backend(group, rank, size, "gradlane", group.fast_path(native), gate, fallback,
                          group.unsupported_reason)


def _create_by_options(options: Any, _: Any) -> Any:
    """Calls create() for init_process_group() and new_group()."""
    return create(options.store, options.group_rank, options.group_size, options.timeout)


def _connect(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta) -> Group:
    if not dist.is_initialized():
        # This is a new job. Groups of an earlier job may still be referenced, by a model for example, and ranks may
        # have counted different numbers of operations.
        Engine.renew()
        DefaultOptions.bounds = {}
        call_statistics.clear()
        joining.job = ""
    if size == 1 or dist.is_initialized() and (Engine.exists() or size != dist.get_world_size()):
        group = Group(rank, size, timeout)
    else:
        def join(own: dist.Store) -> Group:
            extension.load()
            launch.prepare(own, rank, size, timeout)
            return Group(rank, size, timeout)

        group = joining.rendezvous_and_join(store, rank, size, timeout, join)
        launch.verify(group._engine, timeout)
    if wanted():
        group.state = State(joining.own(store), rank, size, group.options)
    return group


def register() -> None:
    """Registers backend "gradlane" with torch.distributed."""
    if hasattr(dist.Backend, "GRADLANE"):
        return
    dist.Backend.register_backend("gradlane", _create_by_options, extended_api=True, devices=["cpu", "cuda"])
    watch()


class Group:
    """Python part of a process group of all ranks or of one rank. One rank needs no daemon. Other groups use the
    fallback.

    native/backend.h calls the methods for the operations that gradlane runs itself. They return a Work, whose wait()
    raises OperationFailed and DaemonGone. Wrong arguments raise BadArgument at once. `unsupported_reason` is the reason
    why gradlane runs no operation of this group itself, or "". `state` is the state of the fallback, None if there is
    none.
    """

    _engine: Engine | None
    unsupported_reason = ""
    state: State | None = None
    _refusal: errors.BadArgument | None = None

    def __init__(self, rank: int, size: int, timeout: datetime.timedelta) -> None:
        self._rank, self._size = rank, size
        self.options = types.SimpleNamespace(_timeout=timeout)  # the options of Gloo and NCCL have this name, too
        self._engine = None
        if size == 1:
            DefaultOptions.verify(Engine.existing() if Engine.exists() else None)
            return
        if dist.is_initialized() and size != dist.get_world_size():
            world = dist.get_world_size()
            self.unsupported_reason = f"a group of {size} of {world} ranks"
            if not wanted():
                # refuse() raises it later. If members raised it here, the other ranks would wait for them in
                # new_group().
                self._refusal = refusal(size, world)
            return
        self._engine = Engine.shared(rank=rank, world=size)
        self._engine.groups = True
        weakref.finalize(self, self._engine.release).atexit = False
        DefaultOptions.verify(self._engine)

    def split(self, store: dist.Store, ranks: list[int], timeout: datetime.timedelta) -> Any:
        """Returns a new group of the given ranks of this group, or None if this rank is not one of them."""
        return create(store, ranks.index(self._rank), len(ranks), timeout) if self._rank in ranks else None

    # ---- Sums

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """Runs all_reduce() with SUM, AVG, MIN or MAX, in place. Sums go through the codec of use_codec().
        """
        return self._reduce("all_reduce", only(tensors, "all_reduce"), tensors, op_of(opts))

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """Runs all_reduce_coalesced() on all tensors as one. They must have one type and be on one device."""
        name = "all_reduce_coalesced"
        if len({(tensor.dtype, tensor.device) for tensor in tensors}) != 1:
            raise errors.bad_argument(f"gradlane: {name} needs tensors of one type and on one device")
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])

        def spread(result: torch.Tensor) -> None:
            for tensor, part in zip(tensors, result.split([tensor.numel() for tensor in tensors])):
                tensor.detach().copy_(part.view(tensor.shape))

        return self._reduce(name, flat, tensors, op_of(opts), spread)

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """Runs reduce() as an all_reduce(). Ranks other than the root pass a copy, so their tensors keep their values.
        """
        tensor = only(tensors, "reduce")
        return self._reduce("reduce", tensor if opts.rootRank == self._rank else tensor.clone(), tensors, op_of(opts))

    def reduce_scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any = None) -> Work:
        """Runs reduce_scatter() with SUM, AVG, MIN or MAX on blocks of one shape and type. With fixed:adaptive it is
        exact."""
        output, blocks, op = only(outputs, "reduce_scatter"), only(inputs, "reduce_scatter"), op_of(opts)
        kind = _reduction(op)
        if op == dist.ReduceOp.AVG and _whole(output.dtype):
            kind["average"] = False
            kind["on_result"] = lambda _: _divide(output.detach(), self._size)
        if self._engine is None:
            output.copy_(blocks[0])
        # The result is exact with an adaptive bound, which would need the whole result on all ranks.
        coded = kind["reduction"] == "sum"
        codec, bound = DefaultOptions.choose(output, self._engine) if coded else (None, None)
        if bound is not None and self._engine is not None:
            codec = self._engine.codecs.exact
        return self._begin(outputs, "reduce_scatter", output, blocks, codec=codec, **kind)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Work:
        """Runs reduce_scatter_tensor(), whose input is one contiguous tensor of all blocks."""
        return self.reduce_scatter([output], [self.blocks("reduce_scatter_tensor", tensor, output)], opts)

    def _reduce(self, name: str, tensor: torch.Tensor, result: list[torch.Tensor], op: Any,
                on_result: Callable[[torch.Tensor], None] | None = None) -> Work:
        kind = _reduction(op)
        if op == dist.ReduceOp.AVG and _whole(tensor.dtype):
            return self._reduce_whole(name, tensor, result, on_result)
        average = kind["average"]
        coded = kind["reduction"] == "sum"
        codec, chosen = DefaultOptions.choose(tensor, self._engine) if coded else (None, None)
        kind["strategy"] = DefaultOptions.strategy
        if chosen is None:
            return self._begin(result, "all_reduce", tensor, codec=codec, on_result=on_result, noted=name, **kind)
        bound = chosen

        def update(reduced: torch.Tensor) -> None:
            bound.update(reduced.contiguous().numpy(), 1.0 if average else 1.0 / self._size)

        # `bound.codec` is called when all earlier operations have ended, so all ranks choose the same codec.
        return self._begin(result, "all_reduce", tensor, codec=bound.codec, on_host_result=update, on_result=on_result,
                           on_failure=bound.reset, noted=name, **kind)

    def _reduce_whole(self, name: str, tensor: torch.Tensor, result: list[torch.Tensor],
                      on_result: Callable[[torch.Tensor], None] | None) -> Work:
        """Averages whole numbers, by a sum in int64, in which smaller types do not overflow."""
        total = tensor.detach().to(torch.int64)

        def average(_: torch.Tensor) -> None:
            _divide(total, self._size)
            if total.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(total)
            if on_result is not None:
                on_result(tensor)

        return self._reduce(name, total, result, dist.ReduceOp.SUM, average)

    # ---- Copies

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """Runs broadcast(). Data arrives exactly, whatever the type."""
        tensor = only(tensors, "broadcast")
        return self._begin(tensors, "broadcast", tensor, opts.rootRank)

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> Work:
        """Runs all_gather() of blocks of one shape and type. Data arrives exactly."""
        own, theirs = only(inputs, "all_gather"), only(outputs, "all_gather")
        if self._engine is None:
            theirs[0].copy_(own)
        return self._begin(outputs, "all_gather", theirs, own)

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Work:
        """Runs all_gather_into_tensor(), whose output is one contiguous tensor of all blocks."""
        blocks = self.blocks("all_gather_into_tensor", output, tensor)
        return self.allgather([blocks], [tensor.reshape(-1)], opts)

    def barrier(self, opts: Any = None) -> Work:
        """Runs barrier()."""
        return self._begin([], "barrier")

    def abort(self) -> None:
        """Makes operations in flight and later ones fail, here and on the other ranks. The caller must then destroy the
        group."""
        if self.state is not None:
            self.state.give_up(errors.error(errors.Code.FAILED, "gradlane: the process group was aborted"))
        if self._engine is not None:
            self._engine.close(summarize=False)

    # ---- Small sums without Python

    def fast_path(self, native: Any) -> Any:
        """Returns the native.FastPath of the engine, or None if there is no engine."""
        if self._engine is None:
            return None
        fast_path = self._engine.fast_path(native)
        DefaultOptions.tell()
        return fast_path

    def adopt(self, tensors: list[torch.Tensor], outcome: int) -> Work:
        """Continues an all-reduce that native/fast_path.h has started, and that is still in flight or has failed.

        outcome: the address of a gradlane_outcome.
        """
        try:
            return self._begin(tensors, "adopt", tensors[0], outcome, noted="all_reduce")
        except BaseException:
            interrupts.note()
            raise

    def warn(self, text: str) -> None:
        """Issues the library's warning about a sum as a LossWarning. Raises it if warnings are errors."""
        _losses.say(text, _losses.caller(TORCH))

    # ---- Operations that gradlane lacks

    def premultiplied(self, op: Any, tensors: list[torch.Tensor], in_place: bool) -> Sequence[torch.Tensor] | None:
        """Returns the tensors times the factor of PREMUL_SUM, or None with PyTorch 2.6, which hides the factor."""
        total, scaled = staging.premultiplied(op, tensors, in_place)
        return scaled if total == dist.ReduceOp.SUM else None

    def refuse(self, name: str, op: Any = None) -> None:
        """Raises an error that says why gradlane does not run this operation. It is called if there is no fallback."""
        if self._refusal is not None:
            raise self._refusal
        if op is None:
            raise NotImplementedError(f"gradlane: the backend gradlane has no {name}; {_ANOTHER}")
        here = "the backend gradlane has only SUM, AVG, MIN and MAX"
        raise NotImplementedError(f"gradlane: {name} with {_op_name(op)}; {here}; {_ANOTHER}")

    # ---- Other calls of PyTorch

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Sets the time limit of later operations."""
        self.options._timeout = timeout
        if self.state is not None:
            self.state.set_timeout(timeout)

    def get_timeout(self) -> datetime.timedelta:
        """Returns the time limit of each operation."""
        timeout: datetime.timedelta = self.options._timeout
        return timeout

    def supports_tensor_alloc(self) -> bool:
        """Returns whether allocate_tensor() returns shared memory, which operations do not copy."""
        return self._engine is not None and self._engine.usable

    def allocate_tensor(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        """Returns a zeroed bucket for DistributedDataParallel: in shared memory, or in ordinary memory if there is no
        more."""
        try:
            if self._engine is not None:
                return self._engine.zeros(size, dtype)
        except (errors.OutOfMemory, errors.DaemonGone):
            pass
        return torch.zeros(size, dtype=dtype)

    # ---- Private

    def blocks(self, name: str, large: torch.Tensor, small: torch.Tensor) -> list[torch.Tensor]:
        """Returns the flat parts of `large`, one per rank. Raises BadArgument if its size does not fit, or it is not
        contiguous."""
        if large.numel() != small.numel() * self._size or not large.is_contiguous():
            raise errors.bad_argument(
                f"gradlane: {name} with {small.numel()} elements per rank needs a contiguous tensor of "
                f"{small.numel() * self._size} for all ranks, not one of {large.numel()}"
            )
        return list(large.detach().view(self._size, -1))

    def _begin(self, result: Any, name: str, *arguments: Any, on_failure: Callable[[], None] | None = None,
               noted: str | None = None, **how: Any) -> Work:
        """Starts an operation of the engine and returns a Work with `result`. noted: the operation's name in explain().
        """
        # failed() references this and not `self`, so that the group can be freed when it is destroyed
        state = self.state
        if state is not None and name != "adopt":  # an adopted operation is already in the order
            state.check()
        nbytes = max(map(call_statistics.size_of, arguments), default=0)
        call_statistics.note(noted or name, call_statistics.HERE, "", nbytes)
        work = Work(result)

        def start(result: Any, on_error: Callable[[Exception], None]) -> Future[Any]:
            if self._engine is None:
                if name == "all_reduce":
                    staging.check(arguments[0], name)
                    staging.summable(arguments[0].detach(), name, how["average"], how["reduction"] != "sum")
                future = gpu.future_of(gpu.devices_of(result))
                future.set_result(result)
                return future

            def failed(error: Exception) -> None:
                on_error(error)
                if _is_lost(error):
                    launch.tell()
                    if state is not None:
                        state.give_up(error)
                if on_failure is not None and not isinstance(error, errors.LossWarning):
                    on_failure()

            how["timeout"] = self.options._timeout.total_seconds()
            operate: Callable[..., Future[Any]] = getattr(self._engine, name)
            return operate(*arguments, result=result, on_error=failed, **how)

        return work.begin(start)


def _is_lost(error: Exception) -> bool:
    """Returns whether a rank or the daemon is lost. The fallback's operations would wait for it until their time limit.
    """
    return isinstance(error, errors.DaemonGone) or isinstance(error, errors.Error) and error.cause in _LOST


def _whole(dtype: torch.dtype) -> bool:
    """Returns whether these are whole numbers, which the daemon does not average."""
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def _reduction(op: Any) -> dict[str, Any]:
    """Returns the engine's options for a ReduceOp. The result is empty if the engine does not have that ReduceOp."""
    for known, reduction in ((dist.ReduceOp.SUM, "sum"), (dist.ReduceOp.AVG, "sum"), (dist.ReduceOp.MIN, "min"),
                             (dist.ReduceOp.MAX, "max")):
        if op == known:
            return {"average": known == dist.ReduceOp.AVG, "reduction": reduction}
    return {}


def only(tensors: Sequence[Any], name: str) -> Any:
    """Returns the only item of a list. PyTorch passes lists for several GPUs of a process, which are no longer in use.
    """
    if len(tensors) != 1:
        raise errors.bad_argument(f"gradlane: {name} takes one tensor per process, not {len(tensors)}")
    return tensors[0]


def op_of(opts: Any) -> Any:
    """Returns the ReduceOp of a call, by default SUM. PREMUL_SUM is SUM here, as native/backend.h has scaled the
    tensors."""
    op = dist.ReduceOp.SUM if opts is None else opts.reduceOp
    return dist.ReduceOp.SUM if op == dist.ReduceOp.PREMUL_SUM else op


def _op_name(op: Any) -> str:
    """Returns PyTorch's name of a ReduceOp."""
    names = ("SUM", "AVG", "MIN", "MAX", "PRODUCT", "BAND", "BOR", "BXOR", "PREMUL_SUM")
    return next((name for name in names if op == getattr(dist.ReduceOp, name, None)), str(op))


def _divide(total: torch.Tensor, size: int) -> None:
    """Turns a sum over `size` ranks into the average, in place. Whole numbers are rounded towards zero, as in NCCL."""
    total.div_(size, rounding_mode=None if total.dtype.is_floating_point or total.is_complex() else "trunc")
