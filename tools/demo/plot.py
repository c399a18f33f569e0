#!/usr/bin/python3
"""Draws the test accuracy of several runs of digits.py against bytes and against seconds, into a PNG file."""

import argparse
import json
import pathlib
import sys

COLORS = ("#000000", "#0072b2", "#009e73", "#e69f00", "#d55e00", "#cc79a7")


def draw(runs, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (by_bytes, by_seconds) = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True, constrained_layout=True)
    for number, run in enumerate(runs):
        name = run["codec"] + (" + error feedback" if run["feedback"] else "")
        style = {"color": COLORS[number % len(COLORS)], "label": name, "linestyle": "-" if run["norm_dropped"] == 0 else "--"}
        accuracies = [state["test_accuracy"] for state in run["history"]]
        by_bytes.plot([state["bytes"] / 1e6 for state in run["history"]], accuracies, **style)
        by_seconds.plot([state["seconds"] for state in run["history"]], accuracies, **style)
    by_bytes.set_xscale("log")
    by_bytes.set_xlabel("MB that a node has sent")
    by_bytes.set_ylabel("test accuracy (%)")
    by_seconds.set_xlabel("seconds on this machine")
    lowest = min(run["test_accuracy"] for run in runs)
    by_bytes.set_ylim(max(0, lowest - 10), 100)
    by_seconds.legend(loc="lower right", fontsize="small")
    for axes in (by_bytes, by_seconds):
        axes.grid(alpha=0.3)
    figure.suptitle(f"{runs[0]['world']} nodes train {runs[0]['parameters']:,} parameters; dashed: part of the gradient is lost")
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", metavar="FILE.png")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="file that digits.py --json has written")
    args = parser.parse_args()
    runs = [json.loads(pathlib.Path(name).read_text()) for name in args.runs]
    try:
        draw(runs, args.path)
    except ImportError:
        print(f"no plot: matplotlib is missing; 'apt install python3-matplotlib', then run again for {args.path}")
        return
    print(f"plot: {args.path}")


if __name__ == "__main__":
    sys.exit(main())
