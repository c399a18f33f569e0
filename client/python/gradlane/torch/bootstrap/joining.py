"""How the ranks of a job find each other, and learn at once if they cannot be one.

PyTorch has ranks wait for each other by its own time limit, 30 minutes, whatever has become of the others. So what is
wrong with the numbers of a job or a group is found before PyTorch waits for anybody, where each rank can see it
(watch()), and what only one rank sees is told to all (meet()).
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

_AGENT = "TORCHELASTIC_USE_AGENT_STORE"  # "True": the store is of torchrun's agent
_Joined = TypeVar("_Joined")

# Each rank sends one of these after it has tried to join. The reason follows _FAILED.
_JOINED, _FAILED = "joined", "failed: "

job = ""  # the word that the ranks of the default group have agreed on; "": it has one rank


def meet(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta,
         join: Callable[[dist.Store], _Joined]) -> _Joined:
    """Calls join(a store that only these ranks have), which connects, when all ranks are here, and returns its result
    if it has gone well on all. Else it raises on all what has gone wrong.

    Not before all are here: a rank that is taken anew ends what others are still finishing of the job before.
    """
    global job
    job = rendezvous(store, rank, size, timeout)
    return join_all(own(store), rank, size, timeout, join)


def join_all(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta,
             join: Callable[[dist.Store], _Joined]) -> _Joined:
    """The same, of ranks that have met: the store is theirs alone."""
    group = StoreGroup(store, rank, timeout)
    joined: _Joined | Exception
    text = _JOINED
    try:
        joined = join(store)
    except Exception as error:  # the others shall hear of it
        joined, text = error, _FAILED + str(error)
    try:
        texts = group.hear("joined", range(size), text)
    except errors.Error:  # whoever comes later need not wait for this rank
        group.part(size, stay=False)
        raise
    failed = next((other for other, its in enumerate(texts) if its != _JOINED), None)
    if failed is None and not isinstance(joined, Exception):
        return joined
    group.part(size, stay=True)
    if isinstance(joined, Exception):
        raise joined
    text = texts[failed or 0].removeprefix(_FAILED)
    raise errors.bad_argument(f"gradlane: rank {failed} cannot take part: {text}")


def own(store: dist.Store) -> dist.Store:
    """Of this job's ranks, and of no earlier attempt's."""
    return dist.PrefixStore(f"gradlane {job}", store)


def refusal(size: int, world: int) -> errors.BadArgument:
    """Of a group that there cannot be."""
    return errors.bad_argument(
        f"gradlane: a group of {size} of {world} ranks; the backend gradlane has groups of all ranks, or of one. For "
        "others make a group of another backend: dist.new_group(ranks, backend='gloo')"
    )


def watch() -> None:
    """Has PyTorch's init_process_group() and new_group() look at the numbers first, for backend gradlane alone."""
    for name, look in (("init_process_group", _look_at_job), ("new_group", _look_at_group)):
        original = getattr(dist.distributed_c10d, name)
        watched = _watched(original, look)
        for module in (dist, dist.distributed_c10d):  # whose functions call each other
            if getattr(module, name) is original:
                setattr(module, name, watched)


def _watched(original: Callable[..., Any], look: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def watched(*arguments: Any, **options: Any) -> Any:
        try:
            call = signature.bind(*arguments, **options).arguments
        except TypeError:
            call = None  # the original says what is wrong with it
        kept = None if call is None else look(call)  # a store, until the original has one
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
    """Whether all ranks were told the same number of ranks, and as many as the daemons have that the environment tells
    of. (Those that are only found may be of others.) What else is wrong, meet() will find."""
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
    # An elastic agent has told all ranks the same.
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
    """Also of the CPU, or CUDA, alone: "cpu:gradlane,cuda:nccl"."""
    return isinstance(backend, str) and "gradlane" in re.split("[:,]", backend.lower())
