#!/usr/bin/python3
"""Tests nodes without a file, gradlaned --nodes, on machines where only addresses are configured. Also tests refusals.

nodes_test.py GRADLANED EXAMPLE GRADLANE [unittest's arguments]

EXAMPLE: a trainer, client/all_reduce_example.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from tests.scripts.fixtures import networks
from tests.scripts.fixtures.nobody import AS_NOBODY, UID, copies
from tests.scripts.fixtures.waiting import PATIENCE, wait_for_text

GRADLANED = EXAMPLE = GRADLANE = ""
# Variables that launchers and jobs set, and that this process may have.
STRANGE = re.compile(r"OMPI_|PMIX?_|SLURM_|GRADLANE_SOCKET|RANK$|XDG_RUNTIME_DIR$")
CLEAN = {name: value for name, value in os.environ.items() if not STRANGE.match(name)}


def gradlaned(*words, **variables):
    return subprocess.run([GRADLANED, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE,
                          env={**CLEAN, **variables})


class WordsTest(unittest.TestCase):
    def refused(self, *words, **variables):
        result = gradlaned(*words, **variables)
        self.assertEqual((result.returncode, result.stdout), (2, ""), result)
        return result.stderr

    def test_neither_nor_both(self):
        text = self.refused()
        self.assertIn("gradlaned --nodes 10.0.0.1,10.0.0.2", text)
        self.assertIn("gradlaned --config FILE", text)
        self.assertIn("--nodes @slurm", self.refused(SLURM_JOB_NODELIST="n[1-2]"))
        self.assertIn("exclude each other", self.refused("--nodes", "127.0.0.1", "--config", "x.yaml"))
        self.assertIn("--port needs --nodes", self.refused("--port", "udp", "--config", "x.yaml"))

    def test_check_is_the_file(self):
        """Checks that --check prints a file that reads back to the same, and that --set changes --nodes and --config
        alike."""
        words = ("--nodes", "127.0.0.1,127.0.0.2", "--rank", "1", "--set", "timeouts.peer=5s", "--set", "log=warn",
                 "--set", "mtu=1400")
        first = gradlaned(*words, "--check")
        self.assertEqual(first.returncode, 0, first)
        for line in ("rank: 1", "mtu: 1400", '    udp: "auto"', "log: warn"):
            self.assertIn(line + "\n", first.stdout)
        self.assertIn(f'socket: "{"/run/gradlane" if os.geteuid() == 0 else f"/tmp/gradlane-{os.geteuid()}"}/node1.sock"\n',
                      first.stdout)
        self.assertIn("peer: 5s", first.stdout)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "n.yaml"
            file.write_text(first.stdout)
            self.assertEqual(gradlaned("--check", "--config", file).stdout, first.stdout)
            again = gradlaned("--check", "--config", file, "--set", "log=error", "--set", "nodes[0].ip=127.0.0.9")
            self.assertEqual(again.stdout,
                             first.stdout.replace("log: warn", "log: error").replace("127.0.0.1}", "127.0.0.9}"))
            self.assertIn("--set timeouts.peer=5: timeouts.peer: '5' is a duration without a unit",
                          self.refused("--config", file, "--set", "timeouts.peer=5"))

    def test_ranks(self):
        text = self.refused("--nodes", "192.0.2.77,192.0.2.78")
        self.assertRegex(text, "none of the nodes is this machine: they are 192.0.2.77, 192.0.2.78, and it has .*; say "
                               "which node this is with --rank 0 to 1")
        text = self.refused("--nodes", "127.0.0.1,127.0.0.2")
        self.assertIn("several nodes are this machine: rank 0 is 127.0.0.1, rank 1 is 127.0.0.2; say", text)
        self.assertIn("a loopback address, which other machines cannot reach",
                      self.refused("--nodes", "127.0.0.1,192.0.2.77"))
        launched = gradlaned("--nodes", "127.0.0.1,127.0.0.2", "--check", OMPI_COMM_WORLD_RANK="1",
                             OMPI_COMM_WORLD_SIZE="2")
        self.assertIn("rank: 1\n", launched.stdout, launched)
        self.assertIn("1 of 8 (OMPI_COMM_WORLD_RANK)", self.refused(
            "--nodes", "127.0.0.1,127.0.0.2", OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="8"))
        self.assertIn("(--rank) is not in the table", self.refused("--nodes", "127.0.0.1,127.0.0.2", "--rank", "2"))

    def test_sources(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "hosts.txt"
            file.write_text("# two\n127.0.0.1 slots=4\n\nlocalhost # the same\n")
            self.assertIn("127.0.0.1 is already used by nodes[0].ip",
                          self.refused("--nodes", f"@{file}", "--rank", "0"))
            file.write_text("127.0.0.1 slots=4\n127.0.0.2\n")
            result = gradlaned("--nodes", f"@{file}", "--rank", "0", "--check")
            self.assertEqual(result.returncode, 0, result)
            self.assertIn("No such file", self.refused("--nodes", f"@{file}x"))
            file.write_text("a/b\n")
            self.assertIn(f"{file}:1: 'a/b' is not a host", self.refused("--nodes", f"@{file}"))
        self.assertIn("SLURM_JOB_NODELIST is not set", self.refused("--nodes", "@slurm"))
        result = gradlaned("--nodes", "@slurm", "--rank", "1", "--check", SLURM_JOB_NODELIST="127.0.0.[1-2]")
        self.assertIn("rank: 1, ip: 127.0.0.2", result.stdout, result)
        self.assertIn("more than 256 hosts", self.refused("--nodes", "@slurm", SLURM_JOB_NODELIST="n[0-999999999]"))
        self.assertIn("mpirun does not tell its processes the hosts", self.refused("--nodes", "@mpi", PMI_RANK="0"))
        self.assertIn("cannot find no-such.invalid (", self.refused("--nodes", "no-such.invalid,127.0.0.1"))
        self.assertIn("'a b' is not a host", self.refused("--nodes", "a b,c"))

    def test_help_fits(self):
        for line in gradlaned("--help").stdout.splitlines():
            self.assertLessEqual(len(line), 80, line)


class Machine:
    """A namespace of a network, with its own /run and /tmp, where user nobody has at most one folder.

    The command line starts a daemon there, and then trainers that are given no socket, as on any machine.

    `programs` are gradlaned, a trainer and gradlane. They must be neither below /run nor below /tmp.
    """

    def __init__(self, network, i, log, programs, folder="", **variables):
        self.network, self.i, self.log_file, self.folder, self.process = network, i, log, folder, None
        self.gradlaned, self.example, self.gradlane = programs
        self.variables = {**CLEAN, **variables}

    def start(self, *words):
        script = ('mount --make-rprivate / && mount -t tmpfs -o mode=755 tmpfs /run && '
                  'mount -t tmpfs -o mode=1777 tmpfs /tmp && if [ -n "$1" ]; then mkdir -p -m 700 "$1" && chown "$0" "$1"; fi && shift && exec "$@"')
        argv = ["unshare", "-m", "sh", "-c", script, str(UID), self.folder, *AS_NOBODY, self.gradlaned,
                "--set", "timeouts.peer=30s", *words]
        with open(self.log_file, "w") as log:
            self.process = subprocess.Popen(self.network.command(self.i, *argv), stdout=log, stderr=log,
                                            env=self.variables)
        return self

    def command(self, *words):
        """Returns a command that runs `words` on that machine as user nobody."""
        return ["nsenter", "-m", "-n", "-t", str(self.process.pid), *AS_NOBODY, *words]

    def run(self, *words):
        return subprocess.run(self.command(*words), stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True,
                              env=self.variables).stdout

    def trainer(self):
        return subprocess.Popen(self.command(self.example), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env=self.variables)

    @contextlib.contextmanager
    def listen(self, path):
        """Makes a socket of another program, whose file stays after the `with`."""
        script = ("import socket, sys; it = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); it.bind(sys.argv[1]); "
                  "it.listen(); print(flush=True); sys.stdin.read()")
        with subprocess.Popen(self.command("/usr/bin/python3", "-c", script, path), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            yield
            process.stdin.close()

    def wait_for(self, text):
        wait_for_text(text, self.log_file.read_text, self.process)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


class MachinesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        reason = networks.reason_to_skip("setpriv", "nsenter")
        if reason is not None:
            raise unittest.SkipTest(reason)
        # Machines have a /tmp of their own, which hides this one's.
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(dir="/var/tmp")))
        cls.programs = copies(cls.folder, GRADLANED, EXAMPLE, GRADLANE)
        cls.network = cls.enterClassContext(networks.Network(2))
        for i in range(2):
            cls.network.node(i).ip("addr", "add", f"10.79.0.{i + 1}/24", "dev", "gl0")
            cls.network.node(i).ip("link", "set", "lo", "up")

    def machine(self, i, *words, folder="", **variables):
        """Returns a machine whose daemon has been started with these words."""
        machine = Machine(self.network, i, self.folder / f"log{i}", self.programs, folder, **variables).start(*words)
        self.addCleanup(machine.stop)
        return machine

    def start(self, *words, folder="", **variables):
        machines = [self.machine(i, *words, folder=folder, **variables) for i in range(2)]
        for machine in machines:
            machine.wait_for("the ring is ready")
        return machines

    def train(self, machines):
        trainers = [machine.trainer() for machine in machines]
        outputs = [trainer.communicate(timeout=PATIENCE)[0] for trainer in trainers]
        for trainer, output in zip(trainers, outputs):
            self.assertEqual(trainer.returncode, 0, outputs)
            self.assertIn("wrong 0", output)
        for machine in machines:
            self.assertEqual(machine.stop(), 0, machine.log_file.read_text())

    def test_two_machines(self):
        """Checks that the same words start the daemon of each machine, as user nobody, and that trainers find their
        daemon."""
        machines = self.start("--nodes", "10.79.0.1,10.79.0.2", folder="/run/gradlane")
        for i, machine in enumerate(machines):
            self.assertRegex(machine.log_file.read_text(), f"node {i} of 2: .*MTU 1500, .*/run/gradlane/node{i}.sock")
        # With two daemons on a machine, trainers would have to guess. A socket file that a dead daemon leaves does not
        # count.
        with machines[0].listen("/run/gradlane/other.sock"):
            trainer = machines[0].trainer()
            self.assertIn("there are 2 in /run/gradlane: set GRADLANE_SOCKET", trainer.communicate(timeout=PATIENCE)[0])
        self.train(machines)

    def test_no_folder(self):
        """Checks that the daemon makes a folder in /tmp, for this user alone, if the user has no folder. The daemon
        removes it at its end."""
        folder = f"/tmp/gradlane-{UID}"
        machines = self.start("--nodes", "10.79.0.1,10.79.0.2")
        for i, machine in enumerate(machines):
            self.assertIn(f"socket {folder}/node{i}.sock", machine.log_file.read_text())
            self.assertEqual(machine.run("stat", "-c", "%a %u", folder), f"700 {UID}\n")
            self.assertIn(f"node {i} of 2", machine.run(machine.gradlane, "stats"))
        self.train(machines)

    def test_taken_folder(self):
        """Checks that an existing folder or link at that path is refused if it is not a folder of this user alone."""
        folder = f"/tmp/gradlane-{UID}"
        for make in ("mkdir -m 700 $0", "install -d -m 750 -o 65534 $0",
                     "install -d -m 700 -o 65534 /tmp/real && ln -s real $0"):
            # User nobody cannot make /run/gradlane on this machine either.
            script = ("mount --make-rprivate / && mount -t tmpfs -o mode=755 tmpfs /run && "
                      f"mount -t tmpfs -o mode=1777 tmpfs /tmp && {make} && exec \"$@\"")
            argv = self.network.command(0, "unshare", "-m", "sh", "-c", script, folder, *AS_NOBODY, self.programs[0],
                                        "--nodes", "10.79.0.1,10.79.0.2")
            result = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, env=CLEAN)
            self.assertEqual(result.returncode, 2, result)
            self.assertIn(f"{folder} must be a folder of this user with mode 0700", result.stderr)

    def test_launcher(self):
        """Checks that the daemon uses the launcher's rank if addresses do not determine the rank."""
        machine = self.machine(0, "--nodes", "127.0.0.1,127.0.0.2", OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2")
        machine.wait_for("the rank is that of the launcher, 1 of 2 (OMPI_COMM_WORLD_RANK), because the addresses do not determine it")
        machine.wait_for("node 1 of 2: ")

    def test_short_packets(self):
        """Checks that the MTU is that of the interface. Also checks that the list of nodes may be @FILE, and that the
        order of its lines determines the ranks."""
        for i in range(2):
            self.network.node(i).ip("link", "set", "gl0", "mtu", "1300")
            self.addCleanup(self.network.node(i).ip, "link", "set", "gl0", "mtu", "1500")
        hosts = self.folder / "hosts"
        hosts.write_text("10.79.0.2\n10.79.0.1\n")
        hosts.chmod(0o644)
        machines = self.start("--nodes", f"@{hosts}", folder="/run/nobody", XDG_RUNTIME_DIR="/run/nobody")
        for i, machine in enumerate(machines):
            self.assertRegex(machine.log_file.read_text(),
                             f"node {1 - i} of 2: .*MTU 1300, socket /run/nobody/gradlane/node{1 - i}.sock")
        self.train(machines)

    def test_a_stranger(self):
        """Checks the error for a machine that is not in the list: it names the machine's addresses and those of the
        list.

        Also checks the error if the folder of the socket cannot be made.
        """
        argv = self.network.command(0, GRADLANED, "--nodes", "10.79.0.2,10.79.0.3")
        result = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, env=CLEAN)
        self.assertEqual(result.returncode, 2, result)
        self.assertIn("they are 10.79.0.2, 10.79.0.3, and it has 10.79.0.1 on gl0; say", result.stderr)
        argv = self.network.command(0, *AS_NOBODY, self.programs[0], "--nodes", "10.79.0.1,10.79.0.2", "--set",
                                    "socket=/proc/gradlane/n0.sock")
        result = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, env=CLEAN)
        self.assertEqual(result.returncode, 2, result)
        self.assertIn("cannot create the directory /proc/gradlane for the socket", result.stderr)
        self.assertIn("--set socket=PATH", result.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    GRADLANED = str(pathlib.Path(sys.argv.pop(1)).resolve())
    EXAMPLE = str(pathlib.Path(sys.argv.pop(1)).resolve())
    GRADLANE = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
