"""scaling.py - experiment `scaling`: codecs that add, codecs that need an all-gather, and an aggregator, on more and more
nodes

Samples of `real/N` are times of real nodes. Samples of `simulated/N` have time and bytes by `gradlane sim`; they do not
change from run to run. Both have the same tensor and the same rate of links.

A codec that adds is all-reduced. If encoded gradients cannot be added, each node gets those of all others, which it then
decodes and adds. Only their transport is measured: an all-gather of as many bytes as encoded gradients have.
"""

import dataclasses
import json
import math
import subprocess

from lab.results.experiment import EXCHANGE, Batch, Experiment, Plot

FLOATS = 1 << 19
RATE, GBPS, RTT, MTU = "100mbit", 0.1, "50us", 1500
DATA = "gauss-0.01"
REAL, SIMULATED = (2, 4, 8), (2, 4, 8, 16, 32, 64)
RUNS = 3
PICTURE = "docs/images/scalability.png"
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
    Way("all-gather: top 1 %", RING, gathered=8 * (FLOATS // 100)),  # an index and a value each
)


def size_of(way, nodes):
    """Returns the bytes of the operation's tensor, a multiple of a granule for each node."""
    if not way.gathered:
        return 4 * FLOATS
    return nodes * math.ceil(way.gathered / 128) * 128


def batches(samples):
    found = [Batch((f"simulated/{nodes}",), 10, ("simulated", nodes)) for nodes in SIMULATED
             if f"simulated/{nodes}" not in samples]
    missing = [(len(samples.get(f"real/{nodes}", [])), nodes) for nodes in REAL]
    return found + [Batch((f"real/{nodes}",), 18, ("real", nodes)) for runs, nodes in sorted(missing) if runs < RUNS]


def rows_of(text):
    """Yields the rows of the JSON documents in a text. Raises RuntimeError if a result was wrong."""
    decoder, at = json.JSONDecoder(), 0
    text = text.strip()
    while at < len(text):
        document, at = decoder.raw_decode(text, at)
        while at < len(text) and text[at].isspace():
            at += 1
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


def simulated(way, nodes, context):
    command = [context.gradlane, "sim", "--json", "--nodes", nodes, "--strategy", way.strategy, "--codec", way.codec, "--op",
               "all-gather" if way.gathered else "all-reduce", "--size", size_of(way, nodes), "--gbps", GBPS, "--rtt", RTT,
               "--mtu", MTU, "--data", DATA, "--switch"]
    row, = rows_of(run(context, command))
    return {"ms": row["seconds"] * 1e3, "bytes": row["wire_bytes"] / nodes}


def real(nodes, context):
    """Returns {way: ms}, medians of some operations. All ways run one after the other, on one ring."""
    perfs = [["exec" if way is WAYS[-1] else "", context.gradlane, "perf", "--json", "--data", DATA, "--strategy", way.strategy,
              "--codec", way.codec, "--op", "allgather" if way.gathered else "allreduce", "-b", size_of(way, nodes), "-e",
              size_of(way, nodes), "-n", way.operations, "-w", 1] for way in WAYS]
    script = " && ".join(" ".join(str(word) for word in perf if word) for perf in perfs)
    command = [context.gradlane, "run", "-n", nodes, "--no-prefix", "--link", "veth", "--rate", RATE, "--mtu", MTU,
               "--strategies", "ring,direct,aggregator:0", "--", "sh", "-c", script]
    rows = list(rows_of(run(context, command)))
    return {way.name: row["time_us"] / 1e3 for way, row in zip(WAYS, rows, strict=True)}


def measure(batch, context):
    kind, nodes = batch.argument
    if kind == "real":
        yield batch.keys[0], real(nodes, context), f"gradlane run -n {nodes} --link veth --rate {RATE} -- gradlane perf ..."
    else:
        yield batch.keys[0], {way.name: simulated(way, nodes, context) for way in WAYS}, f"gradlane sim --nodes {nodes} ..."


# ---- Figures


def times(samples, kind):
    """Returns {way: {nodes: [ms of each run]}}."""
    found = {way.name: {} for way in WAYS}
    for nodes in REAL if kind == "real" else SIMULATED:
        for values in samples.get(f"{kind}/{nodes}", []):
            for name, value in values.items():
                found[name].setdefault(nodes, []).append(value if kind == "real" else value["ms"])
    return found


def per_node(samples):
    """Returns {way: {nodes: bytes that a node sends, in the mean}}, simulated."""
    return {way.name: {nodes: samples[f"simulated/{nodes}"][-1][way.name]["bytes"] for nodes in SIMULATED
                       if f"simulated/{nodes}" in samples} for way in WAYS}


def text_of(ms):
    """Returns "12.3", or "12.3 to 15.2" if runs differ by more than 5 %."""
    low, high = min(ms), max(ms)
    return f"{sorted(ms)[len(ms) // 2]:.3g}" if high <= 1.05 * low else f"{low:.3g} to {high:.3g}"


def table(nodes, cells, last):
    lines = ["| way | " + " | ".join(f"{each} nodes" for each in nodes) + f" | {last} |", "|---" + "|---:" * (len(nodes) + 1) + "|"]
    return "\n".join(lines + [f"| {name} | " + " | ".join(row) + " |" for name, row in cells])


def time_table(kind):
    def make(samples):
        nodes = REAL if kind == "real" else SIMULATED
        cells = []
        for name, found in times(samples, kind).items():
            grown = f"{min(found[nodes[-1]]) / min(found[nodes[1]]):.2f}x" if {nodes[1], nodes[-1]} <= set(found) else "-"
            cells.append((name, [text_of(found[each]) if each in found else "-" for each in nodes] + [grown]))
        return table(nodes, cells, f"from {nodes[1]} to {nodes[-1]}")

    return make


def byte_table(samples):
    cells = []
    for name, found in per_node(samples).items():
        last, second = found.get(SIMULATED[-1]), found.get(SIMULATED[1])
        row = [f"{found[each] / 1e3:.3g}" if each in found else "-" for each in SIMULATED]
        cells.append((name, row + [f"{last / second:.2f}x" if last and second else "-"]))
    return table(SIMULATED, cells, f"from {SIMULATED[1]} to {SIMULATED[-1]}")


def crossing(gathers, adds):
    """Returns a figure: from how many simulated nodes on the all-gather takes longer than the codec that adds."""
    def make(samples):
        found = times(samples, "simulated")
        longer = [nodes for nodes in SIMULATED if nodes in found[gathers] and found[gathers][nodes] > found[adds][nodes]]
        return str(min(longer)) if longer else "none of these"

    return make


def drawn(samples):
    data = {kind: {name: found for name, found in times(samples, kind).items() if found} for kind in ("real", "simulated")}
    return {kind: ways for kind, ways in data.items() if ways}


def draw(data, path):
    """Draws times against nodes, both logarithmic: real and simulated nodes next to each other."""
    from lab.results.style import COLOURS, MARKERS, plt

    figure, axes = plt.subplots(1, len(data), figsize=(5.5 * len(data), 5.2), sharey=True, squeeze=False,
                                layout="constrained")
    axes = axes[0]
    for axis, (kind, ways) in zip(axes, data.items()):
        for (name, found), colour, marker in zip(ways.items(), COLOURS, MARKERS):
            nodes = sorted(found, key=int)
            axis.plot([int(each) for each in nodes], [min(found[each]) for each in nodes], color=colour, marker=marker, label=name,
                      linestyle="--" if name.startswith("all-gather") else "-")
        ticks = [int(each) for each in nodes]
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(ticks, [str(each) for each in ticks])
        axis.set_title(f"{kind} nodes", fontsize=11)
        axis.set_xlabel("nodes")
    axes[0].set_ylabel("ms")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncol=4)
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


EXPERIMENT = Experiment(
    name="scaling",
    title="codecs that add, all-gathers and an aggregator on more and more nodes",
    sources=(*EXCHANGE, "sim/**", "tools/sim/**", "lab/papers/scaling.py"),
    batches=batches,
    measure=measure,
    figures={"real": time_table("real"), "simulated": time_table("simulated"), "bytes": byte_table,
             "signs": crossing("all-gather: signs", "adds: signsgd"), "topk": crossing("all-gather: top 1 %", "adds: topk:1%")},
    plots={PICTURE: Plot(drawn, draw)},
)
