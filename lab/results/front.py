"""front.py - figures that need the samples of several experiments: time to the same accuracy, and codecs at a glance

The first is of `steps` and `accuracy`. Both experiments train the same GPT, with one window per node. `steps` has the
time of a step for each link, `accuracy` the epochs on four nodes until the loss is that of Gloo's fp32. A method's
speed-up in time to the same accuracy is (Gloo's step / its step) x (Gloo's epochs / its epochs). A method that did not
reach the loss has none. `steps` updates weights by SGD, and `accuracy` by AdamW, whose update takes longer: the same
time for all methods.
"""

import statistics

from lab import bench_ratio
from lab.results.experiment import Combination, Plot
from lab.results.texts import counts, ratio_text, slug
from lab.steps import setups
from lab.steps import tables as steps
from lab.study import tables as study

MODEL, BATCH = "gpt", 1
# Methods of `steps`, and their names in `accuracy`. The sums of `raw` are exact, so that it needs Gloo's epochs.
EPOCHS = {
    setups.GLOO_BF16: "Gloo, bf16",
    "raw": "Gloo",
    "fixed:adaptive": "fixed:adaptive",
    "signsgd": "signsgd",
    "topk:1%+fixed:10": "topk:1%+fixed:10",
}
WORDS = {
    setups.GLOO_BF16: "Gloo, PyTorch's bf16 hook",
    "raw": "gradlane raw (exact)",
    "fixed:adaptive": "gradlane fixed:adaptive",
    "signsgd": "gradlane signsgd",
    "topk:1%+fixed:10": "gradlane topk:1%+fixed:10",
}


def epochs_of(run, base):
    """Returns after how many epochs the loss was that of `base` at its end, plus the target's margin, by linear
    interpolation between epochs. Raises IndexError if there is no such epoch."""
    losses = study.curve(MODEL, run)
    wanted = (1 + study.TARGET_ABOVE) * study.curve(MODEL, base)[-1]
    at = [epoch for epoch, loss in enumerate(losses) if loss <= wanted][0]
    return at + (losses[at - 1] - wanted) / (losses[at - 1] - losses[at]) if at else 1


def epochs_saved(samples, name):
    """Returns Gloo's epochs / the method's to the same loss: the mean over seeds; None where a training did not reach it.
    """
    base = study.runs_of(samples["accuracy"], MODEL, study.methods.GLOO)
    runs = study.runs_of(samples["accuracy"], MODEL, EPOCHS[name])
    try:
        return statistics.fmean(epochs_of(base[seed], base[seed]) / epochs_of(runs[seed], base[seed])
                                for seed in runs.keys() & base.keys())
    except (IndexError, statistics.StatisticsError):
        return None


def speed_ups(samples, name, nodes):
    """Returns [(Gb/s, [speed-up of each run])] in time to the same accuracy; [] where it was not reached."""
    saved = epochs_saved(samples, name)
    if saved is None:
        return []
    found = []
    for cell, runs in steps.cells(samples["steps"]):
        if (cell.nodes, cell.model, cell.batch) == (nodes, MODEL, BATCH):
            found.append((cell.gbps, [saved * steps.mean_ms(run, setups.GLOO) / steps.mean_ms(run, name)
                                      for run in runs if name in run["ms"]]))
    return found


def reached(samples):
    return [name for name in EPOCHS if epochs_saved(samples, name)]


def row_of(name, nodes):
    """Returns a figure: "3.31 times as fast at 0.2 Gb/s, 1.70 at 1 Gb/s and 0.84 at 5 Gb/s"."""
    def text(samples):
        words = [f"{ratio_text(values)} at {gbps:g} Gb/s" for gbps, values in speed_ups(samples, name, nodes)]
        words[:1] = [words[0].replace(" at", " times as fast at")] if words else []
        return " and ".join([", ".join(words[:-1]), *words[-1:]]) if len(words) > 1 else "not reached"

    return text


def number_of(name, nodes, gbps):
    """Returns a figure: "3.31", the speed-up at one rate."""
    def text(samples):
        return next((ratio_text(values) for rate, values in speed_ups(samples, name, nodes) if rate == gbps), "not reached")

    return text


def headline(samples):
    """Returns a figure: the speed-ups of all methods that reached the loss, on four nodes."""
    nodes = max(setups.NODES)
    rates, words = [], []
    for name in reversed(reached(samples)):
        found = speed_ups(samples, name, nodes)
        rates = [f"{gbps:g}" for gbps, _ in found]
        words.append(f"{WORDS[name]} {', '.join(ratio_text(values) for _, values in found)}")
    return f"{'; '.join(words)} (at {', '.join(rates)} Gb/s)" if words else "not measured"


def table(samples):
    """Returns a table: links against methods. **Bold** is slower than Gloo's fp32."""
    names = reached(samples)
    rows = ["| nodes, link | " + " | ".join(WORDS[name] for name in names) + " |", "|---|" + "---:|" * len(names)]
    for nodes in setups.NODES:
        columns = [speed_ups(samples, name, nodes) for name in names]
        for each in zip(*columns):
            texts = [f"**{ratio_text(values)}**" if round(statistics.median(values), 2) < 1 else ratio_text(values)
                     for _, values in each]
            rows.append(f"| {nodes} nodes, {each[0][0]:g} Gb/s | " + " | ".join(texts) + " |")
    return "\n".join(rows)


def not_reached(samples):
    """Returns a figure: the methods whose training did not reach the loss."""
    return " and ".join(f"`{name}`" for name in EPOCHS if name not in reached(samples)) or "none"


