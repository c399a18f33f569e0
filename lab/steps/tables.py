"""tables.py - tables and plots of the experiment `steps` (no matplotlib until something is drawn)"""

import math
import statistics

from lab.results.experiment import Plot
from lab.results.texts import COUNTS, counts, slug
from lab.steps import setups

CORES = 2  # of the machine that all nodes share
KINDS = {"calibrated": "with a calibration", "usual": "without a calibration"}


# ---- Figures of a cell


def mean_ms(run, name):
    """Returns the mean step of a method in one run in ms."""
    return statistics.fmean(run["ms"][name])


def measured_ms(runs, name):
    """Returns the median over runs of a method's mean step in ms."""
    return statistics.median(mean_ms(run, name) for run in runs if name in run["ms"])


def speed_up(runs, name, base=setups.GLOO):
    """Returns how many times as fast a step is as with `base`: the median over runs that have both, which take turns.
    """
    return statistics.median(mean_ms(run, base) / mean_ms(run, name) for run in runs
                             if name in run["ms"] and base in run["ms"])


def cells(samples):
    """Returns the measured cells with their runs. One of them has all methods."""
    found = [(cell, samples.get(cell.key, [])) for cell in setups.CELLS]
    return [(cell, runs) for cell, runs in found if any(len(run["ms"]) == len(setups.METHODS) for run in runs)]


def predicted(runs, kind, name):
    """Returns the predicted step of a method in ms; None if there is no prediction."""
    return runs[0].get("predicted", {}).get(kind, {}).get(name)


def points(samples, kind="calibrated", held_out=True, chosen=None):
    """Yields (cell, method, predicted ms, measured ms)."""
    for cell, runs in cells(samples):
        if cell.held_out != held_out or (chosen and not chosen(cell)):
            continue
        for method in setups.METHODS:
            guess = predicted(runs, kind, method.name) if method.predicted else None
            if guess is not None:
                yield cell, method.name, guess, measured_ms(runs, method.name)


# ---- Errors of predictions


