"""The other backend of a group, for what gradlane does not do itself: Gloo, and for CUDA tensors NCCL, where it is.

Every group has one, with connections of its own, made with the group. It gets its operations in the order of the calls,
as gradlane's own engine does; neither waits for the other. native/fallback.h passes operations on.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import weakref
from typing import Any

import torch
import torch.distributed as dist

from .. import errors
from . import ledger
from .bootstrap import host_info

_states: weakref.WeakSet[State] = weakref.WeakSet()
_of_parents: list[State] = []  # of processes that this one was forked from: their threads are not here to be ended


os.register_at_fork(after_in_child=lambda: _of_parents.extend(_states))


def wanted() -> bool:
    """Whether there is to be such a backend: not with GRADLANE_DELEGATE=0, nor in a PyTorch without Gloo."""
    return os.environ.get("GRADLANE_DELEGATE", "1") != "0" and hasattr(dist, "ProcessGroupGloo")


class State:
    """Makes the other backend, and knows whether the group has failed: then it is of no use to either.

    limits: the group's options; _timeout of them is that of operations that name none. gate: the native.Gate, which is
    closed on a failure: it then stops all-reduces that bypass Python.
    """

    def __init__(self, store: dist.Store, rank: int, size: int, limits: Any) -> None:
        self._rank, self._size, self._limits = rank, size, limits
        # Not that of an earlier group: what it has left there are addresses where nobody is any more.
        number = (store.add("gradlane delegate", 1) - 1) // size
        self._store = dist.PrefixStore(f"gradlane delegate {number}", store)
        self._process = os.getpid()
        self._failure: Exception | None = None
        self.gate: Any = None
        self._gloo: Any = None
        self._nccl: Any = None
        _states.add(self)
        if size > 1:
            self._gloo = self._make_gloo()

    def backend(self, cuda: bool) -> Any:
        """Returns PyTorch's backend. Raises what check() does."""
        self.check()
        if cuda and hasattr(dist, "ProcessGroupNCCL") and torch.cuda.is_available():
            self._nccl = self._nccl or self._make_nccl()
            return self._nccl
        self._gloo = self._gloo or self._make_gloo()
        return self._gloo

    def note(self, name: str, where: str, why: str, nbytes: int) -> None:
        """Counts an operation, for explain()."""
        ledger.note(name, where, why, nbytes)

    def check(self) -> None:
        """Raises if operations can no longer be."""
        if self._process != os.getpid():
            raise errors.daemon_gone("gradlane: the process group belongs to the parent of a fork")
        if isinstance(self._failure, errors.Error):
            text = f"{self._failure} (an operation before this one)"
            raise type(self._failure)(self._failure.code, text, self._failure.cause)
        if self._failure is not None:
            raise self._failure

    def failed(self, text: str) -> Exception:
        """Returns the exception for an operation that has failed. The first failure is the one that counts: after it
        Gloo has closed its connections."""
        if self._failure is None:
            self.give_up(errors.error(errors.Code.FAILED, text))
        assert self._failure is not None
        return self._failure

    def give_up(self, failure: Exception) -> None:
        """Notes that the group has failed, here or in gradlane's own engine. A send or receive whose other rank is
        still there ends with its time limit all the same, as PyTorch cannot take it back."""
        if self._failure is not None:
            return
        self._failure = failure
        if self.gate is not None:
            self.gate.close()
        for backend in (self._gloo, self._nccl):
            if hasattr(backend, "abort"):
                with contextlib.suppress(RuntimeError):
                    backend.abort()

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Sets that of sends and receives from now on, where PyTorch can do that. Other operations ask each time."""
        for name in ("set_timeout", "_set_default_timeout"):
            if hasattr(self._gloo, name):
                getattr(self._gloo, name)(timeout)
                return

    def _make_gloo(self) -> Any:
        """Connected when two ranks first have something to say to each other, before PyTorch 2.7 here, all with all."""
        gloo = dist.ProcessGroupGloo
        options = gloo._Options()
        options._timeout, options._devices = self._limits._timeout, [_device(gloo)]
        return gloo(self._store, self._rank, self._size, options)

    def _make_nccl(self) -> Any:
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = self._limits._timeout
        return dist.ProcessGroupNCCL(dist.PrefixStore("nccl", self._store), self._rank, self._size, options)


def _device(gloo: Any) -> Any:
    """Returns the interface that Gloo or gradlane was told, else the address from which this machine reaches rank 0. A
    hostname may stand for an address that no other machine reaches."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", os.environ.get("GRADLANE_INTERFACE", "")).split(",")[0]
    master = os.environ.get("MASTER_ADDR") or "localhost"
    place = {"interface": interface} if interface else {"hostname": host_info.towards(master)}
    try:
        return gloo.create_device(**place, lazy_init=True)
    except TypeError:  # PyTorch 2.6
        return gloo.create_device(**place)
