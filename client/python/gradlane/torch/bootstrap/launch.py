"""Daemons for a job that has none, under torchrun or any launcher that sets the same variables.

The ranks tell each other through the job's store where they are. They use existing daemons if all ranks find one that
fits, or if one rank is told which to use. Otherwise new daemons are started, each by the first rank that it serves.
Each daemon ends with the processes that it serves. placement.py decides which ranks share a daemon, with the same
result on all ranks. Every error is raised on all ranks, with the same text, and within bounded time.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
import sys
from typing import Any, Callable

import torch.distributed as dist

from ... import _arguments, _context, errors
from . import host_info, local_daemon, path_probe, placement
from .store_group import StoreGroup
from ..engine import Engine

_READY_S = 30.0  # time limit in seconds for a daemon to start; this normally takes a fraction of a second
_FIND_S = 5.0  # time limit in seconds for a daemon that was found to release the rank from its previous process
_ATTEMPTS = 3
# Errors of one rank that are reported to all ranks.
_FAULTS = (errors.Error, ImportError, OSError, ValueError, placement.PlacementError, local_daemon.CannotStart)


class JobDaemons:
    """The job's own daemons, as this process knows them.

    `mark`: word that identifies the job. `ends`: addresses of all daemons. `socket`: socket of this rank's daemon.
    `ours`: the daemon that this process has started, or None. `security`: their GRADLANE_SECURITY.
    """

    def __init__(self, mark: str, ends: list[placement.Endpoint], socket: str,
                 ours: local_daemon.Started | None, security: str) -> None:
        self.mark, self.ends, self.ours, self.security = mark, ends, ours, security
        self.socket = socket
        self.told = False

    def fits(self) -> bool:
        """Returns whether this rank's daemon still runs, as far as this process can see, and is secured as wanted."""
        if self.security != _security():
            return False
        return self.ours.lives() if self.ours is not None else os.path.exists(self.socket)

    def end(self) -> None:
        """Ends the daemon that this process has started. All ranks must have disconnected from it."""
        if self.ours is not None:
            self.ours.end()


_daemons: JobDaemons | None = None


def wanted() -> bool:
    """Returns whether daemons may be started: not if GRADLANE_SOCKET names a socket, and not with GRADLANE_START=0."""
    return not os.environ.get("GRADLANE_SOCKET") and os.environ.get("GRADLANE_START", "1") != "0"


def prepare(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta) -> None:
    """Makes sure that a job has daemons, when all its ranks are here. Engine.shared() then finds the daemon of this
    rank.

    store: a store of these ranks alone, joining.own(). `timeout` is the group's: nothing takes longer. Raises NoDaemon,
    the same on all ranks.
    """
    global _daemons
    group = StoreGroup(store, rank, timeout)
    facts = _ask(group, size, lambda: _facts(rank, size))
    if placement.keeps_daemons(facts):
        return
    secured = next((fact.security for fact in facts if fact.security), "")
    if secured and placement.joins_daemons(facts):
        raise errors.error(errors.Code.NO_DAEMON, f"gradlane: GRADLANE_SECURITY={secured} is for daemons that the job "
                           "starts, but GRADLANE_SOCKET or GRADLANE_START=0 uses others; unset one of these")
    if _daemons is not None:
        _daemons.end()
    _daemons = Engine.socket = None
    if placement.joins_daemons(facts):
        return
    Engine.dismiss()
    _warn_of_skipped(facts, rank)
    _daemons = _launch(group, facts, rank)
    Engine.socket = _daemons.socket


def ring(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta, known: JobDaemons | None) -> JobDaemons:
    """Starts daemons for only some ranks of a job, whatever other daemons the job has.

    `store`: a store that only these ranks use. `rank`: number of this rank among them. `known`: result of an earlier
    call, or None. It is returned again if all of these ranks still have its daemons. Raises what prepare() raises.
    """
    group = StoreGroup(store, rank, timeout)
    facts = _ask(group, size, lambda: _facts_of_ring(known))
    return known if known is not None and placement.keeps_daemons(facts) else _launch(group, facts, rank)


