#!/usr/bin/python3
"""Tests of failures under the backend "gradlane": failures_test.py GRADLANE GRADLANED. Ranks are processes of
trainer.py. Each runs lines of Python that the test sends."""

import os
import pathlib
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import torch.distributed as dist

from tests.scripts.fixtures import daemons
from tests.scripts.fixtures.daemons import PATIENCE, Ring, wait_for

TRAINER = pathlib.Path(__file__).with_name("trainer.py")
MODEL = "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1000, 100))"
HEARING = 300  # s: longer than anything takes; for a rank that hangs
MANY = "works = [reduce(1000000, async_op=True) for _ in range(100)]"


class Trainer:
    def __init__(self, ring, rank, world):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "PYTHONUNBUFFERED": "1",
                       "OMP_NUM_THREADS": "1", "GRADLANE_SOCKET": ring.socket_of(rank)}
        self.process = subprocess.Popen([sys.executable, str(TRAINER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=environment)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        with self.process.stdout as stdout:
            for line in stdout:
                self.lines.put(line)

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self):
        try:
            return self.lines.get(timeout=HEARING).rstrip("\n")
        except queue.Empty:
            raise AssertionError(f"no answer within {HEARING} s") from None

    def end(self):
        """Closes the input of the rank's process, and waits for its end. Returns the exit status."""
        self.process.stdin.close()
        return self.process.wait(PATIENCE)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()


class Pair(unittest.TestCase):
    """Tests with two daemons and one rank each."""

    settings = {}

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="gradlane-torch-")
        cls.ring = Ring(cls.folder.name, 2, link="vhost", **cls.settings).start()
        cls.trainers = [Trainer(cls.ring, rank, 2) for rank in range(2)]
        cls.stores = 0

    @classmethod
    def tearDownClass(cls):
        for trainer in cls.trainers:
            if trainer.process.poll() is None:
                trainer.kill()
        for daemon in cls.ring.daemons:
            daemon.stop()
        cls.folder.cleanup()

    def setUp(self):
        for rank, trainer in enumerate(self.trainers):
            if trainer.process.poll() is not None:
                self.trainers[rank] = Trainer(self.ring, rank, 2)
        self.init(600)

    def init(self, timeout):
        """Makes a new process group on both ranks, and checks that it works."""
        type(self).stores += 1
        self.ask("if dist.is_initialized(): dist.destroy_process_group()")
        self.assertEqual(self.ask(f"init({timeout}, '{self.folder.name}/store{self.stores}')"), ["ok None"] * 2)
        self.ask(f"limit({HEARING // 2})")  # so that an error names a rank that hangs
        self.assertEqual(self.ask("reduce()"), ["ok 2.0"] * 2)
        self.assertEqual(self.ask("reduce(1000000)"), ["ok 2.0"] * 2)

    def ask(self, *lines):
        """Sends one line to both ranks, or a line to each of them. Returns their answers."""
        for trainer, line in zip(self.trainers, lines * 2 if len(lines) == 1 else lines):
            trainer.say(line)
        return [trainer.hear() for trainer in self.trainers]

    def one(self, rank, line):
        self.trainers[rank].say(line)
        return self.trainers[rank].hear()

    def assertFails(self, text, pattern):  # noqa: N802
        self.assertRegex(text, "^(OperationFailed|DaemonGone): gradlane: .*" + pattern)


