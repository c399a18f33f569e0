"""Lets ranks ask each other through a store. No rank waits longer than its limit.

A store outlives ranks: under torchrun's elastic agent, the ranks of the next attempt get the store of the previous one.
It still has all keys that killed ranks have written. So rendezvous() first makes the ranks agree on a new word. All
keys of these ranks begin with that word.
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

_ANSWER_S = 60.0  # time limit in seconds for a rank to report what it has found or done
_LOOK = datetime.timedelta(milliseconds=100)  # longest single wait for a key that may be of an earlier attempt
_SLICE_S = 0.01
_SHORTEST_S = 0.001  # shortest pause between two checks; later pauses are a tenth of the time waited so far
_LEAVE_S = 1.0
_PREFIX = "gradlane meeting"


class PeerTimeout(Exception):
    """Another rank has not come, or has not answered."""


def rendezvous(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta) -> str:
    """Waits until all ranks are here. Returns a word that these ranks share, and that no other ranks have had. Raises
    OperationFailed, or NoDaemon if the store has gone.

    Each rank but 0 writes a hello, a random word of its own. Rank 0 proposes a word, together with the hellos that it
    has read. A rank that finds its own hello among these agrees. If a hello is of an earlier attempt, no rank agrees,
    until the rank of this attempt has replaced it.
    """
    end = time.monotonic() + timeout.total_seconds()
    store = dist.PrefixStore(_PREFIX, store)
    try:
        with _reached():
            return _propose(store, size, end) if rank == 0 else _agree(store, rank, end)
    except PeerTimeout as late:
        raise errors.error(errors.Code.FAILED, f"gradlane: rank {rank} has waited {timeout.total_seconds():g} s, the "
                           f"timeout of the process group, for {late}") from None


def uses_libuv() -> bool:
    """Returns whether a TCPStore has PyTorch's server with libuv. Debian's PyTorch is built without it. PyTorch reads
    the same variable."""
    return os.environ.get("USE_LIBUV", "1") == "1"


def compare_sizes(host: str, port: int, rank: int, size: int, timeout: datetime.timedelta) -> dist.Store | None:
    """Checks that all ranks of a job were given the same number of ranks, before PyTorch waits for them all.

    host, port: address of the job's TCPStore. PyTorch makes its own store there afterwards, on the same server, so the
    result must live until then. Returns None if there can be no such store; PyTorch then raises an error that says why.
    Raises BadArgument if the numbers differ. Raises OperationFailed if rank 0 cannot be reached for `timeout`, or if
    rank 0 has waited that long for others.
    """
    start = time.monotonic()
    try:
        store = dist.TCPStore(host, port, None, rank == 0, timeout, wait_for_workers=False, multi_tenant=True,
                              use_libuv=uses_libuv())
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
    """Ranks that have gone through rendezvous(), and a store that only they use."""

    def __init__(self, store: dist.Store, rank: int, timeout: datetime.timedelta) -> None:
        self._store, self._rank = store, rank
        self.limit = min(timeout, datetime.timedelta(seconds=_ANSWER_S))

    def gather(self, what: str, members: Sequence[int], said: str | None) -> list[str]:
        """Returns the texts of all members. said: text of this rank, or None if it is no member. Raises NoDaemon if a
        member has not answered in time."""
        with _reached():
            if said is not None:
                self._store.set(f"{what} {self._rank}", said)
            keys = [f"{what} {member}" for member in members]
            if _wait(self._store, keys, self.limit):
                return [self._store.get(key).decode(errors="replace") for key in keys]
            missing = [str(member) for member, key in zip(members, keys) if not self._store.check([key])]
        raise errors.error(errors.Code.NO_DAEMON, f"gradlane: no answer from rank {', '.join(missing)} for "
                           f"{self.limit.total_seconds():g} s: it has ended, or hangs")

    def leave(self, size: int, stay: bool) -> None:
        """Says that this rank no longer needs the store; all `size` ranks call this. stay: wait until all have, but no
        longer than `limit`. The store ends with the process of one of them, and the slowest rank may still have to read
        from it."""
        with contextlib.suppress(RuntimeError):  # the store has gone, so there is nothing to wait for
            if self._store.add("parted", 1) == size:
                self._store.set("all have parted", "")
            if stay:
                _wait(self._store, ["all have parted"], self.limit)

    def ask(self, what: str, members: Iterable[int], answer: Callable[[], Any],
            faults: tuple[type[BaseException], ...]) -> list[Any]:
        """Returns the members' answers. Each member calls its own answer(). Raises NoDaemon on all ranks if answer()
        has raised one of `faults` on a member."""
        members = list(members)
        said = None
        if self._rank in members:
            try:
                said = json.dumps({"is": answer()})
            except faults as error:
                said = json.dumps({"error": str(error)})
        answers = [json.loads(text) for text in self.gather(what, members, said)]
        for member, it in zip(members, answers):
            if "error" in it:
                raise errors.error(errors.Code.NO_DAEMON, f"gradlane: no daemon for rank {member}: {it['error']}")
        return [it["is"] for it in answers]


# ---- Private


def _differing(store: dist.Store, attempt: int, rank: int, size: int, seconds: float) -> str:
    """Returns a text about a rank with another size; "" if there is none. Rank 0 waits for all ranks, the others for
    its result."""
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
            time.sleep(_LEAVE_S if rank == 0 else 0)  # the others read the result from this process
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
            raise PeerTimeout(f"rank {', '.join(missing)}")


def _agree(store: dist.Store, rank: int, end: float) -> str:
    hello = secrets.token_hex(8)
    store.set(f"hello {rank}", hello)
    _must(store, ["proposal"], end, lambda _: "rank 0, or for ranks that rank 0 waits for")
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
            raise PeerTimeout("rank 0, or for ranks that rank 0 waits for")
        time.sleep(_SLICE_S)


def _must(store: dist.Store, keys: list[str], end: float, who: Callable[[list[str]], str]) -> None:
    if not _wait(store, keys, datetime.timedelta(seconds=max(end - time.monotonic(), 0.01))):
        raise PeerTimeout(who([key for key in keys if not store.check([key])]))


def _wait(store: dist.Store, keys: list[str], limit: datetime.timedelta) -> bool:
    """Returns whether all keys are in the store within `limit`. Waits up to _LOOK poll, because PyTorch warns of each
    wait() that times out."""
    start = time.monotonic()
    if limit > _LOOK:
        try:
            store.wait(keys, limit)
        except RuntimeError:
            if time.monotonic() < start + 0.9 * limit.total_seconds():  # an error other than the timeout
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
    """Turns an error of the store into NoDaemon: the store has gone."""
    try:
        yield
    except RuntimeError as reason:
        raise errors.error(errors.Code.NO_DAEMON,
                           f"gradlane: lost the connection to the job's store: {reason}") from None
