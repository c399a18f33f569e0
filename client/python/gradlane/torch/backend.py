"""The backend "gradlane" of torch.distributed: a process group over the engine.

    torch.distributed.init_process_group("gradlane")

Sums of float32 go through the codec, all else is exact. docs/pytorch.md of gradlane says what there is.
"""

from __future__ import annotations

import datetime
import types
import weakref
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist
from torch.futures import Future

from .. import errors
from .engine import Engine
from .meeting import meet, refusal, watch
from .setting import Setting
from .staging import Operand
from .work import Work

_ANOTHER = "make a group of another backend for it: dist.new_group(backend='gloo')"


def create(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta) -> Group:
    """What init_process_group() and new_group() call."""
    if dist.is_initialized():
        return Group(rank, size, timeout)
    # A new job. Groups of an earlier one may still be referenced, by a model say, and ranks may disagree about how
    # many operations there have been.
    Engine.renew()
    Setting.bounds = {}
    return Group(rank, size, timeout) if size == 1 else meet(store, rank, size, timeout, Group)


def register() -> None:
    """Makes the name known to torch.distributed."""
    if hasattr(dist.Backend, "GRADLANE"):
        return
    try:
        dist.Backend.register_backend("gradlane", create, devices=["cpu", "cuda"])
    except TypeError:  # PyTorch 1
        dist.Backend.register_backend("gradlane", create)
    watch()


class Group(dist.ProcessGroup):
    """All ranks, or one: then there is nothing to exchange, and no daemon needed.

    Methods are named by PyTorch, which has one for each function of torch.distributed. They return a Work, whose wait()
    raises OperationFailed and DaemonGone; what is wrong with a call is raised at once, as BadArgument.
    """

    _engine: Engine | None
    _refusal: errors.BadArgument | None

    def __init__(self, rank: int, size: int, timeout: datetime.timedelta) -> None:
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self.options = types.SimpleNamespace(_timeout=timeout)  # as other backends have it
        self._engine = self._refusal = None
        if size == 1:
            Setting.verify(Engine.existing() if Engine.exists() else None)
            return
        if dist.is_initialized() and size != dist.get_world_size():
            # Not raised here: the ranks that are no members would wait in new_group() for those that are.
            self._refusal = refusal(size, dist.get_world_size())
            return
        self._engine = Engine.shared(rank=rank, world=size)
        self._engine.groups = True
        weakref.finalize(self, self._engine.release).atexit = False
        Setting.verify(self._engine)

    def getBackendName(self) -> str:
        """As torch.distributed.get_backend() says it."""
        return "gradlane"

    # ---- Sums

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """all_reduce(): SUM, AVG, MIN or MAX, in place; sums of float32 through the codec of use_codec()."""
        return self._reduce("all_reduce", _only(tensors, "all_reduce"), tensors, opts)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """all_reduce_coalesced(): as one tensor. All are of one type and on one device."""
        name = "all_reduce_coalesced"
        if len({(tensor.dtype, tensor.device) for tensor in tensors}) != 1:
            raise errors.bad_argument(f"gradlane: {name} needs tensors, of one type and on one device")
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])

        def spread(result: torch.Tensor) -> None:
            for tensor, part in zip(tensors, result.split([tensor.numel() for tensor in tensors])):
                tensor.detach().copy_(part.view(tensor.shape))

        return self._reduce(name, flat, tensors, opts, spread)

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """reduce(): an all_reduce() that other ranks do not see the result of."""
        tensor = _only(tensors, "reduce")
        return self._reduce("reduce", tensor if opts.rootRank == self._rank else tensor.clone(), tensors, opts)

    def reduce_scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any = None) -> Work:
        """reduce_scatter(): SUM, AVG, MIN or MAX of blocks of one shape and type; with fixed:auto exact."""
        output, blocks = _only(outputs, "reduce_scatter"), _only(inputs, "reduce_scatter")
        kind = _reduction("reduce_scatter", opts)
        if self._engine is None:
            output.copy_(blocks[0])
        # An adaptive bound would need the whole result on all ranks.
        codec, bound = Setting.choose(output.numel(), self._engine) if kind["reduction"] == "sum" else (None, None)
        if bound is not None and self._engine is not None:
            codec = self._engine.codecs.exact
        return self._begin(outputs, "reduce_scatter", output, blocks, codec=codec, **kind)

    def _reduce_scatter_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Work:
        """reduce_scatter_tensor(): of a contiguous tensor of all blocks."""
        return self.reduce_scatter([output], [self._blocks("reduce_scatter_tensor", tensor, output)], opts)

    def _reduce(self, name: str, tensor: torch.Tensor, result: list[torch.Tensor], opts: Any,
                on_result: Callable[[torch.Tensor], None] | None = None) -> Work:
        kind = _reduction(name, opts)
        average = kind["average"]
        coded = tensor.dtype == torch.float32 and kind["reduction"] == "sum"
        codec, chosen = Setting.choose(tensor.numel(), self._engine) if coded else (None, None)
        kind["strategy"] = Setting.strategy
        if chosen is None:
            return self._begin(result, "all_reduce", tensor, codec=codec, on_result=on_result, **kind)
        bound = chosen

        def update(reduced: torch.Tensor) -> None:
            bound.update(reduced.detach().cpu().contiguous().numpy(), 1.0 if average else 1.0 / self._size)
            if on_result is not None:
                on_result(reduced)

        # All ranks ask for the codec when the operations before have ended, so they all get the same.
        return self._begin(result, "all_reduce", tensor, codec=bound.codec, on_result=update, on_failure=bound.reset,
                           **kind)

    # ---- Copies

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """broadcast(), bit by bit."""
        return self._begin(tensors, "broadcast", _only(tensors, "broadcast"), opts.rootRank)

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> Work:
        """all_gather(), bit by bit: blocks of one shape and type."""
        own, theirs = _only(inputs, "all_gather"), _only(outputs, "all_gather")
        if self._engine is None:
            theirs[0].copy_(own)
        return self._begin(outputs, "all_gather", theirs, own)

    def _allgather_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Work:
        """all_gather_into_tensor(): to a contiguous tensor of all blocks."""
        return self.allgather([self._blocks("all_gather_into_tensor", output, tensor)], [tensor.reshape(-1)])

    def barrier(self, opts: Any = None) -> Work:
        """barrier()."""
        return self._begin([], "barrier")

    # ---- Private

    def _blocks(self, name: str, large: torch.Tensor, small: torch.Tensor) -> list[torch.Tensor]:
        """The flat parts of `large`, one per rank."""
        if large.numel() != small.numel() * self._size or not large.is_contiguous():
            raise errors.bad_argument(
                f"gradlane: {name} with {small.numel()} elements per rank needs a contiguous tensor of "
                f"{small.numel() * self._size} for all ranks, not one of {large.numel()}"
            )
        return list(large.detach().view(self._size, -1))

    def _begin(self, result: Any, name: str, *arguments: Any, on_failure: Callable[[], None] | None = None,
               **how: Any) -> Work:
        """Starts an operation of the engine; a Work with `result`."""
        if self._refusal is not None:
            raise self._refusal
        work = Work(result)

        def start(result: Any, on_error: Callable[[Exception], None]) -> Future[Any]:
            if self._engine is None:
                if name == "all_reduce":
                    Operand(torch.zeros, arguments[0], name, True, how["average"], how["reduction"] != "sum")
                future: Future[Any] = Future()
                future.set_result(result)
                return future

            def failed(error: Exception) -> None:
                on_error(error)
                if on_failure is not None and not isinstance(error, errors.LossWarning):
                    on_failure()

            how["timeout"] = self.options._timeout.total_seconds()
            operate: Callable[..., Future[Any]] = getattr(self._engine, name)
            return operate(*arguments, result=result, on_error=failed, **how)

        return work.begin(start)