def verify(engine: Engine | None, timeout: datetime.timedelta, held: JobDaemons | None = None) -> None:
    """Runs a barrier, for 30 s at most, after all ranks have connected to the job's own daemons. If the daemons do not
    reach each other, the barrier fails here, and not the job's first operation after a longer time. After the barrier,
    the loss of a rank is noticed, because each rank has run an operation.

    held: daemons to check; None: the job's own daemons. Raises OperationFailed with the barrier's error and the last
    lines of this daemon's log.
    """
    held = held or _daemons
    if held is None or engine is None:
        return
    failed: list[Exception] = []
    with contextlib.suppress(RuntimeError):
        engine.barrier(timeout=min(timeout.total_seconds(), _READY_S), on_error=failed.append).wait()
    if failed:
        advice = ""
        if len({end.address for end in held.ends}) > 1:
            advice = (f"; the daemons are at UDP {placement.listed(held.ends)}: let these ports through the firewalls, "
                      "or set others by GRADLANE_NODES=HOST:PORT,... on all ranks; if a machine has its address on the "
                      "wrong network, set GRADLANE_INTERFACE there")
        raise errors.error(errors.Code.FAILED, f"{failed[0]}{advice}{local_daemon.last_words(held.socket)}")


def tell() -> None:
    """Prints warnings and errors from the log of this process's daemon on standard error. Later calls do nothing. It is
    called after a failure.
    """
    if _daemons is None or _daemons.ours is None or _daemons.told:
        return
    _daemons.told = True
    log = local_daemon.log_beside(_daemons.socket)
    text = local_daemon.tail(log, ("warning", "error", "critical"))
    if text:
        print(f"gradlane: the daemon's log, {log}{text}", file=sys.stderr, flush=True)


# ---- Private


def _forget() -> None:
    """Forgets the daemons, in a child after fork()."""
    global _daemons
    if _daemons is not None:
        _daemons = None
        Engine.socket = None


os.register_at_fork(after_in_child=_forget)


def _ask(group: StoreGroup, size: int, facts: Callable[[], placement.HostInfo]) -> list[placement.HostInfo]:
    said = group.ask("facts", range(size), lambda: facts().text(), _FAULTS)
    return [placement.HostInfo.read(text) for text in said]


def _facts(rank: int, size: int) -> placement.HostInfo:
    held = daemon = passed = ""
    if not wanted():
        daemon = placement.NAMED
    elif _daemons is not None and _daemons.fits():
        held = _daemons.mark
    elif not _security():  # only daemons that the job starts can be secured
        daemon, passed = _find(rank, size)
    return placement.HostInfo(host_info.place(), os.getpid(), held, daemon, passed, _route(),
                              os.environ.get("GRADLANE_NODES", ""), secrets.token_hex(8), host_info.network(),
                              _security())


def _facts_of_ring(known: JobDaemons | None) -> placement.HostInfo:
    """Returns this rank's facts for a ring of some ranks. GRADLANE_NODES gives only the address: its ports belong to
    the job's daemons, and its hosts are those of all ranks."""
    if os.environ.get("GRADLANE_START", "1") == "0":
        raise errors.error(errors.Code.NO_DAEMON, "a group of some ranks needs its own daemons, but GRADLANE_START=0 "
                           "forbids starting them")
    held = known.mark if known is not None and known.fits() else ""
    named = (host_info.of_host(host.name) for host in placement.named_hosts(os.environ.get("GRADLANE_NODES", "")))
    here = next((address for address in named if host_info.is_here(address)), "")
    return placement.HostInfo(host_info.place(), os.getpid(), held, route=here or _route(), mark=secrets.token_hex(8),
                              network=host_info.network(), security=_security())


def _security() -> str:
    word = os.environ.get("GRADLANE_SECURITY", "")
    return "" if word == "none" else word


def _route() -> str:
    interface = os.environ.get("GRADLANE_INTERFACE", "")
    if interface:
        return host_info.of_interface(interface)
    return host_info.of_gloo() or host_info.local_address_for(os.environ.get("MASTER_ADDR", ""))


def _find(rank: int, size: int) -> tuple[str, str]:
    """Returns (socket of a daemon that has `size` ranks and accepts this one, ""), or ("", description of what was
    found)."""
    try:
        # no daemon has that rank; the refusal says how many ranks the daemon has
        _context.open(rank=_arguments.MAX_MS, timeout=0).close()
        return "", ""
    except errors.BadArgument as error:  # there are several daemons
        return "", str(error)
    except errors.NoDaemon as error:
        daemon = error.refused_by
    except errors.Error:
        return "", ""
    if daemon is None:
        return "", ""
    socket, ranks = daemon
    if ranks != size:
        return "", f"ignoring the daemon at {socket}, which has {ranks} ranks"
    try:
        Engine.connect(rank, _FIND_S)
    except errors.Error as error:
        return "", str(error)
    return socket, ""


