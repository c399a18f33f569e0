"""Traffic of ordinary programs between rig.Hosts, and checks of the data that arrives.

All waits are bounded: sockets have timeouts, and an expired timeout means that a connection is stuck.
"""

import contextlib
import hashlib
import random
import socket
import struct
import threading
import time

import numpy

from tests.scripts.accelerator import rig
from tests.scripts.fixtures import rings

MARK = 0x28
# Bounds of each codec: the largest error, and the magnitude from which floats are sent exactly.
BOUNDS = {"fixed:10": (2.0**-10, 2.0**14), "inceptionn:8": (2.0**-8, 1.0)}
SO_RCVBUFFORCE, SO_NO_CHECK = 33, 11


# ---- Floats


def laplace(count, seed=1, scale=1e-3):
    return numpy.random.default_rng(seed).laplace(0, scale, count).astype("<f4")


def gaussian(count, seed=2):
    return numpy.random.default_rng(seed).normal(0, 0.01, count).astype("<f4")


def wide(count, seed=3):
    """Returns floats with random bits and all exponents of finite numbers."""
    bits = numpy.random.default_rng(seed).integers(0, 1 << 32, count, dtype=numpy.uint32)
    return numpy.where((bits >> 23) & 0xFF == 0xFF, bits & 0xFF7FFFFF, bits).astype("<u4").view("<f4")


def special(count, seed=4):
    """Returns floats with NaNs, infinities and denormals. Each packet has only a few of them, so that it is still
    compressed."""
    words = laplace(count, seed).view("<u4")
    odd = [0x7FC00000, 0xFFC00001, 0x7F800001, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 1, 0x80000001, 0x007FFFFF,
           0x80000000, 0, 0x7F7FFFFF, 0x3F800000, 0xBF7FFFFF]
    generator = numpy.random.default_rng(seed)
    places = generator.integers(0, count, count // 20)
    words[places] = generator.choice(numpy.array(odd, dtype="<u4"), places.size)
    return words.view("<f4")


def edges(count, seed=7):
    """Returns floats just below a power of two. Compression rounds them up to that power, so their exponents change. A
    float made of some exact and some compressed bytes is then out of bounds."""
    generator = numpy.random.default_rng(seed)
    return (generator.choice([-2.0, -0.5, 0.5, 2.0], count) * (1 - generator.uniform(0, 2.0**-12, count))).astype("<f4")


KINDS = {"edges": edges, "laplace": laplace, "gaussian": gaussian, "wide": wide, "special": special}


def check_floats(sent, received, codec="fixed:10", what=""):
    """Asserts that the floats in `received` (bytes) are within the codec's bound. Returns the number of floats that are
    not exactly as sent."""
    assert len(received) == 4 * sent.size, f"{what}: {len(received)} bytes of {4 * sent.size}"
    most, exact_from = BOUNDS[codec]
    after = numpy.frombuffer(received, dtype="<f4")
    differs = sent.view("<u4") != after.view("<u4")
    with numpy.errstate(all="ignore"):
        fine = numpy.abs(after.astype("f8") - sent.astype("f8")) <= most
        fine &= numpy.abs(sent) < exact_from  # false for NaN and Inf too
    wrong = numpy.flatnonzero(differs & ~fine)
    assert wrong.size == 0, (f"{what}: {wrong.size} floats of {sent.size} are wrong, the first at {wrong[0]}: "
                             f"{sent[wrong[0]]!r} became {after[wrong[0]]!r}")
    return int(numpy.count_nonzero(differs))


# ---- TCP


def connect(hosts, client, server, tos=0, late=False, set_listener=None, set_client=None):
    """Connects two hosts by TCP; returns the client's and the server's socket. With `late`, both ends get the ToS only
    after connecting. set_listener and set_client are called with a new socket before it is used."""
    with hosts.socket(server) as listener:
        if set_listener:
            set_listener(listener)
        if not late:
            mark(listener, tos)
        listener.bind((rig.address(server), 0))
        listener.listen(512)
        ours = hosts.socket(client)
        if set_client:
            set_client(ours)
        if not late:
            mark(ours, tos)
        ours.connect(listener.getsockname())
        theirs, _ = listener.accept()
        theirs.settimeout(rig.PATIENCE)
    if late:
        mark(ours, tos)
        mark(theirs, tos)
    return ours, theirs


def mark(sock, tos):
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)


