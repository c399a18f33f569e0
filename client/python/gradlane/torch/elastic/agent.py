"""Membership of this process: a thread follows the agreement, starts daemons, and looks whether others live."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import Sequence

from ... import errors
from .agreement import Agreement, Get, Phase, Request
from .ring import Card, EpochRing, Ports, lives, read, start
from .steps import RingFailed
from .store import Store, StoreFailed

_PACE_S = 0.005  # between two requests for something that is not there yet
_JOIN_PACE_S = 0.05  # the same for a process that waits to become a member
_WATCH_S = 0.05  # between two requests of a member for news of its epoch
_LOOK_S = 0.5  # between two requests of a member for processes that wait to join
_LOOKS = 20  # how often a member looks for a process that it cannot reach
_CHECK_S = 0.25  # between two looks whether all members live, until their daemons have connected
_REACH_S = 0.15  # how long a connection to a living member takes at most
_PATIENCE_S = 5.0  # how long a member that lives may take to report
_KEYS_S = 10.0


class Agent:
    """This process's membership of a training. Public functions are for one thread.

    host: host that all processes reach, such as that of the store. founders: number of processes that start the
    training. timeout_s: time limit of operations. store_s: how long the store may be out of reach when the members
    change.
    """

    def __init__(self, store: Store, host: str, founders: int, timeout_s: float, store_s: float) -> None:
        self._store, self._founders = store, founders
        self._timeout_s, self._store_s = timeout_s, store_s
        # ---- Of both threads
        self._condition = threading.Condition()
        self._given: EpochRing | None = None  # ring of the latest epoch
        self._failed = 0  # latest epoch that the caller has ended
        self._reason = ""
        self._end = False  # whether the caller leaves for good
        self._waiting: set[int] = set()  # processes that wait to join
        self._error: Exception | None = None
        self._ended = False
        # ---- Of the agent's thread
        self._ports = Ports(host)
        self._agreement = Agreement(self._ports.card(), founders)
        self._ring: EpochRing | None = None
        self._silent_since = 0.0  # when the store began not to answer; 0: it answers
        self._reported_at = 0.0
        self._next_join, self._looked_at = 1, 0.0
        self._candidates: dict[int, str] = {}  # cards of processes that have asked to join
        self._misses: dict[int, int] = {}  # how often they could not be reached, one after another
        self._thread = threading.Thread(target=self._run, name="gradlane-elastic", daemon=True)
        self._thread.start()

    @property
    def id(self) -> int:
        """The id of this process. It has another one after it was expelled and has joined again."""
        return self._agreement.id

    @property
    def founder(self) -> bool:
        """Whether this process has started the training, with others."""
        return self.id <= self._founders

    def ring(self) -> EpochRing | None:
        """Waits for the ring of an epoch that leave() has not ended. Returns None if this process has left. Raises
        OperationFailed if the store cannot be reached, or if the training has ended."""
        with self._condition:
            while True:
                if self._error is not None:
                    raise self._error
                if self._ended:
                    return None
                if self._given is not None and self._given.epoch > self._failed:
                    return self._given
                self._condition.wait(0.1)  # with a limit, so that Ctrl-C works

    def leave(self, reason: str, for_good: bool = False) -> None:
        """Ends the epoch of the latest ring(). for_good: this process leaves the training."""
        with self._condition:
            if self._given is not None:
                self._failed = max(self._failed, self._given.epoch)
            self._reason = self._reason or reason
            self._end = self._end or for_good
            self._condition.notify_all()

    def has_waiting(self) -> bool:
        """Returns whether a process waits to join."""
        return bool(self._waiting)

    def close(self) -> None:
        """Leaves for good, and waits until the others know."""
        self.leave("has left", for_good=True)
        self._thread.join(_PATIENCE_S)

    # ---- The agent's thread

    def _run(self) -> None:
        try:
            while self._agreement.phase is not Phase.ENDED:
                self._step()
            if not self._end:
                raise errors.error(errors.Code.FAILED, "gradlane: this training has ended; start another one with "
                                   "another name")
        except Exception as reason:
            self._error = reason  # ring() raises it
            self._give_up()
        with self._condition:
            self._ended = True
            self._condition.notify_all()
        self._drop_ring("the process leaves")
        self._ports.close()

    def _step(self) -> None:
        agreement = self._agreement
        self._ports.answer()
        if agreement.phase is Phase.EXPELLED:
            self._say(f"process {self.id} was expelled, because it did not answer; it joins again")
            self._drop_ring("this process was expelled")
            self._agreement = Agreement(self._ports.card(), self._founders)
            self._next_join, self._waiting, self._candidates, self._misses = 1, set(), {}, {}
        elif agreement.phase is not Phase.MEMBER:
            self._follow(agreement)
        elif self._ring is None or self._ring.epoch != agreement.epoch:
            self._install(agreement)
        else:
            self._watch(agreement, self._ring)

    def _follow(self, agreement: Agreement) -> None:
        before = agreement.phase, agreement.epoch, len(agreement.reports)
        self._ask(agreement)
        if agreement.phase is not before[0] and agreement.phase is Phase.COLLECT:
            self._reported_at = time.monotonic()
        if (agreement.phase, agreement.epoch, len(agreement.reports)) != before:
            return
        if agreement.phase is Phase.COLLECT:
            late = time.monotonic() > self._reported_at + _PATIENCE_S
            agreement.exclude(it for it in agreement.unheard if late or not self._lives(read(agreement.members[it])))
        if self._end:
            agreement.withdraw()
        time.sleep(_PACE_S if self.id in agreement.members else _JOIN_PACE_S)

    def _lives(self, card: Card) -> bool:
        return lives(card, _REACH_S)

    def _ask(self, agreement: Agreement) -> None:
        """Sends the agreement's request to the store. Raises OperationFailed if the store does not answer for long."""
        request = agreement.request()
        assert request is not None
        try:
            agreement.answer(self._send(request))
            self._silent_since = 0.0
        except StoreFailed as reason:
            now = time.monotonic()
            # A member can do without the store, so its time counts from the next change of members.
            self._silent_since = now if agreement.phase is Phase.MEMBER else self._silent_since or now
            if now > self._silent_since + self._store_s:
                raise errors.error(errors.Code.FAILED, f"gradlane: the store of the training does not answer for "
                                   f"{self._store_s:g} s: {reason}") from None
            time.sleep(_WATCH_S)

    def _send(self, request: Request) -> str | None:
        if isinstance(request, Get):
            return self._store.get(request.key)
        return self._store.create(request.key, request.value)

    def _install(self, agreement: Agreement) -> None:
        """Makes the ring of a new epoch. Ends the epoch at once if that fails."""
        epoch, ids = agreement.epoch, sorted(agreement.members)
        if ids[0] == self.id:
            self._say(f"epoch {epoch}: {_members(ids)}")
        self._ports.release()
        for it in ids:
            self._waiting.discard(it)
        try:
            ring = start(epoch, [read(agreement.members[it]) for it in ids], ids.index(self.id), self._timeout_s,
                         lambda own: self._exchange_keys(epoch, ids, own))
        except RingFailed as reason:
            self._say(f"epoch {epoch}: {reason}")
            agreement.report(self._ports.card(), self._end)
            return
        self._ring, self._looked_at = ring, time.monotonic()

    def _exchange_keys(self, epoch: int, ids: Sequence[int], own: str) -> list[str]:
        """Returns the public keys of the daemons of all members. Raises RingFailed."""
        end = time.monotonic() + _KEYS_S
        keys: dict[int, str] = {}
        while len(keys) < len(ids):
            with contextlib.suppress(StoreFailed):
                self._store.create(f"key/{epoch}/{self.id}", own)
                for it in ids:
                    found = self._store.get(f"key/{epoch}/{it}")
                    if found is not None:
                        keys[it] = found
            if time.monotonic() > end:
                missing = next(it for it in ids if it not in keys)
                raise RingFailed(f"the daemon of process {missing} has published no key within {_KEYS_S:g} s")
            time.sleep(_PACE_S)
        return [keys[it] for it in ids]

    def _watch(self, agreement: Agreement, ring: EpochRing) -> None:
        """Waits for the end of the epoch, but not for long, and reports it."""
        ready = self._given is ring
        with self._condition:
            if self._failed < ring.epoch and not self._end:
                self._condition.wait(_WATCH_S if ready else _PACE_S)
            failed = self._failed >= ring.epoch or self._end
        if not failed:
            self._ask(agreement)
            failed = agreement.called
        if not failed and ready:
            self._look_for_processes(agreement)
        elif not failed:
            failed = not self._give(agreement, ring)
        if failed:
            ring.abort(self._reason or "another member has ended the epoch")
            agreement.report(self._ports.card(), self._end)

    def _give(self, agreement: Agreement, ring: EpochRing) -> bool:
        """Gives the ring to the caller as soon as all daemons have connected. Returns False if they will not."""
        now = time.monotonic()
        try:
            if ring.is_ready():
                with self._condition:
                    self._given, self._reason = ring, ""
                    self._condition.notify_all()
                return True
        except RingFailed as reason:
            self._say(f"epoch {ring.epoch}: {reason}")
            return False
        if now < self._looked_at + _CHECK_S:
            return True
        self._looked_at = now
        return all(it == self.id or self._lives(read(card)) for it, card in agreement.members.items())

    def _look_for_processes(self, agreement: Agreement) -> None:
        """Looks for processes that wait to join. Looks again for one that cannot be reached, as it may live."""
        now = time.monotonic()
        if now < self._looked_at + _LOOK_S:
            return
        self._looked_at = now
        with contextlib.suppress(StoreFailed):
            card = self._store.get(f"join/{self._next_join}")
            while card is not None:
                self._candidates[self._next_join] = card
                self._next_join += 1
                card = self._store.get(f"join/{self._next_join}")
        for it, card in list(self._candidates.items()):
            if it in agreement.known:
                del self._candidates[it]
            elif self._lives(read(card)):
                agreement.admit(it, card)
                self._waiting.add(it)
                self._misses[it] = 0
            else:
                agreement.joining.pop(it, None)
                self._waiting.discard(it)
                self._misses[it] = self._misses.get(it, 0) + 1
                if self._misses[it] == _LOOKS:
                    del self._candidates[it]

    def _give_up(self) -> None:
        """Tells the other members, after an error, that this process leaves."""
        agreement = self._agreement
        with contextlib.suppress(Exception):
            if agreement.phase is Phase.MEMBER:
                agreement.report(agreement.card, leaving=True)
            while agreement.phase in (Phase.REPORT, Phase.CALL):
                request = agreement.request()
                assert request is not None
                agreement.answer(self._send(request))

    def _drop_ring(self, reason: str) -> None:
        if self._ring is not None:
            self._ring.abort(reason)
            self._ring = None

    def _say(self, text: str) -> None:
        print(f"gradlane: elastic: {text}", file=sys.stderr, flush=True)


def _members(ids: Sequence[int]) -> str:
    listed = ", ".join(map(str, ids))
    return f"1 member, process {listed}" if len(ids) == 1 else f"{len(ids)} members, processes {listed}"
