#!/usr/bin/python3
"""Compares codec auto with every choice that it can make, on links of known rates. Needs root.

For each number of nodes and rate it makes a ring in network namespaces (`gradlane run --link udp --rate`). All-reduces
of each size, of N(0, 0.01), run with each strategy and codec, and with `auto`. Each round runs all of them once, in
another order. The first 14 operations of each size are not timed, because auto tries its choices in them.

The table has two medians per size. One is the time of the best fixed choice / auto's, the other the time of raw with
the first strategy / auto's, both in the same round. The best fixed choice is the one with the least median. `auto`
without a bound is compared with exact choices only.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # imports are written from the root

from lab.net import trainers  # noqa: E402

SETTLING = 14  # untimed operations of auto
SIGMA = 0.01
SIZES = [(4 << 10, 120), (32 << 10, 80), (256 << 10, 40), (2 << 20, 20), (16 << 20, 9), (64 << 20, 5)]  # bytes, rounds
TO_BEST, TO_RAW = 0.95, 0.98  # targets of the two ratios: the least that auto should have


def name_of(way):
    return f"{way['codec']} by {way['strategy']}" if way["strategy"] else way["codec"]


# ---- A node's trainer


def one(gl, data, noise, way):
    data[:] = noise[:data.size]
    gl.barrier()
    begin = time.perf_counter()
    gl.all_reduce(data, codec=way["codec"], strategy=way["strategy"])
    return time.perf_counter() - begin


def trainer(words):
    import numpy

    import gradlane

    with gradlane.open(timeout=60) as gl:
        most = max(size for size, _ in words["sizes"]) // 4
        noise = numpy.random.default_rng(gl.rank).standard_normal(most, dtype=numpy.float32) * numpy.float32(SIGMA)
        whole, slowest, ways = gl.zeros(most), gl.zeros(len(words["ways"])), words["ways"]
        order = numpy.random.default_rng(1)  # this order is the same on all nodes
        for size, rounds in words["sizes"]:
            data = whole[:size // 4]
            for way in ways:
                for _ in range(SETTLING if way["auto"] else 1):
                    one(gl, data, noise, way)
            for round_ in range(rounds):
                for at in order.permutation(len(ways)):
                    slowest[at] = one(gl, data, noise, ways[at])
                gl.all_reduce(slowest, reduction="max")
                if gl.rank == 0:
                    print(json.dumps({"bytes": size, "us": [float(each) * 1e6 for each in slowest]}), flush=True)


# ---- All of them


def ways_of(args):
    ways = [{"codec": codec, "strategy": strategy, "auto": False, "exact": codec == "raw"}
            for codec in ("raw", f"fixed:{args.bits}") for strategy in args.strategies.split(",")]
    return ways + [{"codec": codec, "strategy": None, "auto": True, "exact": codec == "auto"}
                   for codec in ("auto", f"auto:2^-{args.bits}")]


def row_of(ways, times, place):
    """Returns the table's row of one automatic choice for one size. times: for each round, the us of each choice."""
    auto = ways[place]
    middle = [statistics.median(each) for each in zip(*times)]
    fixed = [i for i, way in enumerate(ways) if not way["auto"] and (way["exact"] or not auto["exact"])]
    best = min(fixed, key=lambda i: middle[i])
    return {"codec": auto["codec"], "us": middle[place], "best": name_of(ways[best]), "best_us": middle[best],
            "raw_us": middle[0], "to_best": statistics.median(each[best] / each[place] for each in times),
            "to_raw": statistics.median(each[0] / each[place] for each in times)}


def measure(args, nodes, rate):
    ways = ways_of(args)
    sizes = [(size, max(3, int(rounds * args.rounds))) for size, rounds in SIZES if args.least <= size <= args.most]
    words, rows = {"sizes": sizes, "ways": ways}, []
    lines = trainers.run(args.gradlane, "lab.bench_auto", words, nodes=nodes, rate=rate, link=args.link,
                         strategies=args.strategies)
    for size, _ in sizes:
        times = [line["us"] for line in lines if line["bytes"] == size]
        for place in (i for i, way in enumerate(ways) if way["auto"]):
            rows.append({"nodes": nodes, "rate": rate, "bytes": size, **row_of(ways, times, place)})
    return rows


def report(rows):
    print("| nodes | rate | bytes | codec | us | best fixed choice | its us | to best | to raw |\n|" + "---|" * 9)
    for row in rows:
        missed = " !" if row["to_best"] < TO_BEST or row["to_raw"] < TO_RAW else ""
        print(f"| {row['nodes']} | {row['rate']} | {row['bytes']} | {row['codec']} | {row['us']:.0f} | {row['best']} | "
              f"{row['best_us']:.0f} | {row['to_best']:.2f} | {row['to_raw']:.2f}{missed} |")
    for key, aim in (("to_best", TO_BEST), ("to_raw", TO_RAW)):
        met = sum(row[key] >= aim for row in rows)
        print(f"{key}: {met} of {len(rows)} rows have at least {aim}; the lowest is "
              f"{min(row[key] for row in rows):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradlane", default=ROOT / "build/tools/gradlane")
    parser.add_argument("--nodes", default="2,4")
    parser.add_argument("--rates", default="200mbit,1gbit,5gbit")
    parser.add_argument("--strategies", default="ring,direct")
    parser.add_argument("--bits", type=int, default=10, help="B of fixed:B and auto:2^-B (10)")
    parser.add_argument("--link", default="udp", help="udp, veth")
    parser.add_argument("--least", type=int, default=4 << 10, help="smallest size in bytes (4096)")
    parser.add_argument("--most", type=int, default=16 << 20, help="largest size in bytes (16 Mi; up to 64 Mi)")
    parser.add_argument("--rounds", type=float, default=1, help="factor for the number of rounds (1)")
    parser.add_argument("--json", help="write all rows to this file")
    parser.add_argument("--trainer", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.trainer:
        return trainer(trainers.words_of(args.trainer))
    if os.geteuid() != 0:
        parser.error("links with a rate need root; use sudo")
    rows = []
    for nodes in args.nodes.split(","):
        for rate in args.rates.split(","):
            print(f"bench_auto.py: {nodes} nodes, {rate} ...", file=sys.stderr, flush=True)
            try:
                rows += measure(args, int(nodes), rate)
            except trainers.Failed as error:
                sys.exit(f"bench_auto.py: {error}")
    report(rows)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows))
    return None


if __name__ == "__main__":
    main()
