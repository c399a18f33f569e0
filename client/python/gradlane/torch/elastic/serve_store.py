"""Serves a TCPStore for elastic trainings until SIGINT or SIGTERM.

    python3 -m gradlane.torch.elastic.serve_store 0.0.0.0:29400
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys

import torch.distributed as dist

from ..bootstrap.store_group import uses_libuv
from .store import Address, parse_address


def main() -> None:
    """Serves a TCPStore. Ends with exit status 1 if it cannot listen, and 2 if the argument is wrong."""
    parser = argparse.ArgumentParser(
        prog="python3 -m gradlane.torch.elastic.serve_store",
        description="Serves a TCPStore for elastic trainings until SIGINT or SIGTERM. A training ends if its members "
        "change after that.")
    parser.add_argument("address", metavar="HOST:PORT", help="where it listens, such as 0.0.0.0:29400, or [::]:29400 "
                        "for IPv6 and IPv4; port 0: any free port")
    text = parser.parse_args().address
    try:
        server = parse_address(text, lowest_port=0)
    except ValueError as reason:
        parser.error(f"{reason}; allowed: HOST:PORT, with [ADDRESS] for IPv6, and ports 0 to 65535")
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        listener = _listen(server)
    except OSError as reason:
        cause = str(reason.strerror).partition(" (")[0]  # Python appends the address
        sys.exit(f"gradlane: the store cannot listen at {text}: {cause}; choose another HOST:PORT")
    found = Address(server.host, listener.getsockname()[1])
    store = dist.TCPStore(found.host, found.port, None, True, wait_for_workers=False,
                          master_listen_fd=listener.detach(), use_libuv=uses_libuv())
    print(f"the store is tcp://{found}", flush=True)
    signal.sigwait(signals)
    del store


def _listen(server: Address) -> socket.socket:
    """Returns a socket that listens at this address. PyTorch's own socket would listen at all addresses."""
    family, _, _, _, address = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)[0]
    dual = server.host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server(address, family=family, dualstack_ipv6=dual)


if __name__ == "__main__":
    main()
