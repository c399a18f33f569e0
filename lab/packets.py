"""packets.py - experiment `packets`: the time that a worker needs for a packet, by kind of port

Two nodes on one machine all-reduce tensors of 64 MiB by `raw`. A sample is for one kind of port and one MTU. It has
node 0's packets, busy time and CPU time, and the parts of a hop without I/O: `gradlane bench exchange`.
`python -m lab.packets FILE` is one rank.
"""

import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from lab.net.spaces import Spaces
from lab.results import jobs
from lab.results.experiment import EXCHANGE, Batch, Experiment
from lab.results.texts import range_text

BYTES, WARM_UP, REPETITIONS = 64 << 20, 3, 20
RUNS = 3
SECONDS, PATIENCE = 15, 60
MTUS = (1500, 9000)
# Devices of nodes whose interfaces are the ends of a veth pair. Others are kinds of links of `gradlane run`. Frames of
# AF_PACKET have room for MTU 9000.
DEVICES = {"AF_PACKET": "net_af_packet0,iface=gl0,qdisc_bypass=0,framesz=9216,blocksz=36864",
           "AF_XDP": "net_af_xdp0,iface=gl0,start_queue=0,queue_count=1"}
KERNEL = ("udp", *DEVICES)  # kinds whose packets need system calls
KINDS = {"udp": "UDP sockets, loopback", "AF_PACKET": "AF_PACKET, veth", "AF_XDP": "AF_XDP, veth",
         "vhost": "vhost", "memif": "memif", "ring": "rings in one process"}
# With XDP, a veth interface takes at most about 3500 bytes.
KEYS = {f"{kind}, MTU {mtu}": (kind, mtu) for mtu in MTUS for kind in KINDS if (kind, mtu) != ("AF_XDP", 9000)}


HEADERS, SEGMENT_HEADER, MOST_BYTES = 28, 8, 16384  # of IP and UDP; of a segment; of a packet


def packet_bytes(kind, mtu):
    """Returns the length of the longest packet, from its link header on. Sockets split it into segments."""
    datagram = mtu - HEADERS
    segments = MOST_BYTES // (datagram - SEGMENT_HEADER) if kind == "udp" else 1
    return segments * (datagram - SEGMENT_HEADER) if segments > 1 else datagram


# ---- One rank


def stats_of(gradlane):
    """Returns the figures of this rank's daemon when nothing moves any more. Workers publish them ten times a second."""
    before = None
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        done = subprocess.run([gradlane, "stats", "--json"], capture_output=True, check=False)
        stats = json.loads(done.stdout) if done.returncode == 0 else None  # 4: the ring is not known to be ready
        sent = sum(rank["counters"]["data_sent"] for rank in stats["ranks"]) if stats else None
        if stats and sent == before:
            return stats
        before = sent
        time.sleep(0.3)
    raise RuntimeError("the daemon gives no figures, or its packets never stop")


def look(gradlane):
    """Returns what this rank's daemon has done so far: packets sent, and seconds by kind."""
    stats = stats_of(gradlane)
    fields = pathlib.Path(f"/proc/{stats['pid']}/stat").read_text().rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    return {"packets": sum(rank["counters"]["data_sent"] for rank in stats["ranks"]),
            "busy": sum(worker["busy_us"] for worker in stats["workers"]) / 1e6,
            "user": int(fields[11]) / tick, "system": int(fields[12]) / tick}


def run_rank(spec):
    import gradlane

    context = gradlane.open()
    tensor = context.zeros(spec["bytes"] // 4)
    for _ in range(WARM_UP):
        context.all_reduce(tensor, codec="raw")
    before = look(spec["gradlane"])
    for _ in range(spec["repetitions"]):
        context.all_reduce(tensor, codec="raw")
    after = look(spec["gradlane"])
    context.barrier()
    if context.rank == 0:
        print(jobs.MARK.decode() + json.dumps({name: round(after[name] - before[name], 6) for name in after}), flush=True)


# ---- All samples


def batches(samples):
    waiting = [(run, key) for key in KEYS for run in range(len(samples.get(key, [])), RUNS)]
    return [Batch((key,), SECONDS, key) for _, key in sorted(waiting, key=lambda each: each[0])]


def wait_for(path, process, log):
    """Waits until a daemon has made its socket. Raises RuntimeError if it has ended, or takes too long."""
    end = time.monotonic() + PATIENCE
    while not path.exists():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"a daemon has made no socket {path}: {log.read_text()}")
        time.sleep(0.02)


