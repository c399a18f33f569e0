"""The engine for what gradlane does not do itself: Gloo, over the same ranks (for CUDA tensors NCCL, where it is).

Every group has one, with connections of its own, made with the group. It gets its operations in the order of the calls,
as gradlane's own engine does; neither waits for the other.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import weakref
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

from .. import errors
from . import ledger
from .handed import Handed
from .staging import is_inference
from .wire import Wire, divide, together

_delegates: weakref.WeakSet[Delegate] = weakref.WeakSet()
_of_parents: list[Delegate] = []  # of processes that this one was forked from: their threads are not here to be ended


os.register_at_fork(after_in_child=lambda: _of_parents.extend(_delegates))


def wanted() -> bool:
    """Whether there is to be such an engine: not with GRADLANE_DELEGATE=0, nor in a PyTorch without Gloo."""
    return os.environ.get("GRADLANE_DELEGATE", "1") != "0" and hasattr(dist, "ProcessGroupGloo")


class Delegate:
    """Operations are named as in torch.distributed. `why`, their first argument, is for explain(): the reason.

    limits: the group's options; _timeout of them is that of operations that name none.
    """

    def __init__(self, store: dist.Store, rank: int, size: int, limits: Any) -> None:
        self._rank, self._size, self._limits = rank, size, limits
        # Not that of an earlier group: what it has left there are addresses where nobody is any more.
        number = (store.add("gradlane delegate", 1) - 1) // size
        self._store = dist.PrefixStore(f"gradlane delegate {number}", store)
        self._process = os.getpid()
        self._failure: Exception | None = None
        self.gate: Any = None  # native.Gate: of sums that do not come by check()
        self._gloo: Any = None
        self._nccl: Any = None
        _delegates.add(self)
        self.behind = False  # whether a collective has come since the last barrier, the same on all ranks
        if size > 1:
            self._gloo = _make_gloo(self._store, rank, size, limits._timeout)

    @property
    def gloo(self) -> Any:
        """PyTorch's group."""
        if self._gloo is None:
            self._gloo = _make_gloo(self._store, self._rank, self._size, self._limits._timeout)
        return self._gloo

    # ---- Reductions

    def all_reduce(self, why: str, name: str, tensors: Sequence[torch.Tensor], op: Any, opts: Any) -> Handed:
        """Of one tensor, or of several of one type."""
        def finish() -> None:
            self._average(op, flat)
            together(flat, wires)

        _check_reduction(name, tensors[0], op)
        if tensors[0].is_sparse:
            wires = [Wire.of_sparse(tensors[0])]
        else:
            wires = [Wire(tensor, name, True, op == dist.ReduceOp.AVG) for tensor in tensors]
        flat = wires[0].wire if len(wires) == 1 else torch.cat([wire.wire for wire in wires])
        return self._hand(why, name, list(tensors), finish, flat,
                          lambda engine: engine.allreduce([flat], self._options("AllreduceOptions", opts, op)))

    def reduce(self, why: str, tensor: torch.Tensor, op: Any, opts: Any) -> Handed:
        """Ranks other than the root keep what they have."""
        _check_reduction("reduce", tensor, op)
        wire = Wire(tensor, "reduce", True, op == dist.ReduceOp.AVG)
        root = opts.rootRank == self._rank
        flat = wire.wire if root else wire.wire.clone()

        def finish() -> None:
            if root:
                self._average(op, flat)
                wire.finish()

        options = self._options("ReduceOptions", opts, op, rootRank=opts.rootRank, rootTensor=0)
        return self._hand(why, "reduce", [tensor], finish, flat, lambda engine: engine.reduce([flat], options))

    def reduce_scatter(self, why: str, outputs: Sequence[torch.Tensor], blocks: Sequence[torch.Tensor], op: Any,
                       opts: Any) -> Handed:
        """By an all-reduce of all blocks: Gloo has it in later versions only, and does the same there."""
        _check_reduction("reduce_scatter", outputs[0], op)
        _check_types("reduce_scatter", [*outputs, *blocks])
        output = Wire(outputs[0], "reduce_scatter", True, op == dist.ReduceOp.AVG)
        whole = torch.cat([Wire(block, "reduce_scatter", True).wire for block in blocks])

        def finish() -> None:
            output.wire.copy_(whole.view(self._size, -1)[self._rank])
            self._average(op, output.wire)
            output.finish()

        return self._hand(why, "reduce_scatter", list(outputs), finish, whole,
                          lambda engine: engine.allreduce([whole], self._options("AllreduceOptions", opts, op)))

    # ---- Copies

    def broadcast(self, why: str, tensor: torch.Tensor, opts: Any) -> Handed:
        """Bit by bit, as all that follow."""
        wire = Wire(tensor, "broadcast")
        options = self._options("BroadcastOptions", opts, rootRank=opts.rootRank, rootTensor=0)
        return self._hand(why, "broadcast", [tensor], wire.finish, wire.wire,
                          lambda engine: engine.broadcast([wire.wire], options))

    def all_gather(self, why: str, outputs: Sequence[torch.Tensor], tensor: torch.Tensor, opts: Any) -> Handed:
        """outputs: one per rank."""
        _check_types("all_gather", [tensor, *outputs])
        own, theirs = Wire(tensor, "all_gather"), [Wire(output, "all_gather") for output in outputs]
        wires = [wire.wire for wire in theirs]
        return self._hand(why, "all_gather", [list(outputs)], lambda: _finish(theirs), wires,
                          lambda engine: engine.allgather([wires], [own.wire], self._options("AllgatherOptions", opts)))

    def gather(self, why: str, outputs: Any, tensor: torch.Tensor, opts: Any) -> Handed:
        """outputs: [one per rank] on the root, else []."""
        _check_types("gather", [tensor, *(output for many in outputs for output in many)])
        own, theirs = Wire(tensor, "gather"), [Wire(output, "gather") for many in outputs for output in many]
        wires = [[wire.wire for wire in theirs]] if outputs else []
        options = self._options("GatherOptions", opts, rootRank=opts.rootRank)
        return self._hand(why, "gather", outputs, lambda: _finish(theirs), wires or own.wire,
                          lambda engine: engine.gather(wires, [own.wire], options))

    def scatter(self, why: str, output: torch.Tensor, inputs: Any, opts: Any) -> Handed:
        """inputs: [one per rank] on the root, else []."""
        _check_types("scatter", [output, *(tensor for many in inputs for tensor in many)])
        own, theirs = Wire(output, "scatter"), [Wire(tensor, "scatter").wire for many in inputs for tensor in many]
        options = self._options("ScatterOptions", opts, rootRank=opts.rootRank)
        return self._hand(why, "scatter", [output], own.finish, theirs or own.wire,
                          lambda engine: engine.scatter([own.wire], [theirs] if inputs else [], options))

    def all_to_all(self, why: str, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor],
                   opts: Any) -> Handed:
        """One tensor per rank each, of any sizes: as one of all of them."""
        _check_types("all_to_all", [*outputs, *inputs])
        theirs = [Wire(output, "all_to_all", as_bytes=True) for output in outputs]
        ours = [Wire(tensor, "all_to_all", as_bytes=True).wire for tensor in inputs]
        there, here = torch.cat(ours), torch.cat([wire.wire for wire in theirs])
        counts = [other.wire.numel() for other in theirs], [wire.numel() for wire in ours]
        options = self._options("AllToAllOptions", opts)
        return self._hand(why, "all_to_all", list(outputs), lambda: together(here, theirs), here,
                          lambda engine: engine.alltoall_base(here, there, *counts, options))

    def all_to_all_single(self, why: str, output: torch.Tensor, tensor: torch.Tensor, output_splits: Sequence[int],
                          input_splits: Sequence[int], opts: Any) -> Handed:
        """Splits: rows, for or from each rank; none: as many for each."""
        _check_types("all_to_all_single", [output, tensor])
        here, there = Wire(output, "all_to_all_single"), Wire(tensor, "all_to_all_single")
        counts = [wire.counts(splits, self._size) for wire, splits in ((here, output_splits), (there, input_splits))]
        options = self._options("AllToAllOptions", opts)
        return self._hand(why, "all_to_all_single", [output], here.finish, here.wire,
                          lambda engine: engine.alltoall_base(here.wire, there.wire, *counts, options))

    # ---- Two ranks

    def send(self, why: str, tensor: torch.Tensor, rank: int, tag: int) -> Handed:
        """rank: of the group."""
        wire = Wire(tensor, "send")
        return self._hand(why, "send", [tensor], lambda: None, wire.wire,
                          lambda engine: engine.send([wire.wire], rank, tag), f"send to rank {rank} of the group")

    def recv(self, why: str, tensor: torch.Tensor, rank: int | None, tag: int) -> Handed:
        """rank: of the group; None: any."""
        wire = Wire(tensor, "recv")
        told = "recv from any rank" if rank is None else f"recv from rank {rank} of the group"
        return self._hand(why, "recv", [tensor], wire.finish, wire.wire,
                          lambda engine: engine.recv_anysource([wire.wire], tag) if rank is None
                          else engine.recv([wire.wire], rank, tag), told)

    # ---- All of it

    def barrier(self, why: str) -> Handed:
        """Ends when all ranks have started it, and all collectives before are over."""
        self.behind = False
        return self._hand(why, "barrier", [], lambda: None, (),
                          lambda engine: engine.barrier(self._options("BarrierOptions", None)))

    def monitored_barrier(self, *arguments: Any, **options: Any) -> None:
        """Gloo's."""
        self.check()
        self.gloo.monitored_barrier(*arguments, **options)

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Of sends and receives from now on, where PyTorch can do that. Other operations ask each time."""
        for name in ("set_timeout", "_set_default_timeout"):
            if hasattr(self.gloo, name):
                getattr(self.gloo, name)(timeout)
                return

    def check(self) -> None:
        """Raises if operations can no longer be."""
        if self._process != os.getpid():
            raise errors.daemon_gone("gradlane: the process group belongs to the parent of a fork")
        if self._failure is not None:
            raise type(self._failure)(self._failure.code, f"{self._failure} (an operation before this one)",
                                      self._failure.cause) \
                if isinstance(self._failure, errors.Error) else self._failure

    def give_up(self, failure: Exception) -> None:
        """The group has failed, here or in gradlane's own engine. A send or receive whose other rank is still there
        ends with its time limit all the same, as PyTorch cannot take it back."""
        if self._failure is not None:
            return
        self._failure = failure
        if self.gate is not None:
            self.gate.close()
        for engine in (self._gloo, self._nccl):
            if hasattr(engine, "abort"):
                with contextlib.suppress(RuntimeError):
                    engine.abort()

    # ---- Private

    def _hand(self, why: str, name: str, result: Any, finish: Callable[[], None], data: Any,
              start: Callable[[Any], Any], told: str = "") -> Handed:
        """data: what ranks exchange, whose size counts. told: `name` with what errors say besides."""
        self.check()
        cuda = _on_cuda(data) and _has_nccl()
        where = "NCCL" if cuda else "Gloo"
        told = f"gradlane: {told or name} by {where}"
        ledger.note(name, where, why, ledger.size_of(data))
        inference = is_inference(result)

        def end() -> None:
            with torch.inference_mode() if inference else contextlib.nullcontext(), torch.no_grad():
                finish()

        # After a failure of an operation that is under way, Gloo has closed its connections.
        def explained(error: Exception) -> Exception:
            if self._failure is not None:
                return self._failure
            failed = errors.error(errors.Code.FAILED, f"{told}: {error}")
            self.give_up(failed)
            return failed

        try:
            other = start(self._nccl_group() if cuda else self.gloo)
        except RuntimeError as error:
            if name in ("send", "recv"):  # which connect two ranks
                raise explained(error) from None
            raise errors.bad_argument(f"{told}: {error}") from None
        collective = name not in ("send", "recv")
        self.behind = self.behind or collective and name != "barrier"
        return Handed(other, result, end, explained, collective)

    def _options(self, kind: str, opts: Any, op: Any = None, **more: Any) -> Any:
        options = getattr(_distributed_c10d, kind)()
        timeout = getattr(opts, "timeout", None)
        options.timeout = timeout if timeout and timeout > datetime.timedelta(0) else self._limits._timeout
        if op is not None:
            options.reduceOp = dist.ReduceOp.SUM if op == dist.ReduceOp.AVG else op
        for name, value in more.items():
            setattr(options, name, value)
        return options

    def _average(self, op: Any, result: torch.Tensor) -> None:
        if op == dist.ReduceOp.AVG:
            divide(result, self._size)

    def _nccl_group(self) -> Any:
        if self._nccl is None:
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = self._limits._timeout
            self._nccl = dist.ProcessGroupNCCL(dist.PrefixStore("nccl", self._store), self._rank, self._size, options)
        return self._nccl


def _finish(wires: Sequence[Wire]) -> None:
    for wire in wires:
        wire.finish()


def _on_cuda(data: Any) -> bool:
    return bool(data.is_cuda) if isinstance(data, torch.Tensor) else any(map(_on_cuda, data))


def _has_nccl() -> bool:
    return bool(hasattr(dist, "ProcessGroupNCCL") and torch.cuda.is_available())


def _make_gloo(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    """Connected when two ranks first have something to say to each other, before PyTorch 2.7 here, all with all."""
    gloo = dist.ProcessGroupGloo
    options = gloo._Options()
    options._timeout, options._devices = timeout, [_device(gloo)]
    return gloo(store, rank, size, options)


def _device(gloo: Any) -> Any:
    """The interface that Gloo is told, or gradlane is, else the address from which this machine reaches rank 0."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", os.environ.get("GRADLANE_INTERFACE", "")).split(",")[0]
    place = {"interface": interface} if interface else {"hostname": _own_address()}
    try:
        return gloo.create_device(**place, lazy_init=True)
    except TypeError:  # PyTorch 2.6
        return gloo.create_device(**place)


