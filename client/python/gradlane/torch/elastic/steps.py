"""The steps of an elastic training, apart from PyTorch, sockets and stores.

A step adds the contributions of V shards of data. The contributions are integers, so their sum depends neither on which
member computes a shard nor on the order of additions. Members may therefore change at any time. If an operation fails,
the members of the next epoch compare what they have, compute the missing shards, and add again, with the same result.

A member that has completed a step may meet members that have not, because the step's last operation failed there. These
take over its state, as processes that join do. So no member ever goes back.

The arithmetic of a machine may differ in the last bits. So a new member first computes a shard that another member
computes as well, and the hashes must be equal before its contributions count.
"""

from __future__ import annotations

from typing import Iterator, NamedTuple, Protocol, Sequence

from ... import errors

ATTEMPTS = 1 << 16  # limit of the attempts of one step
_WORD = 32  # shards in one number of a row
_FOUNDER, _JOINER = -1, -2  # versions of processes that have no state yet


class RingFailed(Exception):
    """An operation has failed, because a member has died, left, or cannot be reached. The text has the reason."""


class Ring(Protocol):
    """The members of one epoch. All of them call the same operations in the same order."""

    index: int  # position of this process among the members
    size: int  # number of members

    def gather(self, own: Sequence[int]) -> list[list[int]]:
        """Returns the rows of all members, in their order. own: this member's row of 64-bit integers, as long as all
        others. Raises RingFailed."""


class Membership(Protocol):
    """This process's membership."""

    id: int  # of this process; another one after it was expelled and has joined again
    founder: bool  # whether this process has started the training, with others

    def ring(self) -> Ring | None:
        """Waits for an epoch with this process as a member, and returns its ring. Returns None if this process has
        left."""

    def leave(self, reason: str, for_good: bool = False) -> None:
        """Ends this process's epoch. for_good: this process leaves the training."""

    def has_waiting(self) -> bool:
        """Returns whether a process waits to join."""


class Model(Protocol):
    """A model in training. All members of a ring call the functions that have a ring; these raise RingFailed."""

    def start_step(self) -> None:
        """Drops this member's contributions."""

    def start_shard(self, step: int, shard: int) -> None:
        """Prepares the computation of a shard."""

    def add_shard(self, shard: int, counts: bool, hashed: bool) -> int:
        """Adds the computed shard to this member's contributions if it counts. Returns a hash of it, below 2^62, or 0
        unless `hashed`."""

    def facts(self) -> list[int]:
        """Returns what check() needs to know about this member's contributions, always as many numbers."""

    def check(self, facts: Sequence[Sequence[int]]) -> bool:
        """Returns whether the contributions can be added. facts: those of all members. If they cannot, it has changed
        how contributions are made, and all shards must be computed again. Raises OperationFailed, on all members, if
        that is of no use."""

    def sum(self, ring: Ring) -> None:
        """Adds the contributions of all members, which stay as they are."""

    def apply(self) -> None:
        """Completes the step with the result of sum()."""

    def send_state(self, ring: Ring, source: int, takes: bool) -> None:
        """Sends the state of the member at position `source` to those whose `takes` is true."""


class _Row(NamedTuple):
    """A member's facts, which members compare at the start of an epoch.

    version: number of completed steps, times ATTEMPTS, plus the number of the attempt; _FOUNDER or _JOINER without a
    state. proven: whether its arithmetic was found equal. held: shards in its contributions.
    """

    version: int
    proven: bool
    held: frozenset[int]


