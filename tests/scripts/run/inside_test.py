#!/usr/bin/python3
"""Tests `gradlane run --link veth --inside`: what commands get and see, TCP next to gradlane, and what is left behind.

Usage: inside_test.py GRADLANE GRADLANED. Needs root, ip, tc, nft, ethtool and ping; without them it is skipped (exit
status 77). If PyTorch is there, Gloo is tried, too.
"""

import json
import pathlib
import signal
import subprocess
import sys
import unittest

from tests.scripts.fixtures import networks
from tests.scripts.fixtures.waiting import PATIENCE
from tests.scripts.run.runs import Programs, Run, sh
from tests.scripts.run.spaces import Endings, SpacesTest, inside, namespaces, space

RATE = 50_000_000
BYTES = 3_000_000  # sent by TCP
COUNT = 50_000  # elements of each all-reduce
# All-reduces run while rank 0 receives by TCP. Rank 0 prints what its interfaces have received meanwhile.
BESIDE = f"""
import json, os, socket, threading, time
import gradlane
rank, master = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
state = {{"over": 0, "took": 0.0, "wrong": 0, "sums": 0}}

def connect():
    while True:
        try:
            return socket.create_connection(master, 20)
        except ConnectionRefusedError:
            time.sleep(0.01)

def received():
    rows = [line.split(":") for line in open("/proc/net/dev", encoding="ascii") if ":" in line]
    return {{name.strip(): int(numbers.split()[0]) for name, numbers in rows}}

def receive(connection):
    begin, left = time.monotonic(), {BYTES}
    connection.sendall(b"!")
    while left:
        left -= len(connection.recv(min(left, 65536))) or left
    state.update(over=1, took=time.monotonic() - begin)

def send(connection):
    connection.recv(1)
    connection.sendall(bytes({BYTES}))

if rank == 0:
    with socket.create_server(master) as server:
        connection, (peer, _) = server.accept()
    state["peer"] = peer
else:
    connection = connect()
with gradlane.open(timeout=60) as gl:
    array = gl.zeros({COUNT})
    gl.all_reduce(array, codec="raw")
    before = received()
    thread = threading.Thread(target=send if rank else receive, args=[connection])
    thread.start()
    while array[0] < 1000:
        state["sums"] += 1
        array[:] = rank + state["sums"]
        array[0] = 1000 * state["over"]
        gl.all_reduce(array, codec="raw")
        state["wrong"] += int((array[1:] != 1 + 2 * state["sums"]).sum())
thread.join()
state["received"] = {{name: count - before[name] for name, count in received().items()}}
print(json.dumps(state))
"""
GLOO = """
import gradlane, torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
with gradlane.open(timeout=60) as gl:
    array, tensor = gl.zeros(200000), torch.full((200000,), rank + 1.0)
    array[:] = rank + 1
    dist.all_reduce(tensor)
    gl.all_reduce(array, codec="raw")
    wanted = world * (world + 1) / 2
    assert (tensor == wanted).all() and (array == wanted).all(), (tensor, array)
dist.barrier()
print("right", rank)
"""
# Asks for 10.77.1.2 on an interface by ARP, and prints the addresses that answer.
ASK = """
import socket, struct, sys, time
own = b"\\x02\\0\\0\\0\\0\\x63"
question = b"\\xff" * 6 + own + struct.pack("!HHHBBH", 0x806, 1, 0x800, 6, 4, 1)
question += own + socket.inet_aton("10.77.1.99") + bytes(6) + socket.inet_aton("10.77.1.2")
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x806)) as asked:
    asked.bind((sys.argv[1], 0x806))
    asked.send(question)
    asked.settimeout(20)
    while True:
        answer = asked.recv(1514)
        if answer[:6] == own and answer[20:22] == b"\\0\\x02":
            print(answer[6:12].hex(":"))
            asked.settimeout(0.3)
"""