def _warn_of_skipped(facts: list[placement.HostInfo], rank: int) -> None:
    passed = next((number for number, fact in enumerate(facts) if fact.passed), None)
    if passed is None and any(fact.daemon for fact in facts):
        passed = next(number for number, fact in enumerate(facts) if not fact.daemon)
    if passed == rank:
        found = next((fact.daemon for fact in facts if fact.daemon), "")
        text = facts[passed].passed or f"ignoring the daemon at {found}, because this rank has found none"
        print(f"gradlane: rank {passed}: {text}; starting new daemons for this job of {len(facts)} ranks "
              "(GRADLANE_SOCKET names a daemon to use)", file=sys.stderr, flush=True)


def _launch(group: StoreGroup, facts: list[placement.HostInfo], rank: int) -> JobDaemons:
    try:
        plan = placement.plan(facts)
    except placement.PlacementError as error:  # raised on all ranks
        raise errors.error(errors.Code.NO_DAEMON, f"gradlane: no daemons for the job: {error}") from None
    starters = range(0, len(facts), plan.trainers)
    mine = rank // plan.trainers
    for attempt in range(_ATTEMPTS):
        ours: list[local_daemon.Started] = []  # one daemon, or none
        sockets: list[str] = []
        ends: list[placement.Endpoint] = []
        try:
            sockets, ends = _attempt(group, facts, plan, rank, attempt, ours)
        finally:
            if not sockets or not all(sockets):
                for daemon in ours:
                    daemon.end()
        if all(sockets):
            return JobDaemons(facts[0].mark, ends, sockets[mine], ours[0] if ours else None, plan.security)
    unlucky = sockets.index("")
    raise errors.error(errors.Code.NO_DAEMON, f"gradlane: no daemon for rank {starters[unlucky]}: UDP "
                       f"{_ports_text(ends[unlucky], plan)} in use by another process, in {_ATTEMPTS} attempts; set "
                       "GRADLANE_NODES=HOST:PORT,... on all ranks to choose other ports")


def _ports_text(end: placement.Endpoint, plan: placement.DaemonPlacement) -> str:
    more = placement.ports(plan.trainers) - 1
    return f"ports {end} to {end.port + more} are" if more else f"port {end} is"


def _attempt(group: StoreGroup, facts: list[placement.HostInfo], plan: placement.DaemonPlacement, rank: int,
             attempt: int, ours: list[local_daemon.Started]) -> tuple[list[str], list[placement.Endpoint]]:
    """Returns the daemons' sockets and addresses; a socket is "" if another process has taken the daemon's ports
    meanwhile. ours: list to which this rank's daemon is added, if it starts one."""
    starters = range(0, len(facts), plan.trainers)
    mine = rank // plan.trainers
    reserved: list[Any] = []
    try:
        ends = [placement.Endpoint("127.0.0.1", 0, host_info.loopback_mtu())]
        if len(plan.machines) > 1:
            said = group.ask(f"endpoint {attempt}", starters,
                             lambda: _endpoint(facts, plan, mine, reserved, attempt < _ATTEMPTS - 1).text(), _FAULTS)
            ends = [placement.Endpoint.read(text) for text in said]
            try:
                placement.check(plan, ends, [facts[rank].network for rank in starters], facts[0].nodes != "")
            except placement.PlacementError as error:  # raised on all ranks
                raise errors.error(errors.Code.NO_DAEMON, f"gradlane: no daemons for the job: {error}") from None
        mtu = _common_mtu(group, facts, plan, mine, ends, reserved, attempt)
        limit = min(group.limit.total_seconds(), _READY_S)
        keys: list[str] = []
        if plan.secured:

            def public_key() -> str:
                _start(facts, plan, mine, ends, mtu, ours)
                return ours[0].public_key(limit)

            keys = group.ask(f"key {attempt}", starters, public_key, _FAULTS)

        def socket() -> str:
            while reserved:
                reserved.pop().close()
            if plan.secured:
                ours[0].tell_keys(keys)
            else:
                _start(facts, plan, mine, ends, mtu, ours)
            try:
                ours[0].wait_until_ready(limit)
            except local_daemon.PortsInUse:
                return ""
            return ours[0].socket

        return group.ask(f"socket {attempt}", starters, socket, _FAULTS), ends
    finally:
        for it in reserved:
            it.close()


