"""Tests the C library with the real daemon: time limits, exact results, many and large operations (part of
daemon_test.py)."""

import ctypes
import time

import numpy

from tests.scripts.fixtures import daemons
from tests.scripts.fixtures.daemons import PATIENCE, DaemonTest

OK, PENDING, FAILED = 0, 1, -4
FLOAT32, FLOAT64, INT32, BYTES = 0, 1, 4, 6
TYPES = {numpy.dtype("float32"): FLOAT32, numpy.dtype("float64"): FLOAT64, numpy.dtype("uint8"): BYTES}


class Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("socket", ctypes.c_char_p), ("rank", ctypes.c_int),
                ("timeout_ms", ctypes.c_int), ("spin_us", ctypes.c_int), ("operation_timeout_ms", ctypes.c_int64)]


class How(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("codec", ctypes.c_char_p), ("residual", ctypes.c_void_p),
                ("average", ctypes.c_int), ("has_tag", ctypes.c_int), ("tag", ctypes.c_uint64),
                ("timeout_ms", ctypes.c_int64), ("whole", ctypes.c_size_t)]


def how(**fields):
    return How(struct_size=ctypes.sizeof(How), **fields)


def load():
    import gradlane._library

    lib = gradlane._library.load()
    lib.gradlane_all_reduce.argtypes = lib.gradlane_barrier.argtypes = lib.gradlane_broadcast.argtypes = None
    lib.gradlane_all_gather.argtypes = lib.gradlane_reduce_scatter.argtypes = lib.gradlane_open.argtypes = None
    return lib


