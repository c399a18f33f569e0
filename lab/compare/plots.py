# plots.py - results as PNGs

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from lab.compare import plan
from lab.compare import style
from lab.compare import tables
from lab.compare.style import plt

BROWN = "#8B6914"
# Colour, marker and line of each method. Only methods of kind "gradlane" have solid lines.
LOOKS = {
    "gradlane raw": (style.BLUE, "o", "-"), "gradlane bf16": (style.SKY, "s", "-"),
    "gradlane fixed:10": (style.VERMILION, "o", "-"), "gradlane fixed:adaptive": (style.ORANGE, "D", "-"),
    "gradlane inceptionn:10": (style.PURPLE, "^", "-"), "backend raw": (style.BLUE, "x", ":"),
    "backend fixed:10": (style.VERMILION, "x", ":"), "gloo": (style.BLACK, "v", "--"),
    "direct raw": (style.SKY, "x", ":"), "aggregator:0 raw": (style.GREEN, "X", ":"),
    "packets raw": (style.BLUE, "s", "-."), "packets fixed:10": (style.VERMILION, "s", "-."),
    "gloo 2": (style.BLACK, "^", ":"), "gloo fp16": (style.GREY, "s", "--"), "aggregator": (style.GREEN, "P", "--"), "mpi tcp": (BROWN, "<", "--"),
    "mpi ring": (BROWN, "d", "-."), "mpi shm": (BROWN, ">", "-."),
}
LINK_GBPS = {"1gbit": 1 / 8, "5gbit": 5 / 8}


def look(method):
    colour, marker, line = LOOKS[method]
    return {"color": colour, "marker": marker, "linestyle": line, "label": plan.LABELS[method]}


def plain(value, _):
    return f"{value:g}"


def ticks_of_log(axis):
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(FixedLocator([each * 10**power for power in range(-5, 5) for each in (1, 2, 5)]))
    axis.yaxis.set_major_formatter(FuncFormatter(plain))
    axis.yaxis.set_minor_locator(NullLocator())


