"""Membership of this process: a thread runs the agreement, starts daemons, and checks which processes live."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
import threading
import time
import zlib
from typing import Iterable, Sequence

from ... import errors
from .agreement import MOST_MEMBERS, Agreement, Get, Phase, Request, parse_report
from .ring import EpochRing, Ports, differences, is_alive, parse_card, start_ring
from .steps import CHANGE, LEFT, RingFailed
from .store import Store, StoreFailed

_POLL_S = 0.005  # time between two requests for a key that does not exist yet
_JOIN_POLL_S = 0.05  # the same for a process that waits to become a member
_WATCH_S = 0.05  # time between two requests of a member for the end of its epoch
_LOOK_S = 0.5  # time between two requests of a member for processes that wait to join
_MOST_MISSES = 20  # number of failed connections, within minutes, after which a member forgets a waiting process
_TELL_MISSES = 4  # number of them after which the member says so
_RARE_S = 30.0  # longest time between two of these connections
_CHECK_S = 0.25  # time between two checks that all members live, until their daemons have connected
_CONNECT_S = 1.2  # time limit of a connection to a process
_REPORT_S = 5.0  # time limit of the report of a member that lives
_TELL_S = 2.0  # time after which a process says that it waits, to join or for the store
_DEAD_S = 10.0  # time after which a process that waits to join and reaches no member gives up
_KEYS_S = 10.0  # time limit of the exchange of keys
_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 600.0  # how long a process waits after its daemon could not connect to the others
_BITS = 62  # number of bits of waiting()


@dataclasses.dataclass
class Candidate:
    """A process that waits to join. due: when to connect to it. misses: number of failed connections since the last
    good one."""

    card: str
    due: float
    misses: int = 0


class Agent:
    """This process's membership of a training. One thread calls the public functions.

    host: a host that all processes can reach, such as that of the store. kind: as in Card. founders: number of
    processes that start the training. timeout_s: time limit of operations. store_s: how long the store may not answer
    while the members change.
    """

    def __init__(self, store: Store, host: str, kind: str, founders: int, timeout_s: float, store_s: float) -> None:
        self._store, self._founders = store, founders
        self._timeout_s, self._store_s = timeout_s, store_s
        # ---- Both threads use these
        self._condition = threading.Condition()
        self._latest: EpochRing | None = None  # ring of the latest epoch whose daemons have connected
        self._settled_id = 0  # id of this process at the latest settle(); 0: there was none
        self._taken_epoch = 0  # epoch of the ring that the caller has
        self._ended_epoch = 0  # latest epoch that the caller has ended
        self._reason = ""
        self._leaving = False  # whether the caller leaves the training
        self._waiting = 0  # result of waiting()
        self._error: Exception | None = None
        self._stopped = False  # whether the agent's thread has ended its work
        # ---- Only the agent's thread uses these
        self._ports = Ports(host, kind)
        self._agreement = Agreement(self._ports.make_card(), founders)
        self._ring: EpochRing | None = None  # ring of the current epoch; `_latest` when all daemons have connected
        self._silent_since = 0.0  # time since which the store does not answer; 0: it answers
        self._collect_since = 0.0  # time since which this member waits for reports
        self._next_join, self._looked_at = 1, 0.0
        self._members: frozenset[int] = frozenset()  # of the latest epoch that was installed
        self._connected = False  # whether all daemons of that epoch have connected
        self._pause_s = _PAUSE_S  # next pause of this process
        self._joins_at = 0.0  # when this process joins again; 0: it has not been expelled
        self._candidates: dict[int, Candidate] = {}  # processes that have asked to join
        self._waits_since = time.monotonic()
        self._seen_at = 0.0  # when this process, while it waits to join, has last reached a member; 0: not tried
        self._told = False  # whether the process has said that it waits to join
        self._told_silent = False  # whether it has said that the store does not answer
        self._thread = threading.Thread(target=self._run, name="gradlane-elastic", daemon=True)
        self._thread.start()

    def ring(self) -> EpochRing | None:
        """Waits for the ring of an epoch that end_epoch() has not ended. Returns None if this process has left. Raises
        OperationFailed if the store cannot be reached, or if the training has ended."""
        with self._condition:
            while True:
                if self._error is not None:
                    raise self._error
                if self._stopped:
                    return None
                if self._latest is not None and self._latest.epoch > self._ended_epoch:
                    self._taken_epoch = self._latest.epoch
                    return self._latest
                self._condition.wait(0.1)  # with a limit, so that Ctrl-C works

    def end_epoch(self, reason: str, leaving: bool = False) -> None:
        """Ends the epoch of the ring that ring() has returned, and not a later one. leaving: this process leaves the
        training."""
        with self._condition:
            self._ended_epoch = self._taken_epoch
            if self._latest is None or self._latest.epoch == self._taken_epoch:
                self._reason = self._reason or reason
            self._leaving = self._leaving or leaving
            self._condition.notify_all()

    def waiting(self) -> int:
        """Returns a bit for each process that waits to join and that this one can reach. If all members have the same
        bit, a new epoch lets a process in, unless processes share the bit."""
        return self._waiting

    def settle(self, process: int) -> None:
        """Says that this process, with this id, has a state that counts."""
        self._settled_id = process

    def close(self) -> None:
        """Leaves the training. Waits until this process has reported that."""
        self.end_epoch(LEFT, leaving=True)
        self._thread.join(_REPORT_S)

    # ---- The agent's thread

    def _run(self) -> None:
        try:
            while self._agreement.phase is not Phase.ENDED:
                self._step()
            if not self._leaving:
                raise errors.error(errors.Code.FAILED, "gradlane: this training has ended; start another one with "
                                   "another name")
        except Exception as reason:
            self._error = reason  # ring() raises it
            self._give_up()
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
        self._drop_ring("the process leaves")
        self._ports.close()

    def _step(self) -> None:
        agreement = self._agreement
        self._ports.accept()
        if agreement.phase is Phase.EXPELLED:
            self._join_again(agreement)
        elif agreement.phase is not Phase.MEMBER:
            self._follow(agreement)
        elif self._ring is None or self._ring.epoch != agreement.epoch:
            self._install(agreement)
        else:
            self._watch(agreement, self._ring)

    def _join_again(self, agreement: Agreement) -> None:
        """Makes this process, which was expelled, join with another id; after a pause, if its epoch did not connect."""
        now = time.monotonic()
        if self._joins_at == 0:
            self._drop_ring("this process was expelled")
            if self._connected:
                self._joins_at = now
                self._say(f"process {agreement.id} was expelled, because it did not answer; it joins again")
            else:
                # Processes must not pause for the same time, and the program sets the state of module random.
                self._joins_at = now + self._pause_s * (0.5 + zlib.crc32(agreement.card.encode()) / 2**32)
                self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
                self._say(f"process {agreement.id} was expelled, because its daemon and those of the others did not "
                          f"connect; it joins again in {self._joins_at - now:.0f} s")
        if self._leaving:
            agreement.withdraw()
        elif now >= self._joins_at:
            self._agreement = Agreement(self._ports.make_card(), self._founders)
            self._next_join, self._waiting, self._candidates, self._members = 1, 0, {}, frozenset()
            self._waits_since, self._seen_at, self._told, self._joins_at = now, 0.0, False, 0.0
        else:
            time.sleep(_JOIN_POLL_S)

    def _follow(self, agreement: Agreement) -> None:
        before = agreement.phase, agreement.epoch, agreement.id, len(agreement.reports)
        self._ask(agreement)
        if agreement.phase is not before[0] and agreement.phase is Phase.COLLECT:
            self._collect_since = time.monotonic()
        # A process that waits for the start goes back from START to FOLLOW, again and again.
        waits = before[0] is Phase.START and agreement.phase is Phase.FOLLOW and agreement.epoch == 0
        if not waits and (agreement.phase, agreement.epoch, agreement.id, len(agreement.reports)) != before:
            return
        if agreement.phase is Phase.COLLECT:
            if self._silent_since > 0:  # others cannot report either
                self._collect_since = time.monotonic()
            # The checks of members that have died take time, so the other reports may not have been read yet.
            late = agreement.has_asked_all and time.monotonic() > self._collect_since + _REPORT_S
            agreement.exclude(it for it in agreement.awaited if late or not self._is_alive(agreement.members[it]))
        if self._leaving:
            agreement.withdraw()
        elif agreement.phase is Phase.FOLLOW and agreement.id not in agreement.members:
            self._wait_to_join(agreement)
        time.sleep(_POLL_S if agreement.id in agreement.members else _JOIN_POLL_S)

    def _wait_to_join(self, agreement: Agreement) -> None:
        """Raises OperationFailed if this process has reached no member for _DEAD_S, and BadArgument if it cannot join.
        """
        now = time.monotonic()
        if not self._told and now > self._waits_since + _TELL_S:
            self._told = True
            self._say(f"process {agreement.id} waits to join" if agreement.epoch > 0 else
                      f"process {agreement.id} waits until {self._founders} processes have come")
        if agreement.epoch == 0 or now < self._looked_at + _LOOK_S:
            return
        self._looked_at = now
        own = parse_card(agreement.card)
        for card in agreement.members.values():
            unlike = differences(own, parse_card(card))
            if unlike:
                raise errors.bad_argument(f"gradlane: elastic: this process and the members differ in {unlike}")
        if not self._seen_at or any(self._is_alive(card) for card in agreement.members.values()):
            self._seen_at = now
        elif now > self._seen_at + _DEAD_S:
            raise errors.error(errors.Code.FAILED, "gradlane: elastic: this process waits to join, but has reached no "
                               f"member for {_DEAD_S:g} s; if all have died, start a training with another name, from "
                               "a checkpoint")

    def _is_alive(self, card: str) -> bool:
        return is_alive(parse_card(card), _CONNECT_S)

    def _ask(self, agreement: Agreement) -> None:
        """Sends the agreement's request to the store. Raises OperationFailed if it has not answered for store_s."""
        request = agreement.request()
        assert request is not None
        asked = time.monotonic()
        try:
            agreement.answer(self._send(request))
            self._silent_since, self._told_silent = 0.0, False
        except StoreFailed as reason:
            now = time.monotonic()
            # A member needs the store only when the members change, so the time limit begins then.
            self._silent_since = now if agreement.phase is Phase.MEMBER else self._silent_since or asked
            if now > self._silent_since + self._store_s:
                raise errors.error(errors.Code.FAILED, "gradlane: elastic: the store has not answered for "
                                   f"{self._store_s:g} s: {reason}") from None
            if now > self._silent_since + _TELL_S and not self._told_silent:
                self._told_silent = True
                self._say(f"the store does not answer; this process tries for {self._store_s:g} s: {reason}")
            time.sleep(_WATCH_S)

    def _send(self, request: Request) -> str | None:
        if isinstance(request, Get):
            return self._store.get(request.key)
        return self._store.create(request.key, request.value)

    def _install(self, agreement: Agreement) -> None:
        """Starts the ring of a new epoch. Ends the epoch if that fails."""
        epoch, ids = agreement.epoch, sorted(agreement.members)
        gone = sorted(self._members.difference(ids))
        self._members, self._connected = frozenset(ids), False
        self._candidates = {it: found for it, found in self._candidates.items() if it not in agreement.known}
        self._set_waiting(agreement)
        self._ports.release()
        try:
            ring = start_ring(epoch, [parse_card(agreement.members[it]) for it in ids], ids.index(agreement.id),
                              self._timeout_s, lambda own: self._exchange_keys(epoch, ids, own))
        except RingFailed as reason:
            self._say_failed(epoch, str(reason))
            self._report(agreement)
            return
        ring.id, ring.founder = agreement.id, agreement.id <= self._founders
        self._ring, self._looked_at = ring, time.monotonic()
        if ids[0] == agreement.id:
            left = self._ask_who_left(epoch - 1, gone)
            self._say(f"epoch {epoch}: {_describe(ids, left, [it for it in gone if it not in left])}")

    def _ask_who_left(self, epoch: int, gone: Iterable[int]) -> list[int]:
        """Returns those of the processes that have ended their epoch in order to leave, if the store answers."""
        left = []
        with contextlib.suppress(StoreFailed):
            for it in gone:
                report = self._store.get(f"report/{epoch}/{it}")
                if report is not None and parse_report(report).leaving:
                    left.append(it)
        return left

    def _set_waiting(self, agreement: Agreement) -> None:
        bits = 0
        for it in agreement.joining if len(agreement.members) < MOST_MEMBERS else ():
            bits |= 1 << (it + it // _BITS * agreement.epoch) % _BITS  # in each epoch, others share a bit
        self._waiting = bits

    def _exchange_keys(self, epoch: int, ids: Sequence[int], own: str) -> list[str]:
        """Returns the public keys of the daemons of all members. Raises RingFailed."""
        end = time.monotonic() + _KEYS_S
        keys: dict[int, str] = {}
        while len(keys) < len(ids):
            with contextlib.suppress(StoreFailed):
                self._store.create(f"key/{epoch}/{self._agreement.id}", own)
                for it in ids:
                    found = self._store.get(f"key/{epoch}/{it}")
                    if found is not None:
                        keys[it] = found
            if time.monotonic() > end:
                missing = next(it for it in ids if it not in keys)
                raise RingFailed(f"the daemon of process {missing} has published no key within {_KEYS_S:g} s")
            time.sleep(_POLL_S)
        return [keys[it] for it in ids]

    def _report(self, agreement: Agreement) -> None:
        agreement.report(self._ports.make_card(), self._leaving, self._settled_id == agreement.id, self._connected)

    def _watch(self, agreement: Agreement, ring: EpochRing) -> None:
        """Checks once whether this member or another one has ended the epoch. If so, reports it."""
        ready = self._latest is ring
        with self._condition:
            if self._ended_epoch < ring.epoch and not self._leaving:
                self._condition.wait(_WATCH_S if ready else _POLL_S)
            ended = self._ended_epoch >= ring.epoch or self._leaving
        if not ended:
            self._ask(agreement)
            ended = agreement.called
        if not ended and ready:
            self._look_for_joining(agreement)
        elif not ended:
            ended = not self._hand_over(agreement, ring)
        if ended:
            with self._condition:
                reason, self._reason = self._reason if self._ended_epoch >= ring.epoch else "", ""
            if reason not in ("", CHANGE, LEFT):
                self._say_failed(ring.epoch, reason)
            ring.abort(reason or "another member has ended the epoch")
            self._report(agreement)

    def _hand_over(self, agreement: Agreement, ring: EpochRing) -> bool:
        """Makes the ring the latest as soon as all daemons have connected. Returns False if a member has died before
        that, or the ring has failed."""
        now = time.monotonic()
        try:
            if ring.is_ready():
                self._connected, self._pause_s = True, _PAUSE_S
                with self._condition:
                    self._latest, self._reason = ring, ""
                    self._condition.notify_all()
                return True
        except RingFailed as reason:
            self._say_failed(ring.epoch, str(reason))
            return False
        if now < self._looked_at + _CHECK_S:
            return True
        self._looked_at = now
        for it, card in agreement.members.items():
            if it != agreement.id and not self._is_alive(card):
                self._say_failed(ring.epoch, f"process {it} cannot be reached")
                return False
        return True

    def _look_for_joining(self, agreement: Agreement) -> None:
        """Looks for processes that wait to join. It connects to one at most, because that may take _CONNECT_S, and to
        those that it does not reach more and more rarely."""
        now = time.monotonic()
        if now >= self._looked_at + _LOOK_S:
            self._looked_at = now
            with contextlib.suppress(StoreFailed):
                while (card := self._store.get(f"join/{self._next_join}")) is not None:
                    if self._next_join not in agreement.known:
                        self._candidates[self._next_join] = Candidate(card, now)
                    self._next_join += 1
        due = [it for it, found in self._candidates.items() if found.due <= now]
        if due:
            it = min(due, key=lambda each: self._candidates[each].due)
            self._look_at(agreement, it, self._candidates[it])
            self._set_waiting(agreement)

    def _look_at(self, agreement: Agreement, process: int, candidate: Candidate) -> None:
        if self._may_join(agreement, candidate.card):
            agreement.admit(process, candidate.card)
            candidate.misses, candidate.due = 0, time.monotonic() + _LOOK_S
            return
        agreement.forget(process)
        candidate.due = time.monotonic() + min(_LOOK_S * 2**candidate.misses, _RARE_S)
        candidate.misses += 1
        if candidate.misses == _TELL_MISSES:
            self._say(f"process {process} has asked to join, and cannot be reached from process {agreement.id}")
        if candidate.misses == _MOST_MISSES:
            del self._candidates[process]

    def _may_join(self, agreement: Agreement, card: str) -> bool:
        try:
            return not differences(parse_card(card), parse_card(agreement.card)) and self._is_alive(card)
        except errors.BadArgument:  # another version
            return False

    def _give_up(self) -> None:
        """Reports, after an error, that this process leaves."""
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

    def _say_failed(self, epoch: int, reason: str) -> None:
        """reason: it names members by their positions, as ranks."""
        ids = sorted(self._agreement.members)

        def name(match: re.Match[str]) -> str:
            position = int(match[1])
            return f"process {ids[position]}" if position < len(ids) else match[0]

        text = re.sub(r"\brank (\d+)\b", name, reason.removeprefix("gradlane: "))
        self._say(f"epoch {epoch} has failed: {text}")

    def _say(self, text: str) -> None:
        print(f"gradlane: elastic: {text}", file=sys.stderr, flush=True)


def _describe(ids: Sequence[int], left: Sequence[int], lost: Sequence[int]) -> str:
    text = f"1 member, process {ids[0]}" if len(ids) == 1 else f"{len(ids)} members, processes {_list(ids)}"
    gone = [f"{word}: {_list(them)}" for word, them in (("left", left), ("lost", lost)) if them]
    return text + (f" ({'; '.join(gone)})" if gone else "")


def _list(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
