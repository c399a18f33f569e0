#!/usr/bin/python3
"""The fault matrix: breaks rings of real daemons while operations are in flight, and checks what trainers see of it.

  reliability GRADLANED [--links veth,udp,vhost] [--rows kill,stop,...] [--repeat N] [--short] [--json]

Exit status 0 if every promise of docs/reliability.md was kept, 1 if not, 77 if it cannot run here (needs root).
"""

import argparse
import json
import pathlib
import random
import sys
import tempfile
import time

from tests.scripts.fixtures import networks, rings
from tests.scripts.reliability import table
from tests.scripts.reliability.rows import ROWS, Seen
from tests.scripts.reliability.stage import Limits, Problem, Stage

NODES = 4
PROBLEMS = (Problem, AssertionError, OSError)  # broken promises, assertions of fixtures.rings, dead puppets


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradlaned")
    parser.add_argument("--links", default="veth,udp,vhost")
    parser.add_argument("--rows", default="", help=", ".join(row.name for row in ROWS))
    parser.add_argument("--repeat", type=int, default=1, help="how often each row, each time with another victim")
    parser.add_argument("--short", action="store_true",
                        help="what tools/test.sh plays: some of the rows, --unbounded, cables down until all have noticed")
    parser.add_argument("--unbounded", action="store_true", help="a --peer of 8, and errors may come whenever they do: where "
                        "processes get no time for seconds")
    parser.add_argument("--codec", default="raw", help="of the operations in flight; results are checked with two")
    parser.add_argument("--alone", action="store_true", help="trainers recover each by itself, not together")
    parser.add_argument("--tags", action="store_true", help="with --alone: by tags of their own, without resume()")
    parser.add_argument("--peer", type=float, metavar="S", help=f"timeouts.peer ({Limits.peer})")
    parser.add_argument("--slack", type=float, default=Limits.slack, metavar="S",
                        help="how much later than that an error may come (%(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="of victims and moments")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="daemons log at debug")
    args = parser.parse_args()
    unbounded = args.short or args.unbounded
    Limits.peer = args.peer or (8.0 if unbounded else Limits.peer)
    Limits.slack = None if unbounded else args.slack
    args.links = args.links.split(",")
    args.names = [name for name in args.rows.split(",") if name]
    unknown = set(args.names) - {row.name for row in ROWS}
    if unknown:
        parser.error(f"no rows {', '.join(sorted(unknown))}")
    args.cable_down = 0.0 if args.short else 10.0
    args.hold = 2.0
    return args


def chosen(args, link):
    for row in ROWS:
        if args.names and row.name not in args.names:
            continue
        if link in (row.short if args.short and not args.names else row.links):
            yield row


def play(stage, row, victim, args):
    """Runs a row. Returns its Seen, and the error or None."""
    try:
        return row.play(stage, victim, args), None
    except PROBLEMS as error:
        return Seen(), error


def play_ring(link, todo, args, gradlaned, results):
    """Runs rows on one ring, until something goes wrong or all are done."""
    with tempfile.TemporaryDirectory(prefix="gl-rel-") as folder:
        with Stage(link, NODES, folder, gradlaned, args.tags, args.verbose) as stage:
            while todo:
                row, victim = todo.pop(0)
                begin = time.monotonic()
                seen, error = play(stage, row, victim, args)
                problem = f"{type(error).__name__}: {error}" if error else ""
                results.append(table.Result(link, row, victim, seen, problem))
                print(f"{results[-1].line()} [{time.monotonic() - begin:.1f} s]", file=sys.stderr, flush=True)
                if error is not None:
                    raise error


def play_link(link, args, gradlaned, results):
    """Runs all rows on one kind of link, on one ring as long as nothing goes wrong."""
    todo = [(row, (repetition + index) % NODES) for index, row in enumerate(chosen(args, link))
            for repetition in range(args.repeat)]
    while todo:
        left = len(todo)
        try:
            play_ring(link, todo, args, gradlaned, results)
        except PROBLEMS as error:
            if len(todo) == left:  # the ring did not start
                results += [table.Result(link, *each, Seen(), f"no ring: {error}") for each in todo]
                print(results[-1].line(), file=sys.stderr, flush=True)
                return
            results[-1].problem = results[-1].problem or f"at the end: {error}"


def main():
    args = arguments()
    networks.require()
    random.seed(args.seed)
    try:
        rings.gradlane_package()
    except ImportError as error:
        print(f"skipped: {error}; tools/setup.sh installs NumPy for /usr/bin/python3")
        return networks.SKIPPED
    gradlaned = pathlib.Path(args.gradlaned).resolve()
    results = []
    for link in args.links:
        play_link(link, args, gradlaned, results)
    failed = [result for result in results if result.problem]
    if args.json:
        print(json.dumps([result.fields() for result in results], indent=1))
    else:
        print(table.table(results))
    print(f"reliability: {len(results)} faults, {len(results) - len(failed)} as promised, {len(failed)} not",
          file=sys.stderr if args.json else sys.stdout)
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
