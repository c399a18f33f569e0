"""The steps of an elastic training, without PyTorch, sockets and stores.

A step adds the contributions of V shards of data. The contributions are integers, so their sum depends neither on which
member computes a shard nor on the order of additions. Members may therefore change at any time. If an operation fails,
the members of the next epoch compare what they have, compute the missing shards, and add again, with the same result.

The last operation of a step may succeed on some members and fail on others. The latter then take over the state of the
former, as processes that join do. So no member with a state that counts ever goes back.

Members that take over a state follow the others: they contribute nothing, and keep the results of the steps that the
others complete while the state is on its way. When it has arrived, they apply these results to it. So the others need
not wait. At the start, without a proven sender, and if packets are secured, which TCP is not, the state is broadcast,
and all wait for it.

The arithmetic of a machine may differ in the last bits. So a new member must prove its arithmetic: it first computes a
shard that another member computes, too. Its contributions count once the hashes are equal. Until then, a state that it
has changed counts for nothing.
"""

from __future__ import annotations

import functools
import operator
from typing import Callable, Iterator, Mapping, NamedTuple, Protocol, Sequence

from ... import errors

ATTEMPTS = 1 << 16  # limit of the number of attempts of one step
CHANGE, LEFT = "members change", "has left"  # reasons of the end of an epoch that has not failed
_WORD = 32  # number of shards in one integer of a row
_FOUNDER, _JOINER = -1, -2  # versions of processes that have no state yet
_GOES_ON, _FINISHED, _UNKNOWN = 0, 1, 2  # whether a member has finished; those that follow do not know


class RingFailed(Exception):
    """An operation has failed, because a member has died, left, or cannot be reached. The text has the reason."""


class TransferFailed(RingFailed):
    """A state has not arrived over TCP."""


class Ring(Protocol):
    """The members of one epoch. All of them call the same operations in the same order."""

    index: int  # position of this process among the members
    size: int  # number of members
    id: int  # id of this process; it gets another one when it is expelled and joins again
    founder: bool  # whether this process is one of those that start the training
    secured: bool  # whether packets are authenticated or encrypted

    def gather(self, own: Sequence[int]) -> list[list[int]]:
        """Returns the rows of all members, in their order. own: this member's row of 64-bit integers. All rows have the
        same length. Raises RingFailed."""


class Membership(Protocol):
    """This process's membership."""

    def ring(self) -> Ring | None:
        """Waits for an epoch with this process as a member, and returns its ring. Returns None if this process has
        left."""

    def end_epoch(self, reason: str, leaving: bool = False) -> None:
        """Ends this process's epoch. leaving: this process leaves the training."""

    def waiting(self) -> int:
        """Returns a bit, of the lowest 62, for each process that waits to join and that this one can reach. If all
        members have the same bit, a new epoch lets a process in, unless processes share the bit."""

    def settle(self, process: int) -> None:
        """Says that this process, with this id, has a state that counts."""


class Model(Protocol):
    """A model in training. All members of a ring call the functions with parameter `ring`, which raise RingFailed."""

    def start_step(self) -> None:
        """Drops this member's contributions."""

    def start_shard(self, step: int, shard: int) -> None:
        """Prepares the computation of a shard."""

    def add_shard(self, shard: int, counts: bool, hashed: bool) -> int:
        """Adds the computed shard to this member's contributions if it counts. Returns a hash of the shard, below 2^62,
        or 0 unless `hashed`."""

    def magnitudes(self) -> list[int]:
        """Returns the magnitudes of this member's contributions for check(), always the same number of integers."""

    def check(self, magnitudes: Sequence[Sequence[int]]) -> bool:
        """Returns whether the contributions can be added. If not, it changes their scale, and all shards must be
        computed again. magnitudes: those of all members. Raises OperationFailed, on all members, if no scale fits."""

    def state_hash(self, step: int | None) -> int:
        """Returns a hash of a part of the state, below 2^62. The part depends on the step. None: of all of it."""

    def sum(self, ring: Ring) -> None:
        """Adds the contributions of all members. It does not change the contributions."""

    def apply(self, step: int) -> None:
        """Completes the step with the result of sum()."""

    def send_state(self, ring: Ring, source: int, takes: bool) -> None:
        """Sends the state of the member at position `source` to those whose `takes` is true. All members wait."""

    def start_transfers(self, ring: Ring, sources: Mapping[int, int]) -> None:
        """Starts to send states, and does not wait. sources: position of a member -> that of the one whose state it
        takes over. These members have the scales of the others afterwards, and call follow() instead of apply()."""

    def follow(self, step: int) -> None:
        """Keeps the result of sum() for a state that is on its way."""

    def catch_up(self, ring: Ring, wait: bool, begin: Callable[[int], None]) -> bool:
        """Loads the state and applies the results that follow() has kept, if the state has arrived. Returns whether it
        has. wait: wait for it. begin: called with the step of each result before. Raises RingFailed, TransferFailed."""

    def end_transfers(self) -> None:
        """Ends all transfers, and drops what follow() has kept."""

    def close(self) -> None:
        """Gives the optimizer back to the caller."""


