"""Agreement on the members of an elastic training, through a store that has compare-and-set. It does no I/O.

The store holds four kinds of keys. Each is created once and never changes:

    join/N       request to join. The process that creates it has the id N from then on.
    record/E     the members of epoch E
    report/E/N   process N starts no operation of epoch E any more. It wants epoch E + 1, or to leave.
    ended/E      at least one member of epoch E has reported, so all others must report, too

A member that cannot go on in epoch E creates its report, and waits for the reports of the others. It then proposes a
record of epoch E + 1 with the members that have reported, and the processes that all of these admit. If several members
propose, the store keeps the first record, and all follow that. So an epoch has one membership, whatever members believe
about each other. A member of epoch E that has not left, and is not in the record of epoch E + 1, is expelled. It joins
again with a new id.

A firewall may drop the packets of a new member's daemon. So if no report says that the daemons of epoch E have
connected, epoch E + 1 has only settled members, if there are any. These have a state that counts.
"""

from __future__ import annotations

import enum
import json
from typing import Iterable, NamedTuple, Union

MOST_MEMBERS = 256  # of an epoch


class Get(NamedTuple):
    """Asks for the value of a key, or None if there is no such key."""

    key: str


class Create(NamedTuple):
    """Creates a key unless it exists. The answer is the value that the key has afterwards. It can be repeated."""

    key: str
    value: str


Request = Union[Get, Create]


class Phase(enum.Enum):
    """State of a process."""

    JOIN = "asks for an id"
    START = "looks for the processes that start the training"
    FOLLOW = "looks for a newer record"
    MEMBER = "is a member of the latest epoch"
    REPORT = "reports that it has ended its epoch"
    CALL = "calls the other members to report"
    COLLECT = "waits for reports or for the next record"
    PROPOSE = "proposes the next record"
    EXPELLED = "was a member, and is not in the latest record"
    ENDED = "has left, or the latest record has no members"


class Report(NamedTuple):
    """A member's report: its card in the next epoch, and whether it leaves instead. settled: whether the member has a
    state that counts, and has been in an epoch whose daemons had connected. connected: whether those of this epoch had.
    joining: ids and cards of the processes that the member admits."""

    card: str
    leaving: bool
    settled: bool
    connected: bool
    joining: tuple[tuple[int, str], ...]


def parse_report(text: str) -> Report:
    """Returns the report from the value of report/E/N."""
    card, leaving, settled, connected, joining = json.loads(text)
    return Report(card, leaving, settled, connected, tuple((it, joining_card) for it, joining_card in joining))


