"""A TCP sender that cuts its stream into random pieces, and a wire that delivers them in random order.

Both do everything that TCP allows, more than a kernel does: segments may overlap, and arrive late, twice or never. One
thread runs both, so that the wire loses only segments that it means to lose.
"""

import random
import socket
import struct

from tests.scripts.accelerator import frames, rig
from tests.scripts.fixtures import rings
from lab.net.spaces import run

SENDER = "10.77.0.150"  # no kernel has this address, so only Sender answers for it
SYN, RST, PSH, ACK = 2, 4, 8, 16
LATE = 40  # largest number of frames that wait on the wire


def later(one, other):
    """Returns whether sequence number `one` comes after `other`."""
    return 0 < (one - other) & 0xFFFFFFFF < 1 << 31


class Wire:
    """A wire between host 0 and host 1, which replaces the switch. deliver() decides which frames pass."""

    def __init__(self, hosts, generator):
        self.hosts, self.generator = hosts, generator
        self.ends = [hosts.raw_socket(hosts.switch, f"p{i}") for i in range(2)]
        for end in self.ends:
            end.setblocking(False)
        self.waiting = []  # frames from host 0

    def __enter__(self):
        self.hosts.partition([])
        return self

    def __exit__(self, *_):
        self.hosts.heal()
        for end in self.ends:
            end.close()

    def deliver(self, orderly=False):
        """Delivers some of the frames that have arrived. TCP segments from host 0 may be lost, delayed, reordered and
        duplicated. TCP segments from host 1 (acknowledgements) may be lost. With `orderly`, all new frames pass at
        once."""
        for frame in self._arrived(0):
            if orderly or not frames.is_ipv4(frame) or frame[23] != frames.TCP:
                self.ends[1].send(frame)
            elif self.generator.random() > 0.1:
                self.waiting.append(frame)
        for frame in self._arrived(1):
            lossy = frames.is_ipv4(frame) and frame[23] == frames.TCP and not orderly
            if not lossy or self.generator.random() > 0.2:
                self.ends[0].send(frame)
        while self.waiting and (len(self.waiting) > LATE or self.generator.random() < 0.5):
            place = self.generator.randrange(len(self.waiting))
            self.ends[1].send(self.waiting[place])
            if self.generator.random() > 0.15:
                del self.waiting[place]

    def _arrived(self, i):
        try:
            while True:
                frame, where = self.ends[i].recvfrom(65536)
                if where[2] != socket.PACKET_OUTGOING:
                    yield frame
        except BlockingIOError:
            return


