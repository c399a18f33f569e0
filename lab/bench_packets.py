#!/usr/bin/python3
"""Times all-reduces of NumPy arrays by gradlane over UDP sockets, beside Gloo, in one run on one machine.

Each ring is a `gradlane run --link udp`: on loopback with long packets and with MTU 1500, and, as root, in network
namespaces whose links have a rate. In each, Gloo and gradlane's codecs take turns. A row has the median time on the
slowest rank, how many times as fast as Gloo that is, and CPU seconds per GB of tensor of a rank: of the rank and, but
for Gloo, of its daemon. Work of the kernel for arriving packets is part of that only if it runs in one of them.

Needs build/ and the PyTorch that tools/setup.sh --test installs.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
GLOO = "gloo"
CODECS = ("raw", "fixed:10")
STANDARD_DEVIATION = 0.01
ROUNDS, SECONDS, MOST = 4, 2.0, 25  # rounds in which methods take turns; of each method; repetitions in a round
PATIENCE = 300
TICK = os.sysconf("SC_CLK_TCK")
# name: nodes, MiB, options of `gradlane run`
RINGS = {
    "loopback, 2 nodes": (2, 64, ()),
    "loopback, 2 nodes, MTU 1500": (2, 64, ("--mtu", "1500")),
    "loopback, 4 nodes": (4, 64, ()),
    "loopback, 4 nodes, MTU 1500": (4, 64, ("--mtu", "1500")),
    "5gbit, 4 nodes": (4, 16, ("--inside", "--rate", "5gbit")),
    "1gbit, 4 nodes": (4, 16, ("--inside", "--rate", "1gbit")),
}


# ---- A rank


def daemon_seconds():
    """Returns the CPU seconds of this rank's daemon so far. Daemons are children of `gradlane run`, as this rank is."""
    socket = os.environ["GRADLANE_SOCKET"]
    parent = os.getppid()
    for child in pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        words = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        config = next((word.decode() for word in words if word.endswith(b".yaml")), "")
        if config and f"'{socket}'" in pathlib.Path(config).read_text():
            fields = pathlib.Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / TICK
    raise RuntimeError(f"found no daemon of {socket} among the children of process {parent}")


def own_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run_rank(args):
    import numpy
    import torch
    import torch.distributed as dist

    import gradlane

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    context = gradlane.open()
    if args.data:
        recording = numpy.load(args.data)
        gradients = numpy.resize(recording[context.rank % len(recording)], args.floats)
    else:
        generator = numpy.random.default_rng(context.rank)
        gradients = generator.normal(0, STANDARD_DEVIATION, args.floats).astype(numpy.float32)
    shared, plain = context.zeros(args.floats), torch.zeros(args.floats)

    def exchange(method):
        if method == GLOO:
            dist.all_reduce(plain)
        else:
            context.all_reduce(shared, codec=method)

    found = {method: {"us": [], "cpu": 0.0} for method in (GLOO, *args.codec)}

    def repeat(method):
        shared[:] = gradients
        plain.numpy()[:] = gradients
        dist.barrier()
        daemon = daemon_seconds()  # before own_seconds(), so that the search for it does not count
        cpu = own_seconds()
        began = time.perf_counter()
        exchange(method)
        slowest = torch.tensor([time.perf_counter() - began])
        cpu = own_seconds() - cpu
        if method != GLOO:
            cpu += daemon_seconds() - daemon
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        found[method]["us"].append(round(1e6 * float(slowest), 1))
        found[method]["cpu"] += cpu

    counts = {}
    for method in found:
        repeat(method)
        repeat(method)
        counts[method] = max(1, min(MOST, int(SECONDS / ROUNDS / (found[method]["us"][-1] * 1e-6 + 0.02))))
        found[method] = {"us": [], "cpu": 0.0}
    for _ in range(ROUNDS):
        for method, count in counts.items():
            for _ in range(count):
                repeat(method)
    for method, each in found.items():
        cpu = torch.tensor([each["cpu"] / len(each["us"])])
        dist.all_reduce(cpu)
        each["cpu"] = float(cpu) / context.world
    if context.rank == 0:
        print("result: " + json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()


# ---- All rings


def measure(args, name):
    nodes, mebibytes, options = RINGS[name]
    command = [args.gradlane, "run", "--link", "udp", "-n", nodes, *options, "--strategies", "ring", "--security",
               args.security, "--no-prefix", "--", args.python, "-u", __file__, "--codec", *args.codec,
               "--floats", mebibytes << 18]
    if args.data:
        command += ["--data", args.data.resolve()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "client" / "python"), "OMP_NUM_THREADS": "1",
                   "GRADLANE_LIBRARY": str(ROOT / "build" / "client" / "libgradlane.so.0")}
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True,
                          timeout=PATIENCE)
    lines = [line for line in done.stdout.splitlines() if line.startswith("result: ")]
    if done.returncode != 0 or not lines:
        raise RuntimeError(f"{name}: gradlane run ended with status {done.returncode}: {done.stderr[-2000:]}")
    found = json.loads(lines[0].removeprefix("result: "))
    times = {method: statistics.median(each["us"]) for method, each in found.items()}
    return [{"ring": name, "method": method, "us": times[method], "of_gloo": times[GLOO] / times[method],
             "repetitions": len(each["us"]), "cpu_s_per_gb": each["cpu"] / (mebibytes * 2**20 / 1e9)}
            for method, each in found.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradlane", default=ROOT / "build" / "tools" / "gradlane", help="build/tools/gradlane")
    parser.add_argument("--python", default=ROOT / "build-pytorch" / "bin" / "python", help="Python with PyTorch")
    parser.add_argument("--ring", action="append", choices=RINGS, help="only this ring; may be repeated")
    parser.add_argument("--codec", nargs="+", default=CODECS, metavar="NAME", help=f"default: {' '.join(CODECS)}")
    parser.add_argument("--security", default="none", metavar="WORD",
                        help="of gradlane's packets: none (default), authenticated, encrypted, encrypted-128; not of Gloo's")
    parser.add_argument("--data", type=pathlib.Path, metavar="FILE.npy",
                        help="recorded gradients, a row for each rank, repeated; default: normal numbers")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--floats", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.floats:
        return run_rank(args)
    rings = args.ring or [name for name in RINGS if os.geteuid() == 0 or "gbit" not in name]
    rows = []
    if not args.json:
        print(f"{'ring':28} {'method':9} {'ms':>8} {'x Gloo':>7} {'CPU s/GB':>9}")
    for name in rings:
        for row in measure(args, name):
            rows.append(row)
            if not args.json:
                print(f"{row['ring']:28} {row['method']:9} {row['us'] / 1000:8.2f} {row['of_gloo']:7.2f} "
                      f"{row['cpu_s_per_gb']:9.2f}", flush=True)
    if args.json:
        print(json.dumps({"rows": rows}))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        sys.exit(f"bench_packets.py: {error}")
