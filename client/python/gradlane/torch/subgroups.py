"""Rings of some ranks of a job: they have daemons of their own, and a second engine in each process.

The job's daemons sum over all of its ranks. A group of some ranks needs daemons of its own. Its ranks may have replicas
of a sharded model, or be data-parallel in a job with other parallelism as well. At the group's first call launch.py
starts its daemons, on free UDP ports. They end with the processes.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from typing import Iterator, NamedTuple, Sequence

import torch.distributed as dist

from .. import errors
from .bootstrap import joining, launch
from .bootstrap.store_group import StoreGroup, rendezvous
from .engine import Engine


class _Ring(NamedTuple):
    engine: Engine
    held: launch.JobDaemons


_rings: dict[str, _Ring] = {}  # by name of the group
os.register_at_fork(after_in_child=_rings.clear)


def engine_of(group: dist.ProcessGroup, timeout: datetime.timedelta) -> Engine:
    """Returns the engine of a group of several ranks of the job. All ranks of the group must call it. Raises NoDaemon,
    OperationFailed and BadArgument, on all of these ranks."""
    rank, size, name = dist.get_rank(group), dist.get_world_size(group), group.group_name
    with _of_the_job(group):
        store = _convened("ring", group, timeout)
        engine = joining.join_all(store, rank, size, timeout, lambda own: _join(name, own, rank, size, timeout))
        launch.verify(engine, timeout, _rings[name].held)
    return engine


def gather(group: dist.ProcessGroup, said: str, timeout: datetime.timedelta) -> list[str]:
    """Gathers the texts `said` of all ranks of the group, in the order of the ranks. Raises OperationFailed and
    NoDaemon, which name the ranks that have not called it."""
    with _of_the_job(group):
        store = _convened("words", group, timeout)
        return StoreGroup(store, dist.get_rank(group), timeout).gather("said", range(dist.get_world_size(group)), said)


def leave(group: dist.ProcessGroup) -> None:
    """Closes this process's engine of the group. Operations in flight fail, on all ranks. engine_of() makes another
    ring."""
    ring = _rings.get(group.group_name)
    if ring is not None:
        ring.engine.close()


def ranks_text(ranks: Sequence[int]) -> str:
    """Returns the ranks as text, but at most eight of them."""
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")


# ---- Private


def _convened(what: str, group: dist.ProcessGroup, timeout: datetime.timedelta) -> dist.Store:
    job = dist.PrefixStore(f"gradlane {what} {group.group_name}", dist.distributed_c10d._get_default_store())
    return dist.PrefixStore(rendezvous(job, dist.get_rank(group), dist.get_world_size(group), timeout), job)


@contextlib.contextmanager
def _of_the_job(group: dist.ProcessGroup) -> Iterator[None]:
    """Adds the group's ranks to an error's text, which counts ranks within the group."""
    try:
        yield
    except errors.Error as error:
        ranks = ranks_text(dist.get_process_group_ranks(group))
        raise type(error)(error.code, f"{error} (ranks within a group, whose ranks in the job are {ranks}; all of "
                          "them must call hsdp(), fsdp() or State() with that group)", error.cause) from error


def _join(name: str, store: dist.Store, rank: int, size: int, timeout: datetime.timedelta) -> Engine:
    known = _rings.get(name)
    # After destroy_process_group(), PyTorch uses names of groups again, for other ranks, or for the same ranks in
    # another order.
    same = known is not None and known.engine.usable and (known.engine.rank, known.engine.world) == (rank, size)
    held = launch.ring(store, rank, size, timeout, known.held if known is not None and same else None)
    if known is not None and held is known.held:
        return known.engine
    if known is not None:  # the ring has failed or is an earlier group's; all ranks are here, so none uses it
        known.engine.close()
        known.held.end()
        del _rings[name]
    try:
        engine = Engine.open_subgroup(held.socket, rank)
    except BaseException:
        held.end()
        raise
    _rings[name] = _Ring(engine, held)
    return engine
