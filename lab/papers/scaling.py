"""scaling.py - experiment `scaling`: codecs that add, codecs that need an all-gather, and an aggregator, on more and more
real nodes

A codec that adds is all-reduced. If encoded gradients cannot be added, each node gets those of all others, which it then
decodes and adds. Only their transport is measured: an all-gather of as many bytes as encoded gradients have.
scaling_simulated.py has the same on simulated nodes.
"""

import dataclasses
import json
import math
import subprocess

from lab.results.experiment import EXCHANGE, Batch, Experiment, Plot
from lab.results.texts import DIFFERS

FLOATS = 1 << 19
RATE, MTU, DATA = "100mbit", 1500, "gauss-0.01"
NODES = (2, 4, 8)
RUNS, SECONDS = 3, 18
PICTURE = "docs/images/scaling.png"
RING, AGGREGATOR = "ring", "aggregator:0"


@dataclasses.dataclass(frozen=True)
class Way:
    name: str
    strategy: str
    codec: str = "raw"
    gathered: int = 0  # bytes of a rank's encoded gradients; 0: the codec adds
    operations: int = 3


WAYS = (
    Way("aggregator, raw", AGGREGATOR, operations=1),
    Way("ring, raw", RING),
    Way("adds: fixed:10", RING, "fixed:10"),
    Way("adds: signsgd", RING, "signsgd"),
    Way("adds: topk:1%", RING, "topk:1%"),
    Way("owners: onebit", "direct", "onebit"),
    Way("all-gather: signs", RING, gathered=FLOATS // 8),
    Way("all-gather: top 1 %", RING, gathered=8 * (FLOATS // 100)),  # an index and a value of 4 bytes each
    Way("all-gather: topk:1%", RING, gathered=5 * (FLOATS // 100) + FLOATS // 256),  # as that codec encodes them
)


def size_of(way, nodes):
    """Returns the bytes of the operation's tensor, a multiple of a granule for each node."""
    if not way.gathered:
        return 4 * FLOATS
    return nodes * math.ceil(way.gathered / 128) * 128


def rows_of(text):
    """Yields the rows of the JSON documents in a text. Raises RuntimeError if a result was wrong."""
    decoder, text = json.JSONDecoder(), text.strip()
    while text:
        document, at = decoder.raw_decode(text)
        text = text[at:].lstrip()
        for row in document["rows"]:
            if row["wrong"] or row.get("failure"):
                raise RuntimeError(f"wrong results: {row}")
            yield row


def run(context, command):
    said = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=context.environment(),
                          timeout=300, check=False)
    if said.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {said.stderr[-2000:]}")
    return said.stdout


def batches(samples):
    missing = [(len(samples.get(str(nodes), [])), nodes) for nodes in NODES]
    return [Batch((str(nodes),), SECONDS, nodes) for runs, nodes in sorted(missing) if runs < RUNS]


def measure(batch, context):
    """Yields {way: ms}, medians of some operations. All ways run one after the other, on one ring."""
    nodes = batch.argument
    perfs = [[context.gradlane, "perf", "--json", "--data", DATA, "--strategy", way.strategy, "--codec", way.codec, "--op",
              "allgather" if way.gathered else "allreduce", "-b", size_of(way, nodes), "-e", size_of(way, nodes), "-n",
              way.operations, "-w", 1] for way in WAYS]
    script = " && ".join(" ".join(str(word) for word in perf) for perf in perfs)
    options = ["-n", nodes, "--no-prefix", "--link", "veth", "--rate", RATE, "--mtu", MTU, "--strategies",
               "ring,direct,aggregator:0"]
    rows = list(rows_of(run(context, [context.gradlane, "run", *options, "--", "sh", "-c", script])))
    values = {way.name: row["time_us"] / 1e3 for way, row in zip(WAYS, rows, strict=True)}
    yield batch.keys[0], values, " ".join(str(word) for word in ["gradlane run", *options, "-- gradlane perf ..."])


# ---- Figures


def digits(number):
    return f"{number:.3g}" if number < 999.5 else f"{number:.0f}"


def span(ms):
    """Returns "12.3", or "12.3 to 15.2" if runs differ by more than 15 %."""
    low, high = min(ms), max(ms)
    return digits(sorted(ms)[len(ms) // 2]) if high <= DIFFERS * low else f"{digits(low)} to {digits(high)}"


def table(nodes, found):
    """Returns a table of {way: {nodes: values of each run}}, with the growth from the second to the last number of nodes.
    """
    grown = f"from {nodes[1]} to {nodes[-1]}"
    lines = ["| way | " + " | ".join(f"{each} nodes" for each in nodes) + f" | {grown} |", "|---" + "|---:" * (len(nodes) + 1) + "|"]
    for name, values in found.items():
        cells = [span(values[each]) if each in values else "-" for each in nodes]
        growth = f"{min(values[nodes[-1]]) / min(values[nodes[1]]):.2f}x" if {nodes[1], nodes[-1]} <= set(values) else "-"
        lines.append("| " + " | ".join([name, *cells, growth]) + " |")
    return "\n".join(lines)


def by_way(samples, nodes, value):
    """Returns {way: {nodes: [value of each run]}}."""
    found = {way.name: {} for way in WAYS}
    for each in nodes:
        for values in samples.get(str(each), []):
            for name in found.keys() & values.keys():
                found[name].setdefault(each, []).append(value(values[name]))
    return found


def times(samples):
    return by_way(samples, NODES, lambda value: value)


def draw(data, path):
    """Draws times against nodes, both logarithmic."""
    from lab.results.style import COLOURS, MARKERS, plt

    figure, axis = plt.subplots(figsize=(7.5, 4.6), layout="constrained")
    for (name, found), colour, marker in zip(data.items(), COLOURS, MARKERS):
        nodes = sorted(found, key=int)
        axis.plot([int(each) for each in nodes], [min(found[each]) for each in nodes], color=colour, marker=marker, label=name,
                  linestyle="--" if name.startswith("all-gather") else "-")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks([int(each) for each in nodes], [str(each) for each in nodes])
    axis.set_xlabel("nodes")
    axis.set_ylabel("ms")
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


EXPERIMENT = Experiment(
    name="scaling",
    title="codecs that add, all-gathers and an aggregator on more and more nodes",
    sources=(*EXCHANGE, "tools/perf/**", "lab/papers/scaling.py"),
    batches=batches,
    measure=measure,
    figures={"times": lambda samples: table(NODES, times(samples)),
             "plot": lambda samples: "![Time against real nodes](../images/scaling.png)" if samples else "-"},
    plots={PICTURE: Plot(times, draw)},
)
