# scalability_page.py - tables and a plot of what lab/scalability.sh has measured

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from lab.compare.ways import AGGREGATOR, DIRECT, GBPS, MIB, RING, RTT
from lab.results import style
from lab.results.style import plt

HEAD = """# Scalability: aggregator, ring and direct exchange on more and more nodes

`lab/scalability.sh --write-docs` writes this page. [benchmarks.md](../benchmarks.md#scalability) says how it is
measured, and how to read it.
"""
WAYS = (
    (AGGREGATOR, "raw", "aggregator, raw", style.BLACK, "P", "-"),
    (AGGREGATOR, "fixed:10", "aggregator, fixed:10 on the way up", style.GREY, "s", "--"),
    (RING, "raw", "ring, raw", style.BLUE, "o", "-"),
    (DIRECT, "raw", "direct, raw", style.SKY, "x", "--"),
    (RING, "fixed:10", "ring, fixed:10", style.VERMILION, "o", "-"),
    (DIRECT, "fixed:10", "direct, fixed:10", style.ORANGE, "x", "--"),
)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def number(value):
    """Formats a number with three significant digits."""
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def ticks_of_log(axis):
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(FixedLocator([each * 10**power for power in range(-5, 5) for each in (1, 2, 5)]))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_locator(NullLocator())


def best(rows, strategy, codec):
    """Returns {nodes: least seconds of all rounds} of this strategy with this codec."""
    found = {}
    for row in rows:
        if (row["strategy"], row["codec"]) == (strategy, codec):
            found[row["nodes"]] = min(row["seconds"]) if isinstance(row["seconds"], list) else row["seconds"]
    return dict(sorted(found.items()))


def share(strategy, nodes):
    """Returns how many tensors go through the busiest port in one direction, uncompressed."""
    return 2 * (nodes - 1) if strategy == AGGREGATOR else 2 * (nodes - 1) / nodes


def growths(rows, nodes):
    """Returns a table of growth from the smallest to the largest number of nodes: factors of the times and of the
    bytes."""
    first, last = nodes[0], nodes[-1]
    found = []
    for strategy, codec, name, *_ in WAYS:
        times = best(rows, strategy, codec)
        wanted = share(strategy, last) / share(strategy, first)
        if first in times and last in times:
            found.append([name, f"{times[last] / times[first]:.2f}x", f"{wanted:.2f}x" if codec == "raw" else "-"])
    return table(["way", f"time, from {first} to {last} nodes", "bytes through the busiest port"], found)


def spread(rows, strategy, codec, nodes):
    """Returns the slowest round as text, such as " to 12.3"; "" if there are not several rounds."""
    for row in rows:
        if (row["nodes"], row["strategy"], row["codec"]) == (nodes, strategy, codec):
            times = row["seconds"]
            return f" to {number(max(times) * 1e3)}" if isinstance(times, list) and len(times) > 1 else ""
    return ""


def times(rows, nodes):
    found = []
    for strategy, codec, name, *_ in WAYS:
        mine = best(rows, strategy, codec)
        cells = [number(mine[each] * 1e3) + spread(rows, strategy, codec, each) if each in mine else "-"
                 for each in nodes]
        found.append([name, *cells])
    return table(["ms", *(f"{each} nodes" for each in nodes)], found)


def less(rows, nodes):
    """Returns a table: how much less time each strategy and codec takes than the raw aggregator, as the paper states
    it."""
    base = best(rows, AGGREGATOR, "raw")
    found = []
    for strategy, codec, name, *_ in WAYS[1:]:
        mine = best(rows, strategy, codec)
        found.append([name, *(f"{100 * (1 - mine[each] / base[each]):.1f} %" if each in mine and each in base else "-"
                              for each in nodes)])
    return table(["less than the aggregator, raw", *(f"{each} nodes" for each in nodes)], found)


def formulas(results):
    """Returns a table of the simulated aggregator: its time, and the times by the star's formula and by the paper's
    own."""
    rows = [row for row in results["simulated"] if (row["strategy"], row["codec"]) == (AGGREGATOR, "raw")]
    cells = [[str(row["nodes"]), *(number(row[name] * 1e3) for name in ("seconds", "star_seconds", "wa_seconds")),
              f"{row['seconds'] / row['star_seconds']:.3f}"] for row in rows]
    return table(["nodes", "simulated, ms", "2(p - 1) n beta with headers", "the paper's (p + log p) n beta",
                  "simulated / first formula"], cells)