def _endpoint(facts: list[placement.HostInfo], plan: placement.DaemonPlacement, mine: int, reserved: list[Any],
              usual: bool) -> placement.Endpoint:
    """Returns the endpoint of this rank's daemon. Sockets reserve its ports until the daemon is started. usual: prefer
    the ports that firewalls let in. Jobs on one machine do not need them, and random ports clash less."""
    address, port = ("127.0.0.1", 0) if plan.alone else _address(facts, plan, mine)
    if port == 0:
        reserved += host_info.free_ports(address, placement.ports(plan.trainers), usual and not plan.alone)
        port = reserved[0].getsockname()[1]
    if plan.alone:
        return placement.Endpoint(address, port, host_info.loopback_mtu())
    return placement.Endpoint(address, port, host_info.mtu_for(address), host_info.mtu_is_given())


def _address(facts: list[placement.HostInfo], plan: placement.DaemonPlacement, mine: int) -> tuple[str, int]:
    """Returns (address of this machine, first port); port 0 stands for any."""
    named = placement.named_hosts(facts[0].nodes)
    if not named:
        routes = [facts[rank].route for rank in range(0, len(facts), plan.trainers)]
        if not placement.is_loopback(routes[mine]):
            return routes[mine], 0
        others = (route for route in routes if not placement.is_loopback(route))
        return host_info.local_address_for(next(others, "")), 0
    found = [host_info.of_host(host.name) for host in named]
    # With NAT, no machine has the address that GRADLANE_NODES names. The number of the machine is then its index in the
    # list.
    here = next((number for number, address in enumerate(found) if host_info.is_here(address)), plan.machines[mine])
    port = named[here].port
    return found[here], port and port + plan.before(mine) * placement.ports(plan.trainers)


def _common_mtu(group: StoreGroup, facts: list[placement.HostInfo], plan: placement.DaemonPlacement, mine: int,
                ends: list[placement.Endpoint], reserved: list[Any], attempt: int) -> int:
    """Returns the MTU for all daemons. More than USUAL_MTU needs probes that reach all machines, unless the user has
    given it on all machines, or all daemons are on one machine."""
    mtu = min(end.mtu for end in ends)
    if mtu <= host_info.USUAL_MTU or plan.alone or all(end.mtu_given for end in ends):
        return mtu
    starters = range(0, len(facts), plan.trainers)

    def probe() -> bool:
        addresses = [(end.address, end.port) for end in ends]
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            # OSError: the port is in use, which the daemon will report, or this machine is behind a NAT.
            own = reserved[0] if reserved else stack.enter_context(host_info.bind(ends[mine].address,
                                                                                  [ends[mine].port])[0])
            return path_probe.hears(own, mine, plan.linked(mine), addresses, mtu, facts[0].mark)
        return False

    if all(group.ask(f"long packets {attempt}", starters, probe, _FAULTS)):
        return mtu
    if mine == 0 and attempt == 0:
        print(f"gradlane: the interfaces have MTU {mtu}, but packets of that length do not reach all machines. Packets "
              f"have {host_info.USUAL_MTU} bytes; GRADLANE_MTU sets another length", file=sys.stderr, flush=True)
    return host_info.USUAL_MTU


def _start(facts: list[placement.HostInfo], plan: placement.DaemonPlacement, mine: int, ends: list[placement.Endpoint],
           mtu: int, ours: list[local_daemon.Started]) -> None:
    """Starts this rank's daemon, and adds it to `ours`."""
    first = mine * plan.trainers
    nodes = "127.0.0.1" if len(ends) == 1 else ",".join(map(str, ends))
    words = ["--nodes", nodes, "--rank", str(mine)]
    for setting in placement.settings(plan, mtu):
        words += ["--set", setting]
    ours.append(local_daemon.Started(words, [fact.pid for fact in facts[first:first + plan.trainers]], plan.secured))