def quantile(values, share):
    """Returns the smallest value that is not below `share` of the values."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def errors(found):
    return [abs(guess / real - 1) for _, _, guess, real in found]


def error_row(name, found):
    found = list(found)
    off = errors(found)
    if not off:
        return []
    ratio = statistics.median(guess / real for _, _, guess, real in found)
    return [f"| {name} | {len(off)} | {100 * statistics.median(off):.0f} % | {100 * quantile(off, 0.9):.0f} % | "
            f"{ratio:.2f} |"]


HEADS = "| predictions | number | median error | 90th percentile | median of predicted / measured |\n|---|---:|---:|---:|---:|"


def alone(cell):
    """Whether each node of the cell has a core of its own."""
    return cell.nodes <= CORES


def error_table(samples):
    """Returns a table of the errors of predictions of held-out cells, with and without a calibration."""
    rows = [HEADS]
    for kind, words in KINDS.items():
        for chosen, where in ((alone, "a core per node"), (lambda cell: not alone(cell), "half a core per node")):
            rows += error_row(f"{words}, {where}", points(samples, kind, True, chosen))
    return "\n".join(rows)


def error_by_method(samples):
    """Returns a table of the errors of held-out predictions with a calibration, by method."""
    rows = [HEADS]
    for method in setups.METHODS:
        rows += error_row(f"`{method.name}`", [point for point in points(samples) if point[1] == method.name])
    return "\n".join(rows)


def wilson(right, count):
    """Returns the 95 % confidence interval of a share (Wilson, 1927)."""
    z = 1.96
    share = right / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return middle - half, middle + half


def verdicts(samples, kind="calibrated", held_out=True):
    """Yields (faster, right) for each method that compresses and is faster or slower than Gloo fp32 by more than 10 %:
    whether it is, and whether the prediction says so, too."""
    for cell, runs in cells(samples):
        base = predicted(runs, kind, setups.GLOO)
        for name in setups.CODECS:
            guess = predicted(runs, kind, name)
            real = speed_up(runs, name)
            if cell.held_out == held_out and base and guess and max(real, 1 / real) > COUNTS:
                yield real > 1, (base / guess > 1) == (real > 1)


def choices(samples, kind="calibrated", held_out=True):
    """Yields (faster, right) for each cell: whether the fastest method that compresses is faster than the fastest that
    does not, Gloo fp32 or `raw`, by more than 10 %; and whether the prediction says so of the fastest ones, too. Cells
    with a smaller difference have no answer."""
    def fastest(ms_of, names):
        return min(ms_of(name) for name in names)

    exact = (setups.GLOO, "raw")
    for cell, runs in cells(samples):
        names = [name for name in setups.CODECS if predicted(runs, kind, name)]
        if cell.held_out != held_out or not names or not all(predicted(runs, kind, name) for name in exact):
            continue
        real = max(speed_up(runs, name) for name in names) / max(1, speed_up(runs, "raw"))
        guess = (fastest(lambda name, runs=runs: predicted(runs, kind, name), exact)
                 / fastest(lambda name, runs=runs: predicted(runs, kind, name), names))
        if max(real, 1 / real) > COUNTS:
            yield real > 1, (guess > 1) == (real > 1)


def verdict_row(name, found):
    """Returns a row of verdict_table() from the booleans of all cases."""
    if not found:
        return []
    low, high = wilson(sum(found), len(found))
    return [f"| {name} | {len(found)} | {100 * sum(found) / len(found):.0f} % | {100 * low:.0f} to {100 * high:.0f} % |"]


def verdict_table(samples):
    """Returns a table of how often the verdict is right in held-out cells, with a calibration."""
    rows = ["| verdict | cases | right | 95 % interval |", "|---|---:|---:|---:|"]
    found = list(verdicts(samples))
    rows += verdict_row("each method", [right for _, right in found])
    rows += verdict_row("those that are faster", [right for faster, right in found if faster])
    rows += verdict_row("those that are slower", [right for faster, right in found if not faster])
    rows += verdict_row("always \"faster\", without a prediction", [faster for faster, _ in found])
    rows += verdict_row("compress or not", [right for _, right in choices(samples)])
    return "\n".join(rows)


# ---- Wins and losses


def best_rival(runs):
    return max((setups.GLOO, setups.GLOO_BF16), key=lambda name: speed_up(runs, name))


def win_table(samples):
    """Returns a table of set-ups in which each method is faster than Gloo, and than the better of fp32 and bf16."""
    rows = ["| method | set-ups | faster than Gloo fp32 | within 10 % | slower | faster than the faster Gloo | within 10 % of it | "
            "slower than it |", "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for name in setups.COMPARED:
        plain = [speed_up(runs, name) for _, runs in cells(samples)]
        best = [plain_one / speed_up(runs, best_rival(runs)) for plain_one, (_, runs) in zip(plain, cells(samples))]
        numbers = [*counts(plain), *counts(best)]
        if name == setups.GLOO_BF16:
            numbers = [*counts(plain), "", "", ""]
        rows.append(f"| `{name}` | {len(plain)} | " + " | ".join(str(number) for number in numbers) + " |")
    return "\n".join(rows)


def wins_of(name):
    """Returns a figure: in how many cells a method is faster than Gloo, and slower."""
    def text(samples):
        found = counts([speed_up(runs, name) for _, runs in cells(samples)])
        return f"{found[0]} of {sum(found)} (slower in {found[2]})" if sum(found) else "not measured"

    return text


def losses_of(name):
    """Returns a figure: in how many cells a method is slower than Gloo."""
    def text(samples):
        found = counts([speed_up(runs, name) for _, runs in cells(samples)])
        return f"{found[2]} of {sum(found)}" if sum(found) else "not measured"

    return text


def set_ups(samples):
    """Returns the number of set-ups: cells times methods that are compared with Gloo."""
    return str(len(cells(samples)) * len(setups.COMPARED))


def wins_where(samples):
    """Returns a table: rates and nodes against methods, the number of cells in which each is faster than Gloo."""
    rows = ["| nodes, link | set-ups | " + " | ".join(f"`{name}`" for name in setups.COMPARED) + " |",
            "|---|---:|" + "---:|" * len(setups.COMPARED)]
    for ring in setups.RINGS:
        chosen = [runs for cell, runs in cells(samples) if cell.ring == ring]
        if chosen:
            found = [counts([speed_up(runs, name) for runs in chosen]) for name in setups.COMPARED]
            rows.append(f"| {ring} | {len(chosen)} | " + " | ".join(f"+{up} -{down}" for up, _, down in found) + " |")
    return "\n".join(rows)


def percent(value):
    return f"{100 * value:.0f} %"


def of_errors(function, kind, chosen):
    def text(samples):
        off = errors(points(samples, kind, True, chosen))
        return percent(function(off)) if off else "not measured"

    return text


def share_right(samples):
    found = [right for _, right in verdicts(samples)]
    return percent(sum(found) / len(found)) if found else "not measured"


FIGURES = {
    "errors": error_table,
    "errors-by-method": error_by_method,
    "verdicts": verdict_table,
    "verdict-share": share_right,
    "wins": win_table,
    "where": wins_where,
    "set-ups": set_ups,
    **{slug(f"wins {name}"): wins_of(name) for name in setups.COMPARED},
    **{slug(f"slower {name}"): losses_of(name) for name in setups.COMPARED},
    "median-error": of_errors(statistics.median, "calibrated", alone),
    "p90-error": of_errors(lambda off: quantile(off, 0.9), "calibrated", alone),
    "median-error-shared": of_errors(statistics.median, "calibrated", lambda cell: not alone(cell)),
    "p90-error-shared": of_errors(lambda off: quantile(off, 0.9), "calibrated", lambda cell: not alone(cell)),
}


# ---- Plots


def scatter_data(samples):
    return [[name, cell.nodes, round(guess, 2), round(real, 2)] for held in (True, False)
            for cell, name, guess, real in points(samples, "calibrated", held)]


def draw_scatter(data, path):
    from lab.results.style import BLUE, VERMILION, plt

    figure, axes = plt.subplots(figsize=(5.5, 5.2))
    for nodes, colour, words in ((2, BLUE, "2 nodes, a core each"), (4, VERMILION, "4 nodes, half a core each")):
        chosen = [(real, guess) for _, count, guess, real in data if count == nodes]
        axes.loglog(*zip(*chosen) if chosen else ([], []), "o", color=colour, label=words, alpha=0.6, markersize=4)
    ends = [min(min(row[2:]) for row in data), max(max(row[2:]) for row in data)]
    axes.loglog(ends, ends, "k-", linewidth=0.8)
    axes.loglog(ends, [1.3 * end for end in ends], "k:", linewidth=0.8)
    axes.loglog(ends, [end / 1.3 for end in ends], "k:", linewidth=0.8)
    axes.set_xlabel("measured step (ms)")
    axes.set_ylabel("predicted step (ms)")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def speed_data(samples):
    return [[cell.key, {name: round(speed_up(runs, name), 3) for name in setups.COMPARED}] for cell, runs in cells(samples)]


def draw_speeds(data, path):
    from lab.results.style import plt

    figure, axes = plt.subplots(figsize=(8, 0.22 * len(data) + 1.6))
    names = list(setups.COMPARED)
    logs = [[math.log2(row[1][name]) for name in names] for row in data]
    axes.imshow(logs, cmap="RdBu", vmin=-3, vmax=3, aspect="auto")
    for y, row in enumerate(data):
        for x, name in enumerate(names):
            axes.text(x, y, f"{row[1][name]:.2f}", ha="center", va="center", fontsize=7)
    axes.set_xticks(range(len(names)), names, fontsize=8, rotation=20, ha="right")
    axes.set_yticks(range(len(data)), [row[0] for row in data], fontsize=7)
    axes.grid(False)
    axes.set_title("times as fast as Gloo fp32 (red: slower)", fontsize=9)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


PLOTS = {
    "docs/images/steps-predicted.png": Plot(scatter_data, draw_scatter),
    "docs/images/steps-speeds.png": Plot(speed_data, draw_speeds),
}
