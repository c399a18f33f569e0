#!/usr/bin/python3
"""Tests `gradlane run` as a user runs it, with good and bad trainers and daemons, and looks for leftovers.

Usage: run_test.py GRADLANE [GRADLANED]. Without a daemon, fake_daemon.py takes its place.
"""

import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time

from tests.scripts.fixtures.waiting import PATIENCE, wait_for
from tests.scripts.run.configs import ConfigsTest  # noqa: F401 - run from here, while the slow ones wait
from tests.scripts.run.runs import FAKE, Programs, Run, RunCase, main, needs_fake, sh

# These runs take long, because they wait for timeouts, so they run in the background. FLAGS names a folder of each run,
# for files that its commands make.
SLOW = {
    "deaf": (["-n", "2"], {"command": ["true"], "env": {"FAKE_DAEMON": "deaf", "FAKE_NODE": "1"}}),
    "stubborn": (["-n", "1"], {"command": ["true"], "env": {"FAKE_DAEMON": "stubborn"}}),
    "deaf to SIGTERM": (["-n", "2"], {"command": sh("test $RANK = 1 || { until test -e $FLAGS/deaf; do sleep 0.05; done; "
                                                    "exit 5; }; trap '' TERM; touch $FLAGS/deaf; "
                                                    "while :; do sleep 0.1; done")}),
    "escaped": (["-n", "1"], {"command": sh("setsid sh -c 'trap \"\" TERM; touch $FLAGS/deaf; while :; do sleep 0.1; done' & "
                                            "until test -e $FLAGS/deaf; do sleep 0.05; done")}),
}
# Prints the time when it gets SIGTERM.
LAST_WORDS = """
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("ready", flush=True)
signal.sigwait([signal.SIGTERM])
print(time.monotonic(), flush=True)
"""
LAST_WORDS_S = 2  # kLastWords of tools/run/job.cc


