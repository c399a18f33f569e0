"""Decides which ranks of a job share a daemon, and where daemons find each other. It has no side effects.

Every rank makes this decision from the same HostInfo, so all ranks get the same result. launch.py acts on it.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from typing import NamedTuple, Sequence

MOST_TRAINERS = 16  # trainers of a daemon: kMaxTrainers of config.h
SECURITY = ("authenticated", "encrypted", "encrypted-128")  # words of `security` in a daemon's configuration
MOST_RANKS = 256  # ranks of a job: kMaxNodes of config.h
NAMED = "named"  # a value of HostInfo.daemon: the environment names the socket, or has the rank wait for a daemon
_MOST_LINKED = 64  # largest number of daemons with links from each to all others; a job of more has only the ring
# A hostname or IPv4 address, or an IPv6 address in brackets, each with an optional port; or a bare IPv6 address.
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:,\[\]]+))(?::([0-9]{1,5}))?|[0-9A-Fa-f:.]+")


class HostInfo(NamedTuple):
    """Facts that a rank reports about itself.

    `place`: equal for ranks that can share a daemon. `pid`: that of its process. `held`: mark of the job's own daemons
    from an earlier group, if they still run; else "". `daemon`: NAMED, or socket of a daemon that the rank has found
    and that fits the job; else "". `passed`: description of what the rank has found and does not use. `route`: own
    address on the route to MASTER_ADDR. `nodes`: GRADLANE_NODES. `mark`: a word that no other job has. `network`: equal
    for ranks with the same network interfaces. `security`: GRADLANE_SECURITY; "" for none.
    """

    place: str
    pid: int
    held: str = ""
    daemon: str = ""
    passed: str = ""
    route: str = ""
    nodes: str = ""
    mark: str = ""
    network: str = ""
    security: str = ""

    def text(self) -> str:
        """Returns the facts as a text for the store."""
        return json.dumps(self)

    @staticmethod
    def read(text: str) -> HostInfo:
        """Returns the facts from the result of text()."""
        return HostInfo(*json.loads(text))


class PlacementError(Exception):
    """The job cannot have such daemons. The text says why."""


def keeps_daemons(facts: Sequence[HostInfo]) -> bool:
    """Returns whether all of the job's own daemons from an earlier group still run."""
    return facts[0].held != "" and len({fact.held for fact in facts}) == 1


def joins_daemons(facts: Sequence[HostInfo]) -> bool:
    """Returns whether to use existing daemons: all ranks have found one, or a rank was told which to use or to wait for
    one."""
    return any(fact.daemon == NAMED for fact in facts) or all(fact.daemon for fact in facts)


class DaemonPlacement(NamedTuple):
    """Assigns ranks to daemons. Daemon i serves `trainers` ranks from i * trainers on, which have the same
    HostInfo.place. The first of these ranks starts it.

    trainers: number of trainers of each daemon. machines: for each daemon the number of its place. Places are counted
    in the order of the ranks. security: a word of SECURITY, or "".
    """

    trainers: int
    machines: tuple[int, ...]
    security: str = ""

    @property
    def secured(self) -> bool:
        """Whether daemons agree on keys, because packets between them are authenticated or encrypted."""
        return self.security != "" and len(self.machines) > 1

    @property
    def alone(self) -> bool:
        """Whether all daemons are on one machine."""
        return len(set(self.machines)) == 1

    @property
    def all_linked(self) -> bool:
        """Whether each daemon exchanges packets with all others, and not only with its neighbours in the ring."""
        return len(self.machines) <= _MOST_LINKED

    def linked(self, daemon: int) -> list[int]:
        """Returns the daemons that exchange packets with this one, from the next one on."""
        count = len(self.machines)
        steps = range(1, count) if self.all_linked else (1, count - 1)
        return [(daemon + step) % count for step in steps]

    def before(self, daemon: int) -> int:
        """Returns how many daemons with smaller numbers are on the machine of this daemon."""
        return self.machines[:daemon].count(self.machines[daemon])


def plan(facts: Sequence[HostInfo]) -> DaemonPlacement:
    """Returns the plan with the fewest daemons. All daemons serve the same number of consecutive ranks, up to
    MOST_TRAINERS.

    If machines have different numbers of ranks, or non-consecutive ranks, each rank may get its own daemon. Raises
    PlacementError.
    """
    places = [fact.place for fact in facts]
    world = len(places)
    if world > MOST_RANKS:
        raise PlacementError(f"the job has {world} ranks, but daemons can have at most {MOST_RANKS}")
    _check_same("GRADLANE_NODES", [fact.nodes for fact in facts])
    _check_same("GRADLANE_SECURITY", [fact.security for fact in facts])
    if facts[0].security and facts[0].security not in SECURITY:
        raise PlacementError(f"GRADLANE_SECURITY is '{facts[0].security}', allowed: none, {', '.join(SECURITY)}")
    trainers = next(many for many in range(min(world, MOST_TRAINERS), 0, -1) if world % many == 0 and all(
        len(set(places[first:first + many])) == 1 for first in range(0, world, many)))
    numbers = {place: number for number, place in enumerate(dict.fromkeys(places))}
    machines = tuple(numbers[place] for place in places[::trainers])
    named = named_hosts(facts[0].nodes)
    if named and len(named) != len(numbers):
        raise PlacementError(f"GRADLANE_NODES has {len(named)} hosts, but the job runs on {len(numbers)} machines")
    return DaemonPlacement(trainers, machines, facts[0].security)


