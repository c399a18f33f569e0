"""gradients.py - experiment `gradients`: how large recorded gradients are, and what INCEPTIONN's code and gradlane's make
of them

Each sample is a recording, or `log-uniform`. Figures are the same on every machine.
"""

import math

from lab.results.experiment import ROOT, Batch, Experiment, Plot

RECORDINGS = "tools/bench/recordings"
PICTURE = "docs/images/gradients.png"
MODELS, TIMES = ("digits", "conv", "gpt"), ("early", "middle", "late")
NAMES = tuple(f"{model}-{time}" for model in MODELS for time in TIMES)
UNIFORM = "log-uniform"
BOUNDS = ("6", "8", "10")
CODES = ("inceptionn:B", "inceptionn:B,literal")
TAGS = ("00", "01", "10", "11")


def batches(samples):
    missing = tuple(key for key in (*NAMES, UNIFORM) if key not in samples)
    return [Batch(missing, 5)] if missing else []


def measure(batch, context):
    import numpy

    from lab.inceptionn import codes

    for key in batch.keys:
        if key == UNIFORM:
            yield key, {"loss": codes.losses(codes.log_uniform())}, "codes.losses(codes.log_uniform())"
        else:
            file = f"{RECORDINGS}/{key}.npy"
            yield key, codes.figures_of(numpy.load(ROOT / file).ravel()), f"codes.figures_of({file})"


# ---- Tables and picture


def table(head, rows):
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" + "|---:" * (len(head) - 1) + "|", *lines[1:]]) + "\n"


def percent(share):
    if share is None or share in (0, 1):
        return "-" if share is None else f"{100 * share:.0f} %"
    return "< 0.01 %" if share < 5e-5 else "> 99.99 %" if share > 1 - 5e-5 else f"{100 * share:.2f} %"


def sizes(samples):
    """Returns the table of magnitudes and tags."""
    head = ["gradients", "zeros", "median", "99.9 %", "largest",
            *(f"tags 00 / 01 / 10, 2^-{bits}" for bits in BOUNDS)]
    found = {name: samples[name][-1] for name in NAMES if name in samples}
    rows = [[name, percent(it["zeros"]), *(f"{it[key]:.2g}" for key in ("median", "p999", "largest")),
             *(" / ".join(map(percent, it["tags"][bits][:3])) for bits in BOUNDS)] for name, it in found.items()]
    large = max((it["tags"][bits][3] for it in found.values() for bits in BOUNDS), default=0)
    return table(head, rows) + f"\nTag 11, magnitudes from 1 on: {percent(large)} at most.\n"


def errors(samples):
    """Returns the table of errors, and of values that become 0: of magnitudes that are spread evenly, and the ranges of
    all recordings."""
    head = ["values", "B", *(f"{what}, {code}" for what in ("largest error / bound", "zeroed of the 8-bit class",
                                                          "zeroed of all") for code in ("ours", "literal"))]
    rows = []
    for words, names in (("log-uniform", [UNIFORM]), ("recorded", NAMES)):
        losses = [samples[name][-1]["loss"] for name in names if name in samples]
        for bits in losses[0] if losses else ():
            found = {code: [loss[bits][code] for loss in losses] for code in CODES}
            rows.append([words, bits, *(f"{max(math.floor(1e3 * each['error']) / 1e3 for each in found[code]):.3f}"
                                        for code in CODES),
                         *(span([each[key] for each in found[code]]) for key in ("zeroed_of_class", "zeroed")
                           for code in CODES)])
    return table(head, rows)


def span(shares):
    """Returns the range of shares; those that are None are left out."""
    known = [share for share in shares if share is not None]
    ends = dict.fromkeys(percent(end) for end in (min(known), max(known))) if known else ["-"]
    return " to ".join(ends)


def drawn(samples):
    return {name: {key: samples[name][-1][key] for key in ("histogram", "tags")} for name in NAMES if name in samples}


def draw(data, path):
    """Draws the distribution of magnitudes, and below it the shares of tags: a panel of each for each model."""
    from lab.results import style
    from matplotlib import pyplot

    colours = (style.BLUE, style.ORANGE, style.VERMILION, style.BLACK)
    figure, axes = pyplot.subplots(2, len(MODELS), figsize=(12, 6.4), sharey="row", layout="constrained")
    for upper, lower, model in zip(*axes, MODELS):
        of_model = [data[f"{model}-{time}"] for time in TIMES]
        for time, it, colour, line in zip(TIMES, of_model, colours, ("-", "--", ":")):
            upper.step(range(1 - len(it["histogram"]), 1), [100 * share for share in it["histogram"]], where="post", color=colour,
                       linestyle=line, label=time)
        for bits in BOUNDS:
            upper.axvline(-int(bits), color=style.GREY, linewidth=0.8)
        upper.set_title(model, fontsize=11)
        upper.set_xlim(-32, 0)
        upper.set_xticks([-30, -20, *(-int(bits) for bits in reversed(BOUNDS)), 0])
        upper.set_xlabel("log2 of the magnitude; lines: bounds")
        bars = {f"{time}\n2^-{bits}": it["tags"][bits] for time, it in zip(TIMES, of_model) for bits in BOUNDS}
        below = [0.0] * len(bars)
        for tag, (name, colour) in enumerate(zip(TAGS, colours)):
            shares = [100 * found[tag] for found in bars.values()]
            lower.bar(list(bars), shares, 0.8, below, color=colour, label=f"tag {name}")
            below = [lower_end + share for lower_end, share in zip(below, shares)]
        for axis in (upper, lower):
            axis.tick_params(labelsize=8)
    axes[0][0].set_ylabel("values of an octave (%)")
    axes[0][0].legend(loc="upper left")
    axes[1][0].set_ylabel("values (%)")
    axes[1][0].legend(loc="lower left", facecolor="white", frameon=True, framealpha=0.9)
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)


EXPERIMENT = Experiment(
    name="gradients",
    title="sizes of recorded gradients, and what INCEPTIONN's code makes of them",
    sources=("lab/inceptionn/codes.py", RECORDINGS + "/**"),
    batches=batches,
    measure=measure,
    figures={"sizes": sizes, "errors": errors},
    plots={PICTURE: Plot(drawn, draw)},
    timed=False,
)