class RunInsideTest(Endings, SpacesTest):
    link = "veth"

    def start(self, *arguments, **keywords):
        return super().start("--inside", *arguments, **keywords)

    # ---- Environment of commands

    def test_environment(self):
        names = ("RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK GROUP_WORLD_SIZE MASTER_ADDR "
                 "OMP_NUM_THREADS GRADLANE_NODE GRADLANE_ADDRESS GRADLANE_PEERS GLOO_SOCKET_IFNAME").split()
        show = " ".join(f"${name}" for name in names) + " $MASTER_PORT $GRADLANE_SOCKET $GRADLANE_NAMESPACES"
        text = (f"echo {show}; test -S $GRADLANE_SOCKET && stat -L -c %i /proc/self/ns/net "
                "$(echo $GRADLANE_NAMESPACES | sed 's:gradlane:/run/netns/gradlane:g; s/,/ /g')")
        run = self.run_it("-n", "3", "--trainers", "2", command=sh(text), env={"RANK": "77", "MASTER_ADDR": "a.org"})
        ports, sockets, spaces = set(), [], []
        for rank in range(6):
            line, own, *listed = run.lines(f"[{rank}] ")
            words, node = line.split(), rank // 2
            self.assertEqual(words[:13], [str(rank), "6", str(rank % 2), "2", str(node), str(node), "3", "10.77.1.1",
                                          "1", str(node), f"10.77.1.{node + 1}", "10.77.1.1,10.77.1.2,10.77.1.3",
                                          "eth0"])
            self.assertEqual(words[15], ",".join(space(run, f"n{i}") for i in range(3)))
            self.assertEqual(listed.index(own), node, "in another namespace")
            ports.add(int(words[13]))
            sockets.append(words[14])
            spaces.append(own)
        self.assertEqual(len(ports), 1)
        self.assertEqual([len(set(each[i:i + 2])) for each in (sockets, spaces) for i in (0, 2, 4)], [1] * 6)
        self.assertEqual([len(set(each)) for each in (sockets, spaces)], [3, 3])

    def test_interface_of_the_user_stays(self):
        run = self.run_it("-n", "1", command=sh("echo $GLOO_SOCKET_IFNAME"), env={"GLOO_SOCKET_IFNAME": "gl7"})
        self.assertEqual(run.out, "[0] gl7\n")

    def test_namespaces_to_enter(self):
        for trainers, what in (("1", "in each"), ("2", "for each trainer")):
            run = self.start("-n", "2", "--trainers", trainers)
            self.assertIn(f"2 nodes are up; Ctrl-C ends them. To start a shell {what}:", run.process.stdout.readline())
            for rank in range(2 * int(trainers)):
                line, node = run.process.stdout.readline(), rank // int(trainers)
                self.assertTrue(line.startswith(f"ip netns exec {space(run, f'n{node}')} "), line)
                result = subprocess.run(sh(line), capture_output=True, text=True, timeout=PATIENCE,
                                        input="test -S $GRADLANE_SOCKET && echo $RANK $GRADLANE_ADDRESS\n")
                self.assertEqual(result.stdout, f"{rank} 10.77.1.{node + 1}\n", result)
            run.process.send_signal(signal.SIGINT)
            self.finish(run, 130)

    # ---- Traffic

    def test_tcp_beside_gradlane(self):
        run = self.run_it("-n", "2", "--rate", f"{RATE}bit", "--no-prefix", command=[sys.executable, "-c", BESIDE])
        first, second = (json.loads(line) for line in run.out.splitlines())
        if "peer" in second:
            first, second = second, first
        self.assertEqual((first["wrong"], second["wrong"], first["peer"]), (0, 0, "10.77.1.2"))
        self.assertEqual(first["sums"], second["sums"])
        # All TCP bytes arrive at eth0, and all of gradlane's at gl0. With two nodes, an all-reduce receives as many
        # bytes as the tensor has.
        sums = first["sums"] * COUNT * 4
        self.assertTrue(BYTES < first["received"]["eth0"] < BYTES * 1.1, first)
        self.assertTrue(sums < first["received"]["gl0"] < sums * 1.2 + 100_000, first)
        # The rate does not limit the burst of 64 KiB.
        self.assertLess(BYTES * 8 / first["took"], RATE / 0.85)

    def test_gloo(self):
        for nodes, mtu in ((4, "1500"), (2, "9000")):
            run = self.start("-n", str(nodes), "--rate", "1gbit", "--mtu", mtu, command=[sys.executable, "-c", GLOO])
            run.process.wait(4 * PATIENCE)  # importing PyTorch takes a while
            self.finish(run, 0)
            self.assertEqual(sorted(run.out.splitlines()), [f"[{rank}] right {rank}" for rank in range(nodes)])

    # ---- The network

    def check_interface(self, namespace, interface, offloads):
        link = json.loads(inside(namespace, "ip", "-j", "link", "show", interface))[0]
        self.assertEqual((link["mtu"], link["operstate"]), (4000, "UP"), link)
        shaper = inside(namespace, "tc", "qdisc", "show", "dev", interface)
        self.assertRegex(shaper, "qdisc tbf .* rate 200Mbit burst 64Kb")
        features = inside(namespace, "ethtool", "-k", interface).splitlines()
        for name in ("tx-checksumming", "tx-tcp-segmentation", "generic-segmentation-offload"):
            self.assertTrue(any(line.strip().startswith(f"{name}: {offloads}") for line in features), (name, features))
        return [(address["local"], address["prefixlen"])
                for address in json.loads(inside(namespace, "ip", "-j", "addr", "show", interface))[0]["addr_info"]]

    def test_network(self):
        run = self.started("--rate", "200mbit", "--mtu", "4000", nodes=3)
        self.assertEqual(namespaces(run), [space(run, name) for name in ("n0", "n1", "n2", "sw")])
        for i in range(3):
            node = space(run, f"n{i}")
            self.assertEqual(self.check_interface(node, "gl0", "off"), [])
            self.assertEqual(self.check_interface(node, "eth0", "on"), [(f"10.77.1.{i + 1}", 24)])
            self.assertEqual(self.check_interface(space(run, "sw"), f"n{i}", "off"), [])
            self.assertEqual(self.check_interface(space(run, "sw"), f"e{i}", "on"), [])
            for address in ("127.0.0.1", "10.77.1.1", "10.77.1.2", "10.77.1.3"):
                inside(node, "ping", "-q", "-c", "1", "-W", "20", address)
        self.stop(run, signal.SIGINT)

    def test_only_eth0_answers_for_its_address(self):
        # The fake nft fails, so frames that arrive at gl0 reach the kernel, as on a machine without nftables.
        run = self.started(env=self.fake_program("nft", "exit 1\n"))
        node = space(run, "n1")
        own = json.loads(inside(node, "ip", "-j", "link", "show", "eth0"))[0]["address"]
        for interface in ("gl0", "eth0"):
            result = subprocess.run(["ip", "netns", "exec", space(run, "n0"), sys.executable, "-c", ASK, interface],
                                    capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(result.stdout.split(), [own], result)
        self.stop(run, signal.SIGINT)

    # ---- Nothing stays behind (Endings has more)

    def test_network_that_cannot_be_finished(self):
        # The fake tc fails for eth0 of node 0. All veth pairs exist by then.
        fake = self.fake_program("tc", 'case "$*" in *eth0*) echo Error: no such thing. >&2; exit 2; esac\n')
        run = self.run_it("-n", "2", "--rate", "1gbit", command=["true"], code=2, env=fake)
        self.assertIn("gradlane: 'tc qdisc add dev eth0 root tbf", run.err)

    # ---- Bad input

    def test_other_links(self):
        for link, words in (("vhost", "needs --link veth or udp; with --link vhost"),
                            ("memif", "needs --link veth"), ("ring", "needs --link veth"),
                            ("accelerator", "leave it out; with --link accelerator")):
            run = Run("-n", "2", "--link", link, "--inside", command=["true"])
            self.addCleanup(run.clean)
            self.finish(run, 2)
            self.assertTrue(run.err.startswith(f"gradlane: --inside: {words}"), run.err)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    networks.require("ping", "setpriv")
    Programs.gradlane = str(pathlib.Path(sys.argv.pop(1)).resolve())
    Programs.daemon = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