class Trainer:
    """A context of the C library. start() returns the number of its request."""

    def __init__(self, ring, rank, **options):
        daemons.gradlane_package()
        self.lib = load()
        self.rank = rank
        self.gl = ctypes.c_void_p()
        given = Options(ctypes.sizeof(Options), ring.socket_of(rank).encode(), rank, 20000, -1, **options)
        code = self.lib.gradlane_open(ctypes.byref(self.gl), ctypes.byref(given))
        assert code == OK, self.lib.gradlane_error(None)

    def zeros(self, count, dtype="float32"):
        data = ctypes.c_void_p()
        size = count * numpy.dtype(dtype).itemsize
        code = self.lib.gradlane_alloc(self.gl, size, ctypes.byref(data))
        assert code == OK, self.error()
        return numpy.frombuffer((ctypes.c_uint8 * size).from_address(data.value), dtype)

    def start(self, name, array=None, blocks=1, root=None, **fields):
        request = ctypes.c_uint64()
        arguments = [] if array is None else [ctypes.c_void_p(array.ctypes.data),
                                              ctypes.c_size_t(array.size // blocks), TYPES[array.dtype]]
        arguments += [] if root is None else [root]
        function = getattr(self.lib, "gradlane_" + name)
        code = function(self.gl, *arguments, ctypes.byref(how(**fields)), ctypes.byref(request))
        assert code == OK, self.error()
        return request.value

    def wait(self, request):
        return self.lib.gradlane_wait(self.gl, request, int(PATIENCE * 1000))

    def error(self):
        return self.lib.gradlane_error(self.gl).decode()

    def close(self):
        self.lib.gradlane_close(self.gl)


class LibraryTest(DaemonTest):
    def connect(self, ring, **options):
        found = [Trainer(ring, rank, **options) for rank in range(ring.nodes * ring.trainers)]
        for trainer in found:
            self.addCleanup(trainer.close)
        return found

    def all_end(self, trainers, requests, code=OK):
        for trainer, request in zip(trainers, requests):
            self.assertEqual(trainer.wait(request), code, trainer.error())

    # ---- Time limits

    def test_longer_than_the_daemons(self):
        """Checks that trainers may allow more time than timeouts.operation. One rank starts later than that."""
        for fields, options in ((dict(timeout_ms=60000), {}), ({}, dict(operation_timeout_ms=60000))):
            ring = self.ring(2, timeouts="{peer: 30s, start: 90s, operation: 400ms}")
            trainers = self.connect(ring, **options)
            self.all_end(trainers, [trainer.start("barrier", timeout_ms=60000) for trainer in trainers])
            array = trainers[0].zeros(5000)
            early = trainers[0].start("all_reduce", array, **fields)
            time.sleep(1)
            late = trainers[1].start("all_reduce", trainers[1].zeros(5000), **fields)
            self.all_end(trainers, [early, late])
            # Without a limit of the trainers, the daemon's limit holds.
            if fields:
                self.assertEqual(trainers[0].wait(trainers[0].start("barrier")), FAILED)
                self.assertIn("took too long", trainers[0].error())

    def test_shorter_than_the_daemons(self):
        ring = self.ring(2, timeouts="{peer: 30s, start: 1h, operation: 1h}")
        trainers = self.connect(ring)
        self.all_end(trainers, [trainer.start("barrier") for trainer in trainers])
        request = trainers[0].start("all_reduce", trainers[0].zeros(5000), timeout_ms=300)
        self.assertEqual(trainers[0].wait(request), FAILED)
        self.assertIn("the operation took too long: it was waiting for rank 1", trainers[0].error())

    def test_ring_that_does_not_come_up(self):
        ring = daemons.Ring(self.folder, 2, link="memif", timeouts="{peer: 30s, start: 1h, operation: 1h}")
        ring.daemons = [daemons.Daemon(ring.files[0])]
        self.rings.append(ring)
        trainer = Trainer(ring, 0)
        self.addCleanup(trainer.close)
        self.assertEqual(trainer.wait(trainer.start("barrier", timeout_ms=300)), FAILED)
        self.assertRegex(trainer.error(), "the ring did not come up in time: nothing was heard from rank 1")

    # ---- Exact results

    def test_only_sums_are_rounded(self):
        ring = self.ring(2, codec="fixed:7")
        trainers = self.connect(ring)
        values = [numpy.random.default_rng(rank).normal(0, 1e-4, 20000).astype("float32") for rank in (0, 1)]

        def run(name, count, **fields):
            arrays = [trainer.zeros(count) for trainer in trainers]
            for rank, array in enumerate(arrays):
                array[:] = values[rank][:count]
            self.all_end(trainers, [trainer.start(name, array, **fields) for trainer, array in zip(trainers, arrays)])
            return arrays

        for array in run("broadcast", 20000, root=1):
            numpy.testing.assert_array_equal(array, values[1])
        for array in run("all_gather", 20000, blocks=2):
            numpy.testing.assert_array_equal(array, numpy.concatenate([values[0][:10000], values[1][10000:]]))
        for codec in (None, b"fixed:7"):
            for array in run("all_reduce", 1023, codec=codec):
                numpy.testing.assert_array_equal(array, values[0][:1023] + values[1][:1023])
            for array in run("all_reduce", 1024, codec=codec):
                self.assertFalse(array.any())  # fixed:7 rounds these values to zero

    # ---- Many operations, and large ones

    def test_hundreds_at_once(self):
        for lanes in (1, 2):
            trainers = self.connect(self.ring(2, lanes=lanes))
            arrays = [[trainer.zeros(5) for _ in range(300)] for trainer in trainers]
            for mine in arrays:
                for number, array in enumerate(mine):
                    array[:] = number
            requests = [[trainer.start("all_reduce", array) for array in mine]
                        for trainer, mine in zip(trainers, arrays)]
            # Each rank waits for the operations from the last to the first. So each call must also advance the
            # operations that were started before the one it waits for.
            for pair in reversed(list(zip(*requests))):
                codes = [PENDING, PENDING]
                while PENDING in codes:
                    for rank, trainer in enumerate(trainers):
                        if codes[rank] == PENDING:
                            codes[rank] = trainer.lib.gradlane_wait(trainer.gl, pair[rank], 1)
                self.assertEqual(codes, [OK, OK])
            for mine in arrays:
                for number, array in enumerate(mine):
                    self.assertTrue((array == 2 * number).all())

    def check_large(self, trainers, count, dtype):
        world = len(trainers)
        rows = [numpy.random.default_rng(rank).integers(0, 9, world * count).astype(dtype) for rank in range(world)]
        total = sum(row.astype("int64") for row in rows).astype(dtype).reshape(world, count)

        def run(name, **fields):
            arrays = [trainer.zeros(world * count, dtype) for trainer in trainers]
            for row, array in zip(rows, arrays):
                array[:] = row
            requests = [trainer.start(name, array, **fields) for trainer, array in zip(trainers, arrays)]
            codes = [PENDING] * world
            while PENDING in codes:
                for rank, trainer in enumerate(trainers):
                    if codes[rank] == PENDING:
                        codes[rank] = trainer.lib.gradlane_wait(trainer.gl, requests[rank], 1)
            self.assertEqual(codes, [OK] * world, trainers[0].error())
            results = [array.reshape(world, count).copy() for array in arrays]
            for trainer, array in zip(trainers, arrays):
                trainer.lib.gradlane_free(trainer.gl, array.ctypes.data)
            return enumerate(results)

        for name, wanted, fields in (
            ("all_reduce", lambda rank, row: (row, total), {}),
            ("broadcast", lambda rank, row: (row.reshape(-1), rows[1]), dict(root=1)),
            ("all_gather", lambda rank, row: (row, [rows[i].reshape(world, count)[i] for i in range(world)]),
             dict(blocks=world)),
            ("reduce_scatter", lambda rank, row: (row[rank], total[rank]), dict(blocks=world)),
        ):
            for rank, array in run(name, **fields):
                numpy.testing.assert_array_equal(*wanted(rank, array), err_msg=name)

    def test_larger_than_max_tensor(self):
        for lanes in (1, 2):
            trainers = self.connect(self.ring(3, lanes=lanes, codec="raw", exchange="{max_tensor: 300KiB}"))
            for count, dtype in ((70_001, "float32"), (400_003, "uint8"), (21_845, "float32")):
                self.check_large(trainers, count, dtype)

    def test_max_tensors_that_differ(self):
        """Checks that an operation fails on both ranks, with the reason, if they divide it into different parts."""
        ring = daemons.Ring(self.folder, 2, exchange="{max_tensor: 1MiB}")
        file = ring.files[1]
        file.write_text(file.read_text().replace("1MiB", "2MiB"))
        self.rings.append(ring.start())
        trainers = self.connect(ring)
        requests = [trainer.start("all_reduce", trainer.zeros(500_000)) for trainer in trainers]
        self.all_end(trainers, requests, FAILED)
        self.assertIn("count: ", trainers[1].error())
        self.assertIn("exchange.max_tensor sets the size of parts: it must be equal", trainers[0].error())

    def test_parts_that_fail(self):
        """Checks that a cancelled operation of many parts fails once on each rank, and that the next operation works.
        """
        trainers = self.connect(self.ring(2, exchange="{max_tensor: 4KiB}"))
        requests = [trainers[0].start("all_reduce", trainers[0].zeros(200_000))]
        self.assertEqual(trainers[0].lib.gradlane_cancel(trainers[0].gl, ctypes.c_uint64(requests[0])), OK)
        requests.append(trainers[1].start("all_reduce", trainers[1].zeros(200_000)))
        codes = [PENDING, PENDING]
        while PENDING in codes:
            for rank, trainer in enumerate(trainers):
                if codes[rank] == PENDING:
                    codes[rank] = trainer.lib.gradlane_wait(trainer.gl, ctypes.c_uint64(requests[rank]), 1)
        self.assertEqual(codes, [FAILED, FAILED])
        self.assertRegex(trainers[1].error(), r"cancelled on rank 0 \(part \d+ of 196")
        self.check_large(trainers, 5000, "float32")
