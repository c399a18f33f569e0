#!/usr/bin/python3
"""Prints a table of several runs of digits.py, and compares them with the first one.

Its exit status is 1 if the replicas of a run were not bit-identical at the end.
"""

import argparse
import json
import pathlib
import sys

CLOSE = 1.0  # points of accuracy below those of the first run that a few test images make, and chance


def name_of(row):
    return row["codec"] + (" + error feedback" if row["feedback"] else "")


def row_of(run, first):
    sent = run["gradient_bytes"]
    return {
        "codec": run["codec"],
        "feedback": run["feedback"],
        "test_accuracy": run["test_accuracy"],
        "norm_dropped": run["norm_dropped"],
        "gradient_bytes": sent,
        "ratio": first["gradient_bytes"] / sent if sent else 1.0,
        "exchange_ms": run["exchange_ms_median"],
        "identical": run["identical"],
        "hash": run["hashes"][0],
        "steps": run["steps"],
        "seconds": run["seconds"],
    }


def print_table(rows, run):
    print(
        f"{run['world']} nodes, {run['parameters']} parameters, {run['steps']} steps; "
        "bytes are those that a node sent, with gradlane's headers\n"
    )
    print(
        f"{'codec':<31}  {'test accuracy':>13}  {'norm dropped':>12}  {'gradient bytes':>14}  {'ratio':>6}  "
        f"{'exchange per step':>17}  {'training':>8}  replicas (SHA-256)"
    )
    for row in rows:
        same = "identical" if row["identical"] else "DIFFERENT"
        print(
            f"{name_of(row):<31}  {row['test_accuracy']:>11.2f} %  {100 * row['norm_dropped']:>10.1f} %  "
            f"{row['gradient_bytes'] / 1e6:>11.1f} MB  {row['ratio']:>5.1f}x  {row['exchange_ms']:>14.2f} ms  "
            f"{row['seconds']:>6.1f} s  {same} ({row['hash'][:12]})"
        )
    identical = all(row["identical"] for row in rows)
    print(f"\nreplicas bit-identical: {'yes' if identical else 'NO'}")


def print_note(row, first):
    """Prints what a codec without error feedback has dropped, and what that did."""
    lost = first["test_accuracy"] - row["test_accuracy"]
    effect = f"it cost {lost:.2f} points of accuracy here" if lost > CLOSE else "the accuracy survived here, but may not elsewhere"
    print(
        f"note: {name_of(row)} dropped {100 * row['norm_dropped']:.0f} % of the gradients' norm: {effect}. "
        "Error feedback keeps it for later steps."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="file that the table is also written to")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="file that digits.py --json has written")
    args = parser.parse_args()
    runs = [json.loads(pathlib.Path(name).read_text()) for name in args.runs]
    rows = [row_of(run, runs[0]) for run in runs]
    identical = all(row["identical"] for row in rows)
    print_table(rows, runs[0])
    for row in rows:
        if row["norm_dropped"] >= 0.005:
            print_note(row, rows[0])
    if args.json:
        about = {key: runs[0][key] for key in ("world", "parameters", "epochs", "batch", "seed")}
        pathlib.Path(args.json).write_text(json.dumps(about | {"identical": identical, "rows": rows}, indent=1) + "\n")
    return 0 if identical else 1


if __name__ == "__main__":
    sys.exit(main())
