"""A trainer without the client library, which does what no library would (client/abi.h; for daemon_test.py)."""

import array
import mmap
import os
import socket
import struct

from tests.scripts.fixtures.waiting import PATIENCE

MAGIC, VERSION = 0x4E414C47, 9
HELLO, WELCOME, ALLOCATE, SEGMENT, FREE, FREED, FIND_CODEC, CODEC, REFUSED, GOODBYE = range(1, 11)
ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, BARRIER = range(5)
CANCEL, RESUME = 32, 33
EXACT = 8
SLOTS, MAX_REPORTS = 64, 64
CONTROL_BYTES, LANE_HEADER = 128, 192
SUBMISSION_BYTES, COMPLETION_BYTES = 128, 256
LANE_BYTES = LANE_HEADER + SLOTS * (SUBMISSION_BYTES + COMPLETION_BYTES)
WAITING = 64  # offset of a word in the control segment
SUBMIT_TAIL, COMPLETE_HEAD, SUBMIT_HEAD, COMPLETE_TAIL, ENDS = 0, 4, 64, 68, 76  # offsets of words in a lane


def connect(path):
    raw = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    raw.settimeout(PATIENCE)
    raw.connect(str(path))
    return raw


def hello(rank=-1):
    return struct.pack("<IIIi", HELLO, MAGIC, VERSION, rank)


def report(size, codec):
    """Returns a gl_report_row about all-reduces of float32 of 2**size bytes."""
    return struct.pack("<II4BBBHIIQQQdddd64s64s64s", 1, 0, 0, 0, size, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, codec, codec, b"")


def text_of(message):
    return message[8:].split(b"\0")[0].decode()


class RawTrainer:
    def __init__(self, path, rank):
        self.socket = connect(path)
        self.fds = []
        self.socket.send(hello(rank))
        answer, fds = self.receive()
        kind, self.rank, self.world, self.lanes = struct.unpack_from("<IIII", answer)
        assert kind == WELCOME, (kind, text_of(answer))
        self.control_fd, self.completion_fd, *self.doorbells = fds
        self.control = mmap.mmap(self.control_fd, CONTROL_BYTES + self.lanes * LANE_BYTES)
        self.words = memoryview(self.control).cast("I")  # writes each word at once, unlike struct

    def close(self):
        self.socket.close()
        self.words.release()
        self.control.close()
        for fd in self.fds:
            os.close(fd)
        self.fds = []

    def receive(self):
        """Returns a message and its file descriptors. The message is empty if the connection has ended."""
        try:
            message, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(32 * 4))
        except ConnectionResetError:
            return b"", []
        fds = array.array("i")
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(data[: len(data) - len(data) % 4])
        self.fds += fds
        return message, list(fds)

    def allocate(self, size):
        """Allocates a segment. Returns its number and its file descriptor."""
        answer = self.try_allocate(size)
        assert answer is not None, f"no segment of {size} bytes"
        return answer

    def try_allocate(self, size):
        """The same as allocate(), but returns None if the daemon refuses."""
        self.socket.send(struct.pack("<IIQ", ALLOCATE, 0, size))
        answer, fds = self.receive()
        kind, number = struct.unpack_from("<II", answer)
        return (number, fds[0]) if kind == SEGMENT else None

    def free(self, number):
        self.socket.send(struct.pack("<IIQ", FREE, number, 0))
        answer, _ = self.receive()
        assert struct.unpack_from("<II", answer) == (FREED, number), answer

    def goodbye(self):
        """Waits until the daemon ends the connection, which it must do. Returns the reason that it sent, empty if it
        sent none."""
        text = ""
        while True:
            message, _ = self.receive()
            if not message:
                return text
            if struct.unpack_from("<I", message)[0] == GOODBYE:
                text = text_of(message)

    def at(self, place, lane=0):
        return CONTROL_BYTES + lane * LANE_BYTES + place

    def read(self, place, lane=0):
        return self.words[self.at(place, lane) // 4]

    def write(self, place, value, lane=0):
        self.words[self.at(place, lane) // 4] = value & 0xFFFFFFFF

    def wait_for_completions(self, waiting=1):
        self.words[WAITING // 4] = waiting

    def take_completions(self):
        for lane in range(self.lanes):
            self.write(COMPLETE_HEAD, self.read(COMPLETE_TAIL, lane), lane)

    def submit(self, kind=ALL_REDUCE, count=0, segment=0, offset=0, type=0, flags=0, codec=0, param=0, root=0, tag=0,
               residual_segment=0, residual_offset=0, cookie=1, ends_seen=0, timeout_ms=0, back_codec=0, back_param=0,
               strategy=0, state_pitch=0, lane=None):
        """Submits to one lane, or to all lanes, and rings their doorbells. In operations on blocks, `root` is the
        pitch: the number of elements from one block to the next."""
        entry = struct.pack("<QQQQQQQQQIBBBBIII4xBB30x", cookie, tag, count, offset, residual_offset, root,
                            state_pitch, param, back_param, timeout_ms, segment, residual_segment, kind, type,
                            ends_seen, strategy, flags, codec, back_codec)
        for number in range(self.lanes) if lane is None else [lane]:
            tail = self.read(SUBMIT_TAIL, number)
            place = self.at(LANE_HEADER + tail % SLOTS * SUBMISSION_BYTES, number)
            self.control[place : place + SUBMISSION_BYTES] = entry
            self.write(SUBMIT_TAIL, tail + 1, number)
            self.ring(number)

    def ring(self, lane=0):
        use(self.doorbells[lane], lambda bell: bell.send(b"x", socket.MSG_DONTWAIT))


def use(fd, action):
    """Calls action() with a socket of this file descriptor. An empty, full or closed socket is no error."""
    with socket.socket(fileno=os.dup(fd)) as bell:
        try:
            action(bell)
        except BlockingIOError:
            pass
        except BrokenPipeError:
            pass


def fill(fd):
    """Sends until the socket's buffer is full. Makes the socket blocking, also for the other process if it shares this
    file description."""

    def flood(bell):
        bell.setblocking(True)
        while True:
            bell.send(b"x" * 4096, socket.MSG_DONTWAIT)

    use(fd, flood)
