"""tables.py - tables and plots of times of all-reduces, by ring and size (no matplotlib until something is drawn)

They are made of rings: {ring: {size: [{method: us}, ...]}}, with a dict for each run.
"""

import statistics

from lab.exchanges import setups
from lab.results.experiment import Plot
from lab.results.store import Store
from lab.results.texts import counts, ratio_text, size_text, slug, time_text
from lab.steps import calibrations

NOTHING = "not measured"


def rings_of(samples):
    """Returns the rings of the experiment's samples, with the medians of the repetitions."""
    rings = {}
    for key in setups.KEYS:
        if key in samples:
            ring, size = key.split(", ")
            rings.setdefault(ring, {})[size] = [{method: statistics.median(us) for method, us in run.items()}
                                                for run in samples[key]]
    return rings


def rings_of_calibrations(samples):
    """Returns the rings of experiment `calibrations`, whose exchanges are medians already."""
    rings = {}
    for ring, runs in samples.items():
        for run in runs:
            found = {}
            for each in run["json"]["exchanges"]:
                method = each["codec"] if each["library"] == "gradlane" else f"{each['library']} {each['codec']}"
                for point in each["points"]:
                    found.setdefault(size_text(point["bytes"]), {})[method.removesuffix(" fp32")] = point["us"]
            for size, times in found.items():
                rings.setdefault(ring, {}).setdefault(size, []).append(times)
    return rings


def rings_on_links():
    """Returns the rings of the samples of `calibrations`. Their tables are here, and not among the sources of those."""
    return rings_of_calibrations(Store(calibrations.EXPERIMENT).values())


def of_size(rings, size):
    return {ring: {size: sizes[size]} for ring, sizes in rings.items() if size in sizes}


def links_are_stale():
    """Returns " (stale)" if samples of `calibrations` are: pages ask only about those of `exchanges`."""
    return " (stale)" if Store(calibrations.EXPERIMENT).stale() else ""


def ratios(runs, method, base=setups.GLOO):
    """Returns how many times as fast a method is as `base`, in each run that has both."""
    return [run[base] / run[method] for run in runs if base in run and method in run]


def methods_of(rings):
    """Returns all methods but Gloo's fp32, in the order in which runs have them."""
    found = dict.fromkeys(method for sizes in rings.values() for runs in sizes.values() for run in runs for method in run)
    ordered = [method for method in setups.METHODS if method in found]
    return [method for method in dict.fromkeys([*ordered, *found]) if method != setups.GLOO]


def cell(runs, method):
    """Returns the ratio to Gloo, in bold if the method is slower, or is in one end of a range."""
    found = ratios(runs, method)
    if not found:
        return ""
    text = ratio_text(found)
    bold = "**" if (min(found) if " to " in text else statistics.median(found)) < 1 else ""
    return f"{bold}{text}{bold}"


def speed_table(rings):
    """Returns a table with a row for each ring and size: Gloo's time, and how many times as fast each method is."""
    if not rings:
        return NOTHING
    methods = methods_of(rings)
    rows = ["| ring | size | `gloo` | " + " | ".join(f"`{method}`" for method in methods) + " |",
            "|---|---|---:|" + "---:|" * len(methods)]
    for ring, sizes in rings.items():
        for size, runs in sizes.items():
            gloo = time_text(statistics.median(run[setups.GLOO] for run in runs))
            rows.append(f"| {ring} | {size} | {gloo} | " + " | ".join(cell(runs, method) for method in methods) + " |")
    return "\n".join(rows)


def losing_table(rings):
    """Returns a table with a row for each method: in how many rings and sizes it is faster than Gloo, and its worst."""
    if not rings:
        return NOTHING
    rows = ["| method | faster than Gloo by more than 10 % | within 10 % | slower by more than 10 % | its worst case |",
            "|---|---:|---:|---:|---|"]
    for method in methods_of(rings):
        faster, same, slower = wins(rings, method)
        rows.append(f"| `{method}` | {faster} | {same} | {slower} | {worst(rings, method)} |")
    return "\n".join(rows)