class RunTest(RunCase):
    slow = {}

    @classmethod
    def setUpClass(cls):
        for name, (arguments, keywords) in SLOW.items():
            flags = cls.enterClassContext(tempfile.TemporaryDirectory())
            cls.slow[name] = Run(*arguments, **{**keywords, "env": {**keywords.get("env", {}), "FLAGS": flags}})
            cls.addClassCleanup(cls.slow[name].clean)

    def flags(self):
        """Returns the environment of runs with a folder for files that report what has happened."""
        return {"FLAGS": self.enterContext(tempfile.TemporaryDirectory())}

    # ---- Environment of trainers

    def test_environment_is_that_of_torchrun(self):
        names = ("RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK GROUP_WORLD_SIZE MASTER_ADDR "
                 "OMP_NUM_THREADS GRADLANE_NODE GLOO_SOCKET_IFNAME").split()
        show = " ".join(f"${name}" for name in names) + " $MASTER_PORT $GRADLANE_SOCKET"
        run = self.run_it("-n", "2", "--trainers", "2", command=sh(f"echo {show}; test -S $GRADLANE_SOCKET"),
                          env={"RANK": "77", "MASTER_ADDR": "example.org"})
        ports, sockets = set(), []
        for rank in range(4):
            (line,) = run.lines(f"[{rank}] ")
            words = line.split()
            self.assertEqual(words[:11], [str(rank), "4", str(rank), "4", "0", "0", "1", "127.0.0.1", "1",
                                          str(rank // 2), "lo"])
            ports.add(int(words[11]))
            sockets.append(words[12])
        self.assertEqual(len(ports), 1)
        self.assertTrue(1024 <= ports.pop() <= 65535)
        self.assertTrue(sockets[0] == sockets[1] != sockets[2] == sockets[3], sockets)
        self.assertTrue(all(len(path) <= 107 for path in sockets), sockets)

    def test_settings_of_the_user_stay(self):
        for name, value in (("OMP_NUM_THREADS", "3"), ("GLOO_SOCKET_IFNAME", "eth7")):
            run = self.run_it("-n", "1", command=sh(f"echo ${name}"), env={name: value})
            self.assertEqual(run.out, f"[0] {value}\n")

    def test_codec_of_trainers(self):
        """With fixed:adaptive, trainers get that codec and daemons get raw. Without --codec, trainers get none."""
        for options, told, daemons in ((["fixed"], "fixed:adaptive", "raw"), (["fixed:auto:6"], "fixed:adaptive:6", "raw"),
                                       (["fixed:adaptive:6"], "fixed:adaptive:6", "raw"),
                                       (["fixed:9"], "fixed:9", "fixed:9"), ([], "", None)):
            with tempfile.TemporaryDirectory() as folder:
                options = [word for name in options for word in ("--codec", name)]
                run = self.run_it("-n", "1", "--keep-configs", folder, *options, command=sh("echo .$GRADLANE_CODEC"))
                self.assertEqual(run.out, f"[0] .{told}\n")
                text = pathlib.Path(folder, "n0.yaml").read_text(encoding="ascii")
                self.assertIn(f"codec: '{daemons}'" if daemons else "codec: ", text)

    def test_command_gets_its_arguments_as_they_are(self):
        words = ["-c", "[1,2]", "", "--codec", "--", "a b", "sim", "--help"]
        script = "import sys; print(sys.argv[1:])"
        run = self.run_it("-n", "1", command=[sys.executable, "-c", script, *words])
        self.assertEqual(run.out, f"[0] {words}\n")

    def test_trainers_have_signals_and_input_as_usual(self):
        script = ("import signal,sys; print(signal.pthread_sigmask(signal.SIG_BLOCK, []), sys.stdin.read() == '');"
                  "print(open('/proc/self/status').read().split('SigIgn:')[1].split()[0])")
        run = self.run_it("-n", "1", command=[sys.executable, "-I", "-c", script])
        self.assertEqual(run.lines("[0] ")[0], "set() True")
        # Python itself ignores SIGPIPE and SIGXFSZ. This process may inherit more, such as SIGHUP, from nohup or a
        # shell.
        own = int(pathlib.Path("/proc/self/status").read_text().split("SigIgn:")[1].split()[0], 16)
        expected = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
        self.assertEqual(int(run.lines("[0] ")[1], 16) | own, expected | own)

    # ---- Output

    def test_prefixes(self):
        run = self.run_it("-n", "2", command=sh("echo out $RANK; echo err $RANK >&2; printf unfinished"))
        self.assertEqual(sorted(run.out.splitlines()), ["[0] out 0", "[0] unfinished", "[1] out 1", "[1] unfinished"])
        self.assertIn("[0] err 0\n", run.err)
        self.assertIn("[1] err 1\n", run.err)
        if Programs.daemon == FAKE:
            self.assertIn("[node 1] fake daemon of 1", run.err)

    def test_no_prefix(self):
        run = self.run_it("-n", "2", "--no-prefix", command=sh("echo $RANK"))
        self.assertEqual(sorted(run.out.splitlines()), ["0", "1"])

    def test_lines_stay_whole(self):
        count, width = 400, 5000
        script = (f"import os,sys\nfor i in range({count}):\n"
                  f"  f = (sys.stdout, sys.stderr)[i % 2]; f.write(os.environ['RANK'] * {width} + '\\n'); f.flush()")
        run = self.run_it("-n", "3", command=[sys.executable, "-c", script], stderr=subprocess.STDOUT)
        lines = [line for line in run.out.splitlines() if not line.startswith("[node ")]
        for rank in range(3):
            whole = f"[{rank}] " + str(rank) * width
            self.assertEqual(lines.count(whole), count)
        self.assertEqual(len(lines), 3 * count)

    def test_very_long_lines_are_broken(self):
        run = self.run_it("-n", "1", command=[sys.executable, "-c", "print('x' * 100000)"])
        lines = run.lines("[0] ")
        self.assertEqual([len(line) for line in lines], [65536, 100000 - 65536])

    def test_slow_reader_gets_everything(self):
        size = 3 << 20
        run = self.start("-n", "1", command=[sys.executable, "-c", f"for i in range({size >> 10}): print('y' * 1023)"])
        # Only the kernel knows when a pipe is full, because its pages need not be full.
        writer = os.open(f"/proc/self/fd/{run.process.stdout.fileno()}", os.O_WRONLY | os.O_NONBLOCK)
        try:
            wait_for(lambda: not select.select([], [writer], [], 0)[1], "a pipe that is full")
        finally:
            os.close(writer)
        self.finish(run, 0)
        self.assertEqual(run.out, ("[0] " + "y" * 1023 + "\n") * (size >> 10))

    def test_reader_goes_away(self):
        read, write = os.pipe()
        run = self.start("-n", "2", command=sh("while :; do echo $RANK; done"), stdout=write)
        os.close(write)
        os.read(read, 100)
        os.close(read)
        self.finish(run, 141)

    # ---- Ends of runs

    def test_first_failing_code(self):
        run = self.run_it("-n", "3", command=sh("test $RANK != 1 || exit 7; sleep 600"), code=7)
        self.assertIn("gradlane: rank 1 exited with code 7", run.err)
        self.assertNotIn("rank 0", run.err)

    def test_trainer_killed_by_a_signal(self):
        run = self.run_it("-n", "2", command=sh("test $RANK != 0 || kill -SEGV $$; sleep 600"), code=139)
        self.assertIn("gradlane: rank 0 was killed by SIGSEGV", run.err)

    def test_a_rank_may_end_early(self):
        run = self.run_it("-n", "2", env=self.flags(), command=sh(
            "test $RANK = 1 || { echo $$ > $FLAGS/new && mv $FLAGS/new $FLAGS/pid; exit 0; }; "
            "until test -e $FLAGS/pid; do sleep 0.05; done; "
            "while kill -0 $(cat $FLAGS/pid) 2>/dev/null; do sleep 0.05; done; echo done"))
        self.assertEqual(run.out, "[1] done\n")

    def test_what_failed_last_is_not_lost(self):
        run = self.run_it("-n", "2", command=sh("seq 3000; printf last; exit 4"), code=4)
        self.assertTrue(any(run.lines(f"[{rank}] ")[-2:] == ["3000", "last"] for rank in range(2)), run.out[-300:])

    def test_trainers_that_ignore_sigterm(self):
        run = self.finish(self.slow["deaf to SIGTERM"], 5)
        self.assertIn("gradlane: rank 1 does not end: sending SIGKILL", run.err)

    def test_grandchildren_end_too(self):
        self.run_it("-n", "2", command=sh("sleep 600 & setsid sleep 600 & exit 0"))
        self.run_it("-n", "1", command=sh("sleep 600 & setsid sleep 600 & exit 6"), code=6)
        self.finish(self.slow["escaped"], 0)

    def interrupted(self, number, code):
        script = ("import signal\nends = (signal.SIGINT, signal.SIGTERM)\nsignal.pthread_sigmask(signal.SIG_BLOCK, ends)\n"
                  "print('ready', flush=True)\nprint('got', int(signal.sigwait(ends)))")
        run = self.start("-n", "2", command=[sys.executable, "-c", script])
        for _ in range(2):
            self.assertIn("ready", run.process.stdout.readline())
        run.process.send_signal(number)
        self.finish(run, code)
        self.assertEqual(sorted(run.out.splitlines()), [f"[{rank}] got {int(number)}" for rank in range(2)])

    def test_ctrl_c(self):
        self.interrupted(signal.SIGINT, 130)

    def test_sigterm(self):
        self.interrupted(signal.SIGTERM, 143)

    def test_impatient_ctrl_c(self):
        run = self.start("-n", "1", command=sh("trap '' INT TERM; echo ready; while :; do sleep 0.1; done"))
        self.assertIn("ready", run.process.stdout.readline())
        run.process.send_signal(signal.SIGINT)
        wait_for(lambda: "SIGINT: stopping" in run.process.stderr.readline(), "a message")
        run.process.send_signal(signal.SIGINT)
        self.finish(run, 130)
        self.assertIn("gradlane: SIGINT again: killing all processes", run.err)

    def test_sigkill_leaves_nothing(self):
        run = self.start("-n", "2", command=sh("sleep 600 & echo ready; sleep 600"))
        for _ in range(2):
            self.assertIn("ready", run.process.stdout.readline())
        wait_for(lambda: len(run.pids()) >= 7, "shells have started their sleeps")
        run.process.kill()
        wait_for(lambda: run.pids() == [], "no process is left")
        self.finish(run, -signal.SIGKILL)

    # ---- Daemons

    def test_killed_daemon(self):
        run = self.start("-n", "2", command=[sys.executable, "-c", LAST_WORDS])
        for _ in range(2):
            self.assertIn("ready", run.process.stdout.readline())
        daemon = run.pid_of("n1.yaml")
        killed = time.monotonic()
        os.kill(daemon, signal.SIGKILL)
        self.finish(run, 1)
        self.assertIn("gradlane: the daemon of node 1 was killed by SIGKILL", run.err)
        # Trainers must have had LAST_WORDS_S seconds to fail by themselves before SIGTERM. Such a lower bound holds
        # even if processes get little CPU time.
        for rank in range(2):
            (told,) = run.lines(f"[{rank}] ")
            self.assertGreaterEqual(float(told) - killed, LAST_WORDS_S)

    def test_killed_daemon_and_trainers_that_do_not_care(self):
        run = self.start("-n", "2", command=sh("echo ready; sleep 600"))
        self.assertIn("ready", run.process.stdout.readline())
        os.kill(run.pid_of("n0.yaml"), signal.SIGKILL)
        self.finish(run, 1)

    @needs_fake
    def test_daemon_that_ends_early(self):
        for link, name in (("vhost", "node 1"), ("memif", "node 1"), ("ring", "all nodes")):
            run = self.run_it("-n", "2", "--link", link, command=["true"], code=1,
                              env={"FAKE_DAEMON": "exit", "FAKE_NODE": "1"})
            self.assertIn(f"gradlane: the daemon of {name} exited with code 3 before it was ready; its last line: "
                          "no memory for packets\n", run.err)

    # This test takes longest, so it runs last.
    @needs_fake
    def test_zz_daemon_that_does_not_listen(self):
        run = self.finish(self.slow["deaf"], 1)
        self.assertRegex(run.err, r"gradlane: node 1 does not answer on \S+/n1.sock after 30 s")

    @needs_fake
    def test_daemon_that_fails_in_the_end(self):
        run = self.run_it("-n", "2", command=["true"], code=1, env={"FAKE_DAEMON": "dirty", "FAKE_NODE": "0"})
        self.assertIn("gradlane: the daemon of node 0 exited with code 3", run.err)

    @needs_fake
    def test_daemon_that_does_not_end(self):
        run = self.finish(self.slow["stubborn"], 1)
        self.assertIn("gradlane: the daemon of node 0 does not end: sending SIGKILL", run.err)

    @needs_fake
    def test_no_daemon(self):
        run = self.run_it("-n", "1", command=["true"], code=2, env={"GRADLANED": "/nowhere/gradlaned"})
        self.assertIn("GRADLANED=/nowhere/gradlaned: no such file", run.err)

    # ---- Without a command

    def test_ring_to_attach_to(self):
        run = self.start("-n", "2", "--link", "ring")
        self.assertIn("2 nodes are up", run.process.stdout.readline())
        for rank in range(2):
            line = run.process.stdout.readline()
            self.assertTrue(line.startswith("export "), line)
            test = f"{line.strip()}; test -S $GRADLANE_SOCKET && echo $RANK of $WORLD_SIZE"
            result = subprocess.run(sh(test), capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(result.stdout, f"{rank} of 2\n", result)
        run.process.send_signal(signal.SIGINT)
        self.finish(run, 130)

    # ---- Bad input

    def test_bad_options(self):
        cases = [
            ([], ["-n is missing"]),
            (["-n", "0"], ["-n '0'", "1 to 64"]),
            (["-n", "65"], ["-n '65'", "1 to 64"]),
            (["-n", "two"], ["-n 'two'", "1 to 64"]),
            (["-n", "2", "--codec", "zip"], ["zip", "fixed:B"]),
            (["-n", "2", "--codec", ""], ["--codec ''", "gradlane codecs"]),
            (["-n", "2", "--codec", "fixed:adaptive:13"], ["fixed:adaptive:13", "BITS 1 to 12"]),
            (["-n", "2", "--codec", "fixed:automatic"], ["fixed:automatic", "BITS 1 to 12"]),
            (["-n", "2", "--link", "tcp"], ["--link 'tcp'", "vhost, memif, ring"]),
            (["-n", "2", "--lanes", "17"], ["--lanes '17'", "1 to 16"]),
            (["-n", "2", "--trainers", "17"], ["--trainers '17'", "1 to 16"]),
            (["-n", "64", "--trainers", "16"], ["1024 ranks", "at most 256"]),
            (["-n", "2", "--mtu", "9001"], ["--mtu '9001'", "576 to 9000"]),
            (["-n", "2", "--idle", "sleep"], ["--idle 'sleep'", "adaptive"]),
            (["-n", "2", "--log", "loud"], ["--log 'loud'", "warn"]),
            (["-n", "2", "--timeout", "0"], ["--timeout '0'", "1ms to 10h", "30min"]),
            (["-n", "2", "--timeout", "11h"], ["--timeout '11h'", "1ms to 10h"]),
            (["-n", "2", "--timeout", "half an hour"], ["--timeout 'half an hour'", "1ms to 10h"]),
            (["-n", "2", "--link", "accelerator", "--timeout", "9"], ["--timeout 9", "there are no operations"]),
            (["-n", "3", "--strategies", "ring,cube"], ["strategy is 'cube'", "aggregator:R"]),
            (["-n", "3", "--strategies", "ring,direct,ring"], ["--strategies ring,direct,ring: ring twice"]),
            (["-n", "3", "--strategies", "rings:2"], ["--strategies rings:2", "2 does not divide 3 ranks"]),
            (["-n", "3", "--trainers", "2", "--local-reduce", "--strategies", "rings:2"], ["2 does not divide 3 ranks"]),
            (["-n", "3", "--strategies", "aggregator:3"], ["there is no rank 3 of 3 ranks"]),
            (["-n", "9", "--strategies", ",".join(f"aggregator:{i}" for i in range(9))], ["9 strategies; at most 5"]),
            (["-n", "17", "--strategies", "direct"], ["-n 17 --link vhost --strategies direct: node 0", "16 links; at most 15", "--link udp"]),
            (["-n", "17", "--link", "memif", "--strategies", "direct"], ["16 links; at most 15", "--link udp"]),
            (["-n", "17", "--codec", "int8"], ["-n 17 --link vhost --codec int8: this codec needs strategy direct",
                                               "up to 16 nodes", "add --strategies ring,direct --link udp"]),
            (["-n", "7", "--link", "ring", "--codec", "int8"], ["up to 6 nodes of this link", "use --link vhost"]),
            (["-n", "7", "--link", "ring", "--strategies", "direct"], ["42 ends of links in one process; at most 32", "--link vhost"]),
            (["-n", "17", "--link", "ring"], ["-n 17 --link ring: that makes 34 ends", "--link vhost"]),
            (["-n", "2", "--link", "accelerator", "--strategies", "ring"], ["--strategies ring", "there are no operations"]),
            (["-n", "2", "--keep-configs", "/proc/nowhere"], ["/proc/nowhere"]),
            (["-n", "2", "--metrics", "65535"], ["--metrics '65535'", "1 to 65534"]),
            (["-n", "2", "--link", "veth", "--metrics", "9400"], ["--metrics 9400", "networks of their own"]),
            (["-n", "2", "--link", "accelerator", "--metrics", "9400"], ["--metrics 9400", "networks of their own"]),
            (["-n", "2", "--"], ["no command behind '--'"]),
        ]
        for arguments, words in cases:
            if os.geteuid() != 0 and {"veth", "accelerator"} & {*arguments}:
                words = ["needs root"]
            with self.subTest(arguments=arguments):
                run = self.run_it(*arguments, code=2, **({} if "--" in arguments else {"command": ["true"]}))
                self.assertTrue(run.err.startswith("gradlane: "), run.err)
                for word in words:
                    self.assertIn(word, run.err)
                self.assertNotIn("[node", run.err)  # no daemon has run

    def test_commands_that_cannot_run(self):
        run = self.run_it("-n", "2", command=["no-such-command"], code=127)
        self.assertEqual(run.err, "gradlane: no-such-command: there is no such command\n")
        run = self.run_it("-n", "2", command=["/"], code=126)
        self.assertEqual(run.err, "gradlane: /: not executable\n")


if __name__ == "__main__":
    main(__doc__)
