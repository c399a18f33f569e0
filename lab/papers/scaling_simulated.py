"""scaling_simulated.py - experiment `scaling-simulated`: scaling.py on up to 64 nodes of `gradlane sim`; nothing is timed
"""

import itertools

from lab.papers import scaling
from lab.papers.scaling import DATA, MTU, WAYS
from lab.results.experiment import EXCHANGE, Batch, Experiment, Plot

NODES = (2, 4, 8, 16, 32, 64)
GBPS, RTT = 0.1, "50us"  # the rate of scaling.py
PICTURE = "docs/images/scaling-simulated.png"


def batches(samples):
    return [Batch((str(nodes),), 1 + nodes // 3, nodes) for nodes in NODES if str(nodes) not in samples]


def measure(batch, context):
    """Yields {way: {ms, bytes that a node sends}}."""
    nodes, values = batch.argument, {}
    for way in WAYS:
        row, = scaling.rows_of(scaling.run(context, [
            context.gradlane, "sim", "--json", "--nodes", nodes, "--strategy", way.strategy, "--codec", way.codec, "--op",
            "all-gather" if way.gathered else "all-reduce", "--size", scaling.size_of(way, nodes), "--gbps", GBPS, "--rtt",
            RTT, "--mtu", MTU, "--data", DATA, "--switch"]))
        values[way.name] = {"ms": row["seconds"] * 1e3, "bytes": row["wire_bytes"] / nodes}
    yield batch.keys[0], values, f"gradlane sim --nodes {nodes} --gbps {GBPS} --rtt {RTT} --mtu {MTU} --data {DATA} --switch ..."


def times(samples):
    return scaling.by_way(samples, NODES, lambda value: value["ms"])


def kilobytes(samples):
    return scaling.by_way(samples, NODES, lambda value: value["bytes"] / 1e3)


def crossing(gathers, adds):
    """Returns a figure: from how many nodes on the all-gather takes longer than the codec that adds."""
    def make(samples):
        found = times(samples)
        longer = list(itertools.takewhile(
            lambda nodes: nodes in found[gathers] and found[gathers][nodes] > found[adds][nodes], reversed(NODES)))
        return f"from {longer[-1]} nodes on" if longer else "at none of these numbers of nodes"

    return make


EXPERIMENT = Experiment(
    name="scaling-simulated",
    title="codecs that add, all-gathers and an aggregator on more and more simulated nodes",
    sources=(*EXCHANGE, "sim/**", "tools/sim/**", "lab/papers/scaling.py", "lab/papers/scaling_simulated.py"),
    batches=batches,
    measure=measure,
    figures={"times": lambda samples: scaling.table(NODES, times(samples)),
             "bytes": lambda samples: scaling.table(NODES, kilobytes(samples)),
             "plot": lambda samples: "![Time against simulated nodes](../images/scaling-simulated.png)" if samples else "-",
             "signs": crossing("all-gather: signs", "adds: signsgd"),
             "topk": crossing("all-gather: topk:1%", "adds: topk:1%")},
    plots={PICTURE: Plot(times, scaling.draw)},
    timed=False,
)
