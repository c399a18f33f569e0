"""What the backend's groups hand over to another engine, and how they refuse it where they have none."""

from __future__ import annotations

import datetime
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist

from .. import errors
from .delegate import Delegate
from .handed import Several
from .work import Work

_ANOTHER = "make a group of another backend for it: dist.new_group(backend='gloo')"
_ABSENT = "no operation of gradlane's"  # as explain() says it


class Delegating:
    """Base of Group: operations that gradlane does not have. `_apart`: why it does none of this group's, or ""."""

    _delegate: Delegate | None = None
    _refusal: errors.BadArgument | None = None
    _apart = ""
    options: Any  # _timeout of them is that of operations that name none
    _rank: int
    _size: int

    def connect(self, store: dist.Store) -> None:
        """Makes the other engine, when all ranks of the group are here."""
        self._delegate = Delegate(store, self._rank, self._size, self.options)

    def watch(self, gate: Any) -> None:
        """Closes the native.Gate when the group fails."""
        if self._delegate is not None:
            self._delegate.gate = gate

    def other(self, name: str) -> Delegate:
        """The other engine, for an operation that gradlane does not have. Raises if there is none."""
        if self._refusal is not None:
            raise self._refusal
        if self._delegate is None:
            raise NotImplementedError(f"gradlane: the backend gradlane has no {name}; {_ANOTHER}")
        return self._delegate

    def reducer(self, name: str, op: Any) -> Delegate:
        """The same for a reduction that gradlane does not have."""
        if self._delegate is not None or self._refusal is not None:
            return self.other(name)
        here = "the backend gradlane has SUM, AVG, MIN and MAX"
        raise NotImplementedError(f"gradlane: {name} with {op_name(op)}; {here}; {_ANOTHER}")

    def absent(self) -> str:
        """As explain() says why such an operation is not gradlane's."""
        return self._apart or _ABSENT

    # ---- Operations

    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> Work:
        """gather()."""
        return self.other("gather").gather(self.absent(), outputs, only(inputs, "gather"), opts)

    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> Work:
        """scatter()."""
        return self.other("scatter").scatter(self.absent(), only(outputs, "scatter"), inputs, opts)

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> Work:
        """all_to_all()."""
        return self.other("all_to_all").all_to_all(self.absent(), outputs, inputs, opts)

    def all_to_all_single(self, output: torch.Tensor, tensor: torch.Tensor, output_splits: Sequence[int],
                          input_splits: Sequence[int], opts: Any = None) -> Work:
        """all_to_all_single()."""
        other = self.other("all_to_all_single")
        return other.all_to_all_single(self.absent(), output, tensor, output_splits, input_splits, opts)

    def send(self, tensors: list[torch.Tensor], rank: int, tag: int = 0) -> Work:
        """send() and isend(), to a rank of the group."""
        return self.other("send").send(self.absent(), only(tensors, "send"), rank, tag)

    def recv(self, tensors: list[torch.Tensor], rank: int, tag: int = 0) -> Work:
        """recv() and irecv(), from a rank of the group."""
        return self.other("recv").recv(self.absent(), only(tensors, "recv"), rank, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int = 0) -> Work:
        """recv() and irecv() without a rank."""
        return self.other("recv from any rank").recv(self.absent(), only(tensors, "recv"), None, tag)

    def monitored_barrier(self, *arguments: Any, **options: Any) -> None:
        """Of the group itself. torch.distributed's function of this name wants a group of Gloo."""
        self.other("monitored_barrier").monitored_barrier(*arguments, **options)

    # ---- Several at once

    def allgather_coalesced(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor],
                            opts: Any = None) -> Work:
        """all_gather_coalesced(): outputs[rank][i] ends as inputs[i] of the rank."""
        columns = [[row[i] for row in outputs] for i in range(len(inputs))]
        return Several([self.allgather([column], [tensor], opts) for column, tensor in zip(columns, inputs)], outputs)

    def all_gather_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor],
                                    opts: Any = None) -> Work:
        """all_gather_into_tensor() of each."""
        return Several([self.all_gather_single(output, tensor, opts) for output, tensor in zip(outputs, inputs)],
                       outputs)

    def reduce_scatter_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor],
                                        opts: Any = None) -> Work:
        """reduce_scatter_tensor() of each."""
        return Several([self.reduce_scatter_single(output, tensor, opts) for output, tensor in zip(outputs, inputs)],
                       outputs)

    # ---- Ends

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Of operations from now on."""
        self.options._timeout = timeout
        if self._delegate is not None:
            self._delegate.set_timeout(timeout)

    allgather: Callable[..., Work]
    all_gather_single: Callable[..., Work]
    reduce_scatter_single: Callable[..., Work]


def only(tensors: Sequence[Any], name: str) -> Any:
    """PyTorch passes lists for several GPUs of a process, which nobody has any more."""
    if len(tensors) != 1:
        raise errors.bad_argument(f"gradlane: {name} takes one tensor per process, not {len(tensors)}")
    return tensors[0]


def op_of(opts: Any) -> Any:
    """What a call asks for; nothing said: SUM."""
    return dist.ReduceOp.SUM if opts is None else opts.reduceOp


def op_name(op: Any) -> str:
    """As PyTorch calls it."""
    names = ("SUM", "AVG", "MIN", "MAX", "PRODUCT", "BAND", "BOR", "BXOR", "PREMUL_SUM")
    return next((name for name in names if op == getattr(dist.ReduceOp, name, None)), str(op))


def premultiplied(op: Any, tensors: Sequence[torch.Tensor], in_place: bool) -> tuple[Any, Sequence[torch.Tensor]]:
    """Returns PREMUL_SUM as a sum of the tensors times its factor, all else as it is. PyTorch 2.6 hides the factor."""
    factor = getattr(op, "factor", None) if op == dist.ReduceOp.PREMUL_SUM else None
    if factor is None:
        return op, tensors
    scaled = [tensor.detach().mul_(factor) if in_place else tensor * factor for tensor in tensors]
    return dist.ReduceOp.SUM, tensors if in_place else scaled
