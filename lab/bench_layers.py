#!/usr/bin/python3
"""Measures how much faster each way to synchronise a model's gradients is than the one before it in the list below, as
HiPress' ablation does. Needs root.

Four nodes in network namespaces with links of a known rate (`gradlane run --link udp --rate`) add the gradients of a
complete step, independent floats of N(0, 0.01), in these ways:

  plain       raw, a tensor at a time
  codec       the codec, a tensor at a time
  pipelining  the codec, all tensors submitted at once
  bulk        the codec, buckets of 25 MiB as DistributedDataParallel makes them (the first one 1 MiB), at once
  plan        codec auto with the same bound, the same buckets, after 14 steps in which it tries and settles; the extra
              time of these, compared with 14 later steps, is printed, too

Each round runs all ways once, in another order. Times are those of the slowest node, and ratios are within a round.
They mean little if the machine does something else at the same time.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # imports are written from the root

from lab.net import trainers  # noqa: E402

NODES = 4
SIGMA = 0.01
PATTERN = 1 << 21  # floats of noise that fill() repeats
BUCKET, FIRST_BUCKET = 25 << 20, 1 << 20  # sizes in bytes at which a bucket is full
SETTLING = 14  # untimed steps in which codec auto tries its choices


def buckets_of(layers):
    """Returns the bytes of each bucket, in the order in which gradients become ready."""
    buckets, bytes_, limit = [], 0, FIRST_BUCKET
    for elements in reversed(layers):
        bytes_ += 4 * elements
        if bytes_ >= limit:
            buckets.append(bytes_)
            bytes_, limit = 0, BUCKET
    return buckets + [bytes_] if bytes_ else buckets


# ---- A node's trainer


def noise(numpy, rank):
    return numpy.random.default_rng(rank).standard_normal(PATTERN, dtype=numpy.float32) * numpy.float32(SIGMA)


def fill(data, pattern):
    for at in range(0, data.size, pattern.size):
        part = data[at:at + pattern.size]
        part[:] = pattern[:part.size]


def exchange(gl, tensors, codec, one_by_one):
    requests = []
    for tensor in tensors:
        requests.append(gl.all_reduce(tensor, codec=codec, async_=True))
        if one_by_one:
            requests.pop().wait()
    for request in requests:
        request.wait()


def settle(gl, way, tensors, fill_all):
    spent = 0
    for _ in range(SETTLING):
        fill_all()
        gl.barrier()
        begin = time.perf_counter()
        exchange(gl, tensors, way["codec"], way["one_by_one"])
        spent += time.perf_counter() - begin
    if gl.rank == 0:
        print(json.dumps({"way": way["name"], "settling_ms": spent * 1e3}), flush=True)


def trainer(words):
    import numpy

    import gradlane

    with gradlane.open(timeout=60) as gl:
        data = gl.zeros(sum(words["layers"]))
        pattern, slowest = noise(numpy, gl.rank), gl.zeros(1)
        order = numpy.random.default_rng(1)  # this order is the same on all nodes
        cut = {"layers": list(reversed(words["layers"])), "buckets": [size // 4 for size in buckets_of(words["layers"])]}
        for round_ in range(words["rounds"] + 1):  # the first one does not count
            for number in order.permutation(len(words["ways"])):
                way = words["ways"][number]
                tensors, at = [], 0
                for size in cut[way["cut"]]:
                    tensors.append(data[at:at + size])
                    at += size
                if round_ == 0 and way["settles"]:
                    settle(gl, way, tensors, lambda: fill(data, pattern))
                fill(data, pattern)
                gl.barrier()
                begin = time.perf_counter()
                exchange(gl, tensors, way["codec"], way["one_by_one"])
                slowest[0] = time.perf_counter() - begin
                gl.all_reduce(slowest, reduction="max")
                if gl.rank == 0 and round_ > 0:
                    print(json.dumps({"way": way["name"], "ms": float(slowest[0]) * 1e3}), flush=True)


# ---- All of them


def ways_of(args):
    ways = [
        {"name": "plain", "codec": "raw", "cut": "layers", "one_by_one": True},
        {"name": "codec", "codec": args.codec, "cut": "layers", "one_by_one": True},
        {"name": "pipelining", "codec": args.codec, "cut": "layers", "one_by_one": False},
        {"name": "bulk", "codec": args.codec, "cut": "buckets", "one_by_one": False},
    ]
    if args.codec.startswith("fixed:"):
        bound = args.codec.split(":")[1]
        ways.append({"name": "plan", "codec": f"auto:2^-{bound}", "cut": "buckets", "one_by_one": False, "settles": True})
    return [{"settles": False, **way} for way in ways]


def layers_of(args, model):
    text = subprocess.run([args.gradlane, "plan", "--model", model, "--calibration", "none", "--json"],
                          stdout=subprocess.PIPE, text=True)
    if text.returncode != 0:
        sys.exit(f"bench_layers.py: gradlane plan --model {model} failed; see above")
    return [int(layer["elements"]) for layer in json.loads(text.stdout)["layers"]]


def measure(args, model, rate):
    """Returns, by way, the milliseconds of each round, and the milliseconds of settling for ways that try choices."""
    words = {"layers": layers_of(args, model), "rounds": args.rounds, "ways": ways_of(args)}
    times, settling = {way["name"]: [] for way in words["ways"]}, {}
    for each in trainers.run(args.gradlane, "lab.bench_layers", words, nodes=NODES, rate=rate):
        if "settling_ms" in each:
            settling[each["way"]] = each["settling_ms"]
        else:
            times[each["way"]].append(each["ms"])
    return times, settling


def row_of(args, model, rate):
    times, settling = measure(args, model, rate)
    row, before = {"model": model, "rate": rate, "ways": {}}, times["plain"]
    for way, each in times.items():
        gains = [a / b for a, b in zip(before, each)]
        whole = [a / b for a, b in zip(times["plain"], each)]
        row["ways"][way] = {"ms": statistics.median(each), "gain": statistics.median(gains), "least": min(gains),
                            "most": max(gains), "to_plain": statistics.median(whole)}
        before = each
        if way in settling:
            row["ways"][way]["settling_steps"] = settling[way] / statistics.median(each) - SETTLING
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradlane", default="build/tools/gradlane", help="build/tools/gradlane")
    parser.add_argument("--models", default="vgg19,bert-base", help="models of gradlane plan (vgg19,bert-base)")
    parser.add_argument("--rates", default="1gbit,5gbit", help="rates of the links (1gbit,5gbit)")
    parser.add_argument("--codec", default="fixed:10", help="codec of all ways but plain (fixed:10)")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds (5)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--trainer", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.trainer:
        return trainer(trainers.words_of(args.trainer))
    args.gradlane = str(pathlib.Path(args.gradlane).resolve())
    if os.geteuid() != 0:
        parser.error("links with a rate need root; use sudo")
    if args.rounds < 1:
        parser.error("--rounds: must be at least 1")
    rows = []
    for model in args.models.split(","):
        for rate in args.rates.split(","):
            print(f"bench_layers.py: {model}, {rate} ...", file=sys.stderr)
            try:
                rows.append(row_of(args, model, rate))
            except trainers.Failed as error:
                sys.exit(f"bench_layers.py: {error}")
    if args.json:
        return print(json.dumps({"codec": args.codec, "rounds": args.rounds, "rows": rows}, indent=1))
    print(f"{args.codec}, medians of {args.rounds} rounds; gain: compared with the way before (least to most)\n")
    print("| model | rate | way | ms | gain | times as fast as plain |\n|---|---|---|---|---|---|")
    for row in rows:
        for way, it in row["ways"].items():
            gain = "" if way == "plain" else f"{it['gain']:.2f} ({it['least']:.2f} to {it['most']:.2f})"
            print(f"| {row['model']} | {row['rate']} | {way} | {it['ms']:.0f} | {gain} | {it['to_plain']:.2f} |")
    for row in rows:
        for way, it in row["ways"].items():
            if "settling_steps" in it:
                print(f"{row['model']}, {row['rate']}: settling of {way} took the time of {it['settling_steps']:.1f} "
                      "more steps")
    return None


if __name__ == "__main__":
    main()
