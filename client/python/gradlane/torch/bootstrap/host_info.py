"""What this machine's addresses are, as ranks and daemons of a job need them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import struct
from typing import Any, Iterator, Sequence

_ELSEWHERE = "192.0.2.1"  # of documentation (RFC 5737): where only the default route leads
_SIOCGIFADDR, _SIOCGIFMTU = 0x8915, 0x8921
_FIRST, _LAST = 20000, 32000  # below what kernels give away, 32768 to 60999 unless somebody has changed it
_TRIES = 200
_MOST_MTU = 1500  # what gets through most networks


def towards(host: str = "") -> str:
    """With which address a way there begins: this machine's own. "": where the default route leads."""
    for family, kind, protocol, _, address in _look_up(host or _ELSEWHERE):
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.connect(address)  # of a datagram socket: sends nothing
            return str(probe.getsockname()[0])
    return "127.0.0.1"


def of_host(host: str) -> str:
    """The address of a name, of IPv4 if it has such. Raises OSError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    address: str = min(found, key=lambda it: it[0] != socket.AF_INET)[4][0]  # type: ignore[assignment]
    return address


def of_interface(name: str) -> str:
    """Its address, of IPv4 if it has such. Raises OSError."""
    for owner, address in _all():
        if owner == name:
            return address
    there = ", ".join(sorted({owner for owner, _ in _all()}))
    raise OSError(f"GRADLANE_INTERFACE={name}: there is no such interface with an address, allowed: {there}")


def is_here(address: str) -> bool:
    """Whether sockets can have it."""
    try:
        bind(address, [0])[0].close()
    except OSError:
        return False
    return True


def mtu_of(address: str) -> int:
    """That of the interface with this address, as far as it is worth having."""
    for owner, other in _all():
        if other == address:
            with _asking() as asker:
                mtu: int = struct.unpack("16xi", fcntl.ioctl(asker, _SIOCGIFMTU, _request(owner))[:20])[0]
            return min(mtu, _MOST_MTU)
    return _MOST_MTU


def bind(address: str, ports: Sequence[int]) -> list[socket.socket]:
    """A UDP socket for each. Raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.ExitStack() as stack:
        bound = [stack.enter_context(socket.socket(family, socket.SOCK_DGRAM)) for _ in ports]
        for it, port in zip(bound, ports):
            it.bind((address, port))
        stack.pop_all()
    return bound


def free_ports(address: str, count: int) -> list[socket.socket]:
    """Sockets at so many UDP ports side by side that nobody has: another job's are elsewhere. Raises OSError."""
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
    """Interfaces and their addresses, those of IPv4 first; of IPv6 none that hold for one link only."""
    with _asking() as asker:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has none
                yield name, socket.inet_ntoa(fcntl.ioctl(asker, _SIOCGIFADDR, _request(name))[20:24])
    with contextlib.suppress(OSError), open("/proc/net/if_inet6") as table:
        for line in table:
            digits, _, _, scope, _, name = line.split()
            if int(scope, 16) & 0xf0 in (0x00, 0x10):  # of all, and of the host
                yield name, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))


def place() -> str:
    """The same for processes that can have one daemon: of one machine, network, user, with the same files and numbers
    of processes."""
    words = [socket.gethostname(), str(os.geteuid())]
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        words.append(file.read().strip())
    for kind in ("net", "pid", "mnt", "user"):
        with contextlib.suppress(OSError):
            words.append(os.readlink(f"/proc/self/ns/{kind}"))
    return " ".join(words)