def _only(tensors: Sequence[Any], name: str) -> Any:
    """PyTorch passes lists for several GPUs of a process, which nobody has any more."""
    if len(tensors) != 1:
        raise errors.bad_argument(f"gradlane: {name} takes one tensor per process, not {len(tensors)}")
    return tensors[0]


def _reduction(name: str, opts: Any) -> dict[str, Any]:
    """What the engine calls it."""
    op = dist.ReduceOp.SUM if opts is None else opts.reduceOp
    for known, reduction in ((dist.ReduceOp.SUM, "sum"), (dist.ReduceOp.AVG, "sum"), (dist.ReduceOp.MIN, "min"),
                             (dist.ReduceOp.MAX, "max")):
        if op == known:
            return {"average": known == dist.ReduceOp.AVG, "reduction": reduction}
    others = ("PRODUCT", "BAND", "BOR", "BXOR", "PREMUL_SUM")
    text = next((other for other in others if opts.reduceOp == getattr(dist.ReduceOp, other, None)), str(opts.reduceOp))
    here = "the backend gradlane has SUM, AVG, MIN and MAX"
    raise NotImplementedError(f"gradlane: {name} with {text}; {here}; {_ANOTHER}")


def _absent(method: str, name: str) -> Callable[..., Any]:
    def refuse(self: Group, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError(f"gradlane: the backend gradlane has no {name}; {_ANOTHER}")

    refuse.__name__ = method
    return refuse


for _method, _name in {
    "allgather_coalesced": "all_gather_coalesced",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "gather": "gather",
    "monitored_barrier": "monitored_barrier",
    "recv": "recv",
    "recv_anysource": "recv from any rank",
    "scatter": "scatter",
    "send": "send",
}.items():
    setattr(Group, _method, _absent(_method, _name))
