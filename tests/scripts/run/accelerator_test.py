#!/usr/bin/python3
"""Tests `gradlane run --link accelerator` as a user runs it: its network, what commands get, and what it leaves behind.

Usage: accelerator_test.py GRADLANE [GRADLANED]. Without a daemon, fake_accelerator.py takes its place. Needs root, ip,
tc, nft, ethtool and ping; without them it is skipped (exit status 77).
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import unittest

from tests.scripts.fixtures import networks
from tests.scripts.fixtures.waiting import PATIENCE, wait_for
from tests.scripts.run.runs import Programs, Run, sh
from tests.scripts.run.spaces import Endings, SpacesTest, inside, namespaces, space

FAKE = str(pathlib.Path(__file__).with_name("fake_accelerator.py"))
PORTS = ("gla0", "glw0")
# Runs that wait for timeouts do so in the background.
SLOW = {"mute": (["-n", "2"], {"command": ["true"],
                               "env": {"GRADLANED": FAKE, "FAKE_DAEMON": "mute", "FAKE_NODE": "1"}})}
# Rank 0 succeeds if it gets back what it has sent to the other node. Sizes are below, at and above an MTU of 1500.
ECHO = """
import os, random, socket, threading
port, sizes = 5000, (1, 3, 1000, 1448, 1449, 1460, 1461, 9000, 65536, 1000003)
other, data = os.environ["GRADLANE_PEERS"].split(",")[1], random.Random(1)
if os.environ["RANK"] == "1":
    with socket.create_server(("", port)) as server:
        connection = server.accept()[0]
        while piece := connection.recv(65536):
            connection.sendall(piece)
else:
    connection = None
    while connection is None:
        try:
            connection = socket.create_connection((other, port), 180)
        except ConnectionRefusedError:
            pass
    for size in sizes:
        sent, got = data.randbytes(size), b""
        sender = threading.Thread(target=connection.sendall, args=[sent])
        sender.start()
        while len(got) < size:
            piece = connection.recv(size - len(got))
            assert piece, size
            got += piece
        sender.join()
        assert got == sent, size
    print("equal", len(sizes))