class Transfer:
    """Sends bytes from one end of a connection to the other, in two threads, so that others can run at the same time.

    The sender calls chunks() for the number of bytes of the next send(). The receiver calls pause(received) before each
    read.
    """

    def __init__(self, sender, receiver, data, chunks=lambda: 65536, read=65536, pause=None, what=""):
        self.data, self.what = bytes(data), what
        self.received = bytearray()
        self._sender, self._receiver, self._chunks, self._read, self._pause = sender, receiver, chunks, read, pause
        self._errors = []
        self._threads = [threading.Thread(target=self._keep_error, args=(work,))
                         for work in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def finish(self, patience=200):
        """Waits for the end and returns the bytes that arrived."""
        end = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
            assert not thread.is_alive(), f"{self.what}: stuck after {len(self.received)} of {len(self.data)} bytes"
        assert not self._errors, f"{self.what}: {self._errors}, {len(self.received)} of {len(self.data)} bytes came"
        return bytes(self.received)

    def check_exact(self):
        received = self.finish()
        assert hashlib.sha256(received).digest() == hashlib.sha256(self.data).digest(), (
            f"{self.what}: byte {first_difference(received, self.data)} of {len(self.data)} differs")

    def _keep_error(self, work):
        try:
            work()
        except (OSError, AssertionError) as error:
            self._errors.append(f"{work.__name__[1:]}: {error!r}")

    def _send(self):
        begin, view = 0, memoryview(self.data)
        while begin < len(view):
            begin += self._sender.send(view[begin : begin + self._chunks()])

    def _receive(self):
        while len(self.received) < len(self.data):
            if self._pause:
                self._pause(len(self.received))
            piece = self._receiver.recv(min(self._read, len(self.data) - len(self.received)))
            assert piece, "the connection ended"
            self.received += piece


def read(sock, count):
    """Reads exactly `count` bytes, however they are split. Raises AssertionError if the connection ends before."""
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        assert piece, f"the connection ended after {len(data)} bytes of {count}"
        data += piece
    return data


def odd_chunks(seed=5, most=9000):
    generator = random.Random(seed)
    return lambda: generator.choice((1, 3, 7, 61, 535, 1447, 1449, 2897, generator.randint(1, most)))


def first_difference(one, other):
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


def close(*pairs):
    for pair in pairs:
        for sock in pair:
            sock.close()


# ---- UDP


class Datagrams:
    """Sends datagrams from host i to host j, at most BURST at a time. None may be lost, so no buffer may overflow."""

    BURST = 24

    def __init__(self, hosts, i, j, tos, no_checksum=False):
        self.sender, self.receiver = hosts.socket(i, socket.SOCK_DGRAM), hosts.socket(j, socket.SOCK_DGRAM)
        self.receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
        self.receiver.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        self.receiver.bind((rig.address(j), 0))
        self.sender.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, int(no_checksum))
        mark(self.sender, tos)
        self.sender.connect(self.receiver.getsockname())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        close((self.sender, self.receiver))

    def send(self, payloads):
        """Returns the datagrams that arrived, as (payload, ToS)."""
        received = []
        for begin in range(0, len(payloads), self.BURST):
            burst = payloads[begin : begin + self.BURST]
            for payload in burst:
                self.sender.send(payload)
            received += [self._receive() for _ in burst]
        return received

    def nothing_more(self):
        self.receiver.settimeout(0.1)
        with contextlib.suppress(TimeoutError):
            raise AssertionError(f"a datagram that nobody sent: {self._receive()}")

    def _receive(self):
        payload, notes, _, _ = self.receiver.recvmsg(65536, 64)
        return payload, next(data[0] for level, kind, data in notes if (level, kind) == (0, socket.IP_TOS))


def check_datagrams(sent, received, tos, what=""):
    """Asserts that all datagrams arrived unchanged, in order and with this ToS."""
    assert len(sent) == len(received), f"{what}: {len(received)} of {len(sent)} came"
    for i, (before, (after, seen)) in enumerate(zip(sent, received)):
        assert before == after, f"{what}: datagram {i} of {len(before)} bytes differs"
        assert seen == tos, f"{what}: datagram {i}: ToS {seen:#x}"


# ---- ICMP


def internet_checksum(data):
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def ping_all_sizes(hosts, i, j, sizes, together=16):
    """Sends echo requests with random bytes. Asserts that the answers have the same bytes."""
    generator = random.Random(6)
    with hosts.socket(i, socket.SOCK_RAW, protocol=socket.IPPROTO_ICMP) as sock:
        sock.connect((rig.address(j), 0))
        for begin in range(0, len(sizes), together):
            waiting = {}
            for number, size in enumerate(sizes[begin : begin + together], begin + 1):
                waiting[number] = generator.randbytes(size)
                body = struct.pack("!BBHHH", 8, 0, 0, 0x4711, number) + waiting[number]
                sock.send(body[:2] + struct.pack("!H", internet_checksum(body)) + body[4:])
            while waiting:
                packet = sock.recv(65536)
                answer = packet[4 * (packet[0] & 15) :]
                kind, _, _, who, number = struct.unpack("!BBHHH", answer[:8])
                if (kind, who) == (0, 0x4711):
                    assert answer[8:] == waiting.pop(number), f"an echo of {len(answer) - 8} bytes is not what was sent"


def wait_until_steady(read, what, patience=rig.PATIENCE):
    """Returns the value of read() after it has not changed for 0.3 s. Daemons publish their counters only now and then.
    """
    seen = [read(), time.monotonic()]

    def steady():
        value = read()
        if value != seen[0]:
            seen[:] = [value, time.monotonic()]
        return time.monotonic() - seen[1] > 0.3

    rings.wait_for(steady, what, patience)
    return seen[0]
