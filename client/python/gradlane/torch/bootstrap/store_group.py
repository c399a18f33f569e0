"""How ranks ask each other through a store, and none waits longer than it may.

A store outlives ranks: under torchrun's elastic agent the ranks of the next attempt have the store of the last one,
with whatever those had written who were killed. So rendezvous() first has ranks agree on a word that nobody has had
before, and what belongs to them is behind that.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import secrets
import time
from typing import Any, Callable, Iterable, Iterator, Sequence

import torch.distributed as dist

from ... import errors

_ANSWER_S = 60.0  # for a rank to say what it has found, or done
_LOOK = datetime.timedelta(milliseconds=100)  # for what may be of an earlier attempt
_SLICE_S = 0.01
_SHORTEST_S = 0.001  # from one look to the next, or a tenth of what it has taken so far
_LEAVE_S = 1.0
_PREFIX = "gradlane meeting"


class Late(Exception):
    """Somebody has not come, or not answered."""


def rendezvous(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta) -> str:
    """A word that these ranks have, and that no others had, when all of them are here. Raises OperationFailed.

    Each says hello with a word of its own; rank 0 proposes a word to those whose hellos there are; who finds its own
    among these agrees. A hello of an attempt that is over is answered by nobody, and replaced when its rank comes.
    """
    end = time.monotonic() + timeout.total_seconds()
    store = dist.PrefixStore(_PREFIX, store)
    try:
        with _reached():
            return _propose(store, size, end) if rank == 0 else _agree(store, rank, end)
    except Late as late:
        raise errors.error(errors.Code.FAILED, f"gradlane: rank {rank} has waited {timeout.total_seconds():g} s, the "
                           f"timeout of the process group, for {late}") from None


def compare_sizes(host: str, port: int, rank: int, size: int, timeout: datetime.timedelta) -> dist.Store | None:
    """Raises BadArgument if the ranks of a job were told different numbers of ranks, before PyTorch waits for them all,
    and OperationFailed if rank 0 cannot be reached, or waits for others, for as long as `timeout`.

    host, port: of the job's TCPStore, which PyTorch makes there afterwards, with the same server; so the result must
    live until then. None: there can be no such store, and PyTorch will say why.
    """
    start = time.monotonic()
    try:
        store = dist.TCPStore(host, port, None, rank == 0, timeout, wait_for_workers=False, multi_tenant=True,
                              use_libuv=os.environ.get("USE_LIBUV", "1") == "1")
        sizes = dist.PrefixStore(f"{_PREFIX} sizes", store)
        attempt = sizes.add(f"attempt {rank}", 1)  # the store may be that of an earlier job of these processes
        sizes.set(f"{attempt} {rank}", str(size))
        text = _differing(sizes, attempt, rank, size, timeout.total_seconds())
    except errors.Error:
        raise
    except (RuntimeError, ValueError) as reason:
        if rank > 0 and time.monotonic() >= start + 0.9 * timeout.total_seconds():
            raise errors.error(errors.Code.FAILED, f"gradlane: rank {rank} has not reached rank 0 at {host}:{port} for "
                               f"{timeout.total_seconds():g} s, the timeout of the process group: {reason}") from None
        return None
    if text:
        raise errors.bad_argument(f"gradlane: {text}: all ranks must have the same WORLD_SIZE")
    return store


class StoreGroup:
    """Ranks that have convened, and a store of their own."""

    def __init__(self, store: dist.Store, rank: int, timeout: datetime.timedelta) -> None:
        self._store, self._rank = store, rank
        self.limit = min(timeout, datetime.timedelta(seconds=_ANSWER_S))

    def hear(self, what: str, members: Sequence[int], said: str | None) -> list[str]:
        """What each member has said; said: of this rank, if it is one. Raises NoDaemon if one has not in time."""
        with _reached():
            if said is not None:
                self._store.set(f"{what} {self._rank}", said)
            keys = [f"{what} {member}" for member in members]
            if _wait(self._store, keys, self.limit):
                return [self._store.get(key).decode(errors="replace") for key in keys]
            missing = [str(member) for member, key in zip(members, keys) if not self._store.check([key])]
        raise errors.error(errors.Code.NO_DAEMON, f"gradlane: nothing was heard from rank {', '.join(missing)} for "
                           f"{self.limit.total_seconds():g} s: it has ended, or hangs")

    def part(self, size: int, stay: bool) -> None:
        """All `size` ranks come here when they need the store no more. stay: until all have, as the store goes with the
        process of one of them, and the slowest may still have to read what the others know; no longer than `limit`."""
        with contextlib.suppress(RuntimeError):  # it has gone: somebody has stayed in vain
            if self._store.add("parted", 1) == size:
                self._store.set("all have parted", "")
            if stay:
                _wait(self._store, ["all have parted"], self.limit)

    def ask(self, what: str, members: Iterable[int], answer: Callable[[], Any],
            faults: tuple[type[BaseException], ...]) -> list[Any]:
        """What the members have answered: their answer(), which is called where this rank is one of them. Raises
        NoDaemon on all ranks if it has raised one of these `faults` on one."""
        members = list(members)
        said = None
        if self._rank in members:
            try:
                said = json.dumps({"is": answer()})
            except faults as error:
                said = json.dumps({"error": str(error)})
        answers = [json.loads(text) for text in self.hear(what, members, said)]
        for member, it in zip(members, answers):
            if "error" in it:
                raise errors.error(errors.Code.NO_DAEMON, f"gradlane: no daemon for rank {member}: {it['error']}")
        return [it["is"] for it in answers]


# ---- Private


def _differing(store: dist.Store, attempt: int, rank: int, size: int, seconds: float) -> str:
    """Returns which rank has another size; "": none. Rank 0 waits for all, the others for what it says."""
    end = time.monotonic() + (seconds if rank == 0 else min(seconds, _ANSWER_S))
    missing = list(range(1, size)) if rank == 0 else [0]
    result = f"{attempt} result"
    while time.monotonic() < end:
        for other in [other for other in missing if store.check([f"{attempt} {other}"])]:
            its = int(store.get(f"{attempt} {other}"))
            if its == size:
                missing.remove(other)
                continue
            text = f"rank {rank} was started with WORLD_SIZE {size}, and rank {other} with {its}"
            store.set(result, text)
            time.sleep(_LEAVE_S if rank == 0 else 0)  # the others read it from this process
            return text
        if store.check([result]):
            return str(store.get(result).decode())
        if not missing and rank == 0:
            store.set(result, "")
            return ""
        time.sleep(_SLICE_S)
    if rank == 0:
        ranks = ", ".join(map(str, missing))
        raise errors.error(errors.Code.FAILED, f"gradlane: rank 0 has waited {seconds:g} s, the timeout of the process "
                           f"group, for rank {ranks}: is it started, and are MASTER_ADDR and MASTER_PORT the same?")
    return ""


def _propose(store: dist.Store, size: int, end: float) -> str:
    others = range(1, size)
    keys = [f"hello {rank}" for rank in others]
    _must(store, keys, end, lambda missing: f"rank {', '.join(key.split()[1] for key in missing)}")
    hellos: list[str] | None = None
    word = ""
    while True:
        now = [store.get(key).decode() for key in keys]
        if now != hellos:
            hellos, word = now, secrets.token_hex(8)
            store.set("proposal", json.dumps([word, hellos]))
        agreed = [f"{word} {rank}" for rank in others]
        if _wait(store, agreed, _LOOK):
            store.set(word, "go")
            return word
        if time.monotonic() >= end:
            missing = [key.split()[1] for key in agreed if not store.check([key])]
            raise Late(f"rank {', '.join(missing)}")


def _agree(store: dist.Store, rank: int, end: float) -> str:
    hello = secrets.token_hex(8)
    store.set(f"hello {rank}", hello)
    _must(store, ["proposal"], end, lambda _: "rank 0, or for those that it waits for")
    agreed = ""
    while True:
        word, hellos = json.loads(store.get("proposal"))
        if hellos[rank - 1:rank] == [hello]:
            if word != agreed:
                store.set(f"{word} {rank}", "yes")
                agreed = word
            if _wait(store, [word], _LOOK):
                return str(word)
        if time.monotonic() >= end:
            raise Late("rank 0, or for those that it waits for")
        time.sleep(_SLICE_S)


def _must(store: dist.Store, keys: list[str], end: float, who: Callable[[list[str]], str]) -> None:
    if not _wait(store, keys, datetime.timedelta(seconds=max(end - time.monotonic(), 0.01))):
        raise Late(who([key for key in keys if not store.check([key])]))


def _wait(store: dist.Store, keys: list[str], limit: datetime.timedelta) -> bool:
    """Whether they come in time. Looks again and again for up to _LOOK, as PyTorch warns of each wait() in vain."""
    start = time.monotonic()
    if limit > _LOOK:
        try:
            store.wait(keys, limit)
        except RuntimeError:
            if time.monotonic() < start + 0.9 * limit.total_seconds():  # it has not waited in vain
                raise
            return False
        return True
    end = start + limit.total_seconds()
    while not store.check(keys):
        now = time.monotonic()
        if now >= end:
            return False
        time.sleep(min(max((now - start) / 10, _SHORTEST_S), end - now))
    return True


@contextlib.contextmanager
def _reached() -> Iterator[None]:
    """Raises NoDaemon if the store has gone meanwhile."""
    try:
        yield
    except RuntimeError as reason:
        raise errors.error(errors.Code.NO_DAEMON, f"gradlane: the store of the job has gone: {reason}") from None