class Agreement:
    """The state machine of one process. The caller sends request() to the store, calls answer() with the result, and
    repeats.

    If an answer is lost, call request() again. In phase MEMBER the request says whether another member has reported;
    `called` is True if so, and the caller must call report().

    card: text about this process that the others need, such as its address. No other process has the same.
    founders: number of processes that start the training; these have the ids 1 to `founders`.

    `members` are the cards of the members of `epoch`, by id.
    """

    def __init__(self, card: str, founders: int) -> None:
        self.card, self.founders = card, founders
        self.phase = Phase.JOIN
        self.id = 1  # in phase JOIN: the id that the process asks for
        self.epoch = 0
        self.members: dict[int, str] = {}
        self.known: frozenset[int] = frozenset()  # ids that were members in any epoch
        self.reports: dict[int, Report] = {}
        self.excluded: frozenset[int] = frozenset()  # members of `epoch` that the caller does not wait for
        self.joining: dict[int, str] = {}  # cards of processes that this member admits to the next epoch, by id
        self.leaving = False
        self.settled, self.connected = False, False  # as in Report
        self.called = False
        self._asked = 0  # in phase START: latest id; in phase COLLECT: index of the next key to get

    # ---- Events

    def report(self, card: str, leaving: bool = False, settled: bool = True, connected: bool = True) -> None:
        """Ends this member's epoch. It must not start operations of the epoch any more. Arguments: as in Report."""
        assert self.phase is Phase.MEMBER
        self.card, self.leaving, self.settled, self.connected = card, leaving, settled, connected
        self.phase = Phase.REPORT

    def exclude(self, members: Iterable[int]) -> None:
        """Stops waiting for the reports of these members. They have died, or do not answer."""
        self.excluded |= frozenset(members)

    def admit(self, process: int, card: str) -> None:
        """Lets a process into the next record, if all other members do. card: value of join/PROCESS."""
        if process not in self.known:
            self.joining[process] = card

    def forget(self, process: int) -> None:
        """Takes admit() back."""
        self.joining.pop(process, None)

    def withdraw(self) -> None:
        """Ends the state machine, unless the process is a member."""
        if self.id not in self.members:
            self.phase = Phase.ENDED

    @property
    def awaited(self) -> list[int]:
        """The members of `epoch` that have not reported, and are not excluded."""
        return [it for it in self.members if it not in self.reports and it not in self.excluded]

    @property
    def has_asked_all(self) -> bool:
        """In phase COLLECT: whether the process has just asked for the last missing report. It asks for all, one after
        the other, again and again."""
        return self._asked > len(self.members) - len(self.reports)

    # ---- Requests

    def request(self) -> Request | None:
        """Returns the next request to the store, or None in phases EXPELLED and ENDED."""
        if self.phase is Phase.JOIN:
            return Create(f"join/{self.id}", self.card)
        if self.phase is Phase.START:
            if self._asked < self.founders:
                return Get(f"join/{self._asked + 1}")
            return Create("record/1", _record(self.joining))
        if self.phase is Phase.FOLLOW:
            return Get(f"record/{self.epoch + 1}")
        if self.phase is Phase.MEMBER:
            return Get(f"ended/{self.epoch}")
        if self.phase is Phase.REPORT:
            report = Report(self.card, self.leaving, self.settled, self.connected, tuple(self.joining.items()))
            return Create(f"report/{self.epoch}/{self.id}", json.dumps(report))
        if self.phase is Phase.CALL:
            return Create(f"ended/{self.epoch}", str(self.id))
        if self.phase is Phase.COLLECT:
            keys = [f"report/{self.epoch}/{it}" for it in self.members if it not in self.reports]
            self._asked %= len(keys) + 1
            return Get([f"record/{self.epoch + 1}", *keys][self._asked])
        if self.phase is Phase.PROPOSE:
            return Create(f"record/{self.epoch + 1}", _record(self._next_members()))
        return None

    def answer(self, value: str | None) -> None:
        """Takes the store's answer to request()."""
        if self.phase is Phase.JOIN:
            if value == self.card:
                self.phase = Phase.FOLLOW
            else:
                self.id += 1
        elif self.phase is Phase.START:
            self._start(value)
        elif self.phase is Phase.FOLLOW:
            self._follow(value)
        elif self.phase is Phase.MEMBER:
            self.called = value is not None
        elif self.phase is Phase.REPORT:
            assert value is not None
            self.reports = {self.id: parse_report(value)}
            self.phase = Phase.CALL
        elif self.phase is Phase.CALL:
            self._collect()
        elif self.phase is Phase.COLLECT:
            self._take_report(value)
        elif self.phase is Phase.PROPOSE:
            assert value is not None
            self._install(value)

    # ---- Private

    def _next_members(self) -> dict[int, str]:
        stay = {it: report.card for it, report in self.reports.items() if not report.leaving}
        if not stay:
            return {}  # nobody has the state of a training whose members have all left
        if not any(self.reports[it].connected for it in stay):
            stay = {it: card for it, card in stay.items() if self.reports[it].settled} or stay
        admitted = [dict(self.reports[it].joining) for it in stay]
        join = sorted(it for it in admitted[0] if all(it in others for others in admitted))
        return {**stay, **{it: admitted[0][it] for it in join[:MOST_MEMBERS - len(stay)]}}

    def _start(self, value: str | None) -> None:
        if self._asked == self.founders:
            assert value is not None
            self.joining = {}
            self._install(value)
        elif value is None:
            self.phase = Phase.FOLLOW
        else:
            self._asked += 1
            self.joining[self._asked] = value

    def _follow(self, value: str | None) -> None:
        if value is not None:
            self._install(value)
        elif self.epoch == 0:
            self.phase, self._asked, self.joining = Phase.START, 0, {}
        elif not self.members or self.leaving:
            self.phase = Phase.ENDED
        elif self.id in self.members:
            self.phase = Phase.MEMBER
        elif self.id in self.known:
            self.phase = Phase.EXPELLED

    def _install(self, record: str) -> None:
        """Moves to the next epoch, which has this record, and looks for a newer record."""
        self.epoch += 1
        self.members = {int(it): card for it, card in json.loads(record).items()}
        self.known |= frozenset(self.members)
        self.reports, self.excluded, self.called = {}, frozenset(), False
        self.joining = {it: card for it, card in self.joining.items() if it not in self.known}
        self.phase = Phase.FOLLOW

    def _collect(self) -> None:
        self.phase, self._asked = Phase.COLLECT, 0
        self._propose_if_complete()

    def _propose_if_complete(self) -> None:
        if self.awaited:
            return
        self.phase = Phase.PROPOSE
        # Excluded members may live. A record without members would end their training.
        if self.leaving and all(it.leaving for it in self.reports.values()) and len(self.reports) < len(self.members):
            self.phase = Phase.ENDED

    def _take_report(self, value: str | None) -> None:
        if self._asked == 0 and value is not None:
            self._install(value)
            return
        if value is not None:
            missing = [it for it in self.members if it not in self.reports]
            self.reports[missing[self._asked - 1]] = parse_report(value)
        else:
            self._asked += 1
        self._propose_if_complete()


def _record(members: dict[int, str]) -> str:
    return json.dumps(members, sort_keys=True)
