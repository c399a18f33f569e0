"""Finds out whether packets longer than 1500 bytes, such as jumbo frames, reach the other machines of a job."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Sequence

_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE = 10, 23, 3  # ip(7), ipv6(7)
_HEADER_BYTES = {socket.AF_INET: 28, socket.AF_INET6: 48}  # of IP and UDP
_LIMIT_S = 1.0  # time without a new probe, after which no more are expected
_INTERVAL_S = 0.05
_EXTRA_ROUNDS = 3  # rounds after all others have been heard, for machines that have not heard this one


def hears(own: socket.socket, mine: int, others: Sequence[int], addresses: Sequence[tuple[str, int]], mtu: int,
          mark: str) -> bool:
    """Sends probes of `mtu` bytes to other daemons. Returns whether theirs have arrived here. Raises OSError.

    All daemons call this at about the same time. Packets of `mtu` bytes may be used only if all get True.

    own: socket at addresses[mine]. others: numbers of the daemons that exchange packets with this one. mark: text that
    only this job has."""
    if own.family == socket.AF_INET6:
        own.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE)
    else:
        own.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_PROBE)

    def probe(number: int) -> bytes:
        return f"gradlane path {mark} {number} ".encode().ljust(mtu - _HEADER_BYTES[own.family], b".")

    own_probe, missing = probe(mine), set(map(probe, others))
    end, extra = time.monotonic() + _LIMIT_S, _EXTRA_ROUNDS
    while extra and time.monotonic() < end:
        before = len(missing)
        for other in others:
            with contextlib.suppress(OSError):  # the probe is longer than an interface takes
                own.sendto(own_probe, addresses[other])
            _receive(own, missing, 0)  # a socket of usual size has space for a dozen probes
        _receive(own, missing, _INTERVAL_S)
        if len(missing) < before:
            end = time.monotonic() + _LIMIT_S
        extra -= not missing
    return not missing


def _receive(own: socket.socket, missing: set[bytes], seconds: float) -> None:
    """Removes probes from `missing` that arrive within `seconds`."""
    end = time.monotonic() + seconds
    with contextlib.suppress(OSError):  # nothing has come
        while True:
            own.settimeout(max(end - time.monotonic(), 0))
            missing.discard(own.recv(1 << 16))
