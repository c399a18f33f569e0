"""The steps of an elastic training, without PyTorch, sockets and stores.

A step adds the contributions of V shards of data. The contributions are integers, so their sum depends neither on which
member computes a shard nor on the order of additions. Members may therefore change at any time. If an operation fails,
the members of the next epoch compare what they have, compute the missing shards, and add again, with the same result.

The last operation of a step may succeed on some members and fail on others. The latter then take over the state of the
former, as processes that join do. So no member ever goes back.

The arithmetic of a machine may differ in the last bits. So a new member must prove its arithmetic: it first computes a
shard that another member computes, too. Its contributions count after the hashes were found equal.
"""

from __future__ import annotations

from typing import Iterator, NamedTuple, Protocol, Sequence

from ... import errors

ATTEMPTS = 1 << 16  # limit of the number of attempts of one step
_WORD = 32  # number of shards in one integer of a row
_FOUNDER, _JOINER = -1, -2  # versions of processes that have no state yet


class RingFailed(Exception):
    """An operation has failed, because a member has died, left, or cannot be reached. The text has the reason."""


class Ring(Protocol):
    """The members of one epoch. All of them call the same operations in the same order."""

    index: int  # position of this process among the members
    size: int  # number of members
    id: int  # id of this process; it gets another one when it is expelled and joins again
    founder: bool  # whether this process is one of those that start the training

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

    def has_waiting(self) -> bool:
        """Returns whether a process waits to join."""


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

    def state_hash(self, step: int) -> int:
        """Returns a hash of a part of the state, below 2^62. The part depends on the step."""

    def sum(self, ring: Ring) -> None:
        """Adds the contributions of all members. It does not change the contributions."""

    def apply(self, step: int) -> None:
        """Completes the step with the result of sum()."""

    def send_state(self, ring: Ring, source: int, takes: bool) -> None:
        """Sends the state of the member at position `source` to those whose `takes` is true."""


class _Row(NamedTuple):
    """The state of a member, which members compare at the start of an epoch.

    version: number of completed steps, times ATTEMPTS, plus the number of earlier attempts of the next step; _FOUNDER
    or _JOINER without a state. proven: whether the member has proved its arithmetic. held: shards in its contributions.
    """

    version: int
    proven: bool
    held: frozenset[int]


class Steps:
    """Runs steps. `step` is the number of completed steps. It is smaller on members that are behind.

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
        self.leaving = False  # set it to leave after this step
        self.ended = False  # whether this process has left

    @property
    def has_begun(self) -> bool:
        """Whether this process has been a member."""
        return self._id > 0

    @property
    def step(self) -> int:
        """The number of completed steps; 0 as long as this process has no state."""
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
                if self._complete(ring):
                    return
            except RingFailed as reason:
                self._end_epoch(str(reason))

    def finish(self, until: int) -> None:
        """Waits until all members have completed `until` steps. Members that are behind take over the state.

        A success counts as an attempt of the next step. So a member for which it fails is then behind."""
        while not self.ended and self._version <= until * ATTEMPTS:
            try:
                ring = self._join_ring()
                if ring is not None and self._version <= until * ATTEMPTS:
                    self._gather(ring, True)
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
            self._end_epoch("has left", leaving=True)

    # ---- Private

    def _end_epoch(self, reason: str, leaving: bool = False) -> None:
        self._ring = None
        self.ended = leaving
        self._membership.end_epoch(reason, leaving)

    def _join_ring(self) -> Ring | None:
        """Returns the ring of the current epoch, or None if this process has left. Calls _start_epoch() first."""
        if self._ring is None:
            ring = self._membership.ring()
            self.ended = ring is None
            if ring is not None:
                self._start_epoch(ring)
            self._ring = ring
        return self._ring

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
        if any(behind):
            self._model.send_state(ring, source, behind[ring.index])
            if behind[ring.index]:
                self._version = version
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

    def _drop_shards(self) -> None:
        self._held = frozenset()
        self._model.start_step()

    def _set_trial(self, begun: bool) -> None:
        self._trial = [] if begun or all(self._proven) else [not proven for proven in self._proven]

    def _assign(self, ring: Ring, held: Sequence[frozenset[int]], may: Sequence[bool]) -> None:
        """Assigns each shard that no member holds to the member that has the fewest. may: by position, whether a member
        may compute shards. Only a proven member gets shard 0."""
        loads = {index: len(shards) for index, shards in enumerate(held) if may[index]}
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

    def _complete(self, ring: Ring) -> bool:
        """Adds the shards of all members. Returns whether the step is complete. If not, it begins another attempt."""
        rows = self._gather(ring, False)
        self._compare_hashes(ring, rows)
        if not self._model.check([row[6:] for row in rows]):
            self._version += 1
            self._start_attempt(ring)
            return False
        self._model.sum(ring)
        self._model.apply(self.step)
        self._version = (self.step + 1) * ATTEMPTS
        waits, leaves = any(row[0] for row in rows), [row[1] for row in rows]
        if waits or any(leaves):
            self._drop_shards()
            # If all members leave, those that wait take over the state first.
            self._end_epoch("members change", self.leaving and not (waits and all(leaves)))
        else:
            self._start_attempt(ring)
        return True

    def _gather(self, ring: Ring, finished: bool) -> list[list[int]]:
        """Gathers what members must know before they add their shards. Raises OperationFailed, on all members, if their
        weights differ, or if only some have finished."""
        rows = ring.gather([self._membership.has_waiting(), self.leaving, 0 in self._held, self._hash,
                            self._model.state_hash(self.step), finished, *self._model.magnitudes()])
        if len({row[4] for row in rows}) > 1:
            raise errors.error(errors.Code.FAILED, "gradlane: elastic: the members have different weights after step "
                               f"{self.step}: only the optimizer may change the model, and hooks of the optimizer the "
                               "objects in `state`")
        if len({row[5] for row in rows}) > 1:
            raise errors.error(errors.Code.FAILED, f"gradlane: elastic: some members have finished after {self.step} "
                               "steps, and others go on: all must call steps() with the same number")
        return rows

    def _start_attempt(self, ring: Ring) -> None:
        """Drops the shards of all members, and assigns all shards."""
        self._hash = 0
        self._drop_shards()
        self._assign(ring, [frozenset()] * ring.size, [True] * ring.size)
        self._set_trial(False)

    def _compare_hashes(self, ring: Ring, rows: Sequence[Sequence[int]]) -> None:
        """Compares the hashes of shard 0. If they are equal, all members are proven."""
        if not self._trial:
            return
        expected = next(row[3] for row in rows if row[2])
        wrong = [index for index, tried in enumerate(self._trial) if tried and rows[index][3] != expected]
        if ring.index in wrong:
            self._end_epoch("computes other bits", leaving=True)
            raise errors.error(errors.Code.FAILED, "gradlane: elastic: this process computes other bits for shard 0 "
                               f"of step {self.step} than the other members; all need the same data, the same type of "
                               "CPU, versions and number of threads, and no other random numbers than PyTorch's")
        if wrong:
            raise RingFailed("a new member computes other bits")
        self._trial, self._proven, self._is_proven = [], [True] * ring.size, True

    def _encode_row(self) -> list[int]:
        words = [0] * -(-self._shards // _WORD)
        for shard in self._held:
            words[shard // _WORD] |= 1 << shard % _WORD
        return [self._version, self._is_proven, *words]

    def _decode_row(self, row: Sequence[int]) -> _Row:
        version, proven, *words = row
        return _Row(version, bool(proven), frozenset(
            shard for shard in range(self._shards) if words[shard // _WORD] >> shard % _WORD & 1))
