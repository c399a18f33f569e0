#!/usr/bin/python3
"""Runs each test of the suites --times times, to see whether it ever fails.

Writes results to a JSON file. A later call with this file continues where an interrupted one stopped:

    dev/repeat_tests.py --suite unit --suite sim --native --times 50 --results results.json
    dev/repeat_tests.py --suite system --times 10 --stolen --results stolen.json

Prints at the end which tests failed, and how often. The folders must be built before: tools/test.sh does that.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import sys
import threading
import time

import run_suites
import suites


class Repetition:
    """Runs each test `times` times, and writes each result to `path`. The test with the fewest runs is next."""

    def __init__(self, tests, times, path, stolen, seed, cores):
        self.tests, self.times, self.path, self.cores = tests, times, path, cores
        self.stolen, self.seed = stolen, seed
        self.processes = suites.Processes()
        self.changed = threading.Condition()
        self.ended = False
        self.running = []
        self.kept = {"commit": suites.commit(), "stolen": stolen, "runs": []}
        if path.exists():
            self.kept = json.loads(path.read_text())
            if self.kept["commit"] != suites.commit() or self.kept["stolen"] != stolen:
                sys.exit(f"{path} has results of another run (commit {self.kept['commit']}, --stolen "
                         f"{self.kept['stolen']}); remove it, or name another file")
        self.count = {(test.folder, test.name): 0 for test in tests}
        for run in self.kept["runs"]:
            if (run["folder"], run["name"]) in self.count:
                self.count[run["folder"], run["name"]] += 1

    def next_test(self):
        """Returns the test with the fewest runs that fits on the cores now, or None."""
        load = sum(run_suites.LOAD.get(test.suite, 1.0) for test in self.running)
        rest = [test for test in self.tests if self.count[test.folder, test.name] < self.times and test not in self.running]
        for test in sorted(rest, key=lambda test: self.count[test.folder, test.name]):
            if not self.running or load + run_suites.LOAD.get(test.suite, 1.0) <= self.cores:
                return test
        return None

    def run_one(self, test):
        number = self.count[test.folder, test.name] + 1
        seed = str(self.seed + number - 1)
        wrapper = (str(suites.ROOT / "dev/steal_time.py"), "--seed", seed, "--load", "2", "--") if self.stolen else ()
        result = suites.run_test(self.processes, test, wrapper)
        with self.changed:
            self.running.remove(test)
            if not self.ended:
                self.keep(test, result, number)
            self.changed.notify()

    def keep(self, test, result, number):
        self.count[test.folder, test.name] = number
        run = dataclasses.asdict(result) | ({"seed": self.seed + number - 1} if self.stolen else {})
        if result.failed:  # the next run overwrites the log
            with contextlib.suppress(OSError):
                run["output"] = test.log_path().read_text(errors="replace")[-20000:]
        self.kept["runs"].append(run)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.kept, indent=1))
        new.replace(self.path)
        failed = sum(run["failed"] > 0 for run in self.kept["runs"])
        print(f"{time.strftime('%H:%M:%S')} {sum(self.count.values())}/{self.times * len(self.tests)} {test.name} "
              f"{number}{' with seed %d' % run['seed'] if self.stolen else ''}: {result.verdict}, "
              f"{result.seconds:.1f} s; {failed} runs failed so far", flush=True)

    def run(self):
        with self.changed:
            while not self.ended:
                test = self.next_test()
                if test:
                    self.running.append(test)
                    threading.Thread(target=self.run_one, args=(test,)).start()
                elif not self.running:
                    return
                else:
                    self.changed.wait(1)

    def end(self, *_):
        self.ended = True
        self.processes.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", action="append", required=True, choices=[*run_suites.FOLDERS])
    parser.add_argument("--native", action="store_true", help="run the suites from build/, without sanitizers")
    parser.add_argument("--test", action="append", help="run only tests of this name; may be repeated")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--stolen", action="store_true",
                        help="run tests under dev/steal_time.py, which stops processes now and then")
    parser.add_argument("--seed", type=int, default=1,
                        help="with --stolen: seed of a test's first run; each later run adds 1 (1)")
    parser.add_argument("--results", type=pathlib.Path, required=True, metavar="FILE")
    args = parser.parse_args()
    path = args.results.resolve()
    os.chdir(suites.ROOT)
    tests = [test for suite in args.suite for folder in (["build"] if args.native else run_suites.FOLDERS[suite])
             for test in suites.load(folder, [suite]) if not args.test or test.name in args.test]
    if not tests:
        sys.exit("found no tests; check --suite and --test")
    repetition = Repetition(tests, args.times, path, args.stolen, args.seed, len(os.sched_getaffinity(0)))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, repetition.end)
    repetition.run()
    runs = repetition.kept["runs"]
    for folder, name in sorted({(run["folder"], run["name"]) for run in runs}):
        failed = [run["failed"] > 0 for run in runs if (run["folder"], run["name"]) == (folder, name)]
        if any(failed):
            print(f"failed: {name} ({folder}), {sum(failed)} of {len(failed)} times")
    failed = sum(run["failed"] > 0 for run in runs)
    passed = sum(run["passed"] > 0 and not run["failed"] for run in runs)
    print(f"{passed} passed, {failed} failed, {len(runs) - passed - failed} skipped")
    return 130 if repetition.ended else int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
