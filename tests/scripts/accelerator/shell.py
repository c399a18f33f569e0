"""Runs one accelerator between two veth pairs in a namespace, and makes frames of all kinds to send through it. Needs
root.

    host0 ---- gla0 [gradlaned] wire0 ---- far0        the kernel of that namespace has no addresses there

    with Shell(gradlaned, folder) as shell:
        shell.start()
        shell.passes(kinds(), "frames of all kinds")
"""

import contextlib
import json
import pathlib
import signal
import socket
import struct
import subprocess

from tests.scripts.accelerator import rig
from tests.scripts.fixtures import rings
from tests.scripts.fixtures.waiting import PATIENCE
from lab.net.spaces import Spaces, inside, run

wait_for = rings.wait_for
HOST = bytes.fromhex("02aa00000001")
FAR = bytes.fromhex("02bb00000002")
VLAN = 0x8100
AF_PACKET = "net_af_packet{},iface={},qdisc_bypass=0"
SILENCE = 0.05  # seconds without a frame until no more frames are expected
MOST_SILENCES = 1200  # number of silences in a row until a missing frame counts as lost


# ---- Frames


def internet_sum(data):
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def ethernet(kind, payload, tags=()):
    header = FAR + HOST
    for tag in tags:
        header += struct.pack("!HH", VLAN, tag)
    return header + struct.pack("!H", kind) + payload


def ipv4(protocol, payload, tos=0, fragment=0, options=b"", number=0):
    def header(checksum):
        return struct.pack("!BBHHHBBH4s4s", 0x45 + len(options) // 4, tos, 20 + len(options) + len(payload), number,
                           fragment, 64, protocol, checksum, bytes([10, 77, 0, 1]), bytes([10, 77, 0, 2])) + options
    return ethernet(0x0800, header(internet_sum(header(0))) + payload)


def udp(payload, checksum=0, port=9):
    return struct.pack("!HHHH", 4000, port, 8 + len(payload), checksum) + payload


def pattern(bytes_, seed):
    return bytes((seed * 37 + i * 11) & 0xff for i in range(bytes_))


def sizes():
    """Yields complete frames of no known protocol: of every 7th length, and of the longest ones."""
    for length in (*range(60, 1514, 7), *range(1500, 1515)):
        yield ethernet(0x88b5, pattern(length - 14, length))


def kinds():
    """Yields frames that an accelerator must not change: those that it does not examine, and those that it examines and
    leaves unchanged."""
    for length in (15, 16, 20, 33, 34, 41, 59):
        yield ethernet(0x88b5, pattern(length - 14, length))
        # The IP version is not 4, although the EtherType says IPv4.
        yield ethernet(0x0800, b"\x65" + pattern(length - 15, length))
    yield ethernet(0x0806, struct.pack("!HHBBH", 1, 0x800, 6, 4, 1) + pattern(20, 3))
    yield ethernet(0x86dd, b"\x62\x80\x00\x00\x00\x28\x11\x40" + pattern(32 + 40, 4))
    for tags in ((5,), (0xe00a,)):
        yield ethernet(0x0800, ipv4(17, udp(pattern(400, 5)), 0x28)[14:], tags)
        yield ethernet(0x88b5, pattern(1500, 6), tags)
    yield ethernet(100, pattern(100, 7))  # 802.3
    yield ipv4(1, b"\x08\x00" + pattern(60, 8))
    yield ipv4(47, pattern(300, 9), 0x28)
    for fragment, number in ((0x2000, 1), (0x2000 | 185, 1), (370, 1)):
        yield ipv4(17, udp(pattern(1472, 10)) if fragment == 0x2000 else pattern(1480, 11), 0, fragment, number=number)
    yield ipv4(17, udp(pattern(400, 12)), 0x28, options=b"\x94\x04\x00\x00")
    yield ipv4(17, udp(pattern(400, 13), checksum=0xbad))
    yield ipv4(17, udp(pattern(1472, 14)))
    yield ipv4(6, struct.pack("!HHIIBBHHH", 1, 2, 3, 4, 0x50, 0x10, 500, 0xbad, 0) + pattern(400, 15))
    padded = ipv4(17, udp(pattern(4, 16)))
    yield padded + bytes(60 - len(padded))


class Tap:
    """Sends and receives complete frames at an interface. Puts back the VLAN tags that the kernel removes from received
    frames."""

    def __init__(self, namespace, interface):
        with inside(namespace):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, rig.ANY_PROTOCOL)
        self._socket.bind((interface, 0))
        self._socket.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
        self._socket.setsockopt(263, 8, 1)  # SOL_PACKET, PACKET_AUXDATA
        self._socket.setsockopt(263, 23, 1)  # PACKET_IGNORE_OUTGOING
        self._socket.settimeout(SILENCE)

    def close(self):
        self._socket.close()

    def send(self, frame):
        self._socket.send(frame)

    def receive(self):
        """Returns the next frame, or None if none comes within SILENCE."""
        try:
            frame, control, _, _ = self._socket.recvmsg(65536, 256)
        except TimeoutError:
            return None
        status, _, _, _, _, tag, protocol = struct.unpack("=IIIHHHH", control[0][2][:20])
        if status & 0x10:  # TP_STATUS_VLAN_VALID
            frame = frame[:12] + struct.pack("!HH", protocol if status & 0x40 else VLAN, tag) + frame[12:]
        return frame

    def drain(self):
        while self.receive() is not None:
            pass

    def receive_until(self, last):
        """Receives frames until this one comes, and discards them."""
        wait_for(lambda: self.receive() == last, "the last frame")

    def expect(self, frames, what, ignore=lambda frame: False):
        """Asserts that these frames arrive, in this order, and no others except frames that `ignore` accepts."""
        frames, got, silences = list(frames), [], 0
        while silences < (MOST_SILENCES if len(got) < len(frames) else 1) and len(got) <= len(frames):
            frame = self.receive()
            silences = silences + 1 if frame is None else 0
            if frame is not None and not ignore(frame):
                got.append(frame)
        for i, (have, want) in enumerate(zip(got, frames)):
            assert have == want, f"{what}: frame {i}: {have.hex()} instead of {want.hex()}"
        assert len(got) == len(frames), f"{what}: {len(got)} frames instead of {len(frames)}"