def plot_data(samples):
    """Returns {nodes: {method: [[Gb/s, slowest run, median, fastest run], ...]}}."""
    return {str(nodes): {name: [[gbps, *(round(each, 3) for each in (min(values), statistics.median(values), max(values)))]
                                for gbps, values in speed_ups(samples, name, nodes)] for name in reached(samples)}
            for nodes in reversed(setups.NODES)}


def draw(data, path):
    from lab.results.style import BLACK, BLUE, GREY, ORANGE, VERMILION, plt

    looks = {setups.GLOO_BF16: (ORANGE, "s"), "raw": (GREY, "D"), "fixed:adaptive": (BLUE, "o"),
             "signsgd": (VERMILION, "^"), "topk:1%+fixed:10": (VERMILION, "v")}
    every = [value for methods in data.values() for points in methods.values() for point in points for value in point[1:]]
    figure, panels = plt.subplots(1, len(data), figsize=(8.6, 3.7), sharey=True)
    for axes, (nodes, methods) in zip(panels, data.items()):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.axhspan(0.01, 1, color="#F2DEDE", zorder=0)
        axes.axhline(1, color=BLACK, linewidth=1.2)
        for name, points in methods.items():
            colour, marker = looks[name]
            rates, lowest, middle, highest = zip(*points)
            spread = [[mid - low for low, mid in zip(lowest, middle)], [high - mid for mid, high in zip(middle, highest)]]
            axes.errorbar(rates, middle, yerr=spread, color=colour, marker=marker, label=WORDS[name], capsize=2)
            if name == "fixed:adaptive":
                for rate, value in zip(rates, middle):
                    clear = value > 1.2  # of other lines, and of 1
                    axes.annotate(f"{value:.{1 if clear else 2}f}x", (rate, value), textcoords="offset points",
                                  xytext=(7, 5) if clear else (8, -13), color=colour, fontsize=9, fontweight="bold")
        axes.set_xlim(min(rates) / 1.25, 1.7 * max(rates))
        axes.set_ylim(0.9 * min(every), 1.35 * max(every))
        axes.set_xticks(rates, [f"{rate:g} Gb/s" for rate in rates])
        axes.set_yticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
        axes.minorticks_off()
        axes.set_title(f"{nodes} nodes, {'half a core' if int(nodes) > steps.CORES else 'a core'} each", fontsize=10)
        axes.set_xlabel("rate of each link")
        axes.text(min(rates) / 1.18, 0.53, "slower than Gloo fp32", fontsize=9, color="#A04040", va="bottom")
        axes.text(1.5 * min(rates), 1.02, "Gloo fp32 = 1", fontsize=9, va="bottom")
    panels[0].set_ylabel("times as fast as Gloo fp32\nto the same loss")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="lower center", ncols=len(labels), fontsize=9)
    figure.suptitle("GPT of 1.6 million parameters: time to the same loss", fontsize=11, y=0.98)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path)
    plt.close(figure)


# ---- Codecs at a glance


# Rows of the table: the codec's name in `ratios` and in `steps` ("" if it was not measured), and in `accuracy`.
CODECS = (
    (setups.GLOO_BF16, "", setups.GLOO_BF16, "Gloo, bf16"),
    ("bf16", "bf16", "bf16", "bf16"),
    ("fixed:adaptive", "", "fixed:adaptive", "fixed:adaptive"),
    ("fixed:10", "fixed:10", "", "fixed:10"),
    ("int8", "int8", "", "int8"),
    ("qsgd:4", "qsgd:4", "", "qsgd:4"),
    ("terngrad", "terngrad", "", "terngrad"),
    ("signsgd", "signsgd", "signsgd", "signsgd; rate 0.00390625"),
    ("onebit", "onebit", "", "onebit"),
    ("topk:1%+fixed:10", "topk:1%+fixed:10", "topk:1%+fixed:10", "topk:1%+fixed:10"),
)


def glance(samples):
    """Returns a table: how many times fewer bytes, faster steps, and what is lost, by codec."""
    rows = ["| codec | bytes of `raw` / its | faster, slower of "
            f"{len(steps.cells(samples['steps']))} set-ups | digits, points | conv, points | GPT, loss |",
            "|---|---:|---:|---:|---:|---:|"]
    for name, in_ratios, in_steps, in_accuracy in CODECS:
        speed = "-"
        if in_steps:
            found = counts([steps.speed_up(runs, in_steps) for _, runs in steps.cells(samples["steps"])])
            speed = f"{found[0]}, {found[2]}"
        own = "signsgd" if name == "signsgd" else in_accuracy
        losses = [study.difference_of(model, method)(samples["accuracy"]).replace("not measured", "-")
                  for model, method in (("digits", in_accuracy), ("conv", in_accuracy), ("gpt", own))]
        rows.append(f"| `{name}` | {bench_ratio.range_of(in_ratios)(samples['ratios'])} | {speed} | {' | '.join(losses)} |")
    return "\n".join(rows)


GLANCE = Combination(name="glance", of=("ratios", "steps", "accuracy"), figures={"codecs": glance})

FRONT = Combination(
    name="front",
    of=("steps", "accuracy"),
    figures={
        "table": table,
        "not-reached": not_reached,
        "headline": headline,
        **{slug(f"{name} {nodes} nodes"): row_of(name, nodes) for name in EPOCHS for nodes in setups.NODES},
        **{slug(f"{name} {cell.nodes} nodes {cell.gbps:g}"): number_of(name, cell.nodes, cell.gbps)
           for name in EPOCHS for cell in setups.CELLS},
    },
    plots={"docs/images/front.png": Plot(plot_data, draw)},
)