def _check_same(variable: str, values: Sequence[str]) -> None:
    other = next((rank for rank, value in enumerate(values) if value != values[0]), None)
    if other is not None:
        raise PlacementError(f"{variable} is '{values[0]}' for rank 0 and '{values[other]}' for rank {other}: it must "
                             "be the same on all ranks")


def _adds_up() -> bool:
    """Returns whether daemons reduce their trainers locally, so that fewer bytes travel. Sums that are verified, or
    rounded once, need the contribution of each rank."""
    return os.environ.get("GRADLANE_VERIFY", "0") in ("", "0") and os.environ.get("GRADLANE_CODEC") != "exact"


def settings(plan: DaemonPlacement, mtu: int) -> list[str]:
    """Returns the settings of the job's daemons in the form of gradlaned --set. They are the same for all daemons."""
    chosen = {
        "trainers": plan.trainers,
        "local_reduce": "true" if plan.trainers > 1 and _adds_up() else "false",
        "mtu": mtu,
        "strategies": "[ring, direct]" if plan.all_linked else "[ring]",
        # Trainers may use all cores for seconds, during which a daemon may not answer. A trainer that has ended is
        # noticed at once anyway.
        "timeouts.peer": "10s",
    }
    if plan.secured:
        chosen |= {"security": plan.security, "auth.key_file": "stdin"}
    return [f"{key}={value}" for key, value in chosen.items()]


def ports(trainers: int) -> int:
    """Returns the number of consecutive UDP ports of a daemon. The ports of daemons at one address must be that far
    apart."""
    return trainers


# ---- Addresses


class Host(NamedTuple):
    """A host of GRADLANE_NODES. port: 0 if none is given."""

    name: str
    port: int


def named_hosts(text: str) -> list[Host]:
    """Returns the hosts of a text such as "10.0.0.1,node-b:18400,[fd00::1]:18400". Raises PlacementError."""
    return [_host(word.strip()) for word in text.split(",")] if text.strip() else []


def _host(word: str) -> Host:
    found = _HOST.fullmatch(word)
    if found is not None:
        name, port = found[1] or found[2] or word, int(found[3] or 0)
        if port <= 65535 and (name == found[2] or _is_ipv6(name)):
            return Host(name, port)
    raise PlacementError(f"GRADLANE_NODES: '{word}' is no host, allowed: HOST or HOST:PORT, with commas between them")


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


class Endpoint(NamedTuple):
    """Address and first UDP port of a daemon. mtu: limit of its packets. mtu_given: the user has set it."""

    address: str
    port: int
    mtu: int = 1500
    mtu_given: bool = False

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"

    def text(self) -> str:
        """Returns the endpoint as a text for the store."""
        return json.dumps(self)

    @staticmethod
    def read(text: str) -> Endpoint:
        """Returns the endpoint from the result of text()."""
        return Endpoint(*json.loads(text))


def is_loopback(address: str) -> bool:
    """Returns whether other machines cannot reach the address."""
    return ipaddress.ip_address(address).is_loopback


def check(plan: DaemonPlacement, endpoints: Sequence[Endpoint], networks: Sequence[str] = (),
          named: bool = False) -> None:
    """Raises PlacementError if these daemons cannot find each other. networks: HostInfo.network of each daemon's
    machine. named: GRADLANE_NODES gives the addresses, which may be those of a NAT."""
    advice = "set GRADLANE_INTERFACE to the interface of the network that all machines share, or GRADLANE_NODES"
    first = [rank * plan.trainers for rank in range(len(endpoints))]
    if not plan.alone:
        for rank, end in zip(first, endpoints):
            if is_loopback(end.address):
                raise PlacementError(f"the machine of rank {rank} has the address {end.address}, which other "
                                     f"machines cannot reach: {advice}")
        families = {":" in end.address: (rank, end.address) for rank, end in zip(first, endpoints)}
        if len(families) == 2:
            (one, address), (other, another) = families[False], families[True]
            raise PlacementError(f"the machine of rank {one} has the IPv4 address {address}, but that of rank {other} "
                                 f"has the IPv6 address {another}: {advice}")
    owners: dict[str, int] = {}
    for number, (end, network) in enumerate(zip(endpoints, () if named else networks)):
        other = owners.setdefault(end.address, number)
        if networks[other] != network:
            raise PlacementError(f"the machines of ranks {first[other]} and {first[number]} both have the address "
                                 f"{end.address}, as of a bridge for containers, so they cannot reach each other: "
                                 f"{advice}")
    for number, end in enumerate(endpoints):
        same = endpoints.index(end)
        if same != number:
            raise PlacementError(f"ranks {first[same]} and {first[number]} would both have their daemon at {end}: "
                                 f"{advice}")


def listed(endpoints: Sequence[Endpoint]) -> str:
    """Returns the first endpoints as a text for people."""
    most = 8
    return ", ".join(map(str, endpoints[:most])) + (", ..." if len(endpoints) > most else "")
