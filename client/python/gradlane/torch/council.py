"""How ranks ask each other through a store, and none waits longer than it may.

A store outlives ranks: under torchrun's elastic agent the ranks of the next attempt have the store of the last one,
with whatever those had written who were killed. So ranks first agree on a word that nobody has had before, convene(),
and what belongs to them is behind that.
"""

from __future__ import annotations

import datetime
import json
import secrets
import time
from typing import Any, Callable, Iterable, Sequence

import torch.distributed as dist

from .. import errors

_ANSWER_S = 60.0  # for a rank to say what it has found, or done
_LOOK = datetime.timedelta(milliseconds=100)  # for what may be of an earlier attempt
_SLICE_S = 0.01
_PREFIX = "gradlane meeting"


class Late(Exception):
    """Somebody has not come, or not answered."""


def convene(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta) -> str:
    """A word that these ranks have, and that no others had, when all of them are here. Raises OperationFailed.

    Each says hello with a word of its own; rank 0 proposes a word to those whose hellos there are; who finds its own
    among these agrees. A hello of an attempt that is over is answered by nobody, and replaced when its rank comes.
    """
    end = time.monotonic() + timeout.total_seconds()
    meeting = dist.PrefixStore(_PREFIX, store)
    try:
        return _propose(meeting, size, end) if rank == 0 else _agree(meeting, rank, end)
    except Late as late:
        raise errors.error(errors.Code.FAILED, f"gradlane: rank {rank} has waited {timeout.total_seconds():g} s, the "
                           f"timeout of the process group, for {late}") from None


class Council:
    """Ranks that have convened, and a store of their own."""

    def __init__(self, store: dist.Store, rank: int, timeout: datetime.timedelta) -> None:
        self._store, self._rank = store, rank
        self.limit = min(timeout, datetime.timedelta(seconds=_ANSWER_S))

    def hear(self, what: str, members: Sequence[int], said: str | None) -> list[str]:
        """What each member has said; said: of this rank, if it is one. Raises NoDaemon if one has not in time."""
        if said is not None:
            self._store.set(f"{what} {self._rank}", said)
        keys = [f"{what} {member}" for member in members]
        if not _wait(self._store, keys, self.limit):
            missing = [str(member) for member, key in zip(members, keys) if not _wait(self._store, [key], _LOOK)]
            raise errors.error(errors.Code.NO_DAEMON, f"gradlane: nothing was heard from rank {', '.join(missing)} for "
                               f"{self.limit.total_seconds():g} s: it has ended, or hangs")
        return [self._store.get(key).decode(errors="replace") for key in keys]

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
            missing = [key.split()[1] for key in agreed if not _wait(store, [key], _LOOK)]
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
        raise Late(who([key for key in keys if not _wait(store, [key], _LOOK)]))


def _wait(store: dist.Store, keys: list[str], limit: datetime.timedelta) -> bool:
    """False: they are not there in time. Raises NoDaemon if the store has gone."""
    try:
        if limit <= _LOOK and hasattr(store, "check"):  # PyTorch warns of waits in vain
            end = time.monotonic() + limit.total_seconds()
            while not store.check(keys):
                if time.monotonic() >= end:
                    return False
                time.sleep(_SLICE_S)
            return True
        store.wait(keys, limit)
    except RuntimeError as reason:
        text = str(reason)
        if "imed out" in text or "imeout" in text:
            return False
        raise errors.error(errors.Code.NO_DAEMON, f"gradlane: the store of the job has gone: {text}") from None
    return True
