"""ablation_rank.py - one rank of HiPress' ablation; `gradlane run` starts it on each node

It synchronises the gradients of a step as CaSync's parameter servers do. Each gradient, or each of its K parts, has a
root. All others encode their part and send it to the root. The root decodes and merges each, encodes the sum and sends
it to all, and they decode it. A codec has a queue of its own, so it works while messages travel. Its time is slept, as
if it ran on a GPU: the cores are free for the transport, which is PyTorch's Gloo. Messages have the size of encoded
gradients, and no content.
"""

import ctypes
import json
import pathlib
import queue
import sys
import threading
import time

import numpy
import torch
import torch.distributed as dist

import gradlane
from lab.papers.ablation import BULK, batches_of, parts_of

PR_SET_TIMERSLACK = 29  # of <linux/prctl.h>


class Codec(threading.Thread):
    """Runs tasks one after the other. A task takes the time that it says, and then calls back. If a sleep takes too
    long, and the next task waits already, that one is as much shorter."""

    def __init__(self):
        super().__init__(daemon=True)
        self._tasks, self._free = queue.SimpleQueue(), 0.0
        self.start()

    def put(self, seconds, done):
        if seconds == 0:
            done()
        else:
            self._tasks.put((time.perf_counter(), seconds, done))

    def run(self):
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)  # sleeps of this thread end within 1 ns, not 50 us
        while True:
            asked, seconds, done = self._tasks.get()
            self._free = max(self._free, asked) + seconds
            ahead = self._free - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)
            done()


class Step:
    """Synchronises all parts of a step once. `one_by_one`: a gradient begins when the one before is complete here."""

    def __init__(self, codec, units, one_by_one):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.codec, self.units, self.one_by_one = codec, units, one_by_one
        self.lock, self.done = threading.RLock(), threading.Event()
        self.left = [len(unit) for unit in units]
        self.waiting = sum(self.left)
        self.current, self.early, self.arrived, self.sends = -1, {}, {}, []
        most = max(part.bytes for unit in units for part in unit)
        self.out, self.scratch = torch.zeros(most, dtype=torch.uint8), torch.zeros(most, dtype=torch.uint8)

    def run(self):
        """Returns the seconds of the slowest rank."""
        parts = [part for unit in self.units for part in unit]
        threads = []
        for peer in range(self.world):
            if peer != self.rank:
                for arrive, tag, mine in ((self.contribution, 0, [p for p in parts if p.root == self.rank]),
                                          (self.result, 1, [p for p in parts if p.root == peer])):
                    works = [dist.irecv(self.scratch[:p.bytes], peer, tag=2 * p.number + tag) for p in mine]
                    threads.append(threading.Thread(target=self.receive, args=(arrive, works, mine)))
        dist.barrier()
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for unit in range(1 if self.one_by_one else len(self.units)):
            self.begin(unit)
        self.done.wait()
        for work in self.sends:
            work.wait()
        spent = torch.tensor([time.perf_counter() - began], dtype=torch.float64)
        for thread in threads:
            thread.join()
        dist.all_reduce(spent, dist.ReduceOp.MAX)
        return spent.item()

    def begin(self, unit):
        with self.lock:
            self.current = unit
            early = self.early.pop(unit, [])
        for part in self.units[unit]:
            if part.root != self.rank:
                self.codec.put(part.encode, lambda part=part: self.send(part, part.root, 0))
        for part in early:
            self.contribution(part)

    def send(self, part, peer, tag):
        with self.lock:
            self.sends.append(dist.isend(self.out[:part.bytes], peer, tag=2 * part.number + tag))

    @staticmethod
    def receive(arrive, works, parts):
        for work, part in zip(works, parts):
            work.wait()
            arrive(part)

    def contribution(self, part):
        with self.lock:
            if part.unit > self.current:  # from a rank that is ahead
                self.early.setdefault(part.unit, []).append(part)
                return
        self.codec.put(part.decode, lambda: self.merged(part))

    def merged(self, part):
        with self.lock:
            self.arrived[part.number] = self.arrived.get(part.number, 0) + 1
            if self.arrived[part.number] < self.world - 1:
                return
        self.codec.put(part.encode, lambda: self.spread(part))

    def spread(self, part):
        for peer in range(self.world):
            if peer != self.rank:
                self.send(part, peer, 1)
        self.finish(part)

    def result(self, part):
        self.codec.put(part.decode, lambda: self.finish(part))

    def finish(self, part):
        with self.lock:
            self.left[part.unit] -= 1
            self.waiting -= 1
            following = part.unit + 1 if self.one_by_one and self.left[part.unit] == 0 else len(self.units)
            if self.waiting == 0:
                self.done.set()
        if following < len(self.units):
            self.begin(following)


def say(way, seconds):
    if dist.get_rank() == 0:
        print("result: " + json.dumps({"way": way["name"], "ms": [round(1e3 * each, 2) for each in seconds]}), flush=True)


def by_gradlane(spec):
    """Times gradlane's own ways, one step of each in turn."""
    with gradlane.open(timeout=60) as gl:
        data, slowest = gl.zeros(sum(spec["layers"])), gl.zeros(1)
        noise = numpy.random.default_rng(gl.rank).standard_normal(data.size, dtype=numpy.float32) * numpy.float32(0.01)
        times = {way["name"]: [] for way in spec["ways"]}
        for number in range(spec["rounds"] + 1):  # the first one does not count
            for way in spec["ways"]:
                tensors, at = [], 0
                for size in batches_of(spec["layers"], BULK if way["bulk"] else 0):
                    tensors.append(data[at:at + size])
                    at += size
                data[:] = noise
                gl.barrier()
                began = time.perf_counter()
                requests = []
                for tensor in tensors:
                    requests.append(gl.all_reduce(tensor, codec=way["codec"], async_=True))
                    if way["one_by_one"]:
                        requests.pop().wait()
                for request in requests:
                    request.wait()
                slowest[0] = time.perf_counter() - began
                gl.all_reduce(slowest, reduction="max")
                if number > 0:
                    times[way["name"]].append(float(slowest[0]))
    for way in spec["ways"]:
        say(way, times[way["name"]])


def main():
    spec = json.loads(pathlib.Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if spec["ns"] is None:
        by_gradlane(spec)
    else:
        codec = Codec()
        for way in spec["ways"]:
            units = parts_of(way, spec["layers"], spec["ns"], spec["gbps"])
            say(way, [Step(codec, units, way["one_by_one"]).run() for _ in range(spec["rounds"])])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
