#!/usr/bin/python3
"""Runs the items of dev/nightly.toml, one after the other. tools/test.sh --nightly calls it.

Writes results to build-nightly/state.json. A later call continues with the items that have no result yet; after all
items have run, it starts again. If --minutes N is given, it starts no item that is expected to end later. The expected
time of an item is the time of its latest run that passed, or `minutes` of the item if none has passed.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import threading
import time
import tomllib

import run_suites
import suites

STATE = suites.ROOT / "build-nightly/state.json"
LATE = 4  # an item counts as hanging after this many times the expected time


def reason_to_skip(need):
    """Returns a text that says why the item cannot run; None if it can run."""
    what, _, value = need.partition(" ")
    if what == "root":
        return None if os.geteuid() == 0 else "needs root"
    if what == "program":
        return None if shutil.which(value) else f"needs the program {value}; run tools/setup.sh --all"
    if what == "file":
        return None if (suites.ROOT / value).exists() else f"needs {value}; run tools/setup.sh --all"
    if what == "gigabytes":
        free, folder = min((shutil.disk_usage(each).free / 1e9, each) for each in (tempfile.gettempdir(), str(suites.ROOT)))
        return None if free >= float(value) else f"needs {value} GB in {folder}, which has only {free:.0f} GB"
    raise ValueError(f"dev/nightly.toml: unknown need '{need}'; must be root, program, file or gigabytes")


def items():
    """Yields test, minutes, needs and report of each item."""
    for item in tomllib.loads((pathlib.Path(__file__).parent / "nightly.toml").read_text())["item"]:
        minutes, needs = item["minutes"], item.get("needs", [])
        if "tests" in item:
            for test in suites.load(item["tests"], item["suites"]):
                more = {**test.environment, **item.get("environment", {})}
                yield dataclasses.replace(test, environment=more), minutes, needs, False
            continue
        for each in item.get("each", [""]):
            yield suites.Test(".", item["name"].replace("{}", each), "nightly",
                              ("bash", "-ec", item["command"].replace("{}", each)),
                              timeout=LATE * 60 * minutes), minutes, needs, item.get("report", False)


class Nightly:
    def __init__(self, minutes):
        self.end_at = time.monotonic() + 60 * minutes if minutes else None
        self.processes = suites.Processes()
        self.ended = False
        self.state = json.loads(STATE.read_text()) if STATE.exists() else {}
        self.seconds = self.state.setdefault("seconds", {})  # run time of each item in its latest run that passed

    def keep(self, key, result):
        if result.passed and not result.failed:
            self.seconds[key] = result.seconds
        self.state[key] = {"commit": suites.commit(), "date": time.strftime("%Y-%m-%d %H:%M"),
                           **dataclasses.asdict(result)}
        STATE.parent.mkdir(exist_ok=True)
        new = STATE.with_suffix(".new")
        new.write_text(json.dumps(self.state, indent=1))
        new.replace(STATE)

    def run(self):
        todo = [(f"{test.folder}/{test.name}", test, *rest) for test, *rest in items()]
        if all(key in self.state for key, *_ in todo):
            print("all items have run; starting again with the first")
            self.state = {"seconds": self.seconds}
        for number, (key, test, minutes, needs, report) in enumerate(todo, 1):
            if key in self.state or self.ended:
                continue
            lacking = next(filter(None, map(reason_to_skip, needs)), None)
            if lacking:
                self.keep(key, suites.Result(test.name, "nightly", test.folder, 0.0, 0.0, skipped={lacking: 1}))
                print(f"{time.strftime('%H:%M:%S')} {number}/{len(todo)} {key}: skipped, {lacking}", flush=True)
                continue
            expected = self.seconds.get(key, 60 * minutes)
            if self.end_at and time.monotonic() + expected > self.end_at:
                continue
            print(f"{time.strftime('%H:%M:%S')} {number}/{len(todo)} {key}: takes about {expected / 60:.0f} min, "
                  f"log {test.log_path().relative_to(suites.ROOT)}", flush=True)
            result = self.run_item(test)
            if not self.ended:
                self.keep(key, result)
                print(f"{time.strftime('%H:%M:%S')} {number}/{len(todo)} {key}: {result.verdict}, {result.seconds:.0f} s, "
                      f"{result.cpu:.0f} s of CPU", flush=True)
                if report and result.passed:
                    print(test.log_path().read_text(), end="", flush=True)
        results = [{name: value for name, value in self.state[key].items() if name not in ("commit", "date")}
                   for key, *_ in todo if key in self.state]
        commits = sorted({self.state[key]["commit"] for key, *_ in todo if key in self.state})
        rest = len(todo) - len(results)
        print(f"\n{len(results)} of {len(todo)} items have run, at {', '.join(commits) or 'no commit'}"
              + ("; run the same command again for the rest" if rest else ""))
        return suites.summary([suites.Result(**result) for result in results])

    def run_item(self, test):
        """Runs an item and returns its result. Prints a line every minute while the item runs."""
        found = []
        thread = threading.Thread(target=lambda: found.append(suites.run_test(self.processes, test)))
        started = time.monotonic()
        thread.start()
        while thread.is_alive():
            thread.join(60)
            if thread.is_alive():
                print(f"{time.strftime('%H:%M:%S')}   {test.name}: {(time.monotonic() - started) / 60:.0f} min", flush=True)
        return found[0]

    def end(self, *_):
        self.ended = True
        self.processes.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float)
    args = parser.parse_args()
    os.chdir(suites.ROOT)
    nightly = Nightly(args.minutes)
    build = run_suites.Run(2)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: (build.end(), nightly.end()))
    build.prepare({"build": ["nightly", "unit", "sim", "system"], "build-sanitize": ["nightly"]}, True)
    if build.broken:
        suites.summary(build.results)
        return 1
    passed = nightly.run()
    return 130 if nightly.ended else int(not passed)


if __name__ == "__main__":
    sys.exit(main())