# ---- The daemon


class Shell:
    """The namespace, and a daemon in it that can be started many times."""

    def __init__(self, gradlaned, folder):
        self.gradlaned, self.folder = gradlaned, pathlib.Path(folder)
        self.spaces = Spaces()
        self.process = None
        self.taps = {}

    def __enter__(self):
        self.spaces.__enter__()
        try:
            self.space = self.spaces.add("shell")
            self.name = self.space.name
            for one, other in (("host0", "gla0"), ("far0", "wire0")):
                self.space.veth(one, self.space, other, offloads=True)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        for tap in self.taps.values():
            tap.close()
        self.spaces.__exit__()

    def command(self, *argv):
        return self.space.command(*argv)

    def run(self, *argv):
        return run(*self.command(*argv))

    def ip(self, *argv):
        return self.space.ip(*argv)

    def interfaces(self):
        return {link["ifname"]: link for link in json.loads(self.ip("-d", "-j", "link"))}

    def tap(self, interface):
        if interface not in self.taps:
            self.taps[interface] = Tap(self.name, interface)
        return self.taps[interface]

    def forget(self, interface):
        self.taps.pop(interface).close()

    def configure(self, **settings):
        lines = {"mode": "accelerator", "host": "{device: '%s'}" % AF_PACKET.format(0, "gla0"),
                 "wire": "{device: '%s'}" % AF_PACKET.format(1, "wire0"), "admin": f"{self.folder}/run/a.admin",
                 "log": "debug", **settings}
        (self.folder / "a.yaml").write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))

    def start(self, **settings):
        self.configure(**settings)
        with open(self.folder / "a.log", "wb") as log:
            self.process = subprocess.Popen(self.command(self.gradlaned, "--config", self.folder / "a.yaml"), stderr=log)
        wait_for(lambda: self.process.poll() is not None or self.log().count("the link is up") == 2, "two links")
        assert self.process.poll() is None, self.log()
        for tap in self.taps.values():
            tap.drain()

    def refusal(self):
        """Returns the error output of a daemon that must refuse to start."""
        result = subprocess.run(self.command(self.gradlaned, "--config", self.folder / "a.yaml"), capture_output=True,
                                text=True, timeout=PATIENCE)
        assert result.returncode == 2, result
        return result.stderr

    def end(self, what=signal.SIGTERM, code=0):
        self.process.send_signal(what)
        assert self.process.wait(PATIENCE) == code, self.log()
        self.process = None

    def log(self):
        return (self.folder / "a.log").read_text()

    def logs(self, text):
        wait_for(lambda: text in self.log(), f"the log has: {text}")

    def stats(self):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(20)
            client.connect(f"{self.folder}/run/a.admin")
            client.sendall(b"stats\n")
            with client.makefile() as answer:
                return json.loads(answer.read())

    def counts(self, expected):
        """Waits until values in the daemon's status are as expected, such as {"counters/super_segment": 1, ...}."""
        def as_expected():
            stats = self.stats()
            for path, value in expected.items():
                place = stats
                for key in path.split("/"):
                    place = place[key]
                if place != value:
                    return False
            return True

        wait_for(as_expected, f"figures {expected}, not {json.dumps(self.stats())}")

    def flush(self):
        """Waits until no frame is in flight in either direction."""
        for tap in self.taps.values():
            with contextlib.suppress(OSError):  # a socket reports once that its interface was down
                tap.drain()
        for one, other in (("host0", "far0"), ("far0", "host0")):
            last = ethernet(0x88b5, f"the last one from {one}".encode())
            self.tap(one).send(last)
            self.tap(other).receive_until(last)

    def passes(self, frames, what, host="host0", ways=((0, 1), (1, 0))):
        """Asserts that frames pass unchanged and in order, in each of the directions `ways` (0 is the host's end, 1 the
        wire's). Sends 64 frames at a time, because the interfaces' rings are bounded."""
        ends = [self.tap(host), self.tap("far0")]
        frames = list(frames)
        for one, other in ways:
            for i in range(0, len(frames), 64):
                for frame in frames[i:i + 64]:
                    ends[one].send(frame)
                ends[other].expect(frames[i:i + 64], f"{what}, {('host', 'wire')[one]} to {('host', 'wire')[other]}",
                                   is_hello)


def is_hello(frame):
    return frame[12:14] == b"\x08\x00" and frame[15:16] == b"\x30"
