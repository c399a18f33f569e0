#!/usr/bin/python3
"""Tests of jobs under torchrun, with nothing started by hand: torchrun_test.py GRADLANED [TEST...]. Each test looks for
processes that are left, and for files in a TMPDIR of its own and in /dev/shm. Two machines are namespaces of a network,
which needs root.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest

from tests.scripts.fixtures.ports import free_port
from tests.scripts.torch import launch_test
from tests.scripts.torch.launch_test import GONE, PATIENCE, Case
from tests.scripts.torch.libuv import needs_torchrun

SCRIPT = """
import os, signal, sys, time
import torch
import torch.distributed as dist
import gradlane.torch

PHASE = os.environ.get("PHASE", "") if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0" else ""
torch.set_num_threads(1)


def say(text):
    os.write(1, (text + "\\n").encode())  # at once, as others write


def die(phase):
    if phase == PHASE and int(os.environ["RANK"]) == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def main():
    if PHASE == "init":
        ask = gradlane.torch.bootstrap.launch.StoreGroup.ask
        gradlane.torch.bootstrap.launch.StoreGroup.ask = lambda self, what, *more: die("init") if what != "facts" else ask(self, what, *more)
    die("before")
    dist.init_process_group("gradlane")
    rank, world = dist.get_rank(), dist.get_world_size()
    say("begun")
    die("idle")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 10))
    model(torch.ones(4, 100)).sum().backward()
    if PHASE == "endless":
        time.sleep(600)
    for step in range(3):
        tensor = torch.full((1000000,), float(rank))
        work = dist.all_reduce(tensor, async_op=True)
        if step == 1:
            die("sum")
        work.wait()
        assert tensor.unique().tolist() == [world * (world - 1) / 2], tensor
    blocks = torch.zeros(world * 3)
    dist.all_gather_into_tensor(blocks, torch.full((3,), float(rank)))
    assert blocks.view(world, 3)[:, 0].tolist() == [float(it) for it in range(world)], blocks
    if PHASE == "destroy" and rank == 1:
        gradlane.torch.tasks.Tasks.close = lambda *_: die("destroy")
    dist.destroy_process_group()
    say(f"done {rank} {world} {os.environ.get('TORCHELASTIC_RESTART_COUNT')}")


if __name__ == "__main__":
    main()
"""

SPAWN = """
import os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import gradlane.torch


