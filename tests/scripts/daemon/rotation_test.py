#!/usr/bin/python3
"""Rotates the key of a ring again and again during all-reduces: no operation fails, and no packet is refused."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

from tests.scripts.fixtures import rings

NODES = 3
ELEMENTS = 5000


class Keys:
    """The command `gradlane key` for the daemons of a ring."""

    def __init__(self, ring, gradlane, folder):
        self.ring, self.gradlane, self.folder, self.made = ring, gradlane, folder, 0

    def run(self, *argv):
        return subprocess.run([self.gradlane, "key", *map(str, argv)], capture_output=True, text=True,
                              timeout=rings.PATIENCE)

    def new(self):
        self.made += 1
        file = self.folder / f"{self.made}.key"
        result = self.run("new", file, "--json")
        assert result.returncode == 0, result.stderr
        assert file.stat().st_mode & 0o777 == 0o600
        return file, json.loads(result.stdout)["id"]

    def rotate(self, node, file, *options):
        return self.run("rotate", file, "--admin", self.admin(node), *options)

    def show(self, node):
        result = self.run("show", "--json", "--admin", self.admin(node))
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def admin(self, node):
        return self.ring.socket(node).removesuffix(".sock") + ".admin"

    def rotate_all(self):
        file, name = self.new()
        for node in range(NODES):
            result = self.rotate(node, file)
            assert result.returncode == 0 and f"key {name} is the newest" in result.stdout, result
        rings.wait_for(lambda: all(not self.show(node)["waits_for"] for node in range(NODES)), f"all use key {name}")
        return file, name


class Work:
    """Trainers, one a node, that all-reduce until the end of the `with`."""

    def __init__(self, ring):
        self.contexts = [ring.open(rank) for rank in range(NODES)]
        self.over, self.sums, self.error = threading.Event(), 0, None
        self.thread = threading.Thread(target=self._work)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        for gl in self.contexts:
            gl.close()

    def wait_for(self, sums):
        rings.wait_for(lambda: self.error or self.sums >= sums, f"{sums} sums", patience=600)
        assert self.error is None, self.error

    def _work(self):
        try:
            arrays = [gl.zeros(ELEMENTS) for gl in self.contexts]
            while not self.over.is_set():
                for rank, array in enumerate(arrays):
                    array[:] = rank + self.sums % 1000
                requests = [gl.all_reduce(array, codec="raw", async_=True)
                            for gl, array in zip(self.contexts, arrays, strict=True)]
                for request in requests:
                    request.wait(rings.PATIENCE)
                want = NODES * (self.sums % 1000) + sum(range(NODES))
                assert all((array == want).all() for array in arrays), "a wrong sum"
                self.sums += 1
        except Exception as error:  # noqa: BLE001, the main thread reports it
            self.error = repr(error)


def counters(ring, name):
    return [sum(queue["counters"][name] for port in ring.stats(node)["ports"] for queue in port["queues"])
            for node in range(NODES)]


def check_work(ring, keys, rotations, operations):
    with Work(ring) as work:
        for number in range(rotations):
            keys.rotate_all()
            work.wait_for(operations * (number + 1) // rotations)
    assert work.error is None, work.error
    assert not any(ring.lines(node, "have wrong tags") for node in range(NODES))
    assert counters(ring, "forged") == [0] * NODES, counters(ring, "forged")
    failed = [rank["counters"]["operations_failed"] for node in range(NODES) for rank in ring.stats(node)["ranks"]]
    assert failed == [0] * NODES, failed
    print(f"{rotations} new keys during {work.sums} sums of {NODES} nodes: none failed", flush=True)


def check_order(ring, keys):
    """Nodes get a key one after the other, wrong requests change nothing, and a node comes back with the new key."""
    before = keys.show(0)["newest"]
    file, name = keys.new()
    assert keys.rotate(0, file).returncode == 0
    rings.wait_for(lambda: keys.show(0)["waits_for"] == [1, 2], "the others do not have it")
    shown = keys.run("show", "--admin", keys.admin(0)).stdout
    assert f"key {name} is the newest, {before} is accepted for" in shown, shown
    assert f"nodes 1, 2 do not use {name} yet" in shown, shown
    again = keys.rotate(0, file)
    assert again.returncode == 0 and f"key {name} is the newest" in again.stdout, again
    third, _ = keys.new()
    early = keys.rotate(0, third)
    assert early.returncode == 1 and f"nodes 1, 2 do not use the latest key {name} yet" in early.stderr, early
    assert (shown := keys.show(0)) and (shown["newest"], shown["old"]) == (name, before), shown
    for wrong, status, why in ((keys.folder, 1, "is not a regular file"), (keys.folder / "none", 2, "No such file")):
        result = keys.rotate(0, wrong)
        assert result.returncode == status and why in result.stderr, result
    fifo = keys.folder / "fifo"
    os.mkfifo(fifo, 0o600)
    assert "is not a regular file" in keys.rotate(0, fifo).stderr
    assert keys.run("new", file).returncode == 2, "a key was overwritten"
    late = keys.rotate(0, third, "--old-for", "99999999")
    assert late.returncode == 1 and "allowed: rotate SECONDS" in late.stderr, late
    for node in (1, 2):
        assert keys.rotate(node, file).returncode == 0
    rings.wait_for(lambda: all(not keys.show(node)["waits_for"] for node in range(NODES)), "all have it")
    # The others still accept the old key as well, and node 2 has only the new one now.
    os.replace(file, ring.key)
    ring.terminate(2)
    ring.start_node(2)
    ring.wait_whole()
    with Work(ring) as work:
        work.wait_for(20)
    print("one node after the other, wrong requests, a restart", flush=True)


def check_old_key(ring, keys):
    """A node that does not get the new key in time is cut off, and both sides say so."""
    file, name = keys.new()
    for node in (0, 1):
        assert keys.rotate(node, file, "--old-for", "1").returncode == 0
    rings.wait_for(lambda: all(keys.show(node)["old"] is None for node in (0, 1)), "the old key is dropped")
    assert ring.lines(0, f"do not use key {name}: rotate to it there"), ring.log(0)
    rings.wait_for(lambda: counters(ring, "forged")[0] > 0 and counters(ring, "forged")[2] > 0, "both refuse packets")
    # A late rotation still works.
    assert keys.rotate(2, file).returncode == 0
    ring.wait_whole()
    print("a node that got the key too late", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlane")
    parser.add_argument("gradlaned")
    parser.add_argument("--rotations", type=int, default=8)
    parser.add_argument("--operations", type=int, default=800)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        key = folder / "ring.key"
        subprocess.run([args.gradlane, "key", "new", key], check=True, stdout=subprocess.DEVNULL)
        with rings.Ring("memif", NODES, folder, args.gradlaned, security="encrypted",
                        auth=f"{{key_file: {key}}}") as ring:
            ring.key = key
            ring.start().wait_whole()
            keys = Keys(ring, args.gradlane, folder)
            check_work(ring, keys, args.rotations, args.operations)
            check_order(ring, keys)
            check_old_key(ring, keys)
    print("3 checks of key rotation passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
