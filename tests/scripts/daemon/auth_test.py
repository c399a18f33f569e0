#!/usr/bin/python3
"""Tests daemons with `security`: rings with one key, with two keys and without a key; what a capture shows; replays; UDP
checksums.
"""

import argparse
import collections
import contextlib
import math
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading

from tests.scripts.fixtures import envelopes, networks, rings

FRAME = 42  # bytes of headers before a gradlane packet
HELLO_ENVELOPE = 64
FAST = "{peer: 500ms, start: 1s, operation: 20s, shutdown: 100ms}"
PORT = 18400


def counter(ring, node, name):
    return sum(queue["counters"][name] for port in ring.stats(node)["ports"] for queue in port["queues"])


def sums(ring, node):
    return sum(rank["counters"]["operations_done"] for rank in ring.stats(node)["ranks"])


def make_key(folder, name, byte):
    path = folder / name
    path.write_text(f"{byte:02x}" * 32 + "\n")
    path.chmod(0o600)
    return path


def run_example(ring, example):
    trainers = [ring.trainer(rank, example, stdout=-1) for rank in range(ring.nodes)]
    for trainer in trainers:
        output, _ = trainer.communicate(timeout=rings.PATIENCE)
        assert trainer.returncode == 0 and "wrong 0" in output, output


def check_same_key(kind, security, folder, args, network=None, **settings):
    key = make_key(folder, "ring.key", 7)
    with rings.Ring(kind, 2, folder, args.gradlaned, network, security=security, auth=f"{{key_file: {key}}}",
                    codec="fixed:10", **settings) as ring:
        ring.start().wait_whole()
        run_example(ring, args.example)
        for node in range(2):
            # The daemon publishes its counters every 100 ms.
            rings.wait_for(lambda node=node: counter(ring, node, "compressed") > 0, "packets are counted")
            assert counter(ring, node, "forged") == counter(ring, node, "replayed") == 0


def check_refused(folder, args, keys, what):
    """Checks that nodes without a common key ignore each other's packets and report why, and that operations fail."""
    def auth(node):
        return f"auth: {{key_file: {keys[node]}}}" if keys[node] else ""

    with rings.Ring("memif", 2, folder, args.gradlaned, extra_yaml=auth, timeouts=FAST) as ring:
        ring.start()
        trainers = [ring.trainer(rank, args.example, stdout=-1, stderr=-1) for rank in range(2)]
        for trainer in trainers:
            trainer.communicate(timeout=rings.PATIENCE)
            assert trainer.returncode != 0, f"{what}: a ring of nodes with different keys"
        with_key = [node for node in range(2) if keys[node]]
        for node in with_key:
            rings.wait_for(lambda node=node: counter(ring, node, "forged") > 0, f"{what}: forged counts")
            assert not ring.whole(node), what
        for node in range(2):
            if len(with_key) == 2:
                why = "have wrong tags"
            else:
                why = "it has no auth.key_file, but this node has one" if node in with_key else "but this node has no key"
            rings.wait_for(lambda node=node, why=why: why in ring.stats(node)["neighbours"][0]["why"],
                                f"{what}: node {node} says why")


def check_key_files(folder, args):
    key = make_key(folder, "open.key", 1)
    key.chmod(0o640)
    with rings.Ring("memif", 2, folder, args.gradlaned, auth=f"{{key_file: {key}}}") as ring:
        command = [args.gradlaned, "--config", ring.config(0)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=rings.PATIENCE)
        assert result.returncode != 0 and f"auth.key_file {key}: its mode is 0640" in result.stderr, result.stderr


