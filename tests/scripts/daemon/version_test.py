#!/usr/bin/python3
"""Tests a neighbour of another protocol version: it is refused, with the same words in the log, an error and the stats.

The neighbour is a socket of this test. It sends back what the daemon sends, marked with another version. Needs no
rights.
"""

import argparse
import json
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import threading

from tests.scripts.fixtures import ports
from tests.scripts.fixtures.paths import gradlane_package
from tests.scripts.fixtures.waiting import PATIENCE, wait_for

HEADER, VERSION_AT, CRC_AT = 44, 2, 40
UDP_PORT = 18400
OURS, THEIRS = 2, 3  # the version of docs/wire-format.md, and the next one


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def of_version(packet, version):
    changed = bytearray(packet)
    changed[VERSION_AT] = version
    struct.pack_into("<I", changed, CRC_AT, crc32c(changed[HEADER:] + changed[:CRC_AT]))
    return bytes(changed)


class Neighbour:
    def __init__(self, address):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x28)
        self.socket.bind((address, UDP_PORT))
        threading.Thread(target=self.answer, daemon=True).start()

    def answer(self):
        while True:
            packet, sender = self.socket.recvfrom(65535)
            if packet[:2] == b"GL" and packet[VERSION_AT] == OURS:
                self.socket.sendto(of_version(packet, THEIRS), sender)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlane")
    parser.add_argument("gradlaned")
    args = parser.parse_args()
    assert crc32c(b"123456789") == 0xE3069283
    network = ports.loopback_network()
    words = f"is configured differently: protocol version: {OURS} here, {THEIRS} there"
    with tempfile.TemporaryDirectory(prefix="gl-version-") as name:
        path = str(pathlib.Path(name) / "n.sock")
        log = pathlib.Path(name) / "log"
        Neighbour(f"{network}.2")
        with log.open("w") as file:
            daemon = subprocess.Popen(
                [args.gradlaned, "--nodes", f"{network}.1,{network}.2", "--rank", "0", "--set", f"socket={path}"],
                stderr=file)
        try:
            wait_for(lambda: words in log.read_text(), f"'{words}' in the log")
            gradlane = gradlane_package()
            with gradlane.open(path, rank=0) as gl:
                try:
                    gl.all_reduce(gl.zeros(1000), timeout=PATIENCE)
                    raise AssertionError("a sum with a node of another version")
                except gradlane.OperationFailed as error:
                    assert words in str(error), error
            stats = subprocess.run([args.gradlane, "stats", "--socket", path, "--json"], capture_output=True, text=True)
            assert words in json.dumps(json.loads(stats.stdout)), stats.stdout
        finally:
            daemon.terminate()
            status = daemon.wait(PATIENCE)
        assert status == 0, log.read_text()
    print(words)
    return 0


if __name__ == "__main__":
    sys.exit(main())
