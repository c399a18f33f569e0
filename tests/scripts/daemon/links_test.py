#!/usr/bin/python3
"""Runs `gradlane run` with each link once, with one rank, and over IPv6: links_test.py GRADLANE ALL_REDUCE_EXAMPLE."""

import subprocess
import sys

from tests.scripts.fixtures.waiting import PATIENCE

RUNS = (
    "--link ring -n 1",
    "--link ring -n 2 --trainers 3 --local-reduce",
    "--link memif -n 3 --lanes 2",
    "--link udp -n 2 --trainers 2 --mtu 1500 --strategies direct,rings:2,aggregator:3",
    "--link udp --ipv6 -n 3 --trainers 2 --lanes 2",
    "--link vhost -n 4 --lanes 2 --strategies direct",
)


def main():
    gradlane, example = sys.argv[1:]
    for options in RUNS:
        print(options, flush=True)
        subprocess.run([gradlane, "run", *options.split(), "--", example], check=True, timeout=PATIENCE)


if __name__ == "__main__":
    main()