class _Row(NamedTuple):
    """The state of a member, which members compare at the start of an epoch.

    version: number of completed steps, times ATTEMPTS, plus the number of earlier attempts of the next step; _FOUNDER
    or _JOINER without a state that counts. proven: whether the member has proved its arithmetic. blocked: whether the
    latest state has not reached it over TCP. held: shards in its contributions.
    """

    version: int
    proven: bool
    blocked: bool
    held: frozenset[int]


class _StepRow(NamedTuple):
    """This tells the others about a member before they add their shards.

    waiting: as waiting() of Membership. leaves: whether the member leaves after this step. shard_hash: hash of shard 0
    in a trial. state_hash: 0 while it follows. finished: as _GOES_ON. follows: whether it waits for a state.
    magnitudes: for check().
    """

    waiting: int
    leaves: int
    has_shard_0: int
    shard_hash: int
    state_hash: int
    finished: int
    follows: int
    magnitudes: Sequence[int]


class Steps:
    """Runs steps.

    shards: number V of shards of each step, 1 or more.
    """

    def __init__(self, membership: Membership, model: Model, shards: int) -> None:
        self._membership, self._model, self._shards = membership, model, shards
        self._ring: Ring | None = None
        self._id = 0
        self._version = _FOUNDER
        self._is_proven = False
        self._held: frozenset[int] = frozenset()
        self._assigned: list[int] = []  # shards that this member must still compute
        self._proven: list[bool] = []  # by position: whether the member has proved its arithmetic
        self._trial: list[bool] = []  # by position: whether it must do so in this step; empty: no member must
        self._hash = 0  # hash of shard 0, if this member has computed it in a trial
        self._follows: list[bool] = []  # by position: whether the member waits for a state
        self._own_version: int | None = None  # version of this member's own state while it follows; None: it does not
        self._is_doubtful = False  # whether this member has changed its state before it has proved its arithmetic
        self._is_blocked = False  # whether the latest transfer of a state to this member has failed
        self.leaving = False  # set it to leave after this step
        self.ended = False  # whether this process has left

    @property
    def _is_following(self) -> bool:
        return self._own_version is not None

    @property
    def has_begun(self) -> bool:
        """Whether this process has been a member."""
        return self._id > 0

    @property
    def step(self) -> int:
        """The number of steps that the members have completed; 0 before this process knows it."""
        return max(self._version, 0) // ATTEMPTS

    def run_step(self, until: int) -> Iterator[int]:
        """Completes a step. Yields each shard that the caller must compute before it takes the next. The step's number
        is `step`. It leaves out steps whose result it takes over. It does nothing if `until` steps are complete."""
        while not self.ended:
            try:
                ring = self._join_ring()
                if ring is None or self.step >= until:
                    return
                yield from self._compute(ring)
                if self._complete(ring, self._gather(ring, _GOES_ON)):
                    return
            except RingFailed as reason:
                self._end_epoch(str(reason))

    def finish(self, until: int) -> None:
        """Waits until all members have completed `until` steps. Members that are behind take over the state. Returns
        earlier if this one takes over the state of an earlier step, because its own does not count.

        The last gather counts as an attempt of the next step, so a member on which it fails is behind."""
        while not self.ended and self.step >= until and self._version <= until * ATTEMPTS:
            try:
                ring = self._join_ring()
                if ring is not None and self.step >= until and self._version <= until * ATTEMPTS:
                    rows = self._gather(ring, _FINISHED)
                    if all(row.finished == _FINISHED for row in rows):  # those that follow still need this member
                        self._version += 1
            except RingFailed as reason:
                self._end_epoch(str(reason))

    def prepare(self) -> None:
        """Waits until this process has the newest state, or has left."""
        while not self.ended:
            try:
                self._join_ring()
                return
            except RingFailed as reason:
                self._end_epoch(str(reason))

    def close(self) -> None:
        """Leaves the training."""
        if not self.ended:
            self._end_epoch(LEFT, leaving=True)
        self._model.close()

    # ---- Private

    def _end_epoch(self, reason: str, leaving: bool = False) -> None:
        self._ring = None
        self.ended = leaving
        self._model.end_transfers()
        if self._own_version is not None:
            self._version, self._own_version = self._own_version, None
        self._membership.end_epoch(reason, leaving)

    def _join_ring(self) -> Ring | None:
        """Returns the ring of the current epoch, or None if this process has left. Takes over the state first."""
        while self._ring is None:
            ring = self._membership.ring()
            self.ended = ring is None
            if ring is None:
                return None
            self._start_epoch(ring)
            self._ring = ring
            while self._is_following:
                self._follow(ring)
        return self._ring

    def _follow(self, ring: Ring) -> None:
        """Takes part in one attempt of a step, or in the end of the training, while the state is on its way."""
        rows = self._gather(ring, _UNKNOWN)
        if not any(row.finished == _FINISHED for row in rows):
            self._complete(ring, rows)
        elif self._is_following:
            self._catch_up(ring, True)

    def _catch_up(self, ring: Ring, wait: bool) -> None:
        version, applied = self._version, 0

        def begin(step: int) -> None:
            nonlocal applied
            applied += 1
            self._version = step * ATTEMPTS  # hooks of the optimizer may ask for the step

        try:
            if self._model.catch_up(ring, wait, begin):
                self._own_version, self._is_blocked = None, False
                self._is_doubtful = applied > 0 and not self._is_proven
        except TransferFailed:
            self._is_blocked = True
            raise
        finally:
            self._version = version

    def _start_epoch(self, ring: Ring) -> None:
        """Compares the states of the members, sends the newest to those that are behind, and assigns missing shards."""
        if ring.id != self._id:  # others may have computed the shards of an expelled member
            self._id = ring.id
            # A process that is expelled keeps a state in which steps are complete. Initial states may differ.
            if self._version <= 0:
                self._version = _FOUNDER if ring.founder else _JOINER
            self._is_proven = False  # the others may have chosen another member to compare with
            self._drop_shards()
        rows = [self._decode_row(row) for row in ring.gather(self._encode_row())]
        newest = max(row.version for row in rows)
        if newest == _JOINER:
            raise errors.error(errors.Code.FAILED, "gradlane: all processes that had the state of the training have "
                               "ended; start it again, with another name, from a checkpoint")
        source = next(index for index, row in enumerate(rows) if row.version == newest)
        version = max(newest, 0)
        if ring.index == source and newest == _FOUNDER:
            self._version = version
        behind = [row.version < version and index != source for index, row in enumerate(rows)]
        self._follows = [False] * ring.size
        if any(behind):
            self._send_state(ring, source, behind, rows)
        self._proven = [row.proven for row in rows]
        if not any(self._proven):  # all proven members are gone
            self._proven[source] = True
            self._is_proven = ring.index == source
        counts = [proven and not late for proven, late in zip(self._proven, behind)]
        if not counts[ring.index]:
            self._drop_shards()
        held = [row.held if counted else frozenset() for row, counted in zip(rows, counts)]
        # In a step that has begun, new members neither compute shards nor prove their arithmetic.
        begun = any(held)
        self._assign(ring, held, [proven or not begun for proven in self._proven])
        self._set_trial(begun)

    def _send_state(self, ring: Ring, source: int, behind: Sequence[bool], rows: Sequence[_Row]) -> None:
        """Sends the newest state, which the member at position `source` has, to the members that are behind, or starts
        to send it."""
        senders = [index for index, row in enumerate(rows) if row.proven and not behind[index]]
        takers = [index for index in range(ring.size) if behind[index]]
        # If the others died, founders that follow would start the training again from step 0.
        starts = any(rows[index].version == _FOUNDER for index in takers)
        blocked = any(rows[index].blocked for index in takers)
        if senders and not starts and not blocked and not ring.secured:
            self._follows = list(behind)
            self._model.start_transfers(ring, {
                taker: senders[number % len(senders)] for number, taker in enumerate(takers)})
            if behind[ring.index]:
                self._own_version = self._version
        else:
            self._model.send_state(ring, source, behind[ring.index])
            self._is_doubtful = self._is_doubtful and not behind[ring.index]
        if behind[ring.index]:
            self._version = max(rows[source].version, 0)

    def _drop_shards(self) -> None:
        self._held = frozenset()
        self._model.start_step()

    def _set_trial(self, begun: bool) -> None:
        trial = [not proven and not follows for proven, follows in zip(self._proven, self._follows)]
        self._trial = trial if any(trial) and not begun else []

    def _assign(self, ring: Ring, held: Sequence[frozenset[int]], may_compute: Sequence[bool]) -> None:
        """Assigns each shard that no member holds to the member that has the fewest. may_compute: by position,
        whether a member may compute shards. Members that follow may not. Only a proven member gets shard 0."""
        loads = {index: len(shards) for index, shards in enumerate(held)
                 if may_compute[index] and not self._follows[index]}
        self._assigned = []
        for shard in sorted(set(range(self._shards)).difference(*held)):
            index = min((it for it in loads if shard > 0 or self._proven[it]), key=lambda it: (loads[it], it))
            loads[index] += 1
            if index == ring.index:
                self._assigned.append(shard)

    def _compute(self, ring: Ring) -> Iterator[int]:
        """Yields the shards that this member must compute. A member that must prove its arithmetic computes shard 0."""
        if self._trial and self._trial[ring.index] and 0 not in self._assigned:
            yield from self._compute_shard(0, False)
        while self._assigned:
            shard = self._assigned[0]
            yield from self._compute_shard(shard, True)
            self._assigned.pop(0)
            self._held |= {shard}

    def _compute_shard(self, shard: int, counts: bool) -> Iterator[int]:
        self._model.start_shard(self.step, shard)
        yield shard
        hashed = shard == 0 and bool(self._trial)
        shard_hash = self._model.add_shard(shard, counts, hashed)
        if hashed:
            self._hash = shard_hash

    def _complete(self, ring: Ring, rows: Sequence[_StepRow]) -> bool:
        """Adds the shards of all members. Returns whether the step is complete. If not, it begins another attempt.
        rows: those of _gather()."""
        self._compare_hashes(ring, rows)
        if not self._model.check([row.magnitudes for row in rows]):
            self._version += 1
            self._start_attempt(ring)
            return False
        self._model.sum(ring)
        if self._is_following:
            self._model.follow(self.step)
        else:
            self._is_doubtful = not self._is_proven
            self._model.apply(self.step)
        self._version = (self.step + 1) * ATTEMPTS
        if not self._change_members([bool(row.leaves) for row in rows],
                                    functools.reduce(operator.and_, (row.waiting for row in rows)) != 0):
            self._start_attempt(ring)
        return True

    def _change_members(self, leaves: Sequence[bool], waits: bool) -> bool:
        """Ends the epoch if a member leaves, or a process waits to join. Returns whether it has. A member does not
        leave if only members would be left that have no state, or have not proved their arithmetic."""
        ready = [proven and not follows for proven, follows in zip(self._proven, self._follows)]
        waits = waits and all(ready)  # a new epoch would end transfers and trials
        stay = [it for it, leaving in zip(ready, leaves) if not leaving]
        may_leave = True in stay or not (stay or waits)  # one that is ready stays, or nobody does
        if not waits and not (any(leaves) and may_leave):
            return False
        self._drop_shards()
        self._end_epoch(CHANGE, self.leaving and may_leave)
        return True

    def _gather(self, ring: Ring, finished: int) -> list[_StepRow]:
        """Gathers what members must know before they add their shards, or end. Raises OperationFailed, on all members,
        if their weights differ, or if only some have finished."""
        if self._is_following:
            self._catch_up(ring, False)
        if self._is_proven and not self._is_following:
            self._membership.settle(ring.id)
        part = None if finished == _FINISHED else self.step
        state_hash = 0 if self._is_following else self._model.state_hash(part)
        gathered = ring.gather([self._membership.waiting(), self.leaving, 0 in self._held, self._hash, state_hash,
                                finished, self._is_following, *self._model.magnitudes()])
        rows = [_StepRow._make([*row[:7], row[7:]]) for row in gathered]
        self._follows = [bool(row.follows) for row in rows]
        if len({row.finished for row in rows} - {_UNKNOWN}) > 1:
            raise errors.error(errors.Code.FAILED, f"gradlane: elastic: some members have finished after {self.step} "
                               "steps, and others go on: all must call steps() with the same number")
        self._compare_states(ring, rows)
        return rows

    def _compare_states(self, ring: Ring, rows: Sequence[_StepRow]) -> None:
        """Compares the hashes of the members' states. At the end, those that have not proved their arithmetic must have
        the state of the others, too."""
        ends = any(row.finished == _FINISHED for row in rows)
        have = [not row.follows and (row.finished == _FINISHED or not ends) for row in rows]
        hashes = {row.state_hash for index, row in enumerate(rows) if have[index] and self._proven[index]}
        if len(hashes) > 1:
            raise errors.error(errors.Code.FAILED, "gradlane: elastic: the members have different weights after step "
                               f"{self.step}: only the optimizer may change the model, and hooks of the optimizer the "
                               "objects in `state`")
        if ends and hashes:
            wrong = [index for index, row in enumerate(rows) if have[index] and row.state_hash not in hashes]
            self._refuse(ring, wrong, f"its weights after step {self.step} differ")

    def _refuse(self, ring: Ring, wrong: Sequence[int], what: str) -> None:
        """Raises OperationFailed on the members at the positions `wrong`, if any, and RingFailed on others."""
        if ring.index in wrong:
            self._end_epoch("this process computes other bits", leaving=True)
            raise errors.error(errors.Code.FAILED, f"gradlane: elastic: this process computes other bits: {what}; all "
                               "members need the same data, the same type of CPU, versions and number of threads, and "
                               "no other random numbers than PyTorch's")
        if wrong:
            raise RingFailed(f"rank {wrong[0]} computes other bits")

    def _start_attempt(self, ring: Ring) -> None:
        """Drops the shards of all members, and assigns all shards."""
        self._hash = 0
        self._drop_shards()
        self._assign(ring, [frozenset()] * ring.size, [True] * ring.size)
        self._set_trial(begun=False)

    def _compare_hashes(self, ring: Ring, rows: Sequence[_StepRow]) -> None:
        """Compares the hashes of shard 0. If they are equal, all members are proven."""
        if not self._trial:
            return
        expected = next(row.shard_hash for row in rows if row.has_shard_0)
        wrong = [index for index, tried in enumerate(self._trial) if tried and rows[index].shard_hash != expected]
        self._refuse(ring, wrong, f"its gradients of shard 0 of step {self.step} differ")
        self._proven = [proven or tried for proven, tried in zip(self._proven, self._trial)]
        self._trial, self._is_proven = [], self._proven[ring.index]
        self._is_doubtful = self._is_doubtful and not self._is_proven

    def _encode_row(self) -> list[int]:
        words = [0] * -(-self._shards // _WORD)
        for shard in self._held:
            words[shard // _WORD] |= 1 << shard % _WORD
        version = _JOINER if self._is_doubtful else self._version
        return [version, self._is_proven, self._is_blocked, *words]

    def _decode_row(self, row: Sequence[int]) -> _Row:
        version, proven, blocked, *words = row
        return _Row(version, bool(proven), bool(blocked), frozenset(
            shard for shard in range(self._shards) if words[shard // _WORD] >> shard % _WORD & 1))
