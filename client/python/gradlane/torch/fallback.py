"""Fallback backend of a group, for operations that gradlane lacks: Gloo, and NCCL for CUDA tensors if there is NCCL.

Every group has its own fallback, with its own connections, from the start. Fallback and engine each run operations in
the order of the calls, and neither waits for the other. native/fallback.h forwards operations to the fallback.
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
from . import call_statistics
from .bootstrap import host_info

_states: weakref.WeakSet[State] = weakref.WeakSet()
# States of parent processes. They are never freed here, because a child lacks the threads that they would join.
_of_parents: list[State] = []


os.register_at_fork(after_in_child=lambda: _of_parents.extend(_states))


def wanted() -> bool:
    """Returns whether groups have a fallback: not with GRADLANE_DELEGATE=0, nor in a PyTorch without Gloo."""
    return os.environ.get("GRADLANE_DELEGATE", "1") != "0" and hasattr(dist, "ProcessGroupGloo")


class State:
    """Makes the fallback's backends, and knows whether the group has failed. A failed group can use neither engine nor
    fallback.

    `limits` are the group's options; their _timeout is for operations that name none. `gate` is the
    native.FastPathSwitch, which a failure closes. A closed gate stops all-reduces that bypass Python.
    """

    def __init__(self, store: dist.Store, rank: int, size: int, limits: Any) -> None:
        self._rank, self._size, self._limits = rank, size, limits
        # An earlier group has left addresses in the store that are no longer valid, so each group has keys of its own.
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
        """Returns PyTorch's backend: NCCL for CUDA tensors if there is NCCL, else Gloo. Raises what check() raises."""
        self.check()
        if cuda and hasattr(dist, "ProcessGroupNCCL") and torch.cuda.is_available():
            self._nccl = self._nccl or self._make_nccl()
            return self._nccl
        self._gloo = self._gloo or self._make_gloo()
        return self._gloo

    def note(self, name: str, where: str, why: str, nbytes: int) -> None:
        """Counts an operation, for explain()."""
        call_statistics.note(name, where, why, nbytes)

    def check(self) -> None:
        """Raises an error that says why the group cannot run operations any more. Does nothing if it can."""
        if self._process != os.getpid():
            raise errors.daemon_gone("gradlane: the process group belongs to the parent process (fork)")
        if isinstance(self._failure, errors.Error):
            text = f"{self._failure} (an earlier operation failed)"
            raise type(self._failure)(self._failure.code, text, self._failure.cause)
        if self._failure is not None:
            raise self._failure

    def failed(self, text: str) -> Exception:
        """Returns the exception for an operation that has failed: always that of the group's first failure. Gloo has
        then closed its connections, so later errors are only consequences."""
        if self._failure is None:
            self.give_up(errors.error(errors.Code.FAILED, text))
        assert self._failure is not None
        return self._failure

    def give_up(self, failure: Exception) -> None:
        """Records that the group has failed, in the fallback or in gradlane's engine, and aborts the backends. PyTorch
        cannot cancel a send or receive whose peer still runs. Such an operation ends with its time limit."""
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
        """Sets the time limit of later sends and receives, if PyTorch can do that. Other operations pass their limit
        each time."""
        for name in ("set_timeout", "_set_default_timeout"):
            if hasattr(self._gloo, name):
                getattr(self._gloo, name)(timeout)
                return

    def _make_gloo(self) -> Any:
        """Returns a Gloo backend, which connects two ranks at their first message. Before PyTorch 2.7 all ranks connect
        here."""
        gloo = dist.ProcessGroupGloo
        options = gloo._Options()
        options._timeout, options._devices = self._limits._timeout, [_device(gloo)]
        return gloo(self._store, self._rank, self._size, options)

    def _make_nccl(self) -> Any:
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = self._limits._timeout
        return dist.ProcessGroupNCCL(dist.PrefixStore("nccl", self._store), self._rank, self._size, options)


def _device(gloo: Any) -> Any:
    """Returns Gloo's device for the interface in GLOO_SOCKET_IFNAME or GRADLANE_INTERFACE. Without these, it is for the
    address from which this machine reaches rank 0. The hostname is not used, as it may stand for an address that no
    other machine reaches."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", os.environ.get("GRADLANE_INTERFACE", "")).split(",")[0]
    master = os.environ.get("MASTER_ADDR") or "localhost"
    place = {"interface": interface} if interface else {"hostname": host_info.local_address_for(master)}
    try:
        return gloo.create_device(**place, lazy_init=True)
    except TypeError:  # PyTorch 2.6 does not know lazy_init
        return gloo.create_device(**place)
