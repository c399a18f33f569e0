"""ablation.py - experiment `ablation`: HiPress' ablation with codecs of growing cost, to find from which cost on
co-design pays

Each sample is a model and a codec's cost: the ms to synchronise the gradients of a step, by way. A way is the one before
it and one thing more, as in HiPress (SOSP 2021):

  raw         uncompressed, a gradient at a time
  codec       each gradient is compressed, a gradient at a time
  pipelining  all gradients at once, so that the codec works while messages travel
  bulk        small gradients are joined to batches
  plan        SeCoPa decides for each batch whether to compress, and into how many parts K

`raw, co-designed` has pipelining, bulk and SeCoPa's K, but no codec. Nodes, links and codec are those of
ablation_rank.py. Samples of key `MODEL/gradlane` are gradlane's own steps on the same links.
"""

import dataclasses
import itertools
import json
import math
import statistics
import subprocess

from lab.papers import secopa
from lab.results import jobs
from lab.results.experiment import EXCHANGE, Batch, Experiment, Plot

NODES, GBPS = 4, 1
MODELS = {"resnet50": 2, "vgg19": 16}  # layers have that many times fewer elements, so that a step takes a second
COSTS = (0.1, 0.3, 1, 3, 10, 30)  # ns per element, to encode and to decode; HiPress' on a V100: 0.01 ns
LAUNCH_MS = 0.05  # of each encoding and decoding; that of HiPress' curves
MESSAGE_MS = 0.3  # of each message in SeCoPa's curves, an assumption for Gloo on these links
RATIO = 1 / 16
BULK = 512 << 10  # bytes of a batch; gradients of more bytes stay alone
RUNS, ROUNDS, SECONDS = 3, 2, 20
RAW, BEST_RAW, PLAN = "raw", "raw, co-designed", "plan"
WAYS = (
    {"name": RAW, "choices": [False], "plans": False, "one_by_one": True, "bulk": False},
    {"name": BEST_RAW, "choices": [False], "plans": True, "one_by_one": False, "bulk": True},
    {"name": "codec", "choices": [True], "plans": False, "one_by_one": True, "bulk": False},
    {"name": "pipelining", "choices": [True], "plans": False, "one_by_one": False, "bulk": False},
    {"name": "bulk", "choices": [True], "plans": False, "one_by_one": False, "bulk": True},
    {"name": PLAN, "choices": [False, True], "plans": True, "one_by_one": False, "bulk": True},
)
GRADLANE = "gradlane"
GRADLANE_WAYS = (
    {"name": RAW, "codec": "raw", "one_by_one": True, "bulk": False},
    {"name": BEST_RAW, "codec": "raw", "one_by_one": False, "bulk": True},
    {"name": "codec", "codec": "fixed:10", "one_by_one": True, "bulk": False},
    {"name": "pipelining", "codec": "fixed:10", "one_by_one": False, "bulk": False},
    {"name": "bulk", "codec": "fixed:10", "one_by_one": False, "bulk": True},
)
GRADLANE_ROUNDS = 4
PICTURE = "docs/images/ablation.png"


@dataclasses.dataclass(frozen=True)
class Part:
    """One of the K parts of a gradient or batch."""

    number: int  # of all parts of the step
    unit: int  # number of the gradient or batch
    root: int
    bytes: int
    encode: float  # s
    decode: float


def batches_of(layers, limit):
    """Returns the elements of gradients, and of batches of gradients below `limit` bytes, in the order in which they
    become ready. A batch is complete when it has `limit` bytes."""
    found, small = [], 0
    for each in reversed(layers):
        if 4 * each >= limit:
            found.append(each)
            continue
        small += each
        if 4 * small >= limit:
            found.append(small)
            small = 0
    return found + [small] if small else found


def costs_of(ns, gbps):
    """Returns SeCoPa's curves for these links and a codec of `ns` per element."""
    codec = secopa.Curve(ns * 1e-6, LAUNCH_MS, LAUNCH_MS)
    link = secopa.Curve((NODES - 1) * 32 / gbps * 1e-6, MESSAGE_MS, MESSAGE_MS)
    return secopa.Costs(codec, dataclasses.replace(codec, slope=codec.slope / RATIO), link, link, link, RATIO)


def parts_of(way, layers, ns, gbps):
    """Returns a list of parts for each gradient or batch of a step."""
    costs, units, number = costs_of(ns, gbps), [], 0
    for unit, elements in enumerate(batches_of(layers, BULK if way["bulk"] else 0)):
        compress, k = (secopa.plan(costs, "servers", NODES, elements, way["choices"]) if way["plans"]
                       else (way["choices"][0], 1))
        part = elements / k
        size = max(1, math.ceil(4 * part * (RATIO if compress else 1)))
        seconds = 1e-3 * costs.encode.ms(part) if compress else 0
        units.append([Part(number + i, unit, (unit + i) % NODES, size, seconds, seconds) for i in range(k)])
        number += k
    return units


def key_of(model, ns):
    return f"{model}/{GRADLANE if ns is None else format(ns, 'g')}"