class Recorder:
    """Records the UDP frames from node 0 to node 1 as they leave the switch, and can send them again."""

    def __init__(self, network):
        self.frames = []
        with network.spaces["sw"].inside():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind(("p1", 0))
        self.socket.settimeout(0.05)
        self.thread = threading.Thread(target=self._record)
        self.stopped = False

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop()
        self.socket.close()

    def stop(self):
        self.stopped = True
        if self.thread.is_alive():
            self.thread.join()

    def _record(self):
        while not self.stopped:
            with contextlib.suppress(TimeoutError):
                frame, address = self.socket.recvfrom(65536)
                if address[2] == socket.PACKET_OUTGOING and frame[12:14] == b"\x08\0" and frame[23] == 17:
                    self.frames.append(frame)

    def send(self, frames):
        for frame in frames:
            self.socket.send(frame)


class Attack:
    """Sends frames again and again until the end of the `with`, each at least once."""

    def __init__(self, recorder, frames):
        self.recorder, self.frames, self.over = recorder, frames, threading.Event()
        self.thread = threading.Thread(target=self._send)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def _send(self):
        self.recorder.send(self.frames)
        while not self.over.is_set():
            self.recorder.send(self.frames)


def check_strangers(folder, args, network):
    """Checks that replayed and changed packets do not change sums, and that they are counted."""
    key = make_key(folder, "ring.key", 7)
    with (Recorder(network) as recorder,
          rings.Ring("veth", 2, folder, args.gradlaned, network, security="encrypted",
                     auth=f"{{key_file: {key}}}") as ring):
        ring.start().wait_whole()
        run_example(ring, args.example)
        recorder.stop()
        frames = list(recorder.frames)
        assert len(frames) > 20, len(frames)
        with Attack(recorder, frames):
            run_example(ring, args.example)
        run_example(ring, args.example)  # its packets arrive after all packets of the attack
        rings.wait_for(lambda: sums(ring, 1) == 3, "the counters after all runs")
        rings.wait_for(lambda: counter(ring, 1, "replayed") > 20, "replayed packets are counted")
        assert counter(ring, 1, "forged") == 0, "authentic packets, though late, are no forgeries"
        # Each frame gets a counter that has not been there, so that only the tag can reveal it. A frame without a
        # UDP checksum gets past the port.
        changed = []
        for frame in frames[:20]:
            for at in (26, 34, FRAME, FRAME + 20, len(frame) - 1):
                other = bytearray(frame)
                other[40:42] = b"\0\0"
                other[len(frame) - 28 + 5] ^= 1
                other[at] ^= 1
                changed.append(bytes(other))
        recorder.send(changed)
        # A frame with another source address is not counted as forged, because its IP checksum is wrong. The test
        # expects at least three quarters of the other 80.
        rings.wait_for(lambda: counter(ring, 1, "forged") >= 3 * 20, "changed packets are counted")
        run_example(ring, args.example)
        ring.wait_whole()


def check_capture(security, folder, args, network):
    """Checks what a capture of an encrypted ring shows: nothing without the key, and all packets with it."""
    key = make_key(folder, "ring.key", 7)
    with (Recorder(network) as recorder,
          rings.Ring("veth", 2, folder, args.gradlaned, network, security=security,
                     auth=f"{{key_file: {key}}}") as ring):
        ring.start().wait_whole()
        for _ in range(3):
            run_example(ring, args.example)
        recorder.stop()
    ours = ("10.77.0.1", PORT), ("10.77.0.2", PORT)
    opener, probes = (envelopes.Opener(bytes([7]) * 32, security, *ours) for _ in range(2))
    payloads = [frame[FRAME:14 + int.from_bytes(frame[16:18], "big")] for frame in recorder.frames]
    # A data packet from before the first hello with both lives cannot be opened: there is none.
    seen, hidden, nonces = collections.Counter(), b"", set()
    for payload in payloads:
        kind, number, packet = (probes if payload[-18] == envelopes.PROBE else opener).open(payload)
        assert packet is not None, (kind, number, len(payload))
        seen[kind] += 1
        if kind != envelopes.PROBE:
            assert number not in nonces, "a counter was used twice"
            nonces.add(number)
            assert packet == b"" or packet[:2] == b"GL", packet[:44]
        if kind == envelopes.DATA:
            hidden += payload[:len(packet)]
    assert seen[envelopes.HELLO] >= 2 and seen[envelopes.DATA] > 100, seen
    counts = collections.Counter(hidden).values()
    entropy = -sum(count / len(hidden) * math.log2(count / len(hidden)) for count in counts)
    print(f"{len(hidden)} bytes of {dict(seen)} packets have {entropy:.4f} bits of entropy each")
    assert len(hidden) > 50_000 and entropy >= 7.99


