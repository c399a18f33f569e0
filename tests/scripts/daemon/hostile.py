"""Tests with malicious trainers (part of daemon_test.py).

The daemon has node 0 with two trainers, one of which is the attacker, mostly rank 1. A node of another ring runs in the
same process. Its only trainer runs operations all the time, and must not notice anything.
"""
import contextlib
import ctypes
import mmap
import os
import random
import resource
import socket
import struct
import threading
import time

from tests.scripts.daemon import raw
from tests.scripts.daemon.raw import RawTrainer
from tests.scripts.daemon.stuck_writer import StuckWriter
from tests.scripts.fixtures.daemons import COUNTED, PATIENCE, Daemon, DaemonTest, Ring, gradlane_package, wait_for
from tests.scripts.fixtures.lingering import lingering, paused


PER_TRAINER = 32 << 20

# Lines of one kind that the log may have (dataplane/trainer/log_limiter.h): at once, and in the seconds after that.
BURST, REFILL, TOLD = 64, 10, 60


def most_lines(kinds, begin):
    """Returns how many lines the log may have of that many kinds, since that time.monotonic()."""
    seconds = time.monotonic() - begin
    return kinds * (BURST + seconds / REFILL + seconds / TOLD + 2)


def bytes_in_memory(fds):
    return sum(os.fstat(fd).st_blocks * 512 for fd in fds)


def punch(fd, size):
    """Gives pages of a memfd back to the kernel."""
    libc = ctypes.CDLL(None, use_errno=True)
    keep_size, punch_hole = 1, 2
    assert libc.fallocate(fd, keep_size | punch_hole, ctypes.c_long(0), ctypes.c_long(size)) == 0, ctypes.get_errno()


@contextlib.contextmanager
def repeated(action):
    """Calls action() again and again in a thread."""
    stop = threading.Event()

    def run():
        while not stop.is_set():
            action()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(PATIENCE)


class Bystander(threading.Thread):
    """The trainer of a ring with one rank. Each of its operations must succeed."""

    def __init__(self, ring):
        super().__init__()
        self.ring, self.stop, self.fault, self.operations = ring, threading.Event(), None, 0
        self.start()

    def run(self):
        try:
            with self.ring.open(0) as gl:
                data = gl.zeros(10000)
                while not self.stop.is_set():
                    data[:] = self.operations % 100
                    gl.all_reduce(data, async_=True).wait(PATIENCE)
                    assert (data == self.operations % 100).all()
                    gl.zeros(300000)  # gets a segment of its own: the control thread and the lanes take part
                    self.operations += 1
                    time.sleep(0.002)
        except Exception as fault:  # noqa: BLE001 - told by end()
            self.fault = fault

    def end(self):
        self.stop.set()
        self.join(PATIENCE)
        return self.fault