def spec_of(context):
    return {"gradlane": str(context.gradlane), "bytes": BYTES, "repetitions": REPETITIONS}


def on_a_veth_pair(context, kind, mtu):
    """Returns what rank 0 prints if two nodes are at the ends of a veth pair."""
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gradlane-lab-")))
        spaces = stack.enter_context(Spaces())
        nodes = [spaces.add(f"n{rank}") for rank in range(2)]
        nodes[0].veth("gl0", nodes[1], "gl0", mtu=mtu)
        spec = folder / "spec.json"
        spec.write_text(json.dumps(spec_of(context)))

        def start(command, **options):
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, **options)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return process

        trainers = []
        for rank, node in enumerate(nodes):
            file, socket, log = (folder / f"n{rank}.{end}" for end in ("yaml", "sock", "log"))
            file.write_text(f"rank: {rank}\nnodes: [{{rank: 0, ip: 10.77.0.1}}, {{rank: 1, ip: 10.77.0.2}}]\nmtu: {mtu}\n"
                            f"socket: {socket}\nports: [{{device: '{DEVICES[kind]}'}}]\nlog: warn\n")
            daemon = start(node.command(context.gradlane.with_name("gradlaned"), "--config", file),
                           stderr=stack.enter_context(log.open("w")))
            wait_for(socket, daemon, log)
            trainers.append(start([context.python, "-m", "lab.packets", spec], stdout=subprocess.PIPE, text=True,
                                  env=context.environment() | {"GRADLANE_SOCKET": str(socket)}))
        said = [trainer.communicate(timeout=PATIENCE)[0] for trainer in trainers]
        if any(trainer.returncode for trainer in trainers):
            raise RuntimeError(f"{kind}: trainers ended with {[trainer.returncode for trainer in trainers]}")
        return json.loads(said[0].removeprefix(jobs.MARK.decode()))


def measure(batch, context):
    kind, mtu = KEYS[batch.argument]
    if kind in DEVICES:
        found = on_a_veth_pair(context, kind, mtu)
        command = f"gradlaned with {DEVICES[kind]} at both ends of a veth pair; python -m lab.packets"
    else:
        options = ["-n", 2, "--link", kind, "--security", "none", "--mtu", mtu]
        found, = jobs.results(context, options, "lab.packets", spec_of(context))
        command = f"gradlane run {' '.join(map(str, options))} -- python -m lab.packets"
    bench = [context.gradlane, "bench", "exchange", "--codec", "raw", "--mtu", packet_bytes(kind, mtu) + HEADERS, "--json"]
    found["hops"] = json.loads(jobs.output(context, bench, PATIENCE))["rows"]
    yield batch.argument, found, command


# ---- Figures


def breakdown(kind, run):
    """Returns the nanoseconds of the parts of a packet. Half of all packets have sums, and half have results."""
    parts = {name: statistics.mean(hop[f"{name}_ns"] for hop in run["hops"]) for name in ("codec", "crc", "engine")}
    total = 1e9 * run["busy"] / run["packets"]
    used = run["user"] + run["system"]  # 0 if less than a tick
    parts["kernel"] = total * run["system"] / used if kind in KERNEL and used else 0
    return {**parts, "rest": total - sum(parts.values()), "total": total}


def table(samples):
    if not samples:
        return "not measured"
    lines = ["| port | MTU | bytes | codec | CRC | engine | kernel | port and the rest | total |", "|---|" + "---:|" * 8]
    for key, (kind, mtu) in KEYS.items():
        if key in samples:
            runs = [breakdown(kind, run) for run in samples[key]]
            cells = [range_text([run[part] for run in runs], 0) for part in runs[0]]
            lines.append(f"| {KINDS[kind]} | {mtu} | {packet_bytes(kind, mtu)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


EXPERIMENT = Experiment(
    name="packets",
    title="the time of a worker for a packet, by kind of port",
    sources=(*EXCHANGE, "lab/packets.py", "tools/bench/hop*.cc", "tools/bench/ring.cc"),
    batches=batches,
    measure=measure,
    figures={"table": table},
)


if __name__ == "__main__":
    run_rank(json.loads(pathlib.Path(sys.argv[1]).read_text()))
