"""plots.py - the study's pictures (no PyTorch)"""

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot, ticker  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402

from lab.study import plan, systems  # noqa: E402

# Okabe and Ito's colours, which most colour-blind people can tell apart; lines differ in style and mark, too.
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7",
)
GREY, BROWN = "#999999", "#6B3E00"
CURVES = {
    plan.WORKER_AGGREGATOR: (BLACK, "-", "o"),
    plan.GLOO: (VERMILION, "--", "s"),
    "Gloo, fp16 hook": (ORANGE, ":", "^"),
    "raw": (SKY, "-.", "v"),
    "fixed:10": (BLUE, "-", "D"),
    "fixed:8 + feedback": (GREEN, "--", "P"),
    "fixed:5 + feedback": (BROWN, "-", "*"),
    "fixed:adaptive": (PURPLE, ":", "X"),
}
TITLES = {"digits": "classifier, 789,010 parameters", "conv": "convolutional net, 283,786 parameters",
          "gpt": "GPT of 2 blocks, 1,645,664 parameters",
          "gpt5m": "GPT of 2 wider blocks, 5,298,976 parameters"}


def panels(result, width, height):
    models = list(result["models"].values())
    figure, axes = pyplot.subplots(
        1, len(models), figsize=(width * len(models), height), squeeze=False, layout="constrained",
    )
    for axis, model in zip(axes[0], models):
        axis.set_title(TITLES[model["model"]], fontsize=11)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, list(zip(axes[0], models))


def links(result):
    settings = result["settings"]
    return f"{settings['nodes']} nodes, {settings['link_rate'].replace('gbit', ' Gb/s').replace('mbit', ' Mb/s')}"


def below(axis, columns, lower=-0.11, **handles):
    """Adds a legend under the axis, where it hides nothing."""
    axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, lower), ncol=columns, frameon=False,
                columnspacing=1.2, **handles)


def curves(result, path):
    """Plots accuracy against seconds of training."""
    figure, drawn = panels(result, 6.2, 5)
    for axis, model in drawn:
        for row in model["rows"]:
            if row["method"] in CURVES:
                colour, style, mark = CURVES[row["method"]]
                axis.plot(
                    row["curve"]["seconds"], row["curve"]["accuracy"], color=colour, linestyle=style, marker=mark,
                    markersize=4.5, linewidth=1.6, label=row["method"],
                )
        axis.axhline(model["target"], color=GREY, linewidth=0.9)
        axis.annotate(f" {model['target']:.2f} %", (1, model["target"]), xycoords=("axes fraction", "data"),
                      ha="left", va="center", fontsize=8, color="#555555")
        axis.set_ylim(model["target"] - 7, min(100, model["target"] + 1.5))
        axis.set_xscale("log")  # twice as fast is the same distance everywhere
        axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axis.xaxis.set_minor_formatter(ticker.NullFormatter())
        axis.set_xlabel("seconds of training, logarithmic")
        axis.set_ylabel("test accuracy (%), mean of seeds")
        axis.grid(alpha=0.25)
        below(axis, 4, lower=-0.12)
    figure.suptitle(f"Accuracy against time, {links(result)}", fontsize=12)
    save(figure, path)


def bars(result, path):
    """Plots the time of an epoch: computing, and the time that exchanging adds to it."""
    most = max(len(model["rows"]) for model in result["models"].values())
    figure, drawn = panels(result, 6.2, 1.6 + 0.32 * most)
    for axis, model in drawn:
        rows = model["rows"]
        compute = [min(model["compute_ms"], row["epoch_ms"]) for row in rows]
        exchange = [row["exchange_ms"] for row in rows]
        axis.barh(range(len(rows)), compute, color=SKY, label="compute")
        axis.barh(range(len(rows)), exchange, left=compute, color=VERMILION, hatch="//", edgecolor="white",
                  linewidth=0, label="exchange that computing does not hide")
        for at, row in enumerate(rows):
            axis.annotate(f" {row['epoch_ms']:.0f}", (row["epoch_ms"], at), va="center", fontsize=8)
        axis.set_yticks(range(len(rows)), [row["method"] for row in rows], fontsize=9)
        axis.invert_yaxis()
        axis.margins(x=0.08)
        axis.set_xlabel("ms per epoch (median)")
        axis.grid(axis="x", alpha=0.25)
        axis.set_axisbelow(True)
        below(axis, 2)
    figure.suptitle(f"Where an epoch's time goes, {links(result)}", fontsize=12)
    save(figure, path)