def machine(results):
    settings, about = results["settings"], results["about"]
    busy = results["busy_cores"]
    text = (
        f"Real: {settings['bytes'] / MIB:g} MiB of Gaussian 0.01 in namespaces on one machine with {about['cores']} "
        f"cores ({about['cpu']}, Linux {about['kernel']}), a switch in its kernel, links of {settings['rate']} each way, "
        f"MTU {settings['mtu']}. Rounds: {settings['rounds']}, of {settings['iterations']} operations each, of which the "
        "median counts; the best round is shown, and the worst one behind it. Results were checked, and none was wrong.")
    if busy:
        text += f" Before each job, {min(busy):.1f} to {max(busy):.1f} cores were busy with other work"
        text += "; the best round suffers least from it." if max(busy) > 0.3 else "."
    return text + (
        f"\n\nSimulated: {settings['simulated_bytes'] / MIB:g} MiB, ports of {GBPS} Gb/s into one switch, round trips of "
        f"{RTT}, losses only in full queues; computing takes no time.\n")


def linked(results):
    return [row["nodes"] for row in results["simulated"] if (row["strategy"], row["codec"]) == (RING, "raw")]


def document(results, picture):
    real = results["settings"]["real_nodes"]
    quick = "**With `--quick`, which only shows that everything works: times mean nothing.**\n\n" if (
        results["settings"]["quick"]) else ""
    parts = [quick + machine(results), f"![Time of an all-reduce against the number of nodes]({picture})\n",
             "## Real nodes\n", times(results["real"], real) + "\n", less(results["real"], real) + "\n"]
    if len(real) > 1:
        parts.append(growths(results["real"], real) + "\n")
    simulated = linked(results)
    parts += ["## Simulated nodes\n", times(results["simulated"], simulated) + "\n",
              less(results["simulated"], simulated) + "\n", growths(results["simulated"], simulated) + "\n",
              formulas(results)]
    return "\n".join(parts)


def panel(axis, rows, nodes, title):
    for strategy, codec, name, colour, marker, line in WAYS:
        mine = best(rows, strategy, codec)
        axis.plot(list(mine), [seconds * 1e3 for seconds in mine.values()], color=colour, marker=marker,
                  linestyle=line, label=name)
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("nodes")
    axis.xaxis.set_major_locator(FixedLocator(nodes))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_locator(NullLocator())


def plot(results, path):
    """Draws real nodes as the paper does, on an axis from 0, where linear growth is a straight line. Simulated nodes
    have a panel next to it."""
    settings = results["settings"]
    figure, axes = plt.subplots(1, 2, figsize=(11, 5.4))
    real = f"{settings['bytes'] / MIB:g} MiB, real nodes, {settings['rate'].replace('mbit', ' Mb/s')}"
    panel(axes[0], results["real"], settings["real_nodes"], real)
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("time of an all-reduce, ms")
    nodes = linked(results)
    panel(axes[1], results["simulated"], nodes, f"{settings['simulated_bytes'] / MIB:g} MiB, simulated, {GBPS} Gb/s")
    axes[1].set_xscale("log", base=2)
    axes[1].xaxis.set_major_locator(FixedLocator(nodes))
    axes[1].xaxis.set_minor_locator(NullLocator())
    axes[1].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ticks_of_log(axes[1])
    axes[1].set_ylabel("ms, logarithmic")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=3, fontsize=9, handlelength=3.5)
    figure.tight_layout(rect=(0, 0.11, 1, 1))
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


def write(results, folder):
    """Writes table and plot. Returns the text."""
    plot(results, folder / "scalability.png")
    text = document(results, "scalability.png")
    (folder / "scalability.md").write_text(text + "\n")
    return text


def write_docs(results, docs):
    plot(results, docs / "images" / "scalability.png")
    (docs / "results" / "scalability.md").write_text(f"{HEAD}\n{document(results, '../images/scalability.png')}\n")