def wins(rings, method):
    """Returns in how many rings and sizes a method is (faster than Gloo, about as fast, slower). See counts()."""
    return counts([statistics.median(each) for each in all_ratios(rings, method).values()])


def record(rings, method):
    """Returns "22 of 23, at worst 0.93 (2 nodes, 1gbit, 64 KiB)"."""
    found = wins(rings, method)
    return f"{found[0]} of {sum(found)}, at worst {worst(rings, method)}" if sum(found) else NOTHING


def all_ratios(rings, method):
    """Returns {"2 ranks, 4 KiB": ratios of all runs} of a method."""
    found = {f"{ring}, {size}": ratios(runs, method) for ring, sizes in rings.items() for size, runs in sizes.items()}
    return {name: each for name, each in found.items() if each}


def worst(rings, method):
    """Returns "0.71 (4 ranks, 64 MiB)", the ratio to Gloo where the method does worst."""
    found = all_ratios(rings, method)
    if not found:
        return NOTHING
    name = min(found, key=lambda each: statistics.median(found[each]))
    return f"{ratio_text(found[name])} ({name})"


def beaten(rings, method, rival):
    """Returns "7 of 10": in how many rings and sizes the rival is faster than the method."""
    found = [statistics.median(ratios(runs, method, rival)) for sizes in rings.values() for runs in sizes.values()
             if ratios(runs, method, rival)]
    return f"{sum(each < 1 for each in found)} of {len(found)}" if found else NOTHING


def ratio_of(method, key):
    ring, size = key.split(", ")

    def text(samples):
        found = ratios(rings_of(samples).get(ring, {}).get(size, []), method)
        return ratio_text(found) if found else NOTHING

    return text


# {"raw-2-ranks-64-MiB": ..., "raw-worst": ..., "raw-beaten-by-open-mpi": ...} for each method, and the tables
FIGURES = {
    "speeds": lambda samples: speed_table(rings_of(samples)),
    "losing": lambda samples: losing_table(rings_of(samples)),
    "speeds-on-links": lambda _: speed_table(of_size(rings_on_links(), "16 MiB")),
    "losing-on-links": lambda _: losing_table(rings_on_links()),
    **{slug(f"{method} on links"): lambda _, method=method: record(rings_on_links(), method) + links_are_stale()
       for method in setups.METHODS},
    "plot": lambda samples: "![times as fast as Gloo against the size](../images/exchanges.png)" if samples else NOTHING,
    **{slug(f"{method} {key}"): ratio_of(method, key) for method in setups.METHODS for key in setups.KEYS},
    **{slug(f"{method} worst"): lambda samples, method=method: worst(rings_of(samples), method)
       for method in setups.METHODS},
    **{slug(f"{method} beaten by {setups.OPEN_MPI}"): lambda samples, method=method: beaten(
        rings_of(samples), method, setups.OPEN_MPI) for method in setups.METHODS},
}


# ---- Plots


def plot_data(samples):
    rings = rings_of(samples)
    return {ring: {method: [[setups.SIZES[size], round(statistics.median(ratios(runs, method)), 3)]
                            for size, runs in sizes.items() if ratios(runs, method)] for method in methods_of(rings)}
            for ring, sizes in rings.items()}


def draw(data, path):
    from lab.results.style import COLOURS, MARKERS, plt

    figure, both = plt.subplots(1, max(1, len(data)), figsize=(9, 4.4), sharey=True, squeeze=False)
    for axes, (ring, methods) in zip(both[0], data.items()):
        for (method, points), colour, marker in zip(methods.items(), COLOURS, MARKERS):
            axes.plot(*zip(*points), marker=marker, color=colour, label=method)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(list(setups.SIZES.values()), list(setups.SIZES), fontsize=8)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_title(ring, fontsize=10)
    both[0][0].set_ylabel("times as fast as Gloo (fp32)")
    both[0][-1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


PLOTS = {"docs/images/exchanges.png": Plot(plot_data, draw)}