class Steps:
    """Runs steps. `step` is the number of completed steps, the same on all members but for those that are behind.

    shards: number V of shards of each step, 1 or more.
    """

    def __init__(self, membership: Membership, model: Model, shards: int) -> None:
        self._membership, self._model, self.shards = membership, model, shards
        self._ring: Ring | None = None
        self._id = 0
        self._version = _FOUNDER
        self._proven = False
        self._held: frozenset[int] = frozenset()
        self._mine: list[int] = []  # shards that this member has still to compute
        self._known: list[bool] = []  # members whose arithmetic was found equal
        self._trial: list[bool] = []  # which members must prove their arithmetic in this step; empty: none
        self._hash = 0
        self.leaving = False  # set it to leave after this step
        self.ended = False  # whether this process has left

    @property
    def step(self) -> int:
        """The number of completed steps; 0 as long as this process has no state."""
        return max(self._version, 0) // ATTEMPTS

    def run_step(self, until: int) -> Iterator[int]:
        """Completes a step. Yields each shard that the caller must compute before it takes the next. The step's number
        is `step`. A step that was completed elsewhere is left out. Does nothing if `until` steps are complete."""
        while not self.ended:
            try:
                ring = self._join_ring()
                if ring is None or self.step >= until:
                    return
                yield from self._compute()
                if self._complete(ring):
                    return
            except RingFailed as reason:
                self._leave(str(reason), for_good=self.leaving)

    def finish(self, until: int) -> None:
        """Waits until all members have completed `until` steps. Members that are behind take over the state.

        This counts as an attempt of the next step. So members for which it fails see whether others go on."""
        while not self.ended and self._version <= until * ATTEMPTS:
            try:
                ring = self._join_ring()
                if ring is not None and self._version <= until * ATTEMPTS:
                    ring.gather([0])
                    self._version += 1
            except RingFailed as reason:
                self._leave(str(reason))

    def close(self) -> None:
        """Leaves the training."""
        if not self.ended:
            self._leave("has left", for_good=True)

    # ---- Private

    def _leave(self, reason: str, for_good: bool = False) -> None:
        self._ring = None
        self.ended = for_good
        self._membership.leave(reason, for_good)

    def _join_ring(self) -> Ring | None:
        """Returns the ring of the current epoch. In a new epoch, first compares what the members have."""
        if self._ring is None:
            ring = self._membership.ring()
            self.ended = ring is None
            if ring is not None:
                self._compare(ring)
            self._ring = ring
        return self._ring

    def _compare(self, ring: Ring) -> None:
        if self._membership.id != self._id:  # others may have computed the shards of an expelled member
            self._id = self._membership.id
            # It keeps a state that comes from an operation of all members. Initial states may differ.
            if self._version <= 0:
                self._version = _FOUNDER if self._membership.founder else _JOINER
            self._proven = False  # the others may have taken another member for the one to compare with
            self._drop_shards()
        rows = [self._read(row) for row in ring.gather(self._row())]
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
        self._known = [row.proven for row in rows]
        if not any(self._known):  # nobody is left whose arithmetic is known
            self._known[source] = True
            self._proven = ring.index == source
        counts = [not late and known for late, known in zip(behind, self._known)]
        if not counts[ring.index]:
            self._drop_shards()
        held = [row.held if good else frozenset() for row, good in zip(rows, counts)]
        # In a step that has begun, new members neither compute shards nor prove their arithmetic.
        begun = any(held)
        self._assign(ring, held, [known or not begun for known in self._known])
        self._set_trial(begun)

    def _drop_shards(self) -> None:
        self._held = frozenset()
        self._model.start_step()

    def _set_trial(self, begun: bool) -> None:
        self._trial = [] if begun or all(self._known) else [not known for known in self._known]

    def _assign(self, ring: Ring, held: Sequence[frozenset[int]], may: Sequence[bool]) -> None:
        """Assigns each shard that no member holds to the member with the fewest, of those that may compute some. A
        proven member gets shard 0."""
        loads = {index: len(shards) for index, shards in enumerate(held) if may[index]}
        self._mine = []
        for shard in sorted(set(range(self.shards)).difference(*held)):
            index = min((it for it in loads if shard > 0 or self._known[it]), key=lambda it: (loads[it], it))
            loads[index] += 1
            if index == ring.index:
                self._mine.append(shard)

    def _compute(self) -> Iterator[int]:
        """Yields the shards that are missing here. A member that must prove its arithmetic also computes shard 0."""
        if self._trial and self._trial[self._ring_index()] and 0 not in self._mine:
            yield from self._shard(0, False)
        while self._mine:
            shard = self._mine[0]
            yield from self._shard(shard, True)
            self._mine.pop(0)
            self._held |= {shard}

    def _ring_index(self) -> int:
        assert self._ring is not None
        return self._ring.index

    def _shard(self, shard: int, counts: bool) -> Iterator[int]:
        self._model.start_shard(self.step, shard)
        yield shard
        hashed = shard == 0 and bool(self._trial)
        number = self._model.add_shard(shard, counts, hashed)
        if hashed:
            self._hash = number

    def _complete(self, ring: Ring) -> bool:
        """Adds the shards of all members. Returns whether the step is complete. Otherwise its shards must be computed
        again."""
        waiting = self._membership.has_waiting()
        rows = ring.gather([waiting, self.leaving, 0 in self._held, self._hash, *self._model.facts()])
        self._compare_hashes(ring, rows)
        if not self._model.check([row[4:] for row in rows]):
            self._version += 1
            self._restart(ring)
            return False
        self._model.sum(ring)
        self._model.apply()
        self._version = (self.step + 1) * ATTEMPTS
        if any(row[0] or row[1] for row in rows):
            self._drop_shards()
            self._leave("members change", for_good=self.leaving)
        else:
            self._restart(ring)
        return True

    def _restart(self, ring: Ring) -> None:
        self._hash = 0
        self._drop_shards()
        self._assign(ring, [frozenset()] * ring.size, [True] * ring.size)
        self._set_trial(False)

    def _compare_hashes(self, ring: Ring, rows: Sequence[Sequence[int]]) -> None:
        """Compares hashes of shard 0. All members are proven afterwards."""
        if not self._trial:
            return
        right = next(row[3] for row in rows if row[2])
        wrong = [index for index, new in enumerate(self._trial) if new and rows[index][3] != right]
        if ring.index in wrong:
            self._leave("computes other bits", for_good=True)
            raise errors.error(errors.Code.FAILED, "gradlane: elastic: this process computes other bits for shard 0 "
                               "than the other members; use the same type of CPU, versions and number of threads, and "
                               "torch.use_deterministic_algorithms(True)")
        if wrong:
            raise RingFailed("a new member computes other bits")
        self._trial, self._known, self._proven = [], [True] * ring.size, True

    def _row(self) -> list[int]:
        words = [0] * -(-self.shards // _WORD)
        for shard in self._held:
            words[shard // _WORD] |= 1 << shard % _WORD
        return [self._version, self._proven, *words]

    def _read(self, row: Sequence[int]) -> _Row:
        version, proven, *words = row
        return _Row(version, bool(proven), frozenset(
            shard for shard in range(self.shards) if words[shard // _WORD] >> shard % _WORD & 1))
