"""Makes the ranks of a job find each other, and reports at once if they cannot form a group.

PyTorch's ranks wait for each other up to PyTorch's own time limit, 30 minutes, even if other ranks have ended. So
watch() makes each rank check the number of ranks of a job or group before PyTorch waits. An error that only one rank
can see is reported to all ranks by rendezvous_and_join().
"""

from __future__ import annotations

import datetime
import functools
import inspect
import os
import re
import urllib.parse
from typing import Any, Callable, TypeVar

import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from ... import errors
from . import launch
from .store_group import StoreGroup, compare_sizes, rendezvous
from ..fallback import wanted
from ..engine import Engine

_AGENT = "TORCHELASTIC_USE_AGENT_STORE"  # "True" if the store belongs to torchrun's agent
_Joined = TypeVar("_Joined")

# Each rank sends one of these after it has tried to join. The reason follows _FAILED.
_JOINED, _FAILED = "joined", "failed: "

job = ""  # word that the ranks of the default group have agreed on; "" if the group has one rank


def rendezvous_and_join(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta,
                        join: Callable[[dist.Store], _Joined]) -> _Joined:
    """Calls join() when all ranks have arrived, and returns its result if join() has succeeded on all ranks. Otherwise
    it raises the error on all ranks.

    join() gets a store that only these ranks have, and connects to the daemon. It must not run earlier: a rank that
    connects again ends operations of the previous job that other ranks are still finishing.
    """
    global job
    job = rendezvous(store, rank, size, timeout)
    return join_all(own(store), rank, size, timeout, join)


def join_all(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta,
             join: Callable[[dist.Store], _Joined]) -> _Joined:
    """Does what rendezvous_and_join() does after the rendezvous. The store must belong to these ranks alone."""
    group = StoreGroup(store, rank, timeout)
    joined: _Joined | Exception
    text = _JOINED
    try:
        joined = join(store)
    except Exception as error:  # the other ranks must learn of it
        joined, text = error, _FAILED + str(error)
    try:
        texts = group.gather("joined", range(size), text)
    except errors.Error:  # ranks that come later need not wait for this rank
        group.leave(size, stay=False)
        raise
    failed = next((other for other, its in enumerate(texts) if its != _JOINED), None)
    if failed is None and not isinstance(joined, Exception):
        return joined
    group.leave(size, stay=True)
    if isinstance(joined, Exception):
        raise joined
    text = texts[failed or 0].removeprefix(_FAILED)
    raise errors.bad_argument(f"gradlane: rank {failed} cannot take part: {text}")


def own(store: dist.Store) -> dist.Store:
    """Returns the part of the store that belongs to this job's ranks, and to no earlier attempt."""
    return dist.PrefixStore(f"gradlane {job}", store)


def refusal(size: int, world: int) -> errors.BadArgument:
    """Returns the error for a group that gradlane cannot have."""
    return errors.bad_argument(
        f"gradlane: a group of {size} of {world} ranks; the backend gradlane has only groups of all ranks or of one. "
        "For others use another backend: dist.new_group(ranks, backend='gloo')"
    )


def watch() -> None:
    """Makes PyTorch's init_process_group() and new_group() check the numbers of ranks first, for backend gradlane only.
    """
    for name, look in (("init_process_group", _look_at_job), ("new_group", _look_at_group)):
        original = getattr(dist.distributed_c10d, name)
        watched = _watched(original, look)
        # Users call the functions of dist; PyTorch's own functions call those of distributed_c10d.
        for module in (dist, dist.distributed_c10d):
            if getattr(module, name) is original:
                setattr(module, name, watched)


def _watched(original: Callable[..., Any], look: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def watched(*arguments: Any, **options: Any) -> Any:
        try:
            call = signature.bind(*arguments, **options).arguments
        except TypeError:
            call = None  # the original function raises an error that says what is wrong
        kept = None if call is None else look(call)  # a store that must live until the original function has its own
        result = original(*arguments, **options)
        del kept
        return result

    return watched


def _look_at_group(call: dict[str, Any]) -> None:
    ranks = call.get("ranks")
    if not dist.is_initialized() or ranks is None or wanted():
        return
    size, world = len(set(ranks)), dist.get_world_size()
    if _is_ours(call.get("backend") or dist.get_backend()) and 1 < size < world:
        raise refusal(size, world)


def _look_at_job(call: dict[str, Any]) -> dist.Store | None:
    """Raises BadArgument unless all ranks were given the same number of ranks, and the daemons have as many. The
    daemons are asked only if the environment names them or forbids to start others. (Daemons that are only found may
    belong to others.) Returns the store of compare_sizes(), if there is one. All other errors are found by
    rendezvous_and_join()."""
    if not _is_ours(call.get("backend")) or dist.is_initialized():
        return None
    url = urllib.parse.urlparse(call.get("init_method") or "env://")
    named = dict(urllib.parse.parse_qsl(url.query))
    job: list[int | None] = []
    for word in ("rank", "world_size"):
        number = call.get(word, -1)
        if number == -1:
            number = named.get(word, os.environ.get(word.upper()) if url.scheme == "env" else None)
        job.append(int(number) if str(number).isdecimal() else None)
    rank, size = job
    if rank is None or size is None or call.get("store") is not None:
        return None
    if rank >= size:
        raise errors.bad_argument(f"gradlane: RANK is {rank} and WORLD_SIZE {size}: ranks are 0 to {size - 1}")
    if size > 1 and not launch.wanted():
        _look_at_daemons(rank, size)
    place = url.netloc if url.scheme == "tcp" else ":".join(
        os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
    host, _, port = place.rpartition(":")
    # An elastic agent has given all ranks the same number, so there is nothing to compare.
    if url.scheme in ("env", "tcp") and host and port.isdecimal() and os.environ.get(_AGENT) != "True":
        return compare_sizes(host.strip("[]"), int(port), rank, size, call.get("timeout") or default_pg_timeout)
    return None


def _look_at_daemons(rank: int, size: int) -> None:
    world = Engine.world_of(rank)
    if world is not None and world != size:
        raise errors.bad_argument(
            f"gradlane: WORLD_SIZE is {size}, and the daemons have {world} ranks: start one process per rank of the "
            "daemons, as gradlane run does, or change `nodes` (and `trainers`) in their configurations"
        )


def _is_ours(backend: object) -> bool:
    """Returns whether the backend is gradlane, also if only for the CPU or CUDA: "cpu:gradlane,cuda:nccl"."""
    return isinstance(backend, str) and "gradlane" in re.split("[:,]", backend.lower())