def batches(samples):
    missing = [(len(samples.get(key_of(model, ns), [])), model, ns) for model in MODELS for ns in (None, *COSTS)]
    return [Batch((key_of(model, ns),), SECONDS, (model, ns, runs))
            for runs, model, ns in sorted(missing, key=lambda each: each[0]) if runs < RUNS]


def layers_of(context, model):
    command = [str(context.gradlane), "plan", "--model", model, "--calibration", "none", "--json"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return [max(1, int(layer["elements"]) // MODELS[model]) for layer in said["layers"]]


def measure(batch, context):
    model, ns, run = batch.argument
    ways, rounds = (GRADLANE_WAYS, GRADLANE_ROUNDS) if ns is None else (WAYS, ROUNDS)
    at = 2 * run % len(ways)  # the order of ways rotates
    options = ["-n", NODES, "--link", "udp", "--inside", "--rate", f"{GBPS}gbit"]
    spec = {"layers": layers_of(context, model), "ns": ns, "gbps": GBPS, "rounds": rounds, "ways": ways[at:] + ways[:at]}
    found = {line["way"]: line["ms"] for line in jobs.results(context, options, "lab.papers.ablation_rank", spec)}
    if len(found) != len(ways):
        raise RuntimeError(f"{batch.keys[0]}: not all ways have a result")
    command = " ".join(str(word) for word in ["gradlane run", *options, "-- python -m lab.papers.ablation_rank"])
    yield batch.keys[0], found, command


# ---- Figures


def times_of(samples, model):
    """Returns {ns: {way: ms}}."""
    return {ns: medians(samples[key_of(model, ns)], WAYS) for ns in COSTS if key_of(model, ns) in samples}


def medians(runs, ways):
    """Returns {way: ms}: of each run the least, and of the runs the median."""
    return {way["name"]: statistics.median(min(run[way["name"]]) for run in runs) for way in ways}


def gradlane_table(samples):
    names = [way["name"] for way in GRADLANE_WAYS]
    lines = ["| gradlane, `fixed:10` | " + " | ".join(names) + " | co-design |", "|---|" + "---:|" * (len(names) + 1)]
    for model in MODELS:
        if key_of(model, None) in samples:
            ms = medians(samples[key_of(model, None)], GRADLANE_WAYS)
            lines.append("| " + " | ".join([model, *(f"{ms[name]:.0f}" for name in names), f"{ms['codec'] / ms['bulk']:.2f}x"]) + " |")
    return "\n".join(lines)


def table(model):
    def make(samples):
        names = [way["name"] for way in WAYS]
        lines = ["| ns per element | " + " | ".join(names) + " | co-design |", "|---:" * (len(names) + 2) + "|"]
        for ns, ms in times_of(samples, model).items():
            cells = [f"{ms[name]:.0f}" for name in names] + [f"{ms['codec'] / ms[PLAN]:.2f}x"]
            lines.append(f"| {ns:g} | " + " | ".join(cells) + " |")
        return "\n".join(lines)

    return make


def limits(samples):
    """Returns up to which cost the codec alone, and with co-design, is faster than the best uncompressed way, by 3 %."""
    texts = []
    for model in MODELS:
        found = times_of(samples, model)
        for way in ("codec", "bulk", PLAN) if found else ():
            won = list(itertools.takewhile(lambda ns, way=way: found[ns][way] < 0.97 * found[ns][BEST_RAW], found))
            texts.append(f"- {model}, {way}: " + (f"up to {won[-1]:g} ns per element" if won else "at none of these costs"))
    return "\n".join(texts) or "-"


def plot(samples):
    return "![Time to synchronise a step, by the codec's cost](../images/ablation.png)" if samples else "-"


def drawn(samples):
    return {model: [[ns, ms] for ns, ms in found.items()] for model in MODELS if (found := times_of(samples, model))}


def draw(data, path):
    """Draws the times of all ways by the codec's cost, both logarithmic."""
    from lab.results.style import COLOURS, MARKERS, plt

    figure, axes = plt.subplots(1, len(data), figsize=(5.6 * len(data), 4.2), squeeze=False, layout="constrained")
    for axis, (model, points) in zip(axes[0], data.items()):
        for way, colour, marker in zip(WAYS, COLOURS, MARKERS):
            axis.plot([ns for ns, _ in points], [ms[way["name"]] for _, ms in points], color=colour, marker=marker,
                      label=way["name"], linestyle="--" if way["choices"] == [False] else "-")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_title(f"{model}, 1/{MODELS[model]} of its elements", fontsize=11)
        axis.set_xlabel("codec: ns per element, to encode and to decode")
        axis.set_ylabel("ms to synchronise a step")
    axes[0][0].legend()
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


EXPERIMENT = Experiment(
    name="ablation",
    title="HiPress' ablation with codecs of growing cost",
    sources=(*EXCHANGE, "lab/papers/ablation.py", "lab/papers/ablation_rank.py", "lab/papers/secopa.py", "collectives/cost/models.cc"),
    batches=batches,
    measure=measure,
    figures={**{model: table(model) for model in MODELS}, "limits": limits, "plot": plot, "gradlane": gradlane_table},
    plots={PICTURE: Plot(drawn, draw)},
)
