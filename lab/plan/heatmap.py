#!/usr/bin/python3
"""heatmap.py - pictures of `gradlane plan --what-if ... --json`. They show which codec wins where and by how much, and
how long encoding may take.

    gradlane plan --model resnet50 --what-if nodes=4..96 gbps=0.1..400 --json | lab/plan/heatmap.py -o when.png
"""

import argparse
import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from matplotlib.colors import TwoSlopeNorm  # noqa: E402

from lab.results.style import plt  # noqa: E402


def ticks(axis, values, which):
    places, labels = range(len(values)), [f"{each:g}" for each in values]
    if which == "x":
        axis.set_xticks(places, labels, rotation=60)
    else:
        axis.set_yticks(places, labels)


def times(speedup):
    """Formats a speed-up: with two decimals below 10, with none above."""
    return f"{speedup:.2f}x" if speedup < 9.995 else f"{speedup:.0f}x"


def draw_cells(axis, cells, title):
    """Draws cells with the name of the fastest codec. The colour is its speed-up. The lightest colour means that no
    codec is faster than the baseline."""
    rates = sorted({each["gbps"] for each in cells})
    nodes = sorted({each["nodes"] for each in cells})
    found = {(each["nodes"], each["gbps"]): each for each in cells}
    gains = [[max(0, math.log2(found[node, rate]["speedup"])) for rate in rates] for node in nodes]
    image = axis.imshow(gains, origin="lower", aspect="auto", cmap="YlGnBu", vmin=0, vmax=4)
    for row, node in enumerate(nodes):
        for column, rate in enumerate(rates):
            cell = found[node, rate]
            text = f"{cell['winner'] or '-'}\n{times(cell['speedup'])}"
            axis.text(column, row, text, ha="center", va="center", fontsize=5.5,
                      color="white" if gains[row][column] > 2.2 else "black")
    ticks(axis, rates, "x")
    ticks(axis, nodes, "y")
    axis.grid(False)
    axis.set_title(title, fontsize=9)
    return image


def draw_trade(axis, trade):
    """Draws the speed-up over the baseline by a codec's time per element and by its ratio, and marks the real codecs."""
    times = sorted({point[0] for point in trade["points"]})
    ratios = sorted({point[1] for point in trade["points"]})
    found = {(point[0], point[1]): point[2] for point in trade["points"]}
    gains = [[found[time, ratio] for time in times] for ratio in ratios]
    norm = TwoSlopeNorm(1, min(0.2, *map(min, gains)), max(1.5, *map(max, gains)))
    axis.grid(False)
    image = axis.pcolormesh(times, ratios, gains, cmap="RdBu", norm=norm, shading="nearest")
    axis.contour(times, ratios, gains, levels=[1], colors="black", linewidths=1)
    for name, time, ratio in trade["codecs"]:
        axis.plot(time, ratio, "k.", markersize=4)
        axis.annotate(name, (time, ratio), fontsize=6, xytext=(3, 2), textcoords="offset points")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("encoding, adding, decoding: ns per element each")
    axis.set_ylabel("ratio")
    axis.set_title(f"{trade['nodes']:g} nodes, {trade['gbps']:g} Gb/s, batch {trade['batch']:g}; black line: as fast as "
                   "the baseline", fontsize=9)
    return image


def draw(grid):
    kinds = sorted({(each["batch"], each["compute"]) for each in grid["cells"]})
    columns = min(2, len(kinds))
    rows = math.ceil(len(kinds) / columns)
    figure, axes = plt.subplots(rows + 1, columns, figsize=(7.5 * columns, 3.4 * rows + 4.2), squeeze=False,
                                layout="constrained")
    for axis in axes.flat[len(kinds):]:
        axis.set_visible(False)
    for axis, (batch, compute) in zip(axes.flat, kinds):
        cells = [each for each in grid["cells"] if (each["batch"], each["compute"]) == (batch, compute)]
        title = f"batch {batch:g}, computing {compute:g}x as fast: {cells[0]['alone_ms']:.0f} ms a step"
        image = draw_cells(axis, cells, title)
        axis.set_xlabel("Gb/s")
        axis.set_ylabel("nodes")
    bar = figure.colorbar(image, ax=axes[:rows, :], shrink=0.6, extend="max")
    bar.set_ticks(range(5), labels=[f"{2**each}x" for each in range(5)])
    axes[rows, 0].set_visible(True)
    figure.colorbar(draw_trade(axes[rows, 0], grid["trade"]), ax=axes[rows, 0], label=f"speed-up over {grid['baseline']}")
    origin = "calibrated" if grid["calibrated"] else "usual figures"
    figure.suptitle(f"{grid['model']}: fastest codec, and a step's speed-up over {grid['baseline']} (port {grid['port']}, {origin}, lanes "
                    f"{grid['lanes']})", fontsize=11)
    return figure


def read_grid(path):
    where = path or "standard input"
    try:
        text = pathlib.Path(path).read_text() if path else sys.stdin.read()
        grid = json.loads(text)
    except OSError as error:
        sys.exit(f"heatmap.py: {where}: {error.strerror}")
    except ValueError as error:
        sys.exit(f"heatmap.py: {where}: is not JSON: {error}")
    if not isinstance(grid, dict) or not grid.get("cells") or "trade" not in grid:
        sys.exit(f"heatmap.py: {where}: has no cells; give the output of `gradlane plan --what-if ... --json`")
    return grid


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grid", nargs="?", help="file with JSON (default: standard input)")
    parser.add_argument("-o", "--output", required=True, help="FILE.png or FILE.svg")
    arguments = parser.parse_args()
    output = pathlib.Path(arguments.output)
    if output.suffix.lower() not in (".png", ".svg"):
        sys.exit(f"heatmap.py: -o {output}: must end in .png or .svg")
    if not output.parent.is_dir():
        sys.exit(f"heatmap.py: -o {output}: there is no folder {output.parent}")
    figure = draw(read_grid(arguments.grid))
    try:
        figure.savefig(output)
    except OSError as error:
        sys.exit(f"heatmap.py: -o {output}: cannot be written: {error.strerror}")


if __name__ == "__main__":
    main()
