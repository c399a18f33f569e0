"""What PyTorch 2 asks a backend for beyond the collectives of PyTorch 1.13, and the Backend that it is told of."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, Callable

import torch
import torch.distributed as dist

from .. import _losses, errors
from . import extension
from .engine import TORCH, Engine
from .setting import Setting
from .work import Work

if TYPE_CHECKING:
    from .backend import Group
    from .delegate import Delegate

# Names of today, of the same things.
CANONICAL = {
    "all_gather_single": "_allgather_base",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "all_to_all_single": "alltoall_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
}
_FINE, _BROKEN = 0, 2  # of ErrorType


class Newer:
    """Base of Group. Methods that PyTorch, or native/backend.h for it, calls."""

    options: Any
    _engine: Engine | None
    _delegate: Delegate | None
    _begin: Callable[..., Work]

    def get_timeout(self) -> datetime.timedelta:
        """Of each operation."""
        timeout: datetime.timedelta = self.options._timeout
        return timeout

    def shutdown(self) -> None:
        """Before the group is destroyed: what is under way goes on, as it does on other ranks."""

    def express(self, native: Any) -> Any:
        """For native.Backend: the way of small sums without Python, None: there is none."""
        if self._engine is None:
            return None
        express = self._engine.express(native)
        Setting.tell()
        return express

    def resume_all_reduce(self, tensors: list[torch.Tensor], average: bool, *resumed: int) -> Work:
        """What native/express.h could not end: it is still under way, or has failed."""
        codec, _ = Setting.choose(tensors[0].numel(), self._engine)
        return self._begin(tensors, "all_reduce", tensors[0], average=average, codec=codec, strategy=Setting.strategy,
                           resumed=resumed)

    def warn(self, text: str) -> None:
        """The library had this to say of a sum. Raises it where warnings are errors."""
        _losses.say(text, _losses.caller(TORCH))

    def get_error(self) -> int:
        """An ErrorType: whether operations can go well."""
        if self._delegate is not None and self._delegate.failed:
            return _BROKEN
        return _FINE if self._engine is None or self._engine.usable else _BROKEN

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


def wrap(group: Group, rank: int, size: int) -> Any:
    """What PyTorch shall have of the group: a Backend where it knows these, else the group, which is a ProcessGroup."""
    native = extension.load()
    if native is not None:
        gate = native.Gate()
        group.watch(gate)
        return native.Backend(group, rank, size, "gradlane", group.express(native), gate)
    base = getattr(dist, "BackendBase", None)
    return group if base is None else _derived(base)(group, rank, size)


_FORWARDED = (
    "abort", "allgather", "allgather_coalesced", "allgather_into_tensor_coalesced", "allreduce", "allreduce_coalesced",
    "alltoall", "alltoall_base", "barrier", "broadcast", "gather", "get_error", "recv", "recv_anysource", "reduce",
    "reduce_scatter", "reduce_scatter_tensor_coalesced", "scatter", "send", "set_timeout", "shutdown", "split",
    "_allgather_base", "_reduce_scatter_base",
)


def _derived(base: Any) -> Any:
    """Of PyTorch's class for backends that are written in Python, where it has one."""

    class Derived(base):
        def __init__(self, policy: Group, rank: int, size: int) -> None:
            super().__init__(rank, size)
            self.policy = policy

        def getBackendName(self) -> str:
            return "gradlane"

    for canonical, older in CANONICAL.items():
        setattr(Derived, canonical, _forward(older))
    for name in _FORWARDED:
        setattr(Derived, name, _forward(name))
    return Derived


def _forward(name: str) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        return getattr(self.policy, name)(*arguments, **options)

    method.__name__ = name
    return method