def finish(figure, axes, path):
    """Adds one legend for all axes, below them, and saves the figure."""
    columns = 4 if figure.get_figwidth() > 9 else 2
    handles = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    labels = [plan.LABELS[method] for method in plan.METHODS if plan.LABELS[method] in handles]
    figure.legend([handles[label] for label in labels], labels, loc="lower center", ncol=columns, fontsize=9,
                  handlelength=3.5)
    figure.tight_layout(rect=(0, 0.04 + 0.033 * -(-len(labels) // columns), 1, 1))
    figure.savefig(path)
    plt.close(figure)


def error(rows, value):
    """Returns the medians, and the distances of the least and the most value from them."""
    middle = [value(row, row["median"]) for row in rows]
    low, high = [value(row, row["max"]) for row in rows], [value(row, row["min"]) for row in rows]
    return middle, [[abs(m - min(l, h)) for m, l, h in zip(middle, low, high)],
                    [abs(max(l, h) - m) for m, l, h in zip(middle, low, high)]]


def bus(row, seconds):
    return row["bytes"] / seconds / 1e9 * 2 * (row["nodes"] - 1) / row["nodes"]


def busbw_panel(axis, rows, rate):
    sizes = sorted({row["bytes"] for row in rows if row["data"] == "gauss"})
    for method in plan.METHODS:
        mine = sorted((row for row in rows if row["method"] == method and row["data"] == "gauss"),
                      key=lambda row: row["bytes"])
        if mine:
            middle, spread = error(mine, bus)
            axis.errorbar([row["bytes"] for row in mine], middle, yerr=spread, capsize=2, elinewidth=0.8,
                          **look(method))
    if rate in LINK_GBPS:
        axis.axhline(LINK_GBPS[rate], color="#555555", linewidth=1, zorder=0.9)
        axis.annotate("the link's rate", (sizes[0], LINK_GBPS[rate]), xytext=(0, 0), textcoords="offset points",
                      va="center", fontsize=8, color="#555555", bbox={"color": "white", "pad": 1.5}, zorder=1)
    axis.set_xscale("log", base=2)
    ticks_of_log(axis)
    axis.xaxis.set_major_locator(FixedLocator(sizes))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda size, _: plan.size_text(int(size)).replace(" ", "\n")))
    axis.set_xlabel("tensor size")


def busbw(results, nodes, path):
    """Plots bus bandwidth against size, with a panel for each rate. Returns whether there is data for it."""
    found = [(place, rows) for place, rows in tables.places(results)
             if place[0] == nodes and any(row["data"] == "gauss" for row in rows)
             and (place[1] == "none" or place[2] == results["mtu"])]
    if not found:
        return False
    figure, axes = plt.subplots(1, len(found), figsize=(1 + 4.6 * len(found), 6.4), squeeze=False)
    for axis, (place, rows) in zip(axes[0], found):
        busbw_panel(axis, rows, place[1])
        axis.set_title(tables.place_name(*place))
    axes[0][0].set_ylabel("bus bandwidth, GB/s of fp32 (median; bars: min to max)")
    finish(figure, axes[0], path)
    return True


def time_panel(axis, rows, rates):
    for method in plan.METHODS:
        mine = {row["rate"]: row for row in rows if row["method"] == method}
        known = [rate for rate in rates if rate in mine]
        if known:
            middle, spread = error([mine[rate] for rate in known], lambda row, seconds: seconds * 1e3)
            axis.errorbar([rates.index(rate) for rate in known], middle, yerr=spread, capsize=2, elinewidth=0.8,
                          **look(method))
    ticks_of_log(axis)
    axis.set_xticks(range(len(rates)), [tables.RATES[rate] for rate in rates])
    axis.set_xlim(-0.3, len(rates) - 0.7)
    axis.set_xlabel("bandwidth of each link")


def time(results, path):
    """Plots time against bandwidth, for the largest size with digits data. Each panel has a number of nodes and a kind
    of data. Returns whether there is data for it."""
    sizes = {row["bytes"] for row in results["rows"] if row["data"] == "digits"}
    size = max(sizes or {row["bytes"] for row in results["rows"]}, default=0)
    rows = [row for row in results["rows"] if row["bytes"] == size and row["mtu"] in (results["mtu"], plan.JUMBO)
            and (row["rate"] == "none" or row["mtu"] == results["mtu"])]
    panels = sorted({(row["nodes"], row["data"]) for row in rows}, key=lambda pair: (-pair[0], pair[1] != "gauss"))
    if not panels:
        return False
    figure, axes = plt.subplots(1, len(panels), figsize=(1.5 + 3.6 * len(panels), 6.4), squeeze=False, sharey=True)
    for axis, (nodes, data) in zip(axes[0], panels):
        mine = [row for row in rows if row["nodes"] == nodes and row["data"] == data]
        time_panel(axis, mine, [rate for rate in plan.RATES if any(row["rate"] == rate for row in mine)])
        name = {"gauss": "Gaussian 0.01", "digits": "digits gradients"}[data]
        axis.set_title(f"{nodes} nodes, {plan.size_text(size)}, {name}", fontsize=10)
    axes[0][0].set_ylabel("time of an all-reduce, ms (median; bars: min to max)")
    finish(figure, axes[0], path)
    return True


def cpu(results, path):
    """Plots the CPU seconds of the complete machine per GB of tensor, for the largest size with digits data, with a
    panel for each job. Returns whether there is data for it."""
    size = max((row["bytes"] for row in results["rows"] if row["data"] == "digits"), default=0)
    found = [(place, [row for row in rows if row["bytes"] == size and row["data"] == "gauss"])
             for place, rows in tables.places(results) if place[1] == "none" or place[2] == results["mtu"]]
    found = [(place, rows) for place, rows in found if rows]
    if not found:
        return False
    count = -(-len(found) // 2)
    figure, axes = plt.subplots(min(2, len(found)), count, figsize=(2 + 4.3 * count, 6.8), squeeze=False, sharey=True)
    names = [method for method in plan.METHODS if any(row["method"] == method for _, rows in found for row in rows)]
    for axis, (place, rows) in zip(axes.flat, found):
        bars = {row["method"]: row["cpu_per_gb"] for row in rows}
        for at, name in enumerate(reversed(names)):
            if name in bars:
                axis.barh(at, bars[name], color=style.VERMILION if name in plan.OURS else style.GREY)
                axis.annotate(tables.number(bars[name]), (bars[name], at), xytext=(3, 0), textcoords="offset points",
                              va="center", fontsize=8)
        axis.set_yticks(range(len(names)), [plan.LABELS[name] for name in reversed(names)], fontsize=8)
        axis.grid(axis="y", visible=False)
        axis.margins(x=0.14)
        axis.set_title(f"{tables.place_name(*place)}, {plan.size_text(size)}", fontsize=10)
        axis.set_xlabel("CPU seconds of all nodes per GB of tensor")
    for axis in axes.flat[len(found):]:
        axis.set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
    return True


def all_plots(results, folder):
    """Draws all plots that have data, and returns their names."""
    made = {"busbw-4": busbw(results, 4, folder / "busbw-4.png"), "busbw-2": busbw(results, 2, folder / "busbw-2.png"),
            "time": time(results, folder / "time.png"), "cpu": cpu(results, folder / "cpu.png")}
    return [name for name, there in made.items() if there]