@contextlib.contextmanager
def address_of_kernel(network, node):
    address = f"10.77.0.{node + 1}/24"
    network.node(node).ip("addr", "add", address, "dev", "gl0")
    try:
        yield
    finally:
        network.node(node).ip("addr", "del", address, "dev", "gl0")


def receive_datagrams(sock, count):
    sock.settimeout(rings.PATIENCE)
    return [sock.recvfrom(65536)[0] for _ in range(count)]


def check_checksums(folder, args, network, key):
    """Checks that the kernel accepts a daemon's datagrams. The kernel drops datagrams with a wrong checksum."""
    auth = {"auth": f"{{key_file: {key}}}"} if key else {}
    with rings.Ring("veth", 2, folder, args.gradlaned, network, **auth) as ring, address_of_kernel(network, 1):
        with network.node(1).inside():
            receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        receiver.bind(("10.77.0.2", PORT))
        raw.bind(("gl0", 0))
        raw.settimeout(rings.PATIENCE)
        ring.start_node(0)
        for packet in receive_datagrams(receiver, 5):
            assert packet[:2] == b"GL" and len(packet) == 44 + 96 + (HELLO_ENVELOPE if key else 0), packet
        frame = next(frame for frame in iter(lambda: raw.recv(65536), None) if frame[23] == 17)
        assert frame[40:42] != b"\0\0", "no checksum"
        # The kernel does verify: it drops the same frame with another checksum.
        ring.terminate(0)
        receiver.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                receiver.recv(65536)
        with network.node(0).inside():
            sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sender.bind(("gl0", 0))
        sender.send(frame[:40] + bytes([frame[40] ^ 1]) + frame[41:])
        sender.send(frame)
        assert receive_datagrams(receiver, 1)[0] == frame[FRAME:len(frame)]
        receiver.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            raise AssertionError(f"the kernel took a wrong checksum: {receiver.recv(65536)}")
        for each in (receiver, raw, sender):
            each.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlaned")
    parser.add_argument("example")
    args = parser.parse_args()
    checks = 0

    def check(what, function, *arguments, **settings):
        nonlocal checks
        with tempfile.TemporaryDirectory() as folder:
            function(pathlib.Path(folder), *arguments, **settings)
        checks += 1
        print(what, flush=True)

    def keys(*bytes_):
        return lambda folder, what: check_refused(
            folder, args, [byte and make_key(folder, f"{i}.key", byte) for i, byte in enumerate(bytes_)], what)

    check("one key, memif", lambda folder: check_same_key("memif", "authenticated", folder, args, mtu=9000))
    check("one key, two lanes", lambda folder: check_same_key("memif", "encrypted", folder, args, lanes=2))
    check("one key, vhost", lambda folder: check_same_key("vhost", "encrypted-128", folder, args))
    check("two keys", keys(1, 2), "two keys")
    check("a key and none", keys(1, None), "a key and none")
    check("a key that others may read", check_key_files, args)
    reason = networks.reason_to_skip()
    if reason is None:
        with networks.Network(2) as network:
            for security in ("encrypted", "encrypted-128"):
                check(f"a capture, {security}",
                      lambda folder, security=security: check_capture(security, folder, args, network))
            check("records sent again", check_strangers, args, network)
            check("checksums", check_checksums, args, network, None)
            check("checksums of packets with tags",
                  lambda folder: check_checksums(folder, args, network, make_key(folder, "k", 3)))
    else:
        print(f"skipped, checksums and records sent again: {reason}")
    print(f"{checks} checks of keys and checksums passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
