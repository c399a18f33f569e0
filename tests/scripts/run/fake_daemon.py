#!/usr/bin/python3
"""Stands in for gradlaned in run_test.py. Listens on the sockets of its configuration files, and misbehaves on request.

FAKE_DAEMON: exit (before it listens), deaf (never listens), stubborn (does not end on SIGTERM), dirty (exits with 3 on
SIGTERM).

FAKE_NODE: the only node that misbehaves.
"""

import os
import re
import signal
import socket
import sys
import time


def setting(text, key):
    return re.search(rf"^{key}: *'?([^'\n]*)'?$", text, re.MULTILINE).group(1)


def main():
    arguments = sys.argv[1:]
    assert arguments and arguments[0::2] == ["--config"] * (len(arguments) // 2), arguments
    texts = [open(path, encoding="ascii").read() for path in arguments[1::2]]
    nodes = [setting(text, "rank") for text in texts]
    mode = os.environ.get("FAKE_DAEMON", "")
    if os.environ.get("FAKE_NODE", nodes[0]) not in nodes:
        mode = ""

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    print(f"fake daemon of {','.join(nodes)}, pid {os.getpid()}", file=sys.stderr, flush=True)
    if mode == "exit":
        print("no memory for packets", file=sys.stderr)
        return 3
    if mode == "deaf":
        time.sleep(600)
    paths = [setting(text, "socket") for text in texts]
    listeners = []
    for path in paths:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(path)
        listener.listen()
        listeners.append(listener)
    if mode == "stubborn":
        time.sleep(600)
    signal.sigwait([signal.SIGTERM])
    if mode == "dirty":
        return 3
    for path in paths:
        os.unlink(path)
    print("fake daemon ends", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