class Sender:
    """The sender of one connection to a listener of host 1. `isn` is its initial sequence number, `most` the bytes of
    its longest segment."""

    def __init__(self, hosts, generator, listener, isn, tos, most=1460):
        self.generator, self.most, self.tos = generator, most, tos
        self.macs = b"".join(_mac(hosts, i) for i in (1, 0))
        hosts.node(1).ip("neigh", "replace", SENDER, "lladdr", self.macs[6:].hex(":"), "dev",
                      "gl0", "nud", "permanent")
        self.socket = hosts.raw_socket(hosts.names[0], "gl0")
        self.socket.setblocking(False)
        self.address, self.port = listener.getsockname()
        self.own_port = 20000 + generator.randrange(20000)
        self.base = (isn + 1) & 0xFFFFFFFF
        self.acked = self.base  # next sequence number that the receiver waits for
        self.window, self.ack = 0, 0
        self.sent = 0  # bytes that were sent at least once

    def connect(self, wire, listener):
        """Connects to the listener, and returns the receiver's socket."""
        self._send((self.base - 1) & 0xFFFFFFFF, SYN, struct.pack("!BBH", 2, 4, self.most))

        def answered():
            wire.deliver(orderly=True)
            return self._hear(SYN | ACK)

        rings.wait_for(answered, "the receiver answers a SYN")
        self._send(self.base, ACK)
        listener.setblocking(False)

        def accepted():
            wire.deliver(orderly=True)
            try:
                return listener.accept()[0]
            except BlockingIOError:
                return None

        return rings.wait_for(accepted, "the receiver takes the connection")

    def run(self, wire, data):
        """Sends `data` until all of it is acknowledged."""

        def done():
            for _ in range(50):
                self._send_piece(data)
                wire.deliver()
            self._hear(ACK)
            return (self.acked - self.base) & 0xFFFFFFFF == len(data)

        rings.wait_for(done, "the receiver has it all")

    def close(self):
        self._send(self.acked, RST | ACK)
        self.socket.close()

    # ---- Private

    def _send_piece(self, data):
        """Sends a segment of new bytes, or of older bytes that the receiver may have or not."""
        acked = (self.acked - self.base) & 0xFFFFFFFF
        most = min(acked + self.window, len(data))
        size = self.generator.choice((self.generator.randint(1, 40), self.generator.randint(41, self.most)))
        begin = self.sent
        if self.generator.random() < 0.6 or begin >= most:
            # The segment begins at the byte that the receiver waits for, or at a random one, which the receiver may
            # have.
            begin = max(0, self.generator.choice((acked, self.generator.randint(acked - 100, self.sent))))
        end = min(begin + size, most)
        if begin < end:
            push = self.generator.choice((0, PSH))
            self._send((self.base + begin) & 0xFFFFFFFF, ACK | push, payload=data[begin:end])
            self.sent = max(self.sent, end)

    def _send(self, seq, flags, options=b"", payload=b""):
        number = self.generator.randrange(65536)
        # Programs may set and clear the mark at any time.
        tos = self.tos if self.generator.random() < 0.9 else 0
        ip = struct.pack("!BBHHHBBH4s4s", 0x45, tos, 0, number, 0x4000, 64, frames.TCP, 0,
                         socket.inet_aton(SENDER), socket.inet_aton(self.address))
        header = 20 + len(options)
        tcp = struct.pack("!HHIIBBHHH", self.own_port, self.port, seq, self.ack, 4 * header, flags, 65535, 0, 0)
        self.socket.send(frames.put_right(self.macs + b"\x08\0" + ip + tcp + options + payload))

    def _hear(self, flags):
        """Reads all segments that came for this connection, and notes their acknowledgements and windows. Returns
        whether one of them has these flags."""
        heard = False
        try:
            while True:
                frame = self.socket.recv(65536)
                if not (frames.is_ipv4(frame) and frame[23] == frames.TCP and
                        frame[34:38] == struct.pack("!HH", self.port, self.own_port)):
                    continue
                seq, ack, _, seen, window = struct.unpack_from("!IIBBH", frame, 38)
                assert not seen & RST, "the receiver has reset the connection"
                if seen & SYN:
                    self.ack, self.acked = (seq + 1) & 0xFFFFFFFF, ack
                if later(ack, self.acked) or ack == self.acked:
                    self.acked, self.window = ack, window
                heard |= seen & flags == flags
        except BlockingIOError:
            return heard


def _mac(hosts, i):
    text = run(*hosts.command(i, "cat", "/sys/class/net/gl0/address")).strip()
    return bytes.fromhex(text.replace(":", ""))


def pieces_in_any_order(hosts, data, seed, tos, isn):
    """Sends `data` in random pieces over a Wire. Returns the bytes that the receiver, a kernel, made of them."""
    generator = random.Random(seed)
    with hosts.socket(1) as listener:
        listener.bind((rig.address(1), 0))
        listener.listen(1)
        with Wire(hosts, generator) as wire:
            sender = Sender(hosts, generator, listener, isn, tos)
            receiver = sender.connect(wire, listener)
            receiver.settimeout(rig.PATIENCE)
            # SO_RCVBUFFORCE. The buffer is large, because data is read only at the end.
            receiver.setsockopt(socket.SOL_SOCKET, 33, 4 * len(data))
            sender.run(wire, data)
        with receiver:
            received = b""
            while len(received) < len(data):
                received += receiver.recv(len(data))
        sender.close()
    return received