class Failures(Pair):
    def test_a_rank_that_is_late(self):
        """Rank 1 is late by more than the process group's timeout, which is shorter than the daemons'."""
        self.one(0, "limit(1)")
        self.one(0, "work = reduce(async_op=True)")
        self.one(0, "large = reduce(1000000, async_op=True)")
        late = r"the operation took too long: it was waiting for rank 1 \(limit: 1 s\); the timeout of the process group is 1 s"
        self.assertFails(self.one(0, "work.wait()"), late)
        self.assertFails(self.one(0, "large.wait()"), r"waiting for rank 1 \(limit: 1 s\) \(an earlier operation failed\)")
        self.assertFails(self.one(0, "reduce(1000000)"), late)
        self.assertFails(self.one(1, "reduce()"), r"the operation took too long: it was waiting for rank 1 \(limit: 1 s\)$")

    def test_different_operations(self):
        for answer in self.ask("reduce(10)", "reduce(20)"):
            self.assertFails(answer, "runs another operation: count: ")
        self.assertEqual(self.ask("reduce()"), ["ok 2.0"] * 2)

    def test_refused_operations_leave_nothing(self):
        self.assertEqual(self.ask("refused(8)"), ["ok None"] * 2)
        self.assertEqual(self.ask("reduce(2000)"), ["ok 2.0"] * 2)

    def test_refused_operations_fail_alone(self):
        """A refused operation fails alone, even if others are queued after it, as on rank 0."""
        codecs = ("raw", "fixed:99", "raw", "raw")
        lines = [f"w{number} = coded('{codec}', 400000)" for number, codec in enumerate(codecs)]
        for line in lines:
            self.one(0, line)
        for number, line in enumerate(lines):
            self.one(1, line)
            for answer in self.ask(f"w{number}.wait()[0].item()"):
                self.assertRegex(answer, "^RuntimeError: .*BadArgument" if number == 1 else "^ok 2.0")

    def test_an_error_after_the_exchange(self):
        """An error in `on_result` fails the operation on that rank only. Later operations of the rank succeed, and its
        engine's thread goes on."""
        self.ask("engine = gradlane.torch.Engine.existing()")
        self.ask("works = [engine.all_reduce(torch.ones(400000), on_result=RANK or (lambda _: 0)) for _ in range(2)]")
        self.assertEqual(self.one(0, "works[0].wait()[0].item()"), "ok 2.0")
        self.assertRegex(self.one(1, "works[0].wait()"), "TypeError")
        self.assertEqual(self.ask("reduce(1000000)"), ["ok 2.0"] * 2)

    def test_interrupted(self):
        for _ in range(8):
            self.assertEqual(self.ask("interrupted()", "reduce(2000)"), ["ok interrupted", "ok 2.0"])
        self.assertEqual(self.ask("reduce(2000)"), ["ok 2.0"] * 2)

    def test_ctrl_c(self):
        """The interrupted call ends at once. Its operation ends when the other rank takes part."""
        for line in ("reduce()", "reduce(1000000)", "dist.barrier()"):
            for _ in range(2):
                self.assertEqual(self.one(0, f"ctrl_c(lambda: {line})"), "pressed")
                self.assertRegex(self.trainers[0].hear(), "^KeyboardInterrupt")
                self.assertRegex(self.one(1, line), "^ok")
                self.assertEqual(self.ask("reduce(2000)"), ["ok 2.0"] * 2)

    def test_ctrl_c_while_gloo_waits(self):
        product = "dist.all_reduce(torch.ones(3), op=dist.ReduceOp.PRODUCT)"
        self.one(0, f"work = {product[:-1]}, async_op=True)")
        self.assertEqual(self.one(0, "ctrl_c_soon(work.wait)"), "pressed")
        self.assertRegex(self.trainers[0].hear(), "^KeyboardInterrupt")
        self.assertEqual(self.one(1, product), "ok None")
        self.assertEqual(self.ask(product), ["ok None"] * 2)

    def test_an_interrupted_call_is_recalled(self):
        """The error names the interrupted call if ranks call different operations later, until they have a new process
        group."""
        self.assertEqual(self.ask("interrupted()", "reduce(2000)"), ["ok interrupted", "ok 2.0"])
        answers = self.ask("reduce(10)", "reduce(20)")
        self.assertRegex(answers[0], "another operation.*such as Ctrl-C interrupted an earlier call of this rank")
        self.assertNotIn("Ctrl-C", answers[1])
        self.init(600)
        self.assertNotIn("Ctrl-C", "".join(self.ask("reduce(10)", "reduce(20)")))

    def test_ctrl_c_in_backward(self):
        """In backward(), C++ waits until the other rank has called it, too. Only then is KeyboardInterrupt raised."""
        self.ask(MODEL)
        self.assertEqual(self.one(0, "ctrl_c(backward)"), "pressed")
        self.assertEqual(self.one(1, "backward()"), "ok None")
        self.assertRegex(self.trainers[0].hear(), "^(RuntimeError: .*)?KeyboardInterrupt")
        self.assertEqual(self.ask("reduce(2000)"), ["ok 2.0"] * 2)
        self.ask(MODEL)
        self.assertEqual(self.ask("backward()"), ["ok None"] * 2)

    def test_workers_of_a_data_loader(self):
        """Workers are children by fork(). A call that they must not make fails there, and does not affect the parent.
        """
        self.assertEqual(self.ask("loaded()"), [f"ok {([0, 1, 4, 9, 16, 25], [2.0] * 8, 2.0)}"] * 2)

    def test_a_rank_has_less_to_do(self):
        """Rank 1 ends with status 0 while rank 0 waits for it in backward()."""
        self.ask(MODEL)
        self.trainers[0].say("backward()")
        self.assertEqual(self.trainers[1].end(), 0)
        self.assertRegex(self.trainers[0].hear(), "^RuntimeError: .*OperationFailed: gradlane: rank 1 has left")

    def test_never_added_to_another(self):
        """Rank 0 had three operations queued when the first failed, and rank 1 had one. Later sums fail, and different
        tensors are never added."""
        self.one(0, "works = [reduce(400000, async_op=True) for _ in range(3)]")
        self.assertFails(self.one(1, "reduce(401000)"), "runs another operation")
        self.assertFails(self.one(0, "works[2].wait()"), "runs another operation")
        for answer in self.ask("reduce(400000, 1000.0)", "reduce(400000, 10.0)"):
            self.assertFails(answer, "runs another operation: tag: .*disagree")

    def test_types_that_travel_alike(self):
        """For the daemon, a sum of bool is a sum of int32. The tag distinguishes them."""
        for answer in self.ask("dist.all_reduce(torch.ones(9, dtype=torch.bool))",
                               "dist.all_reduce(torch.ones(9, dtype=torch.int32))"):
            self.assertFails(answer, "runs another operation: tag: ")

    def test_sizes_that_differ_in_the_last_piece(self):
        """The first piece of both tensors has the same size. Still, no piece is added."""
        for answer in self.ask("reduce(400000)", "reduce(401000)"):
            self.assertFails(answer, "runs another operation: tag: ")

    def test_retry_at_once(self):
        self.assertEqual(self.ask("retried(4)"), [f"ok {[2.0] * 4}"] * 2)

    def test_the_engines_thread_ends(self):
        self.one(0, "tasks()._answer = None")
        self.one(0, "future = coded('raw', 2000)")
        self.assertRegex(self.one(0, "future.wait()"), "its thread ended because of a bug: .*TypeError")
        self.assertFails(self.one(0, "reduce()"), "its thread ended because of a bug: .*TypeError")

    def test_many_files(self):
        self.one(0, "import resource; limits = resource.getrlimit(resource.RLIMIT_NOFILE)")
        self.one(0, "resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), limits[1]))")
        self.one(0, "files = [os.open('/dev/null', os.O_RDONLY) for _ in range(1100)]")
        try:
            self.init(60)
            for _ in range(2):
                self.assertEqual(self.ask("reduce(1000000)"), ["ok 2.0"] * 2)
        finally:
            self.trainers[0].kill()

    def test_a_failure_reaches_cpp(self):
        """A failure is raised in the C++ code of DDP's reducer, which waits for futures."""
        self.ask("model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1000, 100))")
        self.one(0, "loss = model(torch.ones(2, 1000)).sum()")
        self.trainers[1].kill()
        self.assertRegex(self.one(0, "loss.backward()"), "^RuntimeError: .*OperationFailed: gradlane: rank 1 has left")
        # The constructor waits for works in C++. These must fail and not report that parameters were received.
        answer = self.one(0, "torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1000, 100))")
        self.assertRegex(answer, "OperationFailed: gradlane: ")

    def test_a_rank_is_killed(self):
        self.one(0, MANY)
        self.trainers[1].kill()
        for number in (0, 1, 99):
            self.assertFails(self.one(0, f"works[{number}].wait()"), "rank 1 has left")

    def test_a_rank_is_killed_before_it_goes_to_gloo(self):
        """After a failure in Gloo, the whole group is of no use, and gradlane's own engine refuses operations, too."""
        product = "dist.all_reduce(torch.ones(3), op=dist.ReduceOp.PRODUCT)"
        self.assertEqual(self.ask(product), ["ok None"] * 2)
        self.trainers[1].kill()
        self.assertFails(self.one(0, product), "all_reduce by Gloo: .*[Cc]onnection")
        self.assertFails(self.one(0, "reduce()"), "all_reduce by Gloo: .* earlier operation failed")

    def test_a_rank_is_killed_before_it_goes_to_both(self):
        self.trainers[1].kill()
        self.assertFails(self.one(0, "reduce()"), "rank 1 has left")
        self.assertFails(self.one(0, "dist.send(torch.ones(3), 1)"), "rank 1 has left.* earlier operation failed")

    @unittest.skipUnless(hasattr(dist.ProcessGroup, "abort"), "PyTorch 2.6 has no ProcessGroup.abort()")
    def test_abort(self):
        self.one(0, MANY)
        self.assertEqual(self.one(0, "dist.group.WORLD.abort()"), "ok None")
        self.assertFails(self.one(0, "works[99].wait()"), "was destroyed")
        for line in ("reduce()", "dist.send(torch.ones(3), 1)"):
            self.assertFails(self.one(0, line), "was aborted")
        self.assertFails(self.one(1, "reduce()"), "rank 0 has left")

    def test_a_daemon_is_killed(self):
        self.one(0, MANY)
        self.ring.daemons[1].signal(signal.SIGKILL)
        self.ring.daemons[1].end()
        self.assertFails(self.one(0, "works[0].wait()"), "rank 1")
        self.assertFails(self.one(0, "works[99].wait()"), "rank 1")
        self.assertRegex(self.one(1, "reduce()"), "^DaemonGone: gradlane: the daemon at .* has ended")
        self.assertRegex(self.one(1, "reduce(1000000)"), "^DaemonGone: gradlane: the daemon at .* has ended")
        self.ring.start(1)

    def test_group_is_destroyed_meanwhile(self):
        self.one(0, MANY)
        self.one(0, "dist.destroy_process_group()")
        self.one(0, "import gc; gc.collect()")
        self.assertFails(self.one(0, "works[0].wait()"), "was destroyed")
        self.assertFails(self.one(0, "works[99].wait()"), "was destroyed")

    def test_exit_in_the_middle(self):
        self.one(0, MANY)
        self.one(1, "works = [reduce(async_op=True) for _ in range(3)]")
        self.assertEqual([trainer.end() for trainer in self.trainers], [0, 0])

    def test_exit_with_a_waiting_thread(self):
        self.one(0, "import threading; threading.Thread(target=reduce, daemon=True).start()")
        self.one(0, "threading.Thread(target=reduce, args=(1000000,), daemon=True).start()")
        self.one(0, "waiting(2)")
        self.assertEqual(self.trainers[0].end(), 0)

    def test_daemons_keep_nothing(self):
        wait_for(lambda: all(len(daemon.lines("has joined")) > 0 for daemon in self.ring.daemons), "trainers in the log")
        self.init(600)  # a daemon has a descriptor for each segment, and these are gone now
        before = [daemon.open_files() for daemon in self.ring.daemons]
        held = self.ask("held()")
        for lines, error in (((), ""), (("reduce(10)", "reduce(20)"), "OperationFailed"), ((), ""), (("lossy()",), "LossWarning"),
                             (("coded('none', 5000).wait()",), "BadArgument"), (("lossy()",), "LossWarning")):
            for answer in self.ask(*lines) if lines else ():
                self.assertIn(error + ": ", answer)
            self.init(600)
        self.assertEqual(self.ask("held()"), held)
        # A daemon notices every 100 ms that memory is held no more.
        wait_for(lambda: all(daemon.open_files() <= files for daemon, files in zip(self.ring.daemons, before)),
                 "files are closed")

    def test_no_daemon(self):
        self.one(0, "os.environ['GRADLANE_SOCKET'] = '/nowhere/gradlane'")
        answer = self.one(0, "gradlane.open(timeout=0)")
        self.assertRegex(answer, "^NoDaemon: no daemon at /nowhere/gradlane")
        self.one(0, f"os.environ['GRADLANE_SOCKET'] = '{self.ring.socket_of(0)}'")


class ShortLimit(Pair):
    """The daemons' timeout is short. The timeout of the process group counts instead; its default is PyTorch's 30
    minutes.
    """

    settings = {"timeouts": "{peer: 600s, start: 1s, operation: 1s, shutdown: 500ms}"}

    def test_a_rank_that_is_late(self):
        self.ask(MODEL)
        for line in ("reduce()", "reduce(1000000)", "dist.barrier()", "backward()"):
            self.trainers[0].say(line)
            self.one(1, "time.sleep(1.2)")  # more than the daemons' limit
            self.assertRegex(self.one(1, line), "^ok")
            self.assertRegex(self.trainers[0].hear(), "^ok")


if __name__ == "__main__":
    daemons.BINARIES.update(gradlane=sys.argv[1], gradlaned=sys.argv[2])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