def main(rank, world, port):
    dist.init_process_group("gradlane", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    tensor = torch.ones(5)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [world] * 5
    os.write(1, b"done\\n")


if __name__ == "__main__":
    mp.spawn(main, (3, int(sys.argv[1])), 3)
"""


class Run:
    """A process of torchrun, and its output."""

    def __init__(self, case, *options, prefix=(), **variables):
        self.folder = case.folder
        self.script = case.folder / "train.py"
        self.script.write_text(SCRIPT)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GRADLANE_SO")}
        clean.update(TMPDIR=str(case.folder), XDG_RUNTIME_DIR=str(case.folder / "run"), OMP_NUM_THREADS="1",
                     GRADLANED=launch_test.GRADLANED, **variables)
        self.process = subprocess.Popen([*prefix, sys.executable, "-m", "torch.distributed.run", *options, str(self.script)],
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=clean,
                                        start_new_session=True)

    def end(self):
        text, _ = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, text

    def workers(self):
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if str(self.script) in words and "torch.distributed.run" not in words:
                found.append(int(entry.name))
        return found


def shared_files():
    """Returns the files in /dev/shm, without those of other tests that run meanwhile."""
    return sorted(name for name in os.listdir("/dev/shm") if not name.startswith(("gradlane-compare-", "vader_")))


@needs_torchrun
class Torchrun(Case):
    def setUp(self):
        super().setUp()
        self.shm = shared_files()

    def run_it(self, *options, **variables):
        run = Run(self, *options, **variables)
        self.addCleanup(run.process.kill)
        return run

    def assertDone(self, run, world, attempt=0):  # noqa: N802
        status, text = run.end()
        self.assertEqual(status, 0, text)
        for rank in range(world):
            self.assertIn(f"done {rank} {world} {attempt}\n", text)
        self.assertNone(run)
        return text

    def assertNone(self, run):  # noqa: N802
        job = launch_test.Job(0, self.folder)
        self.assertNothingLeft(job)
        self.assertEqual(run.workers(), [])
        self.assertEqual(shared_files(), self.shm)

    def test_two(self):
        self.assertDone(self.run_it("--nproc_per_node", "2", "--master_port", str(free_port())), 2)

    def test_four(self):
        self.assertDone(self.run_it("--standalone", "--nproc_per_node", "4"), 4)

    def test_two_jobs(self):
        runs = [self.run_it("--standalone", "--nproc_per_node", "2") for _ in range(2)]
        for run in runs:
            status, text = run.end()
            self.assertEqual(status, 0, text)
        self.assertNone(runs[0])

    def test_spawn(self):
        script = self.folder / "spawn.py"
        script.write_text(SPAWN)
        done = subprocess.run([sys.executable, script, str(free_port())], capture_output=True, text=True, timeout=PATIENCE,
                              env={**os.environ, "TMPDIR": str(self.folder), "GRADLANED": launch_test.GRADLANED})
        self.assertEqual((done.returncode, done.stdout), (0, "done\n" * 3), done)
        self.assertNothingLeft(launch_test.Job(0, self.folder))

    def restarted(self, phase):
        run = self.run_it("--standalone", "--nproc_per_node", "3", "--max_restarts", "1", PHASE=phase)
        text = self.assertDone(run, 3, attempt=1)
        self.assertRegex(text, "(?i)exitcode: -9")

    def test_restart_before_init(self):
        self.restarted("before")

    def test_restart_in_init(self):
        self.restarted("init")

    def test_restart_idle(self):
        self.restarted("idle")

    def test_restart_in_a_sum(self):
        self.restarted("sum")

    def test_restart_in_destroy(self):
        self.restarted("destroy")

    def under_way(self):
        run = self.run_it("--standalone", "--nproc_per_node", "2", PHASE="endless")
        for _ in range(2):
            line = run.process.stdout.readline()
            while line.strip() != "begun":
                self.assertNotEqual(line, "", "it has ended")
                line = run.process.stdout.readline()
        return run

    def test_ctrl_c(self):
        run = self.under_way()
        os.killpg(run.process.pid, signal.SIGINT)
        self.assertNotEqual(run.end()[0], 0)
        self.assertNone(run)

    def test_torchrun_is_killed(self):
        """The ranks go on without torchrun. The daemon ends with them."""
        run = self.under_way()
        run.process.kill()
        run.process.wait()
        for worker in run.workers():
            os.kill(worker, signal.SIGKILL)
        run.process.stdout.close()
        self.assertNone(run)


class Phases(Case):
    """Tests of the errors on other ranks when a rank is killed, without torchrun's agent."""

    def test_in_init(self):
        job = self.job(3)
        job.ask("'all have loaded PyTorch'")
        job.ranks[1].say("gradlane.torch.bootstrap.launch.StoreGroup.ask = lambda *_: os.kill(os.getpid(), 9)")
        job.ranks[1].hear()
        for rank in job.ranks:
            rank.say("init(4)")
        for rank in (0, 2):
            self.assertRegex(job.ranks[rank].hear(), "^NoDaemon: gradlane: no answer from rank 1 for 4 s")
        self.assertNothingLeft(job)

    def test_later(self):
        for phase in ("idle", "sum", "destroy"):
            with self.subTest(phase):
                job = self.job(3)
                self.assertEqual(job.ask("init()"), ["ok None"] * 3)
                if phase == "sum":
                    for rank in (0, 2):
                        job.ranks[rank].say("reduce(8000000)")
                if phase == "destroy":
                    job.ranks[1].say("gradlane.torch.tasks.Tasks.close = lambda *_: os.kill(os.getpid(), 9)")
                    job.ranks[1].hear()
                    job.ranks[1].say("dist.destroy_process_group()")
                    job.ranks[1].process.wait()
                job.ranks[1].kill()
                for rank in (0, 2):
                    if phase != "sum":
                        job.ranks[rank].say("reduce()")
                    self.assertRegex(job.ranks[rank].hear(), GONE)
                    job.ranks[rank].end()
                self.assertNothingLeft(job)


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("ip"), "two machines are namespaces of a network, which needs root")
@needs_torchrun
class Machines(Case):
    def setUp(self):
        super().setUp()
        self.names = [f"gltr{os.getpid()}-{number}" for number in range(2)]
        for name in self.names:
            self.ip("netns", "add", name)
            self.addCleanup(self.ip, "netns", "del", name)
        self.ip("-n", self.names[0], "link", "add", "e0", "type", "veth", "peer", "name", "e0", "netns", self.names[1])
        for number, name in enumerate(self.names):
            self.ip("-n", name, "addr", "add", f"10.79.0.{number + 1}/24", "dev", "e0")
            for device in ("lo", "e0"):
                self.ip("-n", name, "link", "set", device, "up")

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True)

    def start(self, *each, **variables):
        port = str(free_port())
        return [Run(self, "--nnodes", "2", "--node_rank", str(node), "--nproc_per_node", many, "--master_addr", "10.79.0.1",
                    "--master_port", port, prefix=["ip", "netns", "exec", self.names[node]], **variables)
                for node, many in enumerate(each)]

    def check(self, *each, daemons, **variables):
        world = sum(map(int, each))
        runs = self.start(*each, **variables)
        for run in runs:
            self.addCleanup(run.process.kill)
        for run in runs:
            status, text = run.end()
            self.assertEqual(status, 0, text)
        self.assertNothingLeft(launch_test.Job(0, self.folder))
        self.assertGreaterEqual(world, daemons)

    def test_two_of_two(self):
        self.check("2", "2", daemons=2)

    def test_unequal(self):
        self.check("2", "1", daemons=3)

    def test_named(self):
        self.check("1", "1", daemons=2, GRADLANE_NODES="10.79.0.2:18500,10.79.0.1:18500")

    @unittest.skipUnless(shutil.which("nft"), "there is no nft")
    def test_encrypted(self):
        """No packet between the machines begins as one that is not encrypted."""
        for name in self.names:
            subprocess.run(["ip", "netns", "exec", name, "nft", "-f", "-"], check=True, text=True,
                           input="table inet f {\n chain c {\n  type filter hook input priority 0;\n"
                                 "  meta l4proto udp @th,64,16 0x474c drop;\n }\n}\n")
        self.check("2", "2", daemons=2, GRADLANE_SECURITY="encrypted")
        for run in self.start("1", "1", GRADLANE_SECURITY="authenticated"):
            self.addCleanup(run.process.kill)
            self.assertNotEqual(run.end()[0], 0, "the filter drops what is not encrypted")

    def test_interface(self):
        self.check("1", "1", daemons=2, GRADLANE_INTERFACE="e0")

    def test_wrong_interface(self):
        for run in self.start("1", "1", GRADLANE_INTERFACE="e7"):
            self.addCleanup(run.process.kill)
            status, text = run.end()
            self.assertNotEqual(status, 0)
            self.assertIn("no daemon for rank 0: GRADLANE_INTERFACE=e7: there is no such interface with an address", text)

    @unittest.skipUnless(shutil.which("nft"), "there is no nft")
    def test_firewall(self):
        """The start reports that daemons cannot reach each other."""
        subprocess.run(["ip", "netns", "exec", self.names[1], "nft", "-f", "-"], check=True, text=True,
                       input="table inet f {\n chain c {\n  type filter hook input priority 0;\n  meta l4proto udp drop;\n }\n}\n")
        for run in self.start("1", "1"):
            self.addCleanup(run.process.kill)
            status, text = run.end()
            self.assertNotEqual(status, 0)
            self.assertRegex(text, "the daemons are at UDP 10.79.0.[12]:184[0-9]+, 10.79.0.[12]:184[0-9]+: let these ports "
                                   "through the firewalls, or set others by GRADLANE_NODES=HOST:PORT")
        self.assertNothingLeft(launch_test.Job(0, self.folder))


if __name__ == "__main__":
    launch_test.GRADLANED = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
