#!/usr/bin/python3
"""Tests of jobs for which no daemon was started, with the variables that torchrun sets: launch_test.py GRADLANED. Each
test looks for processes that are left, and for files in a TMPDIR of its own."""

import contextlib
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

from tests.scripts.fixtures.contained import is_contained
from tests.scripts.fixtures.ports import free_port

TRAINER = pathlib.Path(__file__).with_name("trainer.py")
GONE = "^OperationFailed: gradlane: (rank [01] has left|rank [01], a trainer of this node, has left)"
PATIENCE = 300  # s: longer than anything takes; for a rank that hangs
GRADLANED = ""


def wait_for(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"{what}: not after {PATIENCE} s"
        time.sleep(0.02)


class Rank:
    def __init__(self, environment, job=()):
        """job: list of all ranks of the job."""
        self.name, self.job = f"rank {environment['RANK']}", job
        self.process = subprocess.Popen([sys.executable, str(TRAINER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=environment, text=True, bufsize=1)
        self.heard, self.unheard, self.asked = [], b"", 0

    def say(self, line):
        self.asked += 1
        self.process.stdin.write(line + "\n")

    def hear(self):
        end = time.monotonic() + PATIENCE
        while b"\n" not in self.unheard:
            there = arrived(self.process.stdout, max(end - time.monotonic(), 0))
            if there is None:
                raise AssertionError(f"{self.name} says nothing; " + "; ".join(rank.state() for rank in self.job))
            if not there:
                break  # the rank's process has ended
            self.unheard += there
        line, _, self.unheard = self.unheard.partition(b"\n")
        self.heard.append(line.decode().strip())
        return self.heard[-1]

    def state(self):
        """Returns what is known of the rank, without waiting."""
        ended = self.process.poll()
        unheard = self.unheard + (arrived(self.process.stdout) or b"")
        errors = (arrived(self.process.stderr) or b"").decode(errors="replace")
        return (f"{self.name} {'runs' if ended is None else f'has ended, {ended}'}, was asked {self.asked} times, has answered "
                f"{self.heard}, not yet heard: {unheard.decode()!r}, standard error: {errors!r}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        """Waits for the end of the rank's process. Returns its standard error."""
        try:
            _, text = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        return text


def arrived(file, limit=0):
    """Returns the bytes that can be read, b"" at the end of the file, or None if nothing comes within `limit` seconds.
    """
    return os.read(file.fileno(), 1 << 16) if select.select([file], [], [], limit)[0] else None


class Job:
    """`world` ranks of trainer.py on this machine, with all variables of a job, but without a daemon."""

    def __init__(self, world, folder, **variables):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GRADLANE_SO")}
        clean.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE=str(world), TMPDIR=str(folder),
                     XDG_RUNTIME_DIR=str(folder / "run"), GRADLANED=GRADLANED, OMP_NUM_THREADS="1")
        clean.update(variables)
        self.folder = folder
        self.ranks = []
        for rank in range(world):
            self.ranks.append(Rank({**clean, "RANK": str(rank), "LOCAL_RANK": str(rank)}, self.ranks))

    def ask(self, line):
        for rank in self.ranks:
            rank.say(line)
        return [rank.hear() for rank in self.ranks]

    def daemons(self):
        """Returns the process numbers of daemons whose folder is this job's."""
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if any(str(self.folder) in word for word in words) and "--for" in words:
                    found.append(int(entry.name))
        return found

    def logs(self):
        return "".join(log.read_text() for log in self.folder.glob("gradlane-job-*/log"))

    def left(self):
        return self.daemons() + [path for path in self.folder.iterdir() if path.name.startswith("gradlane-job-")]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="glt"))
        (self.folder / "run").mkdir(mode=0o700)
        self.jobs = []

    def tearDown(self):
        for job in self.jobs:
            for rank in job.ranks:
                rank.kill()
                for file in (rank.process.stdin, rank.process.stdout, rank.process.stderr):
                    with contextlib.suppress(OSError):
                        file.close()
        for job in self.jobs:
            wait_for(lambda job=job: not job.daemons(), "the end of daemons")
        shutil.rmtree(self.folder)

    def job(self, world=2, **variables):
        self.jobs.append(Job(world, self.folder, **variables))
        return self.jobs[-1]

    def assertNothingLeft(self, job):  # noqa: N802
        wait_for(lambda: not job.left(), f"the end of {job.left()}")


class Jobs(Case):
    def test_from_start_to_end(self):
        job = self.job()
        self.assertEqual(job.ask("init()"), ["ok None"] * 2)
        daemons = job.daemons()
        self.assertEqual(len(daemons), 1, "one for both")
        wait_for(lambda: is_contained(daemons[0]), "containment")
        self.assertEqual(job.ask("reduce(100000)"), ["ok 2.0"] * 2)
        # A second group uses the same daemon. Nothing is started for it.
        self.assertEqual(job.ask("dist.destroy_process_group()"), ["ok None"] * 2)
        self.assertEqual(job.ask("init()"), ["ok None"] * 2)
        self.assertEqual(job.ask("reduce()"), ["ok 2.0"] * 2)
        self.assertEqual(job.daemons(), daemons)
        # Rank 0, which has started the daemon, ends first.
        self.assertEqual(job.ranks[0].end(), "")
        job.ranks[1].say("reduce()")
        self.assertRegex(job.ranks[1].hear(), GONE)
        self.assertEqual(job.daemons(), daemons)
        job.ranks[1].end()
        self.assertNothingLeft(job)

    def test_ranks_were_told_different_sizes(self):
        """Ranks with different WORLD_SIZE fail at once, before PyTorch waits for ranks that do not exist. Only a rank
        with WORLD_SIZE 1 goes on."""
        for one, other in ((2, 3), (3, 2), (1, 2)):
            with self.subTest(sizes=(one, other)):
                job = self.job()
                for rank, size in zip(job.ranks, (one, other)):
                    rank.say(f"os.environ['WORLD_SIZE'] = '{size}'")
                    self.assertEqual(rank.hear(), "ok None")
                    rank.say("init(600)")
                said = (f"^BadArgument: gradlane: rank (0 was started with WORLD_SIZE {one}, and rank 1 with {other}|"
                        f"1 was started with WORLD_SIZE {other}, and rank 0 with {one}): all ranks must")
                self.assertRegex(job.ranks[0].hear(), "^ok" if one == 1 else said)  # a job of one rank needs no others
                self.assertRegex(job.ranks[1].hear(), said)

    def test_ranks_that_do_not_come(self):
        """Rank 0 reports which ranks are missing. A rank that cannot exist is refused at once."""
        job = self.job()
        job.ranks[0].say("init(2)")
        self.assertRegex(job.ranks[0].hear(), "^OperationFailed: gradlane: rank 0 has waited 2 s, .*, for rank 1: is it")
        job.ranks[1].say("os.environ['WORLD_SIZE'] = '1'")
        job.ranks[1].hear()
        job.ranks[1].say("init(600)")
        self.assertRegex(job.ranks[1].hear(), "^BadArgument: gradlane: RANK is 1 and WORLD_SIZE 1: ranks are 0 to 0")

    def test_two_jobs_that_are_killed(self):
        jobs = [self.job(), self.job()]
        for job in jobs:
            for rank in job.ranks:
                rank.say("init()")
        for job in jobs:
            self.assertEqual([rank.hear() for rank in job.ranks], ["ok None"] * 2)
        self.assertEqual(len(jobs[0].daemons()), 2)
        # A child that inherits its parent's files keeps no daemon running.
        jobs[0].ranks[0].say("child = os.fork() or time.sleep(600)")
        self.assertEqual(jobs[0].ranks[0].hear(), "ok None")
        jobs[0].ranks[0].say("child")
        child = int(jobs[0].ranks[0].hear().split()[1])
        try:
            jobs[0].ranks[1].say("reduce(1000000)")
            jobs[0].ranks[0].kill()
            self.assertRegex(jobs[0].ranks[1].hear(), GONE)
            self.assertEqual(jobs[1].ask("reduce(1000000)"), ["ok 2.0"] * 2)
            for job in jobs:
                for rank in job.ranks:
                    rank.kill()
            self.assertNothingLeft(jobs[0])
        finally:
            os.kill(child, signal.SIGKILL)

    def test_daemon_is_killed(self):
        job = self.job()
        job.ask("init()")
        os.kill(job.daemons()[0], signal.SIGKILL)
        for answer in job.ask("reduce()"):
            self.assertRegex(answer, "^DaemonGone: (gradlane: )?the daemon at .* has ended; the end of its log, .*/log: .*"
                                     "trainer of rank 1 .* has joined")
        # The next group has another daemon.
        job.ask("dist.destroy_process_group()")
        job.ask(f"os.environ.update(MASTER_PORT='{free_port()}')")
        self.assertEqual(job.ask("init()"), ["ok None"] * 2)
        self.assertEqual(job.ask("reduce()"), ["ok 2.0"] * 2)

    def test_one_rank(self):
        """The hook needs a daemon even if the job has only one rank."""
        job = self.job(1)
        self.assertEqual(job.ask("init()"), ["ok None"])
        self.assertRegex(job.ask("gradlane.torch.State()")[0], "^ok <gradlane.torch.State.*: rank 0 of 1>")

    def test_hook_beside_gloo(self):
        job = self.job()
        self.assertEqual(job.ask("dist.init_process_group('gloo')"), ["ok None"] * 2)
        for answer in job.ask("gradlane.torch.State()"):
            self.assertRegex(answer, "^ok <gradlane.torch.State.*: rank [01] of 2>")
        self.assertEqual(len(job.daemons()), 1)


class Refused(Case):
    def check(self, text, **variables):
        job = self.job(**variables)
        answers = job.ask("init()")
        self.assertEqual(answers[0], answers[1])
        self.assertRegex(answers[0], text)
        self.assertNothingLeft(job)

    def test_no_program(self):
        self.check("^NoDaemon: gradlane: no daemon for rank 0: GRADLANED=/nowhere/gradlaned: there is no such program$",
                   GRADLANED="/nowhere/gradlaned")

        self.check("GRADLANED=/etc/passwd: this is not an executable program$", GRADLANED="/etc/passwd")

    def test_it_does_not_start(self):
        program = self.folder / "failing"
        program.write_text("#!/bin/sh\necho no such thing >&2\nexit 2\n")
        program.chmod(0o755)
        self.check("^NoDaemon: gradlane: no daemon for rank 0: .*/failing did not start, exit status 2: +no such thing$",
                   GRADLANED=str(program))

    def test_however_slow_one_rank_is(self):
        """Rank 0's process has the store. It does not end before the slow rank has read why there is no daemon."""
        job = self.job(GRADLANED="/nowhere/gradlaned")
        job.ranks[1].say("from gradlane.torch.bootstrap import store_group")
        job.ranks[1].say("wait = store_group._wait")
        job.ranks[1].say("store_group._wait = lambda *them: (wait(*them), time.sleep(0.25))[0]")
        self.assertEqual([job.ranks[1].hear() for _ in range(3)], ["ok None"] * 3)
        for rank in job.ranks:
            rank.say("init()")
        job.ranks[0].process.stdin.close()  # the process of rank 0 ends as soon as it has answered
        self.assertEqual([rank.hear() for rank in job.ranks], [
            "NoDaemon: gradlane: no daemon for rank 0: GRADLANED=/nowhere/gradlaned: there is no such program"] * 2)
        self.assertNothingLeft(job)

    def test_a_rank_is_killed_meanwhile(self):
        """A rank is killed before the others know its host. The others wait no longer than the timeout of the process
        group."""
        job = self.job()
        job.ranks[0].say("init(3)")
        job.ranks[1].kill()
        # If rank 1 had not reached the job's store, the error is PyTorch's.
        self.assertRegex(job.ranks[0].hear(), "^OperationFailed: gradlane: rank 0 has waited 3 s, .*, for rank 1(: is it.*)?$|"
                         "^DistStoreError: Timed out after 4 seconds waiting for clients. 1/2")
        self.assertNothingLeft(job)


class Silence(Case):
    def test_it_is_told_who_says_nothing(self):
        job = self.job()
        job.ranks[0].say("2 + 2")
        job.ranks[1].say("sys.stderr.write('what now?\\n') and sys.stderr.flush() or time.sleep(600)")
        self.assertEqual(job.ranks[0].hear(), "ok 4")
        job.ranks[0].say("5")
        wait_for(lambda: select.select([job.ranks[1].process.stderr], [], [], 0)[0], "its last words")
        with unittest.mock.patch.object(sys.modules[__name__], "PATIENCE", 0.1), self.assertRaises(AssertionError) as seen:
            job.ranks[1].hear()
        self.assertRegex(str(seen.exception), "^rank 1 says nothing; rank 0 runs, was asked 2 times, has answered "
                         r"\['ok 4'\], not yet heard: '(ok 5\\n)?', standard error: ''; rank 1 runs, was asked 1 times, has "
                         r"answered \[\], not yet heard: '', standard error: 'what now\?\\n'$")


class Found(Case):
    """Tests of daemons that somebody else has started."""

    def start(self, trainers):
        there = self.folder / "run" / "gradlane"
        there.mkdir(exist_ok=True)
        daemon = subprocess.Popen([GRADLANED, "--nodes", "127.0.0.1", "--rank", "0", "--set", f"trainers={trainers}",
                                   "--set", f"socket={there}/n.sock"], stderr=subprocess.DEVNULL)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)
        wait_for((there / "n.sock").exists, "a socket")
        return daemon

    def test_security_that_changes(self):
        """The daemons of the first group do not serve a later one with another GRADLANE_SECURITY."""
        job = self.job()
        self.assertEqual(job.ask("init()"), ["ok None"] * 2)
        daemons = job.daemons()
        job.ask("dist.destroy_process_group()")
        job.ask("os.environ.update(GRADLANE_SECURITY='encrypted')")
        self.assertEqual(job.ask("init()"), ["ok None"] * 2)
        self.assertEqual(job.ask("reduce()"), ["ok 2.0"] * 2)
        self.assertNotEqual(job.daemons(), daemons)

    @unittest.skipIf(os.path.exists("/run/gradlane"), "this machine has daemons")
    def test_job_with_security(self):
        """The job starts its own daemons. It refuses one that it is told to use."""
        self.start(2)
        job = self.job(GRADLANE_SECURITY="encrypted")
        self.assertEqual(job.ask("init()"), ["ok None"] * 2)
        self.assertEqual(len(job.daemons()), 1)
        told = self.job(GRADLANE_SECURITY="encrypted", GRADLANE_SOCKET=str(self.folder / "run" / "gradlane" / "n.sock"))
        for answer in told.ask("init()"):
            self.assertIn("GRADLANE_SECURITY=encrypted is for daemons that the job starts", answer)

    @unittest.skipIf(os.path.exists("/run/gradlane"), "this machine has daemons")
    def test_of_another_size(self):
        self.start(3)
        job = self.job()
        self.assertEqual(job.ask("init()"), ["ok None"] * 2)
        self.assertEqual(len(job.daemons()), 1)
        self.assertRegex(job.ranks[0].end(), "^gradlane: rank 0: ignoring the daemon at .*/n.sock, which has 3 ranks; starting new "
                                             "daemons for this job of 2 ranks .GRADLANE_SOCKET names a daemon to use.\n$")

    @unittest.skipIf(os.path.exists("/run/gradlane"), "this machine has daemons")
    def test_that_fits_and_is_busy(self):
        daemon = self.start(2)
        job, other = self.job(), self.job()
        self.assertEqual(job.ask("init()"), ["ok None"] * 2)
        self.assertEqual(job.daemons(), [])
        self.assertEqual(other.ask("init()"), ["ok None"] * 2)
        self.assertEqual(len(other.daemons()), 1)
        self.assertEqual(job.ask("reduce()") + other.ask("reduce()"), ["ok 2.0"] * 4)
        daemon.kill()
        self.assertRegex(job.ask("reduce()")[0], "^DaemonGone")
        self.assertEqual(other.ask("reduce()"), ["ok 2.0"] * 2)


if __name__ == "__main__":
    GRADLANED = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
