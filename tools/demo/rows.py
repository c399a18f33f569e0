#!/usr/bin/python3
"""Trains the demo's classifier once for each row of its table, and shows how far that is.

The folder gets a file for each row, 0.json and so on, that digits.py --json has written. On a terminal, the progress is
one line that changes. Elsewhere it is a few lines for each row. The exit status is 1 if a training failed.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import time
from typing import NamedTuple

DIGITS = pathlib.Path(__file__).with_name("digits.py")
WIDTH = 16  # characters of the bar
PLAIN_LINES = 5  # of a row, where standard output is no terminal


class Row(NamedTuple):
    codec: str
    feedback: bool = False
    quick: bool = True  # it is also a row with --quick

    @property
    def name(self):
        return self.codec + (" + error feedback" if self.feedback else "")


# The first row is what the others are compared with, the second one is recommended, and the last one is a warning.
ROWS = (
    Row("raw"),
    Row("fixed:adaptive", feedback=True),
    Row("fixed:7", feedback=True),
    Row("fixed:5", feedback=True, quick=False),
    Row("fixed:10"),
)


class Progress:
    """Shows the rows that are done, and the epochs of the current one."""

    def __init__(self, rows, epochs):
        self.rows, self.epochs = rows, epochs
        self.number, self.told = 0, 0
        self.start = time.monotonic()
        self.line = ""  # text on the terminal's current line
        self.terminal = sys.stdout.isatty()

    def begin(self, number):
        self.number, self.told = number, 0
        if self.terminal:
            self.show(0, "starting")

    def show(self, epoch, what):
        """Shows that the row's epochs up to this one are done."""
        head = f"row {self.number + 1} of {len(self.rows)}, {self.rows[self.number].name}: "
        text = f"{head}epoch {epoch} of {self.epochs}, {what}"
        if not self.terminal:
            if epoch * PLAIN_LINES // self.epochs > self.told:
                self.told = epoch * PLAIN_LINES // self.epochs
                print(text, flush=True)
            return
        done = (self.number + epoch / self.epochs) / len(self.rows)
        bar = ("#" * round(done * WIDTH)).ljust(WIDTH, ".")
        self.clear()
        line = f"[{bar}] {time.monotonic() - self.start:.0f} s, {text}"
        self.line = line[: shutil.get_terminal_size().columns - 1]  # a longer line could not be removed
        print(self.line, end="", flush=True)

    def clear(self):
        """Removes the line, for other output."""
        if self.line:
            print("\r" + " " * len(self.line) + "\r", end="", flush=True)
        self.line = ""


def train(row, file, args, progress):
    """Returns the exit status of a training."""
    command = [args.gradlane, "run", "-n", str(args.nodes), "--no-prefix", "--", sys.executable, "-B", str(DIGITS), "--epochs",
               str(args.epochs), "--report", "1", "--lines", "--json", str(file), "--codec", row.codec]
    if row.feedback:
        command.append("--feedback")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        for line in process.stdout:
            if line.startswith("{"):
                state = json.loads(line)
                progress.show(state["epoch"], f"test accuracy {state['test_accuracy']:.2f} %, sent {state['bytes'] / 1e6:.0f} MB")
            else:
                progress.clear()
                print(line, end="", flush=True)
    return process.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradlane", required=True, help="path of the program")
    parser.add_argument("--nodes", type=int, default=4, help="(%(default)s)")
    parser.add_argument("--epochs", type=int, default=50, help="of each training (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="leave out a row")
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER", help="folder of the results")
    args = parser.parse_args()
    rows = [row for row in ROWS if row.quick or not args.quick]
    progress = Progress(rows, args.epochs)
    for number, row in enumerate(rows):
        progress.begin(number)
        status = train(row, args.folder / f"{number}.json", args, progress)
        progress.clear()
        if status != 0:
            print(f"tools/demo/rows.py: the training with {row.name} ended with status {status}; see above", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