def accuracies(result, path):
    """Plots the final accuracy: a dot for each seed, bars from least to most, a mark for the mean."""
    handles = [
        Line2D([], [], linestyle="", marker="o", color=SKY, markeredgecolor=BLUE, markersize=4, label="a seed"),
        Line2D([], [], linestyle="", marker="D", color=VERMILION, markersize=6, label="mean"),
        Line2D([], [], color=BLACK, linewidth=0.9, label="mean of fp32, 0.3 points around it"),
    ]
    most = max(len(model["rows"]) for model in result["models"].values())
    figure, drawn = panels(result, 6.2, 1.8 + 0.32 * most)
    for axis, model in drawn:
        rows = model["rows"]
        fp32 = next(row for row in rows if row["method"] == plan.GLOO)["accuracy"]["mean"]
        left, right = fp32 - 3, 100
        for at, row in enumerate(rows):
            accuracy = row["accuracy"]
            if accuracy["most"] < left:
                axis.annotate(f"mean: {accuracy['mean']:.1f} %", (left, at), va="center", fontsize=8,
                              xytext=(6, 0), textcoords="offset points", color=VERMILION)
                continue
            axis.plot([max(left, accuracy["least"]), accuracy["most"]], [at, at], color=BLUE, linewidth=2.2, zorder=2)
            seen = {}
            for value in row["accuracies"]:  # equal values are drawn side by side
                beside = seen.get(value, 0)
                seen[value] = beside + 1
                axis.plot(value, at + 0.13 * ((beside + 1) // 2) * (-1) ** beside, "o", color=SKY, markersize=4,
                          markeredgecolor=BLUE, markeredgewidth=0.6, zorder=3, clip_on=True)
            axis.plot(accuracy["mean"], at, "D", color=VERMILION, markersize=6, zorder=4)
        axis.axvline(fp32, color=BLACK, linewidth=0.9)
        axis.axvspan(fp32 - 0.3, fp32 + 0.3, color=GREY, alpha=0.2, linewidth=0)
        axis.set_xlim(left, right)
        axis.set_yticks(range(len(rows)), [row["method"] for row in rows], fontsize=9)
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.set_xlabel("final test accuracy (%)")
        axis.grid(axis="x", alpha=0.25)
        below(axis, 3, handles=handles)
    figure.suptitle(f"Final accuracy by method, {links(result)}", fontsize=12)
    save(figure, path)


def steps(result, path):
    """Plots the time of a step of each of the paper's systems: computing, adding and exchanging."""
    figure, drawn = panels(result, 6.2, 3.4)
    for axis, model in drawn:
        found = systems.rows_of(model, result["settings"])
        left = [0.0] * len(found)
        for part, colour, hatch in (("computing", SKY, ""), ("adding", ORANGE, ".."), ("exchanging", VERMILION, "//")):
            widths = [parts[part] for _, _, parts in found]
            axis.barh(range(len(found)), widths, left=left, color=colour, hatch=hatch, edgecolor="white", linewidth=0,
                      label=part)
            left = [one + other for one, other in zip(left, widths)]
        for at, total in enumerate(left):
            axis.annotate(f" {total:.1f}", (total, at), va="center", fontsize=8)
        axis.set_yticks(range(len(found)), [f"{name}\n{row['method']}" for name, row, _ in found], fontsize=8)
        axis.invert_yaxis()
        axis.margins(x=0.1)
        axis.set_xlabel("ms per step (median)")
        axis.grid(axis="x", alpha=0.25)
        axis.set_axisbelow(True)
        below(axis, 3, lower=-0.2)
    figure.suptitle(f"The paper's systems, {links(result)}", fontsize=12)
    save(figure, path)


def save(figure, path):
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def draw(result, folder):
    """Writes the pictures that have data, and returns their names."""
    if not result["models"]:
        return []
    drawn = {"study-accuracy-time.png": curves, "study-epoch.png": bars, "study-accuracy.png": accuracies}
    if any(systems.rows_of(model, result["settings"]) for model in result["models"].values()):
        drawn[systems.PICTURE] = steps
    for name, function in drawn.items():
        function(result, folder / name)
    return list(drawn)
