"""The backend "gradlane" of torch.distributed: a process group over the engine.

    torch.distributed.init_process_group("gradlane")

Sums of float32 go through the codec, all else is exact. docs/pytorch.md of gradlane says what there is.
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
from . import extension, gpu, interrupts, ledger, staging
from .bootstrap import joining, launch
from .engine import TORCH, Engine
from .fallback import State, wanted
from .bootstrap.joining import refusal, watch
from .setting import Setting
from .work import Work

_ANOTHER = "make a group of another backend for it: dist.new_group(backend='gloo')"
_LOST = (errors.Cause.TIMEOUT, errors.Cause.NODE_LEFT, errors.Cause.TRAINER_GONE)  # the group is of no use then


def create(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    """Returns the c10d::Backend of a new process group.

    Raises CannotBuild where the part in C++ is not to be had, and what joining.meet() raises.
    """
    with contextlib.suppress(extension.CannotBuild):  # _connect() raises it, so that the other ranks hear of it
        extension.load()  # may build for half a minute: before ranks wait for one another
    group = _connect(store, rank, size, timeout)
    native = extension.load()
    gate, fallback = native.Gate(), None
    if group.state is not None:
        group.state.gate = gate
        fallback = native.Fallback(group.state, rank, size)
    return native.Backend(group, rank, size, "gradlane", group.express(native), gate, fallback, group.apart)


def _create_by_options(options: Any, _: Any) -> Any:
    """Does the same for init_process_group() and new_group()."""
    return create(options.store, options.group_rank, options.group_size, options.timeout)


def _connect(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta) -> Group:
    if not dist.is_initialized():
        # A new job. Groups of an earlier one may still be referenced, by a model say, and ranks may disagree about how
        # many operations there have been.
        Engine.renew()
        Setting.bounds = {}
        ledger.clear()
        joining.job = ""
    if size == 1 or dist.is_initialized() and (Engine.exists() or size != dist.get_world_size()):
        group = Group(rank, size, timeout)
    else:
        def join(own: dist.Store) -> Group:
            extension.load()
            launch.prepare(own, rank, size, timeout)
            return Group(rank, size, timeout)

        group = joining.meet(store, rank, size, timeout, join)
        launch.verify(group._engine, timeout)
    if wanted():
        group.state = State(joining.own(store), rank, size, group.options)
    return group


def register() -> None:
    """Makes the name known to torch.distributed."""
    if hasattr(dist.Backend, "GRADLANE"):
        return
    dist.Backend.register_backend("gradlane", _create_by_options, extended_api=True, devices=["cpu", "cuda"])
    watch()


class Group:
    """All ranks, or one: then there is nothing to exchange, and no daemon needed. Others are left to the fallback.

    native/backend.h calls the methods, for what gradlane does itself. Operations return a Work, whose wait() raises
    OperationFailed and DaemonGone; what is wrong with a call is raised at once, as BadArgument. apart: why gradlane
    does nothing of this group itself, or "". state: of the fallback, where there is one.
    """

    _engine: Engine | None
    apart = ""
    state: State | None = None
    _refusal: errors.BadArgument | None = None

    def __init__(self, rank: int, size: int, timeout: datetime.timedelta) -> None:
        self._rank, self._size = rank, size
        self.options = types.SimpleNamespace(_timeout=timeout)  # as other backends have it
        self._engine = None
        if size == 1:
            Setting.verify(Engine.existing() if Engine.exists() else None)
            return
        if dist.is_initialized() and size != dist.get_world_size():
            world = dist.get_world_size()
            self.apart = f"a group of {size} of {world} ranks"
            if not wanted():
                # Not raised here: the ranks that are no members would wait in new_group() for those that are.
                self._refusal = refusal(size, world)
            return
        self._engine = Engine.shared(rank=rank, world=size)
        self._engine.groups = True
        weakref.finalize(self, self._engine.release).atexit = False
        Setting.verify(self._engine)

    def split(self, store: dist.Store, ranks: list[int], timeout: datetime.timedelta) -> Any:
        """A group of these ranks of it; None where this is none of them."""
        return create(store, ranks.index(self._rank), len(ranks), timeout) if self._rank in ranks else None

    # ---- Sums

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """all_reduce(): SUM, AVG, MIN or MAX, in place; sums of float32 through the codec of use_codec()."""
        return self._reduce("all_reduce", only(tensors, "all_reduce"), tensors, op_of(opts))

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """all_reduce_coalesced(): as one tensor. All are of one type and on one device."""
        name = "all_reduce_coalesced"
        if len({(tensor.dtype, tensor.device) for tensor in tensors}) != 1:
            raise errors.bad_argument(f"gradlane: {name} needs tensors, of one type and on one device")
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])

        def spread(result: torch.Tensor) -> None:
            for tensor, part in zip(tensors, result.split([tensor.numel() for tensor in tensors])):
                tensor.detach().copy_(part.view(tensor.shape))

        return self._reduce(name, flat, tensors, op_of(opts), spread)

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """reduce(): an all_reduce() that other ranks do not see the result of."""
        tensor = only(tensors, "reduce")
        return self._reduce("reduce", tensor if opts.rootRank == self._rank else tensor.clone(), tensors, op_of(opts))

    def reduce_scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any = None) -> Work:
        """reduce_scatter(): SUM, AVG, MIN or MAX of blocks of one shape and type; with fixed:adaptive exact."""
        output, blocks, op = only(outputs, "reduce_scatter"), only(inputs, "reduce_scatter"), op_of(opts)
        kind = _reduction(op)
        if op == dist.ReduceOp.AVG and _whole(output.dtype):
            kind["average"] = False
            kind["on_result"] = lambda _: _divide(output.detach(), self._size)
        if self._engine is None:
            output.copy_(blocks[0])
        # An adaptive bound would need the whole result on all ranks.
        codec, bound = Setting.choose(output.numel(), self._engine) if kind["reduction"] == "sum" else (None, None)
        if bound is not None and self._engine is not None:
            codec = self._engine.codecs.exact
        return self._begin(outputs, "reduce_scatter", output, blocks, codec=codec, **kind)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Work:
        """reduce_scatter_tensor(): of a contiguous tensor of all blocks."""
        return self.reduce_scatter([output], [self.blocks("reduce_scatter_tensor", tensor, output)], opts)

    def _reduce(self, name: str, tensor: torch.Tensor, result: list[torch.Tensor], op: Any,
                on_result: Callable[[torch.Tensor], None] | None = None) -> Work:
        kind = _reduction(op)
        if op == dist.ReduceOp.AVG and _whole(tensor.dtype):
            return self._reduce_whole(name, tensor, result, on_result)
        average = kind["average"]
        coded = tensor.dtype == torch.float32 and kind["reduction"] == "sum"
        codec, chosen = Setting.choose(tensor.numel(), self._engine) if coded else (None, None)
        kind["strategy"] = Setting.strategy
        if chosen is None:
            return self._begin(result, "all_reduce", tensor, codec=codec, on_result=on_result, noted=name, **kind)
        bound = chosen

        def update(reduced: torch.Tensor) -> None:
            bound.update(reduced.detach().cpu().contiguous().numpy(), 1.0 if average else 1.0 / self._size)
            if on_result is not None:
                on_result(reduced)

        # All ranks ask for the codec when the operations before have ended, so they all get the same.
        return self._begin(result, "all_reduce", tensor, codec=bound.codec, on_result=update, on_failure=bound.reset,
                           noted=name, **kind)

    def _reduce_whole(self, name: str, tensor: torch.Tensor, result: list[torch.Tensor],
                      on_result: Callable[[torch.Tensor], None] | None) -> Work:
        """An average of whole numbers: of a sum that does not overflow."""
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
        """broadcast(), bit by bit."""
        tensor = only(tensors, "broadcast")
        return self._begin(tensors, "broadcast", tensor, opts.rootRank)

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> Work:
        """all_gather(), bit by bit: blocks of one shape and type."""
        own, theirs = only(inputs, "all_gather"), only(outputs, "all_gather")
        if self._engine is None:
            theirs[0].copy_(own)
        return self._begin(outputs, "all_gather", theirs, own)

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Work:
        """all_gather_into_tensor(): to a contiguous tensor of all blocks."""
        blocks = self.blocks("all_gather_into_tensor", output, tensor)
        return self.allgather([blocks], [tensor.reshape(-1)], opts)

    def barrier(self, opts: Any = None) -> Work:
        """barrier()."""
        return self._begin([], "barrier")

    def abort(self) -> None:
        """What is under way fails, and what comes, here and on the other ranks: destroy the group."""
        if self.state is not None:
            self.state.give_up(errors.error(errors.Code.FAILED, "gradlane: the process group was aborted"))
        if self._engine is not None:
            self._engine.close(summarize=False)

    # ---- Small sums without Python

    def express(self, native: Any) -> Any:
        """Returns the native.Express of the engine; None: there is none."""
        if self._engine is None:
            return None
        express = self._engine.express(native)
        Setting.tell()
        return express

    def adopt(self, tensors: list[torch.Tensor], outcome: int) -> Work:
        """Goes on with an all-reduce that native/express.h could not end: it is still under way, or has failed.

        outcome: the address of a gradlane_outcome.
        """
        try:
            return self._begin(tensors, "adopt", tensors[0], outcome, noted="all_reduce")
        except BaseException:
            interrupts.note()
            raise

    def warn(self, text: str) -> None:
        """Warns of what the library has said of a sum. Raises it where warnings are errors."""
        _losses.say(text, _losses.caller(TORCH))

    # ---- What gradlane has not

    def premultiplied(self, op: Any, tensors: list[torch.Tensor], in_place: bool) -> Sequence[torch.Tensor] | None:
        """Returns the tensors times the factor of PREMUL_SUM; None: PyTorch 2.6 hides the factor."""
        total, scaled = staging.premultiplied(op, tensors, in_place)
        return scaled if total == dist.ReduceOp.SUM else None

    def refuse(self, name: str, op: Any = None) -> None:
        """Raises why there is no such operation, where there is no fallback."""
        if self._refusal is not None:
            raise self._refusal
        if op is None:
            raise NotImplementedError(f"gradlane: the backend gradlane has no {name}; {_ANOTHER}")
        here = "the backend gradlane has SUM, AVG, MIN and MAX"
        raise NotImplementedError(f"gradlane: {name} with {_op_name(op)}; {here}; {_ANOTHER}")

    # ---- What else PyTorch asks

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Sets the limit of operations from now on."""
        self.options._timeout = timeout
        if self.state is not None:
            self.state.set_timeout(timeout)

    def get_timeout(self) -> datetime.timedelta:
        """Returns the limit of each operation."""
        timeout: datetime.timedelta = self.options._timeout
        return timeout

    def supports_tensor_alloc(self) -> bool:
        """Whether allocate_tensor() gives memory that is not copied."""
        return self._engine is not None and self._engine.usable

    def allocate_tensor(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        """For DistributedDataParallel's buckets: in shared memory, as long as there is some."""
        try:
            if self._engine is not None:
                return self._engine.zeros(size, dtype)
        except (errors.OutOfMemory, errors.DaemonGone):
            pass
        return torch.zeros(size, dtype=dtype)

    # ---- Private

    def blocks(self, name: str, large: torch.Tensor, small: torch.Tensor) -> list[torch.Tensor]:
        """The flat parts of `large`, one per rank."""
        if large.numel() != small.numel() * self._size or not large.is_contiguous():
            raise errors.bad_argument(
                f"gradlane: {name} with {small.numel()} elements per rank needs a contiguous tensor of "
                f"{small.numel() * self._size} for all ranks, not one of {large.numel()}"
            )
        return list(large.detach().view(self._size, -1))

    def _begin(self, result: Any, name: str, *arguments: Any, on_failure: Callable[[], None] | None = None,
               noted: str | None = None, **how: Any) -> Work:
        """Starts an operation of the engine; a Work with `result`. noted: as explain() calls it."""
        state = self.state  # not the group, which shall end when it is destroyed, whatever is under way
        if state is not None and name != "adopt":  # that has its place in the order already
            state.check()
        ledger.note(noted or name, ledger.HERE, "", max(map(ledger.size_of, arguments), default=0))
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
    """Whether a rank or the daemon is: what is under way elsewhere would wait for it, as long as it may."""
    return isinstance(error, errors.DaemonGone) or isinstance(error, errors.Error) and error.cause in _LOST


def _whole(dtype: torch.dtype) -> bool:
    """Whether these are whole numbers, which the daemon does not average."""
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def _reduction(op: Any) -> dict[str, Any]:
    """What the engine calls it; nothing: it has no such."""
    for known, reduction in ((dist.ReduceOp.SUM, "sum"), (dist.ReduceOp.AVG, "sum"), (dist.ReduceOp.MIN, "min"),
                             (dist.ReduceOp.MAX, "max")):
        if op == known:
            return {"average": known == dist.ReduceOp.AVG, "reduction": reduction}
    return {}


def only(tensors: Sequence[Any], name: str) -> Any:
    """PyTorch passes lists for several GPUs of a process, which nobody has any more."""
    if len(tensors) != 1:
        raise errors.bad_argument(f"gradlane: {name} takes one tensor per process, not {len(tensors)}")
    return tensors[0]


def op_of(opts: Any) -> Any:
    """What a call asks for; nothing said: SUM. native/backend.h has scaled the tensors of PREMUL_SUM."""
    op = dist.ReduceOp.SUM if opts is None else opts.reduceOp
    return dist.ReduceOp.SUM if op == dist.ReduceOp.PREMUL_SUM else op


def _op_name(op: Any) -> str:
    """As PyTorch calls it."""
    names = ("SUM", "AVG", "MIN", "MAX", "PRODUCT", "BAND", "BOR", "BXOR", "PREMUL_SUM")
    return next((name for name in names if op == getattr(dist.ReduceOp, name, None)), str(op))


def _divide(total: torch.Tensor, size: int) -> None:
    """A sum of so many ranks becomes their average; of whole numbers what is left of the point, as NCCL has it."""
    total.div_(size, rounding_mode=None if total.dtype.is_floating_point or total.is_complex() else "trunc")
