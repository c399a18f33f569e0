"""Who of a job shares a daemon, and where daemons find each other: decisions alone, of what the ranks have said.

Every rank decides by itself, of the same Facts, so all decide alike. launch.py acts on it.
"""

from __future__ import annotations

import ipaddress
import json
import re
from typing import NamedTuple, Sequence

MOST_TRAINERS = 16  # of a daemon: kMaxTrainers of config.h
MOST_RANKS = 256  # kMaxNodes
NAMED = "named"  # Facts.daemon: whose socket the environment says, or which is to be awaited
_REDUCE = True  # trainers of a daemon are summed up before the ring, and are one rank of it: less goes over the links
LOCAL_MTU = 9000  # of daemons on one machine
_MOST_LINKED = 64  # daemons, up to which all have links to all
# A name or an address of IPv4, or one of IPv6 in brackets, and perhaps a port; or one of IPv6 alone.
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:,\[\]]+))(?::([0-9]{1,5}))?|[0-9A-Fa-f:.]+")


class Facts(NamedTuple):
    """What a rank says of itself.

    place: equal where ranks can share a daemon. pid: of its process. held: the job's own daemons that are still there
    from an earlier group; "": none. daemon: NAMED, or the socket of one that it has found and that fits the job; "":
    none. passed: what it has found and does not take, in words. route: the address that begins its way to MASTER_ADDR.
    nodes: GRADLANE_NODES. mark: a word that no other job has.
    """

    place: str
    pid: int
    held: str = ""
    daemon: str = ""
    passed: str = ""
    route: str = ""
    nodes: str = ""
    mark: str = ""

    def text(self) -> str:
        """For the store."""
        return json.dumps(self)

    @staticmethod
    def read(text: str) -> Facts:
        """The same again."""
        return Facts(*json.loads(text))


class Unfit(Exception):
    """The job cannot have daemons like that, and why."""


def keeps(facts: Sequence[Facts]) -> bool:
    """Whether the job's own daemons of an earlier group are all there still."""
    return facts[0].held != "" and len({fact.held for fact in facts}) == 1


def joins(facts: Sequence[Facts]) -> bool:
    """Whether there are daemons already: all ranks have found some, or one is told which, or to wait for it."""
    return any(fact.daemon == NAMED for fact in facts) or all(fact.daemon for fact in facts)


class Plan(NamedTuple):
    """Who starts what. Daemon i serves the ranks from i * trainers on, which are in one place; the first starts it.

    trainers: of each daemon. machines: of the daemons: numbers of their places, counted in the order of the ranks.
    """

    trainers: int
    machines: tuple[int, ...]

    @property
    def alone(self) -> bool:
        """Whether all is on one machine."""
        return len(set(self.machines)) == 1

    def before(self, daemon: int) -> int:
        """How many daemons with smaller numbers are on the machine of this one."""
        return self.machines[:daemon].count(self.machines[daemon])


def plan(facts: Sequence[Facts]) -> Plan:
    """As few daemons as can be: each serves ranks that follow one another, all as many, up to MOST_TRAINERS.

    Where machines have other numbers of ranks than others, or ranks do not follow one another on them, it may come to
    one for each rank. Raises Unfit.
    """
    places = [fact.place for fact in facts]
    world = len(places)
    if world > MOST_RANKS:
        raise Unfit(f"{world} ranks, and daemons have {MOST_RANKS} at most")
    other = next((rank for rank, fact in enumerate(facts) if fact.nodes != facts[0].nodes), None)
    if other is not None:
        raise Unfit(f"GRADLANE_NODES is '{facts[0].nodes}' for rank 0 and '{facts[other].nodes}' for rank {other}")
    trainers = next(many for many in range(min(world, MOST_TRAINERS), 0, -1) if world % many == 0 and all(
        len(set(places[first:first + many])) == 1 for first in range(0, world, many)))
    numbers = {place: number for number, place in enumerate(dict.fromkeys(places))}
    machines = tuple(numbers[place] for place in places[::trainers])
    named = named_hosts(facts[0].nodes)
    if named and len(named) != len(numbers):
        raise Unfit(f"GRADLANE_NODES has {len(named)} hosts, and the job runs on {len(numbers)} machines")
    return Plan(trainers, machines)


def settings(plan: Plan, mtu: int) -> list[str]:
    """Of each of the job's daemons, as gradlaned --set takes them: the same on all."""
    chosen = {
        "trainers": plan.trainers,
        "local_reduce": "true" if _REDUCE and plan.trainers > 1 else "false",
        "mtu": mtu,
        "strategies": "[ring, direct]" if len(plan.machines) <= _MOST_LINKED else "[ring]",
        # Trainers may take all cores for seconds; one that has ended is known at once.
        "timeouts.peer": "10s",
    }
    return [f"{key}={value}" for key, value in chosen.items()]


def ports(trainers: int) -> int:
    """How many UDP ports a daemon has side by side, as daemons at one address must tell."""
    return trainers


# ---- Addresses


class Host(NamedTuple):
    """Of GRADLANE_NODES. port: 0: not said."""

    name: str
    port: int


def named_hosts(text: str) -> list[Host]:
    """Of "10.0.0.1,node-b:18400,[fd00::1]:18400". Raises Unfit."""
    return [_host(word.strip()) for word in text.split(",")] if text.strip() else []


def _host(word: str) -> Host:
    found = _HOST.fullmatch(word)
    if found is not None:
        name, port = found[1] or found[2] or word, int(found[3] or 0)
        if port <= 65535 and (name == found[2] or _is_ipv6(name)):
            return Host(name, port)
    raise Unfit(f"GRADLANE_NODES: '{word}' is no host, allowed: HOST or HOST:PORT, with commas between them")


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


class Endpoint(NamedTuple):
    """Where a daemon's first UDP port is. mtu: of the interface."""

    address: str
    port: int
    mtu: int = 1500

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"

    def text(self) -> str:
        """For the store."""
        return json.dumps(self)

    @staticmethod
    def read(text: str) -> Endpoint:
        """The same again."""
        return Endpoint(*json.loads(text))


def is_loopback(address: str) -> bool:
    """Whether no other machine reaches it."""
    return ipaddress.ip_address(address).is_loopback


def check(plan: Plan, endpoints: Sequence[Endpoint]) -> None:
    """Raises Unfit if these daemons cannot find each other."""
    advice = "set GRADLANE_NODES or GRADLANE_INTERFACE"
    first = [rank * plan.trainers for rank in range(len(endpoints))]
    if not plan.alone:
        for rank, end in zip(first, endpoints):
            if is_loopback(end.address):
                raise Unfit(f"the machine of rank {rank} has the address {end.address}, which no other machine "
                            f"reaches: {advice}")
        families = {":" in end.address: (rank, end.address) for rank, end in zip(first, endpoints)}
        if len(families) == 2:
            (one, address), (other, another) = families[False], families[True]
            raise Unfit(f"the machine of rank {one} has an address of IPv4, {address}, that of rank {other} one of "
                        f"IPv6, {another}: {advice}")
    for number, end in enumerate(endpoints):
        same = endpoints.index(end)
        if same != number:
            raise Unfit(f"ranks {first[same]} and {first[number]} would both have their daemon at {end}: {advice}")
