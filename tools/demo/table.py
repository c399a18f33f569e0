#!/usr/bin/python3
"""Prints a table of several runs of digits.py, and compares them with the first one.

Its exit status is 1 if the replicas of a run were not bit-identical at the end.
"""

import argparse
import json
import pathlib
import sys


def row_of(run, first):
    sent = run["gradient_bytes"]
    return {
        "codec": run["codec"],
        "feedback": run["feedback"],
        "test_accuracy": run["test_accuracy"],
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
        "bytes are those that a node sent, headers included\n"
    )
    print(
        f"{'codec':<24}  {'test accuracy':>13}  {'gradient bytes':>14}  {'ratio':>6}  {'exchange per step':>17}  "
        f"{'training':>8}  replicas (SHA-256)"
    )
    for row in rows:
        name = row["codec"] + (" + error feedback" if row["feedback"] else "")
        same = "identical" if row["identical"] else "DIFFERENT"
        print(
            f"{name:<24}  {row['test_accuracy']:>11.2f} %  {row['gradient_bytes'] / 1e6:>11.1f} MB  "
            f"{row['ratio']:>5.1f}x  {row['exchange_ms']:>14.2f} ms  {row['seconds']:>6.1f} s  "
            f"{same} ({row['hash'][:12]})"
        )
    identical = all(row["identical"] for row in rows)
    print(f"\nreplicas bit-identical: {'yes' if identical else 'NO'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="file that the table is also written to")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="file that digits.py --json has written")
    args = parser.parse_args()
    runs = [json.loads(pathlib.Path(name).read_text()) for name in args.runs]
    rows = [row_of(run, runs[0]) for run in runs]
    identical = all(row["identical"] for row in rows)
    print_table(rows, runs[0])
    if args.json:
        about = {key: runs[0][key] for key in ("world", "parameters", "epochs", "batch", "seed")}
        pathlib.Path(args.json).write_text(json.dumps(about | {"identical": identical, "rows": rows}, indent=1) + "\n")
    return 0 if identical else 1


if __name__ == "__main__":
    sys.exit(main())
