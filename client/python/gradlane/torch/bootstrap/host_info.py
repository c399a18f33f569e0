"""Addresses of this machine, as ranks and daemons of a job need them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import struct
from typing import Any, Iterator, Sequence

_ELSEWHERE = "192.0.2.1"  # any address that only the default route leads to: one for documentation (RFC 5737)
_SIOCGIFADDR, _SIOCGIFMTU = 0x8915, 0x8921
# range of UDP ports for daemons: below those that kernels assign by themselves, by default 32768 to 60999
_FIRST, _LAST = 20000, 32000
_TRIES = 200
_MOST_MTU = 1500  # largest MTU for daemons, which most networks can carry


def local_address_for(host: str = "") -> str:
    """Returns this machine's own address on the route to `host`; for "" that of the default route."""
    for family, kind, protocol, _, address in _look_up(host or _ELSEWHERE):
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.connect(address)  # sends nothing: it is a datagram socket
            return str(probe.getsockname()[0])
    return "127.0.0.1"


def of_host(host: str) -> str:
    """Returns the address of a hostname, an IPv4 address if it has one. Raises OSError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    address: str = min(found, key=lambda it: it[0] != socket.AF_INET)[4][0]  # type: ignore[assignment]
    return address


def of_interface(name: str) -> str:
    """Returns the address of an interface, an IPv4 address if it has one. Raises OSError."""
    for owner, address in _all():
        if owner == name:
            return address
    there = ", ".join(sorted({owner for owner, _ in _all()}))
    raise OSError(f"GRADLANE_INTERFACE={name}: there is no such interface with an address, allowed: {there}")


def is_here(address: str) -> bool:
    """Returns whether sockets can be bound to the address."""
    try:
        bind(address, [0])[0].close()
    except OSError:
        return False
    return True


def mtu_of(address: str) -> int:
    """Returns the MTU of the interface with this address, but 1500 at most."""
    for owner, other in _all():
        if other == address:
            with _asking() as asker:
                mtu: int = struct.unpack("16xi", fcntl.ioctl(asker, _SIOCGIFMTU, _request(owner))[:20])[0]
            return min(mtu, _MOST_MTU)
    return _MOST_MTU


def bind(address: str, ports: Sequence[int]) -> list[socket.socket]:
    """Returns one UDP socket for each port. Raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.ExitStack() as stack:
        bound = [stack.enter_context(socket.socket(family, socket.SOCK_DGRAM)) for _ in ports]
        for it, port in zip(bound, ports):
            it.bind((address, port))
        stack.pop_all()
    return bound


def free_ports(address: str, count: int) -> list[socket.socket]:
    """Returns sockets at `count` consecutive UDP ports that are free. The first port is random, so that jobs differ.
    Raises OSError."""
    for attempt in range(_TRIES):
        first = random.SystemRandom().randrange(_FIRST, _LAST - count)
        try:
            return bind(address, range(first, first + count))
        except OSError:
            if attempt == _TRIES - 1:
                raise
    raise AssertionError


# ---- Private


def _look_up(host: str) -> Sequence[Any]:
    try:
        return socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
    except OSError:
        return ()


def _asking() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def _request(name: str) -> bytes:
    return struct.pack("256s", name.encode()[:15])


def _all() -> Iterator[tuple[str, str]]:
    """Yields interfaces with their addresses, IPv4 first. IPv6 addresses that are valid on one link only are left out.
    """
    with _asking() as asker:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # the interface has no IPv4 address
                yield name, socket.inet_ntoa(fcntl.ioctl(asker, _SIOCGIFADDR, _request(name))[20:24])
    with contextlib.suppress(OSError), open("/proc/net/if_inet6") as table:
        for line in table:
            digits, _, _, scope, _, name = line.split()
            if int(scope, 16) & 0xf0 in (0x00, 0x10):  # scopes: global, and of this host
                yield name, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))


def place() -> str:
    """Returns a text that is the same for processes that can share a daemon. These have the same machine, user,
    network, files and process IDs."""
    words = [socket.gethostname(), str(os.geteuid())]
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        words.append(file.read().strip())
    for kind in ("net", "pid", "mnt", "user"):
        with contextlib.suppress(OSError):
            words.append(os.readlink(f"/proc/self/ns/{kind}"))
    return " ".join(words)