"""


def answers(namespace, address, wanted=True):
    """Returns whether the address answers. If it should, it is asked repeatedly, because it may get no CPU time for a
    while."""
    command = ["ip", "netns", "exec", namespace, "ping", "-q", "-c", "3", "-i", "0.1", "-W", "1", address]

    def asked():
        return subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False).returncode == 0

    return wait_for(asked, f"an answer from {address}") if wanted else asked()


class RunAcceleratorTest(Endings, SpacesTest):
    link = "accelerator"
    kinds = ([], ["--accelerator", "none"])
    slow = {}

    @classmethod
    def setUpClass(cls):
        for name, (arguments, keywords) in SLOW.items():
            cls.slow[name] = Run("--link", "accelerator", *arguments, **keywords)
            cls.addClassCleanup(cls.clean, cls.slow[name])

    # ---- Environment of commands

    def test_environment(self):
        names = ("RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK GROUP_WORLD_SIZE MASTER_ADDR "
                 "OMP_NUM_THREADS GRADLANE_NODE GRADLANE_ADDRESS GRADLANE_PEERS GRADLANE_SOCKET "
                 "GLOO_SOCKET_IFNAME").split()
        show = " ".join(f"${{{name}-none}}" for name in names) + " $MASTER_PORT $GRADLANE_ADMIN"
        run = self.run_it("-n", "3", command=sh(f"echo {show}; test -S $GRADLANE_ADMIN && readlink /proc/self/ns/net"),
                          env={"RANK": "77", "MASTER_ADDR": "example.org"})
        peers = "10.77.0.1,10.77.0.2,10.77.0.3"
        ports, admins, spaces = set(), set(), {os.readlink("/proc/self/ns/net")}
        for rank in range(3):
            line, ours = run.lines(f"[{rank}] ")
            words = line.split()
            self.assertEqual(words[:14], [str(rank), "3", "0", "1", str(rank), str(rank), "3", "10.77.0.1", "1",
                                          str(rank), f"10.77.0.{rank + 1}", peers, "none", "gl0"])
            ports.add(int(words[14]))
            admins.add(words[15])
            spaces.add(ours)
        self.assertEqual((len(ports), len(admins), len(spaces)), (1, 3, 4))

    def test_admin_socket_is_that_of_the_accelerator(self):
        script = ("import os, socket, json\ns = socket.socket(socket.AF_UNIX)\ns.connect(os.environ['GRADLANE_ADMIN'])\n"
                  "s.sendall(b'stats\\n')\nprint(json.load(s.makefile())['mode'])")
        run = self.run_it("-n", "2", command=[sys.executable, "-c", script])
        self.assertEqual(sorted(run.out.splitlines()), ["[0] accelerator", "[1] accelerator"])

    # ---- Traffic

    def exchange(self, *arguments):
        run = self.run_it("-n", "2", *arguments, command=[sys.executable, "-c", ECHO])
        self.assertEqual(run.lines("[0] "), ["equal 10"])

    def test_tcp(self):
        self.exchange()

    def test_tcp_with_jumbo_frames(self):
        self.exchange("--mtu", "9000")

    def test_tcp_without_accelerators(self):
        self.exchange("--accelerator", "none")

    def test_tcp_with_a_rate(self):
        self.exchange("--rate", "100mbit")

    def test_ping_of_all_sizes(self):
        for arguments, sizes in (([], "0 1 64 1472 1473 4000 65507"), (["--mtu", "9000"], "1473 8972 8973 65507")):
            ping = f"for s in {sizes}; do ping -q -c 3 -i 0.05 -W 60 -s $s 10.77.0.2 >/dev/null || echo lost $s; done"
            run = self.run_it("-n", "2", *arguments, command=sh(
                f"if test $RANK = 0; then {ping}; touch {{0}}; else while ! test -e {{0}}; do sleep 0.05; done; fi"
                .format(self.flag())))
            self.assertEqual(run.out, "")

    def flag(self):
        folder = self.folder()
        return f"{folder}/flag"

    def test_three_nodes_hear_each_other(self):
        run = self.started(nodes=3)
        for i in range(3):
            for j in range(3):
                self.assertTrue(answers(space(run, f"n{i}"), f"10.77.0.{j + 1}"), (i, j))
        self.stop(run)

    # ---- The network

    def addresses(self, namespace, interface):
        listed = json.loads(inside(namespace, "ip", "-j", "addr", "show", interface))[0]["addr_info"]
        return [(address["local"], address["prefixlen"]) for address in listed]

    def check_interface(self, namespace, interface, mtu, shaped):
        link = json.loads(inside(namespace, "ip", "-j", "link", "show", interface))[0]
        self.assertEqual((link["mtu"], link["operstate"]), (mtu, "UP"), link)
        shaper = inside(namespace, "tc", "qdisc", "show", "dev", interface)
        self.assertEqual("tbf" in shaper and "rate 200Mbit burst 64Kb" in shaper, shaped, (interface, shaper))
        offloads = inside(namespace, "ethtool", "-k", interface).splitlines()
        for name in ("rx-checksumming", "tx-checksumming", "generic-segmentation-offload",
                     "tx-tcp-segmentation", "generic-receive-offload"):
            self.assertTrue(any(line.strip().startswith(f"{name}: off") for line in offloads), (interface, name, offloads))

    def test_network(self):
        run = self.started("--rate", "200mbit", "--mtu", "4000")
        self.assertEqual(namespaces(run), [space(run, name) for name in ("n0", "n1", "sw")])
        for i in range(2):
            node = space(run, f"n{i}")
            self.check_interface(node, "gl0", 4000, shaped=False)
            self.check_interface(node, "gla0", 4000, shaped=False)
            self.check_interface(node, "glw0", 4000, shaped=True)
            self.check_interface(space(run, "sw"), f"n{i}", 4000, shaped=True)
            self.assertEqual(self.addresses(node, "gl0"), [(f"10.77.0.{i + 1}", 24)])
            self.assertEqual([self.addresses(node, port) for port in PORTS], [[], []])
            self.assertIn(("127.0.0.1", 8), self.addresses(node, "lo"))
            self.assertTrue(answers(node, "127.0.0.1"))
            daemon = run.pid_of(f"n{i}.yaml")
            self.assertEqual(os.stat(f"/proc/{daemon}/ns/net").st_ino, os.stat(f"/run/netns/{node}").st_ino)
        self.stop(run)

    def test_network_without_accelerators(self):
        run = self.started("--accelerator", "none", "--rate", "200mbit", env={"GRADLANED": "/nowhere/gradlaned"})
        for i in range(2):
            node = space(run, f"n{i}")
            self.check_interface(node, "gl0", 1500, shaped=True)
            self.check_interface(space(run, "sw"), f"n{i}", 1500, shaped=True)
            self.assertEqual(self.addresses(node, "gl0"), [(f"10.77.0.{i + 1}", 24)])
            self.assertEqual({link["ifname"] for link in json.loads(inside(node, "ip", "-j", "link"))} & set(PORTS),
                             set())
        self.assertFalse([pid for pid in run.pids() if b".yaml" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()])
        self.stop(run)
        run = self.run_it("-n", "2", "--accelerator", "none", command=["env"])
        self.assertIn("GRADLANE_PEERS=10.77.0.1,10.77.0.2", run.lines("[1] "))
        self.assertNotIn("GRADLANE_ADMIN=", run.out)

    def test_kernel_hears_nothing_at_the_ports(self):
        # A stranger at the switch pings the host's address. Its frames arrive at glw0, where the host's kernel must not
        # answer.
        for mode, heard in (("", True), ("sink", False)):
            run = self.started(env={"GRADLANED": FAKE, "FAKE_DAEMON": mode})
            switch = space(run, "sw")
            inside(switch, "ip", "addr", "add", "10.77.0.100/24", "dev", "br0")
            self.assertEqual(answers(switch, "10.77.0.1", heard), heard)
            # The kernel must not hear frames at glw0 even with the right Ethernet address, without ARP.
            for interface in ("gl0", "glw0"):
                link = json.loads(inside(space(run, "n0"), "ip", "-j", "link", "show", interface))[0]
                inside(switch, "ip", "neigh", "replace", "10.77.0.1", "lladdr", link["address"], "dev", "br0")
                inside(space(run, "n0"), "ip", "neigh", "replace", "10.77.0.100", "lladdr", "02:00:00:00:00:01", "dev",
                       "gl0")
                before = self.received(run)
                if heard and interface == "gl0":
                    wait_for(lambda: answers(switch, "10.77.0.1", False) or self.received(run) > before, "an echo request")
                    self.assertGreater(self.received(run), before)
                else:
                    answers(switch, "10.77.0.1", False)
                    self.assertEqual(self.received(run), before)
            self.stop(run)

    def received(self, run):
        """Returns the number of echo requests that the kernel of node 0 has received."""
        names, values = (line.split() for line in inside(space(run, "n0"), "cat", "/proc/net/snmp").splitlines()
                         if line.startswith("Icmp:"))
        return int(values[names.index("InEchos")])

    def test_nothing_moves_by_itself(self):
        run = self.started()
        self.assertEqual([self.sent(run, i) for i in range(2)], [0, 0])
        self.assertTrue(answers(space(run, "n0"), "10.77.0.2"))
        self.assertTrue(all(self.sent(run, i) for i in range(2)))
        self.stop(run)

    def sent(self, run, node):
        """Returns the number of frames that a host has sent."""
        link = json.loads(inside(space(run, f"n{node}"), "ip", "-j", "-s", "link", "show", "gl0"))[0]
        return link["stats64"]["tx"]["packets"]

    # ---- Configurations

    def kept_config(self, *arguments):
        folder = self.folder()
        self.run_it("-n", "2", *arguments, "--keep-configs", folder, command=["true"])
        path = folder / "n1.yaml"
        if Programs.daemon != FAKE:
            subprocess.run([Programs.daemon, "--check", "--config", path], check=True, timeout=PATIENCE,
                           stdout=subprocess.DEVNULL)
        return path.read_text(encoding="ascii").splitlines()

    def test_config(self):
        lines = self.kept_config()
        ring = "qdisc_bypass=0,framesz=2048,blocksz=4096,framecnt=2048"
        for line in ("mode: accelerator", f"host: {{device: 'net_af_packet0,iface=gla0,{ring}'}}",
                     f"wire: {{device: 'net_af_packet1,iface=glw0,{ring}'}}", "codec: 'fixed:10'", "mtu: 1500",
                     "repack: {enabled: true}", "worker: {idle: adaptive}", "log: warn"):
            self.assertIn(line, lines)
        lines = self.kept_config("--mtu", "9000", "--codec", "inceptionn:8", "--repack", "off", "--idle", "yield",
                                 "--log", "info")
        ring = "qdisc_bypass=0,framesz=9216,blocksz=36864,framecnt=512"
        for line in (f"wire: {{device: 'net_af_packet1,iface=glw0,{ring}'}}", "codec: 'inceptionn:8'", "mtu: 9000",
                     "repack: {enabled: false}", "worker: {idle: yield}", "log: info"):
            self.assertIn(line, lines)

    # ---- Without a command

    def test_namespaces_to_enter(self):
        run = self.start("-n", "2")
        self.assertIn("2 nodes are up; Ctrl-C ends them. To start a shell in each:", run.process.stdout.readline())
        for rank in range(2):
            line = run.process.stdout.readline()
            self.assertTrue(line.startswith(f"ip netns exec {space(run, f'n{rank}')} "), line)
            result = subprocess.run(sh(line), capture_output=True, text=True, timeout=PATIENCE,
                                    input="test -S $GRADLANE_ADMIN && echo $RANK of $WORLD_SIZE $GRADLANE_ADDRESS\n")
            self.assertEqual(result.stdout, f"{rank} of 2 10.77.0.{rank + 1}\n", result)
        self.stop(run, signal.SIGINT)

    # ---- Ends of runs, and leftovers

    def test_killed_accelerator(self):
        run = self.started()
        os.kill(run.pid_of("n1.yaml"), signal.SIGKILL)
        self.finish(run, 1)
        self.assertIn("gradlane: the daemon of node 1 was killed by SIGKILL", run.err)

    def test_daemon_that_ends_early(self):
        run = self.run_it("-n", "2", command=["true"], code=1,
                          env={"GRADLANED": FAKE, "FAKE_DAEMON": "exit", "FAKE_NODE": "1"})
        self.assertIn("gradlane: the daemon of node 1 exited with code 3 before it was ready; its last line: "
                      "no memory for packets\n", run.err)

    # This test takes longest, so it runs last.
    def test_zz_daemon_that_does_not_answer(self):
        run = self.finish(self.slow["mute"], 1)
        self.assertRegex(run.err, r"gradlane: node 1 does not answer on \S+/n1.admin after 30 s")

    def test_without_nftables(self):
        env = self.fake_program("nft", "echo Error: Could not process rule >&2; exit 1\n")
        run = self.run_it("-n", "2", command=["true"], code=2, env=env)
        self.assertRegex(run.err, "(?s)gradlane: 'nft .*Could not process rule.*--link accelerator needs nftables")
        self.run_it("-n", "2", "--accelerator", "none", command=["true"], env=env)

    # ---- Bad input

    def test_bad_options(self):
        link = ["-n", "2", "--link", "accelerator"]
        none = [*link, "--accelerator", "none"]
        cases = [
            (["-n", "1", "--link", "accelerator"], ["-n 1", "--link accelerator", "at least 2"]),
            ([*link, "--trainers", "2"], ["--trainers 2", "--link accelerator", "once per node"]),
            ([*link, "--local-reduce"], ["--local-reduce", "--link accelerator"]),
            ([*link, "--lanes", "2"], ["--lanes 2", "--link accelerator", "1"]),
            ([*link, "--codec", "bf16"], ["--codec bf16", "fixed:B", "inceptionn:B"]),
            ([*link, "--repack", "yes"], ["--repack 'yes'", "on, off"]),
            ([*link, "--accelerator", "nic"], ["--accelerator 'nic'", "gradlane, none"]),
            ([*link, "--rate", "fast"], ["--rate 'fast'"]),
            ([*link, "--mtu", "9001"], ["--mtu '9001'", "576 to 9000"]),
            (["-n", "2", "--repack", "on"], ["--repack on", "--link accelerator"]),
            (["-n", "2", "--link", "veth", "--accelerator", "none"], ["--accelerator none", "--link accelerator"]),
            ([*none, "--codec", "fixed:8"], ["--codec fixed:8", "--accelerator none"]),
            ([*none, "--repack", "off"], ["--repack off", "--accelerator none"]),
            ([*none, "--idle", "spin"], ["--idle spin", "--accelerator none"]),
            ([*none, "--log", "info"], ["--log info", "--accelerator none"]),
            ([*none, "--keep-configs", "/tmp/x"], ["--keep-configs /tmp/x", "--accelerator none"]),
        ]
        for arguments, words in cases:
            with self.subTest(arguments=arguments):
                self.refused(arguments, words)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    networks.require("ping", "setpriv")
    Programs.gradlane = str(pathlib.Path(sys.argv.pop(1)).resolve())
    Programs.daemon = FAKE
    if len(sys.argv) > 1 and os.access(sys.argv[1], os.X_OK):
        Programs.daemon = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
