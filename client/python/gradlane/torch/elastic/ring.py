"""The ring of one epoch: a daemon that this process starts, its connection, and three collective operations.

The members of an epoch never change, so the configuration of its daemons does not change. A new epoch has new daemons.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import weakref
from typing import Any, Callable, NamedTuple, Sequence

import torch

from ... import errors
from ..bootstrap import host_info, local_daemon, placement
from ..engine import Engine
from ..work import Work
from .steps import RingFailed

_START_S = 20.0  # time limit of the start of a daemon, and for the daemons of all members to connect
_PEER_S = 1.0  # timeouts.peer of the daemons: a node that is silent for 3/4 of this time has failed


class Card(NamedTuple):
    """Facts about a process that other members need.

    place, network, route, security: as in HostInfo. port, mtu: UDP port and MTU of its next daemon. probe_port: TCP
    port at which the process listens while it lives. nonce: a random word, so that no two cards are equal. kind: equal
    for processes with the same kind of model and the same options.
    """

    place: str
    network: str
    route: str
    port: int
    mtu: int
    probe_port: int
    security: str
    nonce: str
    kind: str = ""


class EpochRing:
    """The ring of an epoch. One thread calls operations, which raise RingFailed. Another thread may call abort().

    index: position of this process among the members. hosts: addresses of all members. timeout_s: time limit of
    operations. secured: whether packets are authenticated or encrypted.
    """

    def __init__(self, epoch: int, index: int, hosts: Sequence[str], timeout_s: float, secured: bool = False,
                 engine: Engine | None = None, daemon: local_daemon.Started | None = None) -> None:
        self.epoch, self.index, self.hosts, self.size, self.secured = epoch, index, hosts, len(hosts), secured
        self.id, self.founder = 0, False  # of this process in this epoch; set by the agent
        self._timeout_s = timeout_s
        self._engine, self._daemon = engine, daemon  # None with one member
        self._aborted = ""
        self._errors: list[Exception] = []
        self._first: Any = None if engine is None else engine.barrier(timeout=_START_S, on_error=self._errors.append)

    def is_ready(self) -> bool:
        """Returns whether the daemons of all members have connected. The agents find out by a barrier, because the
        callers may compute shards for a long time before their first operation. Raises RingFailed if it has failed."""
        if self._first is None:
            return True
        if not self._first.done():
            return False
        if self._errors:
            raise RingFailed(self._aborted or str(self._errors[0]))
        self._first = None
        return True

    def gather(self, own: Sequence[int]) -> list[list[int]]:
        """Returns the rows of all members, in their order. own: this member's row of 64-bit integers. All rows have the
        same length."""
        row = torch.tensor([int(it) for it in own], dtype=torch.int64)
        if self._engine is None:
            self.check()
            return [row.tolist()]
        rows = list(torch.empty(self.size, row.numel(), dtype=torch.int64))
        self._run(rows, lambda engine, **options: engine.all_gather(rows, row, **options))
        return [it.tolist() for it in rows]

    def sum(self, tensor: torch.Tensor, codec: str | None = None) -> None:
        """Adds the tensors of all members, in place."""
        self._run(tensor, lambda engine, **options: engine.all_reduce(tensor, codec=codec, **options))

    def broadcast(self, tensor: torch.Tensor, source: int) -> None:
        """Copies the tensor of the member at position `source` to all members, in place."""
        self._run(tensor, lambda engine, **options: engine.broadcast(tensor, source, **options))

    def abort(self, reason: str) -> None:
        """Makes all operations fail, those in flight included, and ends the daemon."""
        self._aborted = self._aborted or reason
        if self._engine is not None:
            self._engine.close(summarize=False)
        if self._daemon is not None:
            threading.Thread(target=self._daemon.end, name="gradlane-end").start()

    def check(self) -> None:
        """Raises RingFailed after abort()."""
        if self._aborted:
            raise RingFailed(self._aborted)

    def _run(self, result: Any, start: Callable[..., Any]) -> None:
        self.check()
        if self._engine is None:
            return
        try:
            Work(result).begin(lambda result, on_error: start(
                self._engine, result=result, on_error=on_error, timeout=self._timeout_s)).wait()
        except errors.BadArgument:
            raise
        except (errors.Error, RuntimeError) as reason:
            raise RingFailed(self._aborted or str(reason)) from None


class Ports:
    """Ports of this process: a TCP port that shows that it lives, and a UDP port that is reserved for its next daemon.

    host: the ports have the local address of the route to this host, unless GRADLANE_INTERFACE names an interface.
    kind: as in Card.
    """

    def __init__(self, host: str, kind: str) -> None:
        self._kind = kind
        interface = os.environ.get("GRADLANE_INTERFACE", "")
        self._route = host_info.of_interface(interface) if interface else host_info.local_address_for(host)
        family = socket.AF_INET6 if ":" in self._route else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.bind((self._route, 0))
        self._listener.listen()
        self._listener.setblocking(False)
        self._reserved: socket.socket | None = None
        # A child that outlives this process must not look like it.
        mine = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: (it.close() if (it := mine()) is not None else None))

    def make_card(self) -> str:
        """Returns a new card of this process, as JSON. Its UDP port is reserved until release()."""
        if self._reserved is None:
            self._reserved = host_info.free_ports(self._route, 1, not placement.is_loopback(self._route))[0]
        security = os.environ.get("GRADLANE_SECURITY", "")
        return json.dumps(Card(
            host_info.place(), host_info.network(), self._route, self._reserved.getsockname()[1],
            host_info.mtu_for(self._route), self._listener.getsockname()[1], "" if security == "none" else security,
            secrets.token_hex(8), self._kind))

    def release(self) -> None:
        """Frees the reserved port for the next daemon."""
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def accept(self) -> None:
        """Accepts and closes the connections of is_alive()."""
        with contextlib.suppress(OSError):
            while True:
                self._listener.accept()[0].close()

    def close(self) -> None:
        """Closes all ports."""
        self.release()
        self._listener.close()


def parse_card(text: str) -> Card:
    """Returns the card from a result of Ports.make_card(). Raises BadArgument for another text."""
    with contextlib.suppress(TypeError, ValueError):
        card = Card(*json.loads(text))
        if all(type(it) is kind for it, kind in zip(card, (str, str, str, int, int, int, str, str, str))):
            return card
    raise errors.bad_argument("gradlane: elastic: the processes have different versions of gradlane")


def differences(one: Card, other: Card) -> str:
    """Returns what differs between two cards that must be equal in the cards of all members; "" if nothing does."""
    if one.security != other.security:
        return f"GRADLANE_SECURITY ({one.security or 'none'} and {other.security or 'none'})"
    if (":" in one.route) != (":" in other.route):
        return f"address family ({one.route} and {other.route})"
    if one.kind != other.kind:
        return "model, type of optimizer, shards, codec, seed, names in state, or version of gradlane"
    return ""


def is_alive(card: Card, limit_s: float) -> bool:
    """Returns whether this process can connect to the process with this card within `limit_s`. A stopped process is
    alive, because the kernel accepts the connection."""
    try:
        socket.create_connection((card.route, card.probe_port), limit_s).close()
    except OSError:
        return False
    return True


def start_ring(epoch: int, cards: Sequence[Card], index: int, timeout_s: float,
               exchange_keys: Callable[[str], Sequence[str]]) -> EpochRing:
    """Starts this member's daemon and connects to it. It does not wait for the other daemons.

    cards: cards of all members, in their order. index: position of this process among them. timeout_s: time limit of
    operations. exchange_keys: takes the public key of this daemon, and returns those of all daemons. Raises
    RingFailed if another attempt may succeed. Otherwise raises NoDaemon, and BadArgument if this process differs from
    the first member.
    """
    size = len(cards)
    unlike = [differences(card, cards[0]) for card in cards]
    if unlike[index]:
        raise errors.bad_argument("gradlane: elastic: this process and the first member differ in " + unlike[index])
    if any(unlike):
        rank = next(it for it in range(size) if unlike[it])
        raise RingFailed(f"rank {rank} and rank 0 differ in {unlike[rank]}")
    if cards[0].security and cards[0].security not in placement.SECURITY:
        raise errors.bad_argument(f"gradlane: GRADLANE_SECURITY is '{cards[0].security}', allowed: none, "
                                  + ", ".join(placement.SECURITY))
    if size == 1:
        return EpochRing(epoch, index, [cards[0].route], timeout_s)
    places = {place: number for number, place in enumerate(dict.fromkeys(card.place for card in cards))}
    plan = placement.DaemonPlacement(1, tuple(places[card.place] for card in cards), cards[0].security)
    endpoints = [placement.Endpoint(card.route, card.port, card.mtu) for card in cards]
    arguments = ["--nodes", ",".join(map(str, endpoints)), "--rank", str(index)]
    for setting in [*placement.settings(plan, _mtu(plan, cards)), f"timeouts.peer={_PEER_S:g}s"]:
        arguments += ["--set", setting]
    try:
        with contextlib.ExitStack() as stack:
            placement.check(plan, endpoints, [card.network for card in cards])
            daemon = local_daemon.Started(arguments, [os.getpid()], plan.secured)
            stack.callback(daemon.end)
            if plan.secured:
                daemon.tell_keys(exchange_keys(daemon.public_key(_START_S)))
            daemon.wait_until_ready(_START_S)
            engine = Engine.open_subgroup(daemon.socket, index)
            stack.pop_all()
    except (errors.Error, local_daemon.PortsInUse) as reason:
        raise RingFailed(str(reason)) from None
    except (placement.PlacementError, local_daemon.CannotStart) as reason:
        text = f"gradlane: elastic: this process has no daemon: {reason}"
        raise errors.error(errors.Code.NO_DAEMON, text) from None
    return EpochRing(epoch, index, [card.route for card in cards], timeout_s, plan.secured, engine, daemon)


# ---- Private


def _mtu(plan: placement.DaemonPlacement, cards: Sequence[Card]) -> int:
    """Returns the MTU of an epoch. Paths are not probed, so it is at most USUAL_MTU, unless all members are on one
    machine, or the user has set an MTU."""
    mtu = min(card.mtu for card in cards)
    return mtu if plan.alone or host_info.mtu_is_given() else min(mtu, host_info.USUAL_MTU)