class HostileTest(DaemonTest):
    lanes = 2

    def setUp(self):
        super().setUp()
        folders = [self.folder / name for name in ("victim", "other")]
        for folder in folders:
            folder.mkdir()
        # This codec supports residuals, so the daemon checks where submissions have them.
        self.victim = Ring(folders[0], 1, trainers=2, lanes=self.lanes, threads=1, codec="fixed:10",
                           memory=f"{{per_trainer: {PER_TRAINER}}}", **COUNTED)
        self.other = Ring(folders[1], 1)
        daemon = Daemon(*self.victim.files, *self.other.files)
        self.victim.daemons = self.other.daemons = [daemon]
        self.daemon = daemon
        self.rings.append(self.victim)
        self.bystander = Bystander(self.other)
        self.attackers = []
        self.cut_off = 0
        wait_for(lambda: self.bystander.operations > 0 or self.bystander.fault, "first operation")

    def tearDown(self):
        fault = self.bystander.end()
        for attacker in self.attackers:
            attacker.close()
        super().tearDown()
        self.assertIsNone(fault)
        self.assertFalse(self.bystander.is_alive(), "the other ring is stuck")

    def attack(self, rank=1):
        self.attackers.append(RawTrainer(self.victim.socket_of(rank), rank))
        return self.attackers[-1]

    def assert_cut_off(self, attacker, word):
        """Checks that the attacker is told why, that the log has one new line, and that the other ring has no error."""
        self.assertRegex(attacker.goodbye(), word)
        self.cut_off += 1
        lines = self.victim.lines("was disconnected")
        self.assertEqual(len(lines), self.cut_off, "\n".join(lines[-3:]))
        self.assertRegex(lines[-1], f"rank {attacker.rank} .*{word}")
        self.assertIsNone(self.bystander.fault)

    def assert_in_order(self):
        contexts = [self.victim.open(rank) for rank in (0, 1)]
        for gl in contexts:
            gl.resume(0)
        self.check_all_reduce(contexts)
        self.check_all_reduce(contexts, count=100_000)
        for gl in contexts:
            gl.close()
        before = self.bystander.operations
        wait_for(lambda: self.bystander.operations > before or self.bystander.fault, "an operation of the other ring")
        self.assertIsNone(self.bystander.fault)

    # ---- Submissions

    def test_submissions_that_no_library_makes(self):
        size = 1 << 20
        cases = [
            (dict(count=1, segment=0, offset=size), "offset"),
            (dict(count=1, segment=0, offset=size - 3), "offset"),
            (dict(count=size // 4 + 1, segment=0), "offset"),
            (dict(count=4, segment=0, offset=2**64 - 8), "offset"),
            (dict(count=2**62, segment=0), "too|allowed"),
            (dict(count=2**64 - 1, segment=0, type=6), "too|allowed"),
            (dict(count=2**63, segment=0, type=1, kind=raw.ALL_GATHER), "too|allowed"),
            (dict(count=1, segment=1), "segment 1"),
            (dict(count=1, segment=63), "segment 63"),
            (dict(count=1, segment=255), "segment 255"),
            (dict(kind=31), "kind 31"),
            (dict(kind=35), "kind 35"),
            (dict(kind=255), "kind 255"),
            (dict(type=7, count=1), "type 7"),
            (dict(count=1, flags=2, codec=200), "id 200"),
            (dict(count=1, flags=2, codec=3, param=255), "arguments 255"),
            (dict(count=1, flags=1, type=4), "average"),
            (dict(count=1, kind=raw.BROADCAST, root=2), "root"),
            (dict(count=9, kind=raw.ALL_GATHER, root=8), "overlap"),
            (dict(count=4, kind=raw.REDUCE_SCATTER, root=2**62), "offset"),
            (dict(count=4, flags=4, residual_segment=5), "segment 5"),
            (dict(count=4, flags=4, residual_offset=size), "offset"),
            (dict(count=4, flags=4, residual_offset=2), "offset"),
            (dict(count=4, flags=4, type=1), "residual"),
            (dict(count=1, strategy=2), "strategy direct"),
            (dict(count=1, strategy=0xffffffff), "strategy"),
            (dict(count=1, strategy=1, flags=128, back_codec=1), "back"),
            (dict(count=1, flags=128, back_codec=200), "200|back"),
            (dict(count=1, flags=32 | 64), "flags|min|reduction"),
        ]
        for number, (fields, word) in enumerate(cases):
            with self.subTest(**fields):
                attacker = self.attack(rank=number % 2)
                attacker.allocate(size)
                attacker.submit(**fields)
                self.assert_cut_off(attacker, word)
        self.assert_in_order()

    def test_counts_of_rings(self):
        for place, value in ((raw.SUBMIT_TAIL, 65), (raw.SUBMIT_TAIL, 2**31), (raw.SUBMIT_TAIL, -1)):
            attacker = self.attack()
            attacker.write(place, value, lane=1)
            attacker.ring(1)
            self.assert_cut_off(attacker, "head 0 and tail")
        attacker = self.attack()
        attacker.write(raw.COMPLETE_HEAD, 77)
        attacker.submit(kind=raw.BARRIER)
        self.assert_cut_off(attacker, "tail")
        self.assert_in_order()

    def test_garbage_all_over_the_control_segment(self):
        for seed in range(20):
            attacker = self.attack(seed % 2)
            attacker.allocate(1 << 16)
            noise = random.Random(seed)
            for _ in range(20):
                size = len(attacker.control)
                attacker.control[:] = noise.randbytes(size) if seed else b"\xff" * size
                for lane in range(attacker.lanes):
                    attacker.ring(lane)
            self.assert_cut_off(attacker, "ring of lane")
        self.assert_in_order()

    def test_garbage_while_operations_are_in_flight(self):
        for seed in range(8):
            good = self.victim.open(0)
            attacker = self.attack()
            attacker.allocate(1 << 20)
            good.resume(0)
            # One barrier succeeds first, so that the ring is ready.
            request = good.barrier(tag=0, async_=True)
            attacker.submit(kind=raw.BARRIER)
            request.wait(PATIENCE)
            request = good.all_reduce(good.zeros(200_000), tag=1, async_=True)
            attacker.submit(count=200_000, tag=1, cookie=7)
            noise = random.Random(seed)
            attacker.control[:] = noise.randbytes(len(attacker.control))
            attacker.ring(0)
            attacker.ring(1)
            with contextlib.suppress(gradlane_package().OperationFailed):
                request.wait(PATIENCE)
            self.assert_cut_off(attacker, "ring of lane")
            good.close()
        self.assert_in_order()

    def test_flood_of_submissions(self):
        attacker = self.attack()
        number, _ = attacker.allocate(1 << 16)
        for cookie in range(3000):
            if attacker.read(raw.SUBMIT_TAIL) - attacker.read(raw.SUBMIT_HEAD) < raw.SLOTS:
                kind = raw.CANCEL if cookie % 3 == 0 else raw.ALL_REDUCE
                attacker.submit(kind=kind, count=100, segment=number, cookie=cookie)
        attacker.socket.close()
        wait_for(lambda: self.victim.lines("rank 1 .* has left") or self.victim.lines("has left"), "it has left")
        attacker = self.attack()
        for cookie in range(20000):
            attacker.submit(kind=raw.CANCEL if cookie % 50 else raw.RESUME, cookie=cookie, lane=0)
            if cookie % 60 == 0:
                time.sleep(0.0005)
        attacker.socket.close()
        self.assert_in_order()

    # ---- Memory

    def test_memory_cannot_be_taken_away(self):
        attacker = self.attack()
        _, segment_fd = attacker.allocate(1 << 20)
        for fd in (attacker.control_fd, segment_fd):
            size = os.fstat(fd).st_size
            for length in (0, size // 2, size + 4096):
                with self.assertRaises(PermissionError):
                    os.ftruncate(fd, length)
            self.assertEqual(os.fstat(fd).st_size, size)
        memory = mmap.mmap(segment_fd, 1 << 20)
        memory[:] = os.urandom(1 << 20)
        memory.close()
        attacker.socket.close()
        self.assert_in_order()

    def test_memory_that_is_kept(self):
        """A trainer keeps descriptors and mappings of memory that it has freed, or after it has left."""
        kept, mappings, size = [], [], PER_TRAINER // 16
        for number in range(40):
            try:
                attacker = self.attack()
            except AssertionError as refused:
                self.assertIn("still hold 64 segments", str(refused))
                break
            kept.append(attacker.control_fd)
            while (segment := attacker.try_allocate(size)) is not None:
                kept.append(segment[1])
                mappings.append(mmap.mmap(segment[1], size))
                mappings[-1][:] = b"x" * size
                if len(mappings) % 2:
                    attacker.free(segment[0])
            while (segment := attacker.try_allocate(1)) is not None:  # up to the limit of segments
                kept.append(segment[1])
            attacker.socket.close()
        self.assertGreaterEqual(bytes_in_memory(kept), PER_TRAINER)
        self.assertLessEqual(bytes_in_memory(kept), PER_TRAINER + 65 * os.fstat(kept[0]).st_size)
        self.assertEqual({memory[size - 1] for memory in mappings}, {ord("x")})
        # The other rank is not affected. The attacker's rank is free again when nothing is held any more.
        other = self.attack(0)
        other.allocate(PER_TRAINER // 2)
        other.close()
        for memory in mappings:
            memory.close()
        for attacker in self.attackers:
            attacker.close()
        self.assert_in_order()

    def test_memory_that_is_locked(self):
        """A trainer holds the lock of its memory. The daemon does not wait for that lock."""
        for free in (True, False):
            attacker = self.attack()
            segment, fd = attacker.allocate(1 << 20)
            with StuckWriter(fd) as writer:
                if writer.why_not:
                    self.skipTest(writer.why_not)
                if free:
                    attacker.free(segment)
                attacker.socket.shutdown(socket.SHUT_RDWR)
                self.assert_in_order()
                self.assertTrue(writer.is_stuck())
        self.assert_in_order()

    def test_holes_while_operations_run(self):
        good, attacker = self.victim.open(0), self.attack()
        number, fd = attacker.allocate(1 << 20)
        good.resume(0)
        with repeated(lambda: punch(fd, 1 << 20)):
            for tag in range(200):
                request = good.all_reduce(good.zeros(100_000), tag=tag, async_=True)
                attacker.submit(count=100_000, segment=number, tag=tag)
                request.wait(PATIENCE)
                attacker.take_completions()
        good.close()
        attacker.socket.close()
        self.assert_in_order()

    def test_submissions_that_change(self):
        """Another thread of the trainer changes entries of the ring while lanes read them."""
        for seed in range(5):
            noise, attacker = random.Random(seed), self.attack()
            number, _ = attacker.allocate(1 << 16)
            first = attacker.at(raw.LANE_HEADER)

            def change(attacker=attacker, noise=noise, first=first):
                place = first + noise.randrange(raw.SLOTS) * raw.SUBMISSION_BYTES + noise.randrange(raw.SUBMISSION_BYTES)
                attacker.control[place] = noise.randrange(256)

            with repeated(change):
                for cookie in range(2000):
                    attacker.submit(count=100, segment=number, cookie=cookie, tag=cookie)
                    attacker.take_completions()
            attacker.socket.shutdown(socket.SHUT_RDWR)
        self.assert_in_order()

    # ---- Messages

    def test_messages_that_are_none(self):
        welcome = [
            b"\0", b"abc", struct.pack("<I", 99), struct.pack("<I", raw.HELLO), raw.hello(1)[:-1], raw.hello(1) + b"x",
            struct.pack("<IIIi", raw.HELLO, 1, 1, 1), struct.pack("<IIQ", raw.ALLOCATE, 0, 4096), os.urandom(60000),
        ]
        for message in welcome:
            client = raw.connect(self.victim.sockets[0])
            client.send(message)
            self.assert_ends(client)
        for message in [*welcome[:3], raw.hello(1), struct.pack("<II32s", raw.FIND_CODEC, 0, b"x" * 32)]:
            attacker = self.attack()
            attacker.socket.send(message)
            self.assert_ends(attacker.socket)
        attacker = self.attack()
        for size in (0, 2**63, 2**64 - 1):
            attacker.socket.send(struct.pack("<IIQ", raw.ALLOCATE, 0, size))
            self.assertEqual(struct.unpack_from("<I", attacker.receive()[0])[0], raw.REFUSED)
        for number in (0, 63, 64, 2**32 - 1):
            attacker.socket.send(struct.pack("<IIQ", raw.FREE, number, 0))
            self.assertEqual(struct.unpack_from("<I", attacker.receive()[0])[0], raw.REFUSED)
        attacker.socket.close()
        self.assert_in_order()

    def assert_ends(self, client):
        try:
            while client.recv(4096):
                pass
        except ConnectionResetError:
            pass
        client.close()

    def test_flood_of_messages(self):
        before = self.daemon.open_files()
        attacker = self.attack()
        find = struct.pack("<II32s", raw.FIND_CODEC, 0, b"raw")
        attacker.socket.settimeout(1)
        try:
            for _ in range(20000):
                attacker.socket.send(find)
        except (TimeoutError, BlockingIOError, ConnectionError):
            pass
        self.assert_ends(attacker.socket)
        self.assert_in_order()
        wait_for(lambda: self.daemon.open_files() <= before + 1, "file descriptors are closed")

    def test_files_that_nobody_asked_for(self):
        """Trainers send no files. The thread that drops the last reference to one of these would wait for an hour."""
        before = self.daemon.open_files()
        allocate = struct.pack("<IIQ", raw.ALLOCATE, 0, 1 << 16)
        attacker = self.attack()
        self.send_lingering(lambda fd: socket.send_fds(attacker.socket, [allocate], [fd] * 20))
        self.assert_cut_off(attacker, "message with files")
        self.assert_in_order()
        for flags in (0, socket.MSG_OOB):
            attacker = self.attack()
            for bell in [attacker.completion_fd, *attacker.doorbells]:

                def send(fd, bell=bell, flags=flags):
                    with socket.socket(fileno=os.dup(bell)) as to:
                        socket.send_fds(to, [b"x"], [fd], flags)
                        to.send(b"y")

                self.send_lingering(send)
            attacker.socket.close()
            self.assert_in_order()
        # over a connection without a rank, then over one that is closed at once, in another socket
        client = raw.connect(self.victim.sockets[0])
        self.send_lingering(lambda fd: socket.send_fds(client, [raw.hello(1)], [fd]))
        self.assert_ends(client)
        self.assert_in_order()

        def send_nested(fd):
            inner, outer = socket.socketpair()
            with inner, outer, raw.connect(self.victim.sockets[0]) as client:
                socket.send_fds(inner, [b"x"], [fd])
                socket.send_fds(client, [raw.hello(1)], [outer.fileno()])

        self.send_lingering(send_nested)
        self.assert_in_order()
        for attacker in self.attackers:
            attacker.close()
        wait_for(lambda: self.daemon.open_files() <= before + 1, "file descriptors are closed")

    def send_lingering(self, send):
        """Calls send() with a descriptor of a socket that lingers. Returns when the daemon has the last one."""
        file = self.enterContext(lingering())  # its other end must stay open
        with paused(self.daemon.pid):
            send(file.fileno())
            file.close()

    def test_flood_of_files(self):
        reader, writer = os.pipe()
        before = self.daemon.open_files()
        find = struct.pack("<II32s", raw.FIND_CODEC, 0, b"raw")
        for attacker in (raw.connect(self.victim.sockets[0]), self.attack().socket):
            with contextlib.suppress(OSError):
                for _ in range(20000):
                    socket.send_fds(attacker, [find], [reader, writer] * 20)
            self.assert_ends(attacker)
        os.close(reader)
        os.close(writer)
        self.assert_in_order()
        self.attackers[0].close()
        wait_for(lambda: self.daemon.open_files() <= before + 1, "file descriptors are closed")

    # ---- The log

    def test_reconnects_with_garbage(self):
        begin, before = time.monotonic(), len(self.daemon.log().splitlines())
        messages = [
            b"", b"abc", struct.pack("<I", 77), struct.pack("<IIIi", raw.HELLO, 1, 1, 1), raw.hello(1)[:-1],
            struct.pack("<IIIi", raw.HELLO, raw.MAGIC, 7, 1), struct.pack("<IIQ", raw.ALLOCATE, 0, 4096),
            struct.pack("<IIQ", raw.FREE, 0, 0),
        ]
        for number in range(2000):
            client = raw.connect(self.victim.sockets[0])
            client.send(messages[number % len(messages)])
            self.assert_ends(client)
        for _ in range(150):
            attacker = self.attack()
            attacker.socket.send(b"abc")
            attacker.goodbye()
            attacker.close()
        # also one kind for trainers that have joined, and one for those with a rank
        lines = self.daemon.log().splitlines()[before:]
        self.assertGreater(len(lines), BURST)
        self.assertLess(len(lines), most_lines(len(messages) + 2, begin))
        # Another kind of line is not suppressed.
        attacker = self.attack()
        attacker.submit(kind=31)
        self.assertRegex(attacker.goodbye(), "kind 31")
        self.assertEqual(len(self.victim.lines("no operation has kind 31")), 1)
        self.assert_in_order()

    def test_failures_that_differ(self):
        """Each operation fails by another tag."""
        begin, good, attacker = time.monotonic(), self.victim.open(0), self.attack()
        segment, _ = attacker.allocate(1 << 12)
        for number in range(150):
            good.resume(0)
            attacker.submit(kind=raw.RESUME)
            request = good.all_reduce(good.zeros(100), tag=number, async_=True, timeout=10)
            for lane in range(self.lanes):
                attacker.submit(count=100, segment=segment, tag=1_000_000 + number, flags=raw.EXACT, lane=lane,
                                ends_seen=attacker.read(raw.ENDS, lane))
            with self.assertRaises(gradlane_package().OperationFailed):
                request.wait(PATIENCE)
            attacker.take_completions()
            time.sleep(0.03)  # the daemon looks every 100 ms, and knows a few causes
        wait_for(lambda: self.victim.lines("failed: "), "a line about the failures")
        # One kind for an operation, one for several, and one for the end of the attacker.
        self.assertLess(len(self.victim.lines("failed: ")), most_lines(3, begin))
        good.close()
        attacker.socket.close()
        self.assert_in_order()

    def test_reports_that_change(self):
        """A trainer writes new reports on the choices of `auto`, and comes again."""
        begin = time.monotonic()
        for number in range(8):
            attacker = self.attack()
            rows = b"".join(raw.report(size, f"no\ncodec{number}".encode()) for size in range(raw.MAX_REPORTS // 2))
            whole = mmap.mmap(attacker.control_fd, os.fstat(attacker.control_fd).st_size)
            whole[-len(rows):] = rows
            whole.close()
            if number == 0:
                wait_for(lambda: self.victim.lines("no?codec0"), "a line about the choices")
            time.sleep(0.3)  # the daemon looks every 100 ms
            attacker.close()
        self.assertLess(len(self.victim.lines("no?codec")), most_lines(1, begin))
        self.assert_in_order()

    def test_crowd(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
        crowd = []
        try:
            for number in range(3000):
                client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                client.setblocking(False)
                try:
                    client.connect(str(self.victim.sockets[0]))
                except BlockingIOError:
                    time.sleep(0.001)
                crowd.append(client)
                if number % 500 == 250:
                    self.assert_in_order()
                if len(crowd) > 600:
                    crowd.pop(0).close()
            self.assert_in_order()
        finally:
            for client in crowd:
                client.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    # ---- Bells

    def test_full_bell_of_the_trainer(self):
        attacker = self.attack()
        attacker.wait_for_completions()
        good = self.victim.open(0)
        for number in range(5000):  # the attacker never reads its bell, which fills up
            request = good.barrier(tag=0, async_=True)
            attacker.submit(kind=raw.BARRIER, cookie=number)
            request.wait(PATIENCE)
            attacker.take_completions()
        raw.fill(attacker.completion_fd)
        good.close()
        attacker.socket.close()
        self.assert_in_order()

    def test_full_doorbell(self):
        for _ in range(20):
            attacker = self.attack()
            for doorbell in attacker.doorbells:
                raw.fill(doorbell)
            good = self.victim.open(0)
            request = good.barrier(tag=0, async_=True)
            attacker.submit(kind=raw.BARRIER)
            request.wait(PATIENCE)
            good.close()
            attacker.socket.close()
        self.assert_in_order()

    def test_doorbell_that_others_read_and_shut(self):
        attacker = self.attack()
        good = self.victim.open(0)
        for _ in range(300):
            for doorbell in attacker.doorbells:
                raw.use(doorbell, lambda bell: bell.recv(4096, socket.MSG_DONTWAIT))
            request = good.barrier(tag=0, async_=True)
            attacker.submit(kind=raw.BARRIER)
            request.wait(PATIENCE)
            attacker.take_completions()
        good.close()
        for doorbell in attacker.doorbells:
            raw.use(doorbell, lambda bell: bell.shutdown(socket.SHUT_RDWR))
        attacker.socket.close()
        self.assert_in_order()
        self.assertIsNone(self.bystander.end())
        self.daemon.check_that_it_idles()  # idle workers do not spin
