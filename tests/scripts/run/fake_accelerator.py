#!/usr/bin/python3
"""Stands in for gradlaned in accelerator_test.py. Forwards frames between its two ports unchanged, or misbehaves.

FAKE_DAEMON: sink (takes frames, and forwards none), exit (before it is ready), mute (listens, never answers).

FAKE_NODE: the only node that misbehaves.
"""

import os
import re
import select
import signal
import socket
import struct
import sys
import time

ETH_P_ALL = 3
SOL_PACKET, PACKET_ADD_MEMBERSHIP, PACKET_MR_PROMISC = 263, 1, 1
LONGEST = 1 << 16


def setting(text, pattern):
    return re.search(rf"^{pattern}$", text, re.MULTILINE)[1]


def open_port(interface):
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    port.bind((interface, ETH_P_ALL))
    member = struct.pack("iHH8s", socket.if_nametoindex(interface), PACKET_MR_PROMISC, 0, b"")
    port.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, member)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    return port


def hand_on(source, sink):
    frame, (_, _, kind, *_) = source.recvfrom(LONGEST)
    if sink is None or kind == socket.PACKET_OUTGOING:
        return
    try:
        sink.send(frame)
    except OSError as error:
        print(f"frame of {len(frame)} bytes: {error}", file=sys.stderr)


def main():
    assert sys.argv[1] == "--config" and len(sys.argv) == 3, sys.argv
    with open(sys.argv[2], encoding="ascii") as file:
        text = file.read()
    assert setting(text, "mode: (.*)") == "accelerator", text
    node = setting(text, r"# The accelerator of node (\d+) of .*")
    mode = os.environ.get("FAKE_DAEMON", "") if os.environ.get("FAKE_NODE", node) == node else ""

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(f"fake accelerator of {node}", file=sys.stderr, flush=True)
    if mode == "exit":
        print("no memory for packets", file=sys.stderr)
        return 3
    host, wire = (open_port(setting(text, rf"{name}: .*iface=([^,']*).*")) for name in ("host", "wire"))
    admin = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    admin.bind(setting(text, "admin: '(.*)'"))
    admin.listen()
    if mode == "mute":
        time.sleep(600)
    while True:
        for ready in select.select([host, wire, admin], [], [])[0]:
            if ready is admin:
                client, _ = admin.accept()
                with client:
                    client.recv(100)
                    client.sendall(b'{"mode": "accelerator"}\n')
            else:
                hand_on(ready, None if mode == "sink" else wire if ready is host else host)


if __name__ == "__main__":
    sys.exit(main())
