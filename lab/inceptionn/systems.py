"""systems.py - experiment `systems`: steps of a training with the INCEPTIONN paper's systems, split into computing and
exchanging, with the time of adding

Each sample (model/system) has times of single steps. `gradlane trace` times what the daemons do with codecs: one call of
31, by the CPU's counter, while the ranks train.
"""

import statistics

from lab.results import jobs
from lab.results.experiment import EXCHANGE, Batch, Experiment, Plot
from lab.results.texts import range_text, ratio_text

MODELS = ("digits", "conv")
NODES, RATE = 4, "1gbit"
# (strategy, codec) by the paper's names: a worker-aggregator, one that gets compressed gradients, a ring, a ring with
# compression. rings:2 is its ring of groups. The last one has the paper's classes and bound.
SYSTEMS = {
    "WA": ("aggregator:0", "raw"), "WA+C": ("aggregator:0", "fixed:10/raw"), "ring": ("ring", "raw"),
    "ring+C": ("ring", "fixed:10"), "rings:2": ("rings:2", "raw"), "rings:2+C": ("rings:2", "fixed:10"),
    "ring+C, inceptionn": ("ring", "inceptionn:10"),
}
RUNS = 3
SECONDS = 15
PICTURE = "docs/images/systems.png"
PARTS = ("computing", "adding", "the rest of exchanging")  # of the bars


def batches(samples):
    """Returns the batches of the systems that have the fewest runs first."""
    missing = [(len(samples.get(f"{model}/{system}", [])), model, system) for model in MODELS for system in SYSTEMS]
    return [Batch((f"{model}/{system}",), SECONDS, (model, system))
            for runs, model, system in sorted(missing, key=lambda each: each[0]) if runs < RUNS]


def measure(batch, context):
    """Yields one sample:

    - computing_ms: of each step in which nothing is exchanged, on the slowest rank
    - step_ms: of each step, on the slowest rank
    - encode_us, add_us, decode_us: by node, its daemon's time in each traced step (docs/monitoring.md)
    """
    model, system = batch.argument
    strategy, codec = SYSTEMS[system]
    options = ["-n", NODES, "--link", "veth", "--inside", "--rate", RATE, "--strategies", strategy]
    spec = {"model": model, "strategy": strategy, "codec": codec, "gradlane": str(context.gradlane)}
    found = list(jobs.results(context, options, "lab.inceptionn.train", spec))
    if len(found) != 1 or len(found[0]["add_us"]) != NODES:
        raise RuntimeError(f"{model}/{system}: no result, or no whole step of some node in the trace")
    command = " ".join(str(word) for word in ["gradlane run", *options, "-- python -m lab.inceptionn.train"])
    yield batch.keys[0], found[0], command


# ---- Figures


def split(run):
    """Returns the ms of a step of one run, of its parts, and of adding, which happens while packets travel. Adding is that
    of the busiest node: decoding what others have sent, adding it, and encoding the sum for the next node. Steps are
    medians, times of adding are means."""
    step, computing = statistics.median(run["step_ms"]), statistics.median(run["computing_ms"])
    adding = max(statistics.fmean(times) for times in run["add_us"].values()) / 1e3
    return {"step": step, "computing": computing, "exchanging": step - computing, "adding": adding}


def parts_of(samples, model):
    """Returns {system: {part: [ms of each run]}} of a model."""
    found = {}
    for system in SYSTEMS:
        splits = [split(run) for run in samples.get(f"{model}/{system}", [])]
        if splits:
            found[system] = {name: [each[name] for each in splits] for name in splits[0]}
    return found


def ratios(base, found, part):
    """Returns how many times as long a part takes with `base`, by run."""
    return [theirs / ours for theirs, ours in zip(base[part], found[part])]


def table(model):
    """Returns a function that makes the table of a model."""
    def make(samples):
        found = parts_of(samples, model)
        head = ["system", "strategy, codec", "step (ms)", "computing", "exchanging", "adding", "WA's exchanging / this",
                "WA's step / this"]
        lines = ["| " + " | ".join(head) + " |", "|---|---" + "|---:" * (len(head) - 2) + "|"]
        base = found.get("WA")
        for system, parts in found.items():
            row = [system, "`{}`, `{}`".format(*SYSTEMS[system]),
                   *(range_text(parts[part], digits) for part, digits in (("step", 1), ("computing", 2), ("exchanging", 2),
                                                                          ("adding", 2))),
                   *(ratio_text(ratios(base, parts, part)) if base else "-" for part in ("exchanging", "step"))]
            lines.append("| " + " | ".join(row) + " |")
        return "\n".join(lines)

    return make


def picture(samples):
    """Returns the link to the plot, which is only there when something has been measured."""
    return f"![steps of the systems: computing, adding, exchanging](../images/{PICTURE.rpartition('/')[2]})" if samples else ""


def drawn(samples):
    """Returns {model: {system: {part: ms}}}, medians over runs, with the parts of PARTS."""
    drawn_parts = {}
    for model in MODELS:
        for system, found in parts_of(samples, model).items():
            ms = {name: statistics.median(values) for name, values in found.items()}
            drawn_parts.setdefault(model, {})[system] = ms | {"the rest of exchanging": ms["exchanging"] - ms["adding"]}
    return drawn_parts


def draw(data, path):
    """Draws a bar for each system, with its parts."""
    from lab.results import style
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(data), figsize=(6 * len(data), 3.6), squeeze=False, layout="constrained")
    for axis, (model, found) in zip(axes[0], data.items()):
        below = [0.0] * len(found)
        for part, colour in zip(PARTS, (style.BLUE, style.ORANGE, style.VERMILION)):
            values = [it[part] for it in found.values()]
            axis.barh(list(found), values, left=below, color=colour, label=part)
            below = [left + value for left, value in zip(below, values)]
        axis.invert_yaxis()
        axis.set_title(model, fontsize=11)
        axis.set_xlabel("ms of a step")
    axes[0][0].legend(loc="lower right")
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)


EXPERIMENT = Experiment(
    name="systems",
    title="steps with the INCEPTIONN paper's systems: computing, adding, exchanging",
    sources=(*EXCHANGE, "lab/inceptionn/systems.py", "lab/inceptionn/train.py", "lab/inceptionn/trace.py",
             "lab/study/models.py"),
    batches=batches,
    measure=measure,
    figures={**{model: table(model) for model in MODELS}, "picture": picture},
    plots={PICTURE: Plot(drawn, draw)},
)
