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
# UDP ports that the daemons of a job on several machines take first, so that a firewall can let them in. They are
# enough for the jobs of a few users. The 16 ports before them, from gradlaned's default on, are left for a service.
USUAL_PORTS = range(18416, 18464)
# range of other UDP ports for daemons: below those that kernels assign by themselves, by default 32768 to 60999
_FIRST, _LAST = 20000, 32000
_TRIES = 200
USUAL_MTU = 1500  # MTU that most networks can carry
_JUMBO_MTU = 9000
_LEAST_MTU, _LONGEST_MTU = 576, 16384  # range of `mtu` in a daemon's configuration


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


def of_gloo() -> str:
    """Returns the address of the first interface that GLOO_SOCKET_IFNAME names; "" if it has none that other machines
    reach."""
    name = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if not name or name == "lo":
        return ""
    with contextlib.suppress(OSError):
        return of_interface(name)
    return ""


def is_here(address: str) -> bool:
    """Returns whether sockets can be bound to the address."""
    try:
        bind(address, [0])[0].close()
    except OSError:
        return False
    return True


def loopback_mtu() -> int:
    """Returns the MTU for packets between daemons of this machine, in bytes."""
    return min(_interface_mtu("127.0.0.1")[1], _LONGEST_MTU)


def mtu_is_given() -> bool:
    """Returns whether GRADLANE_MTU gives the MTU, so that paths are not probed."""
    return os.environ.get("GRADLANE_MTU", "") != ""


def mtu_for(address: str) -> int:
    """Returns the largest MTU that a daemon at this address may use, before paths are probed: GRADLANE_MTU, else that
    of the interface, but 9000 at most. Raises ValueError if GRADLANE_MTU is no MTU, or more than that of the interface.
    """
    interface, has = _interface_mtu(address)
    if not mtu_is_given():
        return min(has, _JUMBO_MTU)
    text = os.environ["GRADLANE_MTU"]
    if not text.isdecimal() or not _LEAST_MTU <= int(text) <= _LONGEST_MTU:
        raise ValueError(f"GRADLANE_MTU={text}: this is no MTU, allowed: {_LEAST_MTU} to {_LONGEST_MTU}")
    if interface and int(text) > has:
        raise ValueError(f"GRADLANE_MTU={text}: interface {interface} has MTU {has}: set at most {has}, or ip link set "
                         f"{interface} mtu {text}")
    return int(text)


def bind(address: str, ports: Sequence[int]) -> list[socket.socket]:
    """Returns one UDP socket for each port. Raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.ExitStack() as stack:
        bound = [stack.enter_context(socket.socket(family, socket.SOCK_DGRAM)) for _ in ports]
        for it, port in zip(bound, ports):
            it.bind((address, port))
        stack.pop_all()
    return bound


def free_ports(address: str, count: int, usual: bool = False) -> list[socket.socket]:
    """Returns sockets at `count` consecutive UDP ports that are free: with `usual` the first ones of USUAL_PORTS, if
    there are any. Otherwise the first port is random, so that jobs differ. Raises OSError."""
    for first in USUAL_PORTS[:len(USUAL_PORTS) - count + 1:count] if usual and count <= len(USUAL_PORTS) else ():
        with contextlib.suppress(OSError):
            return bind(address, range(first, first + count))
    for attempt in range(_TRIES):
        first = random.SystemRandom().randrange(_FIRST, _LAST - count)
        try:
            return bind(address, range(first, first + count))
        except OSError:
            if attempt == _TRIES - 1:
                raise
    raise AssertionError


def place() -> str:
    """Returns a text that is the same for processes that can share a daemon. These have the same machine, user,
    network, files and process IDs."""
    return " ".join([socket.gethostname(), str(os.geteuid()), *_spaces("net", "pid", "mnt", "user")])


def network() -> str:
    """Returns a text that is the same for processes with the same network interfaces."""
    return " ".join(_spaces("net"))


# ---- Private


def _spaces(*kinds: str) -> Iterator[str]:
    """Yields words for this machine, since it was started, and for namespaces of this process."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        yield file.read().strip()
    for kind in kinds:
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/self/ns/{kind}")


def _look_up(host: str) -> Sequence[Any]:
    try:
        return socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
    except OSError:
        return ()


def _asking() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def _interface_mtu(address: str) -> tuple[str, int]:
    """Returns the interface with this address, and its MTU; ("", USUAL_MTU) if there is none."""
    for owner, other in _all():
        if other == address:
            with _asking() as asker:
                return owner, struct.unpack("16xi", fcntl.ioctl(asker, _SIOCGIFMTU, _request(owner))[:20])[0]
    return "", USUAL_MTU


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