def _own_address() -> str:
    """What the route to MASTER_ADDR begins with; a hostname may stand for an address that no other machine reaches."""
    host = os.environ.get("MASTER_ADDR", "localhost")
    for family, kind, protocol, _, address in _addresses(host):
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.connect(address)  # of a datagram socket: sends nothing
            return str(probe.getsockname()[0])
    return "127.0.0.1"


def _addresses(host: str) -> Sequence[Any]:
    try:
        return socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
    except OSError:
        return ()


def _check_types(name: str, tensors: Sequence[torch.Tensor]) -> None:
    """What travels as bytes would become something else where types differ."""
    types = sorted({str(tensor.dtype) for tensor in tensors})
    if len(types) > 1:
        raise errors.bad_argument(f"gradlane: {name} of {' and '.join(types)}; all must be of one type")


def _check_reduction(name: str, tensor: torch.Tensor, op: Any) -> None:
    """Refuses what has no meaning. Complex numbers are summed as pairs, which have no product and no least one."""
    if tensor.is_complex() and not _is_one(op, "SUM", "AVG"):
        raise errors.bad_argument(f"gradlane: {name} of {tensor.dtype} is a sum or an average, and nothing else")
    if tensor.is_floating_point() and _is_one(op, "BAND", "BOR", "BXOR"):
        raise errors.bad_argument(f"gradlane: {name} by BAND, BOR and BXOR is of whole numbers, not of {tensor.dtype}")


def _is_one(op: Any, *names: str) -> bool:
    """Whether op is one of these. PyTorch compares a ReduceOp with a name on its right only, so `in` does not do."""
    return any(op == getattr(dist.ReduceOp, name) for name in names)
