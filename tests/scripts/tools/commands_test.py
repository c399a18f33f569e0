#!/usr/bin/python3
"""Tests of the output of commands that need no daemon: help, errors, JSON documents and tables. They check the form,
never the speed.

commands_test.py [--more] GRADLANE [PART...]
"""

import argparse
import importlib
import os
import sys

PARTS = ("command_line", "codecs", "ratio", "sim", "plan", "bench", "bench_auth", "bench_exchange", "perf", "loopback")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--more", action="store_true", help="what takes long, or Matplotlib, in place of the usual")
    parser.add_argument("gradlane")
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS), default=PARTS)
    args = parser.parse_args()
    for part in args.parts:
        before = os.times()
        module = importlib.import_module(f"tests.scripts.tools.{part}")
        (module.check_more if args.more else module.check)(os.path.abspath(args.gradlane))
        print(f"{part}: in order; {sum(os.times()[:4]) - sum(before[:4]):.1f} s of CPU", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
