"""shares.py - experiment `shares`: what a TCP flow gets of a link that it shares with a ring

Two nodes in network namespaces all-reduce by `raw` over UDP sockets, while rank 1 sends to rank 0 by TCP. A sample is for
one rate of the link. It has the bits per second of TCP alone, of TCP beside the ring, and of the ring.
`python -m lab.shares FILE` is one rank.
"""

import json
import os
import pathlib
import socket
import sys
import threading
import time

from lab.results import jobs
from lab.results.experiment import EXCHANGE, Batch, Experiment
from lab.results.texts import range_text

# Node 0 on the link of the ring (tools/run/net.cc). Its network namespace has no other servers.
SERVER = "10.77.0.1", 5999
RUNS, SECONDS, SETTLE = 3, 5.0, 1.0
BYTES = 16 << 20
KEYS = ("1gbit", "200mbit")


# ---- One rank


class Flow:
    """A TCP flow from rank 1 to rank 0. `received`: bytes that rank 0 has received."""

    def __init__(self, rank):
        self.received = 0
        if rank == 0:
            with socket.create_server(SERVER) as server:
                self._socket = server.accept()[0]
        else:
            self._socket = self._connect()
        threading.Thread(target=self._receive if rank == 0 else self._send, daemon=True).start()

    @staticmethod
    def _connect():
        while True:
            try:
                return socket.create_connection(SERVER)
            except ConnectionRefusedError:  # rank 0 has not started its server yet
                time.sleep(0.01)

    def _send(self):
        data = bytes(1 << 20)
        while True:
            self._socket.sendall(data)

    def _receive(self):
        while True:
            self.received += len(self._socket.recv(1 << 20))


def run_rank(spec):
    import gradlane

    context = gradlane.open()
    tensor, over = context.zeros(spec["bytes"] // 4), context.zeros(1)
    flow = Flow(context.rank)

    def all_reduce_for(seconds):
        """All-reduces until a rank finds that the time has passed."""
        end = time.monotonic() + seconds
        over[0] = 0
        while over[0] == 0:
            context.all_reduce(tensor, codec="raw")
            over[0] = time.monotonic() >= end
            context.all_reduce(over, codec="raw")

    def bits_per_second(work):
        """Returns the rates of TCP and of the ring while work() runs. Both nodes of a ring send as much as the other."""
        work(spec["settle"])
        began, received, sent = time.monotonic(), flow.received, context.figures().data_bytes
        work(spec["seconds"])
        passed = time.monotonic() - began
        return 8 * (flow.received - received) / passed, 8 * (context.figures().data_bytes - sent) / passed

    alone, _ = bits_per_second(time.sleep)
    context.barrier()
    tcp, ring = bits_per_second(all_reduce_for)
    if context.rank == 0:
        print(jobs.MARK.decode() + json.dumps({"alone": alone, "tcp": tcp, "ring": ring}), flush=True)
    context.barrier()
    os._exit(0)  # the threads of the flow do not end


# ---- All samples


def batches(samples):
    return [Batch((key,), SETTLE * 2 + SECONDS * 2 + 2, key) for run in range(RUNS) for key in KEYS
            if run >= len(samples.get(key, []))]


def measure(batch, context):
    options = ["-n", 2, "--link", "udp", "--inside", "--rate", batch.argument]
    found, = jobs.results(context, options, "lab.shares", {"bytes": BYTES, "settle": SETTLE, "seconds": SECONDS})
    yield batch.argument, found, f"gradlane run {' '.join(map(str, options))} -- python -m lab.shares"


# ---- Figures


def table(samples):
    if not samples:
        return "not measured"
    lines = ["| rate of the link | TCP alone, Mb/s | TCP beside the ring | ring beside TCP | TCP's share |", "|---|" + "---:|" * 4]
    for key in KEYS:
        runs = samples.get(key, [])
        if runs:
            rates = [range_text([run[name] / 1e6 for run in runs], 0) for name in ("alone", "tcp", "ring")]
            share = range_text([100 * run["tcp"] / (run["tcp"] + run["ring"]) for run in runs], 0)
            lines.append(f"| {key} | " + " | ".join(rates) + f" | {share} % |")
    return "\n".join(lines)


EXPERIMENT = Experiment(
    name="shares",
    title="what a TCP flow gets of a link that it shares with a ring",
    sources=(*EXCHANGE, "lab/shares.py"),
    batches=batches,
    measure=measure,
    figures={"table": table},
)


if __name__ == "__main__":
    run_rank(json.loads(pathlib.Path(sys.argv[1]).read_text()))
