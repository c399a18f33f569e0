#!/usr/bin/python3
"""secopa.py - prints the plan of SeCoPa (HiPress, SOSP 2021) for each gradient of a model, next to that of `gradlane
plan`

    lab/papers/secopa.py --model vgg19 --nodes 4

SeCoPa decides per gradient whether to compress, and into how many partitions K. Its constants are those of HiPress'
code: V100s and links of 56 Gb/s, measured once by hand. gradlane decides per bucket, and has no K: each packet is a
partition. Its figures are those without a calibration, of ports of kind card with links of the same rate.
"""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GBPS = 56
WAYS = ("ring", "servers")


@dataclasses.dataclass(frozen=True)
class Curve:
    """The ms of a kernel or a transfer: `overhead` below a threshold, else slope * elements + constant."""

    slope: float
    constant: float
    overhead: float

    def ms(self, elements):
        threshold = max(0, (self.overhead - self.constant) / self.slope) if self.slope else 0
        return self.overhead if elements < threshold else self.slope * elements + self.constant


@dataclasses.dataclass(frozen=True)
class Costs:
    """The costs of a cluster. Curves take uncompressed elements, and those of transfers and `decode` the elements that
    the bytes would hold uncompressed. In a ring, `send` is between two nodes. With parameter servers, all nodes send to
    one (gather), and one sends to all (broadcast)."""

    encode: Curve
    decode: Curve
    send: Curve
    gather: Curve
    broadcast: Curve
    ratio: float = 1 / 16


HIPRESS = {nodes: Costs(Curve(1.4133e-8, 5.8938e-2, 0.05408), Curve(6.2041e-9, 0.13956, 0.07287),
                        Curve(8.5005e-7, 0.20337, 0.09766), gather, broadcast)
           for nodes, gather, broadcast in (
               (4, Curve(2.7156e-6, 0.4193, 0.15573), Curve(2.7157e-6, 0.22156, 0.1482)),
               (8, Curve(6.1167e-6, 0.80768, 0.28778), Curve(6.1172e-6, 0.27285, 0.29666)),
               (16, Curve(1.2937e-5, 1.4406, 0.59503), Curve(1.2915e-5, 0.45538, 0.58353)))}


def cost(costs, way, nodes, elements, compress, partitions):
    """Returns the ms by section 3.3 of the paper. Merging costs nothing in HiPress' code.

        ring     raw 2(N-1) S(m/K);     compressed 2(N-1) S(r m/K) + N E(m/K) + N D(r m/K)
        servers  raw G(m/K) + B(m/K);   compressed G(r m/K) + B(r m/K) + min(K+1, N) E(m/K) + min(N-1+K, 2(N-1)) D(r m/K)
    """
    part = elements / partitions
    sent = part * costs.ratio if compress else part
    if way == "ring":
        ms = 2 * (nodes - 1) * costs.send.ms(sent)
        return ms + nodes * (costs.encode.ms(part) + costs.decode.ms(sent)) if compress else ms
    ms = costs.gather.ms(sent) + costs.broadcast.ms(sent)
    if not compress:
        return ms
    return (ms + min(partitions + 1, nodes) * costs.encode.ms(part)
            + min(nodes - 1 + partitions, 2 * (nodes - 1)) * costs.decode.ms(sent))


def plan(costs, way, nodes, elements, choices=(False, True)):
    """Returns (whether to compress, K) of the fastest plan: if plans are equal, uncompressed, with the smaller K."""
    return min(((compress, k) for compress in choices for k in range(1, nodes + 1)),
               key=lambda each: cost(costs, way, nodes, elements, *each))


def threshold(costs, way, nodes):
    """Returns the number of elements from which on compression is faster, up to 1e9; by bisection."""
    less, most = 0, 1e9
    while most - less > 1:
        middle = (less + most) / 2
        if plan(costs, way, nodes, middle)[0]:
            most = middle
        else:
            less = middle
    return most


def gradlane_plan(program, *words):
    said = subprocess.run([program, "plan", "--calibration", "none", "--json", *map(str, words)], stdout=subprocess.PIPE,
                          text=True)
    if said.returncode:
        sys.exit(f"secopa.py: gradlane plan {' '.join(map(str, words))} failed; see above")
    return json.loads(said.stdout)


def gradlane_choice(program, nodes, elements, codec):
    """Returns what `gradlane plan` has as the fastest exchange of a gradient alone, such as "fixed:10, direct". "ideal" is
    an ideal uncompressed exchange."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"name": "gradient", "batch": 1, "forward_ms": 0, "backward_ms": 1e-6,
                   "layers": [{"name": "gradient", "elements": elements}]}, file)
        file.flush()
        rows = gradlane_plan(program, "--model", file.name, "--nodes", nodes, "--gbps", GBPS, "--port", "card",
                             "--codecs", codec)["rows"]
    best = min((row for row in rows if row["codec"] != "best"), key=lambda row: row["step_ms"])
    return ", ".join(filter(None, (best["codec"], best["ways"])))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradlane", default=ROOT / "build" / "tools" / "gradlane", help="build/tools/gradlane")
    parser.add_argument("--model", default="vgg19", help="model of gradlane plan (vgg19)")
    parser.add_argument("--nodes", type=int, default=4, choices=sorted(HIPRESS), help="number of nodes (4)")
    parser.add_argument("--way", default="servers", choices=WAYS, help="HiPress' exchange (servers)")
    parser.add_argument("--codec", default="fixed:10", help="codec of gradlane (fixed:10)")
    args = parser.parse_args()
    layers = gradlane_plan(args.gradlane, "--model", args.model)["layers"]
    counts = {}
    for layer in layers:
        counts[int(layer["elements"])] = counts.get(int(layer["elements"]), 0) + 1
    costs = HIPRESS[args.nodes]
    print(f"{args.model}, {args.nodes} nodes, {args.way}; SeCoPa compresses from "
          f"{4e-6 * threshold(costs, args.way, args.nodes):.1f} MB on\n")
    print(f"{'elements':>11} {'gradients':>9}  {'SeCoPa':<15} gradlane plan")
    for elements, count in sorted(counts.items()):
        compress, k = plan(costs, args.way, args.nodes, elements)
        secopa = f"{'compress' if compress else 'raw'}, K = {k}"
        print(f"{elements:>11,} {count:>9}  {secopa:<15} {gradlane_choice(args.gradlane, args.nodes, elements, args.codec)}")


if __name__ == "__main__":
    main()
