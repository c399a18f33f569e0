"""Finds out whether packets longer than 1500 bytes, as of jumbo frames, reach the other machines of a job."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from typing import Sequence

_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE = 10, 23, 3  # ip(7), ipv6(7)
_AROUND = {socket.AF_INET: 28, socket.AF_INET6: 48}  # bytes of the IP and UDP headers
_LIMIT_S = 1.0  # for packets of machines that begin late
_EVERY_S = 0.05
_AFTER = 3  # packets that follow once all others have been heard, for machines that have not heard this one


def reaches_all(own: socket.socket, mine: int, addresses: Sequence[tuple[str, int]], mtu: int, mark: str) -> bool:
    """Returns whether IP packets of `mtu` bytes come from all other machines. All machines must call this at about the
    same time; a packet may be longer than a path takes if one of them gets False.

    own: socket at addresses[mine]. mark: text that only this job has."""
    around = _AROUND[own.family]
    if own.family == socket.AF_INET6:
        own.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE)
    else:
        own.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_PROBE)
    probe = f"gradlane path {mark} {mine} ".encode().ljust(mtu - around, b".")
    senders = {f"gradlane path {mark} {other} ".encode().ljust(mtu - around, b"."): other
               for other in range(len(addresses)) if other != mine}
    missing = set(senders.values())
    end, after = time.monotonic() + _LIMIT_S, _AFTER
    while after and time.monotonic() < end:
        for other, address in enumerate(addresses):
            if other != mine:
                with contextlib.suppress(OSError):  # longer than an interface takes, or nobody listens yet
                    own.sendto(probe, address)
        due = time.monotonic() + _EVERY_S
        while (left := due - time.monotonic()) > 0 and select.select([own], [], [], left)[0]:
            with contextlib.suppress(OSError):  # an ICMP error
                missing.discard(senders.get(own.recv(mtu), mine))
        if not missing:
            after -= 1
    return not missing
