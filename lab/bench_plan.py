#!/usr/bin/python3
"""Compares the predictions of `gradlane plan` with what `gradlane perf` measures, on links of known rates. Needs root.

It makes a ring in network namespaces for each number of nodes and rate. Links have tbf both ways and MTU 1500, as with
`gradlane run --link udp --rate`. `gradlane plan --calibrate` measures the ring. Then all-reduces of all sizes,
strategies and codecs are timed, and each is compared with the model.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

CODECS = "raw,bf16,fixed:10,signsgd,dgc:1%"
SMALL = 65536  # bytes; below that, the aim is a prediction within a factor of 2
# Sizes, and how often each is timed. Small sizes are timed so often that the tokens that a shaper has saved before do
# not matter.
SIZES = [(4096, 200), (16384, 100), (65536, 40), (262144, 10), (1 << 20, 7), (4 << 20, 5), (16 << 20, 3), (64 << 20, 3)]
SCRIPT = """set -e
"$0" plan --calibrate --json -o "$1" 2>/dev/null
shift
while [ $# -gt 0 ]; do
  "$GRADLANE" perf --json --no-check -w $(($2 / 3 + 1)) -b "$1" -e "$1" -n "$2" --strategy "$STRATEGIES" --codec "$CODECS"
  shift 2
done"""
PATIENCE = 3000


def lines_of(args, nodes, rate, file):
    """Returns the JSON that rank 0 printed: the calibration, then a table for each size. Raises RuntimeError."""
    words = [word for size, times in SIZES if args.least <= size <= args.most for word in (size, times)] * args.rounds
    environment = ["env", f"GRADLANE={args.gradlane}", f"STRATEGIES={args.strategies}", f"CODECS={args.codecs}"]
    command = [*environment, args.gradlane, "run", "-n", nodes, "--link", args.link, "--rate", rate, "--strategies",
               args.strategies, "--no-prefix", "--", "sh", "-c", SCRIPT, args.gradlane, file, *words]
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=PATIENCE)
    if result.returncode != 0:
        raise RuntimeError(f"gradlane run ended with status {result.returncode}: {result.stderr}")
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def predicted(args, file, elements, strategy, folder):
    """Returns the predicted us by codec. The model has one layer of that size, so its exchange is one all-reduce."""
    profile = folder / "layer.json"
    profile.write_text(json.dumps({"name": "layer", "batch": 1, "backward_ms": 1,
                                   "layers": [{"name": "all", "elements": elements}]}))
    codecs = [codec for codec in args.codecs.split(",") if codec != "raw"]
    plan = subprocess.run([args.gradlane, "plan", "--model", profile, "--calibration", file, "--strategy", strategy,
                           "--codecs", *codecs, "--json"], capture_output=True, text=True, check=True)
    return {row["codec"]: row["exchange_ms"] * 1e3 for row in json.loads(plan.stdout)["rows"]}


def compare(args, nodes, rate, folder):
    file = folder / f"calibration-{nodes}-{rate}.yaml"
    calibration, *tables = lines_of(args, nodes, rate, file)
    links = [f"{link['gbps']:.3g}" for link in calibration["links"]]
    print(f"{nodes} nodes, {rate}: links {', '.join(links)} Gb/s, start {calibration['start_us']:.0f} us, packet "
          f"{calibration['packet_ns']['port']:.0f} ns", file=sys.stderr, flush=True)
    best = {}
    for row in (row for table in tables for row in table["rows"]):
        key = row["strategy"], row["codec"], row["bytes"], row["count"]
        best[key] = min(row["time_us"], best.get(key, row["time_us"]))
    times = {(strategy, count): predicted(args, file, count, strategy, folder) for strategy, _, _, count in best}
    return [{"nodes": nodes, "rate": rate, "strategy": strategy, "codec": codec, "bytes": size, "measured_us": measured,
             "predicted_us": times[strategy, count][codec]}
            for (strategy, codec, size, count), measured in best.items()]


def error(point):
    return abs(point["predicted_us"] / point["measured_us"] - 1)


def factor(point):
    ratio = point["predicted_us"] / point["measured_us"]
    return max(ratio, 1 / ratio)


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def summary(name, points):
    errors = [error(point) for point in points]
    signed = statistics.median(point["predicted_us"] / point["measured_us"] for point in points)
    within = sum(factor(point) <= 2 for point in points) / len(points)
    return (f"{name:<26} {len(points):>6} {statistics.median(errors):>8.1%} {percentile(errors, 0.9):>9.1%} "
            f"{signed:>12.2f} {within:>9.0%}")


def report(points):
    print(f"{'':<26} {'points':>6} {'median':>8} {'90th':>9} {'pred/meas':>12} {'within 2x':>9}")
    large = [point for point in points if point["bytes"] >= SMALL]
    groups = {"from 64 KiB on": large, "below 64 KiB": [point for point in points if point["bytes"] < SMALL]}
    for key in ("nodes", "rate", "strategy", "codec", "bytes"):
        for value in dict.fromkeys(point[key] for point in points):
            groups[f"{key} {value}"] = [point for point in (points if key == "bytes" else large) if point[key] == value]
    for name, group in groups.items():
        if group:
            print(summary(name, group))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradlane", default=pathlib.Path(__file__).resolve().parents[1] / "build" / "tools" / "gradlane")
    parser.add_argument("--nodes", default="2,4")
    parser.add_argument("--rates", default="200mbit,1gbit,5gbit")
    parser.add_argument("--strategies", default="ring,direct")
    parser.add_argument("--codecs", default=CODECS)
    parser.add_argument("--link", default="udp", help="udp, veth")
    parser.add_argument("--least", type=int, default=4096, help="smallest size in bytes (4096)")
    parser.add_argument("--most", type=int, default=64 << 20)
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds; the least time counts (3)")
    parser.add_argument("--json", help="write all points to this file")
    args = parser.parse_args()
    args.gradlane = pathlib.Path(args.gradlane).resolve()
    points = []
    with tempfile.TemporaryDirectory(prefix="gradlane-plan-") as name:
        for rate in args.rates.split(","):
            for nodes in args.nodes.split(","):
                points += compare(args, int(nodes), rate, pathlib.Path(name))
    report(points)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(points))


if __name__ == "__main__":
    main()
