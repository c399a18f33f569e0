#!/usr/bin/python3
"""Builds folders and runs test suites at the same time: it builds the next folder while tests run. tools/test.sh calls
it.

Prints each step with the seconds since the start. Prints at the end the slowest tests, the skipped tests with the
reason, CPU seconds of each suite, and the counts. Results are in build/test-results.json.
"""

import argparse
import dataclasses
import fcntl
import json
import os
import signal
import sys
import threading
import time
import traceback

import suites

# The build folders of each suite, and the function of dev/build.sh that configures each folder.
FOLDERS = {"unit": ["build-sanitize"], "sim": ["build-sanitize"], "threads": ["build-sanitize", "build-thread"],
           "system": ["build"]}
CONFIGURE = {"build": "configure_native", "build-sanitize": "configure_sanitize", "build-thread": "configure_thread"}
# Cores that a test of a suite uses (1.0 if not listed): tests of complete programs mostly wait.
LOAD = {"system": 0.5, "nightly": 0.5}
QUIET = 15  # s without output, after which it prints the running tests
# PYTORCH is PyTorch's installation, as an entry of Run.done or Run.broken. Tests of tests/scripts/torch wait for it.
PYTORCH = "pytorch"


class Run:
    def __init__(self, cores):
        self.cores = cores
        self.processes = suites.Processes()
        self.changed = threading.Condition()
        self.started = time.monotonic()
        self.said = 0.0
        self.waiting = []  # tests that have not started
        self.running = {}  # test: its start time
        self.results = []
        self.done = set()  # folders that are built; "all" after the last one; PYTORCH when its installation has ended
        self.broken = []  # folders that could not be configured or built, and PYTORCH if it could not be installed
        self.built = {}  # folder: percent of its build
        self.cpu = {}  # folder: CPU seconds of its build
        self.total = 0
        self.ended = False

    def say(self, text):
        self.said = time.monotonic()
        print(f"[{self.said - self.started:4.0f} s] {text}", flush=True)

    # ---- Builds, one after the other

    def prepare(self, folders, extra):
        """Configures the folders and builds what their tests need. If `extra`, also builds all files of build/ that are
        installed."""
        threads = [threading.Thread(target=self.configure, args=each) for each in folders.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with self.changed:
            self.waiting.sort(key=lambda test: [*CONFIGURE].index(test.folder) if test.folder in CONFIGURE else -1)
            self.say(f"{self.total} tests")
        for folder, names in folders.items():
            if folder in self.broken or self.ended:
                continue
            begun = time.monotonic()
            wanted = suites.targets(folder, suites.load(folder, names))
            if folder == "build" and extra:
                wanted += suites.products(folder)
            built = self.step(f"build {folder}", ["ninja", "-C", folder, *wanted])
            with self.changed:
                if built:
                    self.done.add(folder)
                    self.say(f"{folder} is built: {time.monotonic() - begun:.0f} s, {self.cpu[folder]:.0f} s of CPU")
                else:
                    self.fail(folder)
                self.changed.notify()

    def configure(self, folder, names):
        script = f"source dev/build.sh; {CONFIGURE[folder]}"
        configured = self.step(f"configure {folder}", ["bash", "-c", script])
        with self.changed:
            if not configured:
                return self.fail(folder)
            tests = suites.load(folder, names)
            self.waiting += tests
            self.total += len(tests)

    def fail(self, folder):
        if not self.ended:
            self.say(f"{folder} could not be built")
        self.broken.append(folder)
        self.results.append(suites.failure(folder, "build", folder, "could not be built"))

    def step(self, name, command):
        folder = name.split()[-1]
        kept, shown = [], [0]

        def take(line):
            kept.append(line)
            if line.startswith("[") and "%]" in line:
                percent = int(line[1:line.index("%")])
                self.built[folder] = percent
                if percent // 20 > shown[0]:
                    shown[0] = percent // 20
                    with self.changed:
                        self.say(f"{name}: {percent} %")

        status, _, cpu = self.processes.run(command, take, environment={"NINJA_STATUS": "[%p] "})
        self.cpu[folder] = self.cpu.get(folder, 0) + cpu
        self.built.pop(folder, None)
        if status and not self.ended:
            with self.changed:
                print(*(line for line in kept if not line.startswith("[")), sep="\n")
        return status == 0

    def fetch_pytorch(self):
        status, _, _ = self.processes.run(["tools/setup.sh", "--pytorch"], lambda line: self.say(f"PyTorch: {line}"))
        if status and not self.ended:
            with self.changed:
                self.broken.append(PYTORCH)
                self.results.append(suites.failure("PyTorch", "system", ".", "could not be installed; see above"))

    def complete(self, mark, function, *arguments):
        """Calls the function of a thread and adds `mark` to `done`. An exception counts as a failed test."""
        try:
            function(*arguments)
        except Exception as error:
            traceback.print_exc()
            with self.changed:
                self.results.append(suites.failure(function.__name__, "build", ".", repr(error)))
        with self.changed:
            self.done.add(mark)
            self.changed.notify()

    # ---- Tests

    def is_ready(self, test):
        if test.folder.startswith("build") and test.folder not in self.done:
            return False
        if not any("tests.scripts.torch" in word for word in test.command):
            return True
        return PYTORCH in self.done and PYTORCH not in self.broken

    def next_test(self):
        """Returns a test that can start now, or None."""
        load = sum(LOAD.get(test.suite, 1.0) for test in self.running)
        if any(test.exclusive for test in self.running):
            return None
        for test in filter(self.is_ready, self.waiting):
            if not self.running or not test.exclusive and load + LOAD.get(test.suite, 1.0) <= self.cores:
                return test
        return None

    def run_one(self, test):
        result = suites.run_test(self.processes, test)
        with self.changed:
            self.running.pop(test)
            self.results.append(result)
            if not self.ended:
                self.say(f"{len(self.results)}/{self.total} {test.suite} {test.name}: {result.verdict}, "
                         f"{result.seconds:.1f} s, {result.cpu:.1f} s of CPU")
                for failed in result.failures[:suites.FIRST_MESSAGES]:
                    print(f"        failed: {failed}", flush=True)
            self.changed.notify()

    def run(self):
        """Runs all tests whose folders could be built."""
        with self.changed:
            while not self.ended:
                test = self.next_test()
                if test:
                    self.waiting.remove(test)
                    self.running[test] = time.monotonic()
                    threading.Thread(target=self.run_one, args=(test,)).start()
                    continue
                if not self.running and "all" in self.done and not any(self.is_ready(test) for test in self.waiting):
                    if PYTORCH in self.done or not any(test.folder in self.done for test in self.waiting):
                        return
                self.changed.wait(1)
                if time.monotonic() - self.said > QUIET:
                    self.say_what_runs()

    def say_what_runs(self):
        now = time.monotonic()
        parts = [f"{test.name} {now - since:.0f} s" for test, since in self.running.items()]
        parts += [f"building {folder}: {percent} %" for folder, percent in self.built.items()]
        self.say(f"{len(self.results)}/{self.total}; running: " + (", ".join(parts) or "nothing yet"))

    def end(self, *_):
        self.ended = True
        self.processes.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", action="append", choices=list(FOLDERS), help="run this suite; repeatable (all four)")
    parser.add_argument("--native", action="store_true", help="run the suites from build/, without sanitizers")
    parser.add_argument("--check", action="store_true", help="run dev/check.sh, too")
    args = parser.parse_args()
    names = args.suite or list(FOLDERS)
    folders = {}
    for name in names:
        for folder in ["build"] if args.native else FOLDERS[name]:
            folders.setdefault(folder, []).append(name)
    # Folders are built in the order of CONFIGURE. build/ is first: tests of complete programs take longest and compute
    # least.
    folders = {folder: folders[folder] for folder in CONFIGURE if folder in folders}
    os.chdir(suites.ROOT)
    this_file = open(__file__)
    try:
        fcntl.flock(this_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("tools/test.sh is already running in this checkout: wait for it, or use another checkout",
              file=sys.stderr)
        return 2

    run = Run(max(2, len(os.sched_getaffinity(0))))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, run.end)
    if args.check:
        run.waiting.append(suites.Test(".", "check.sh", "check", ("dev/check.sh",)))
        run.total += 1
    threads = [threading.Thread(target=run.complete, args=("all", run.prepare, folders, not args.native))]
    if "system" in names:
        threads.append(threading.Thread(target=run.complete, args=(PYTORCH, run.fetch_pytorch)))
    else:
        run.done.add(PYTORCH)
    for thread in threads:
        thread.start()
    try:
        run.run()
    except BaseException:
        run.end()
        raise
    for thread in threads:
        thread.join()
    (suites.ROOT / "build").mkdir(exist_ok=True)
    (suites.ROOT / "build/test-results.json").write_text(json.dumps({
        "commit": suites.commit(), "arguments": sys.argv[1:], "interrupted": run.ended,
        "seconds": round(time.monotonic() - run.started),
        "build": {folder: round(cpu) for folder, cpu in run.cpu.items()},
        "results": [dataclasses.asdict(result) for result in run.results]}, indent=1))
    if run.ended:
        failed = sum(result.failed > 0 for result in run.results)
        print(f"\ninterrupted: {len(run.results)} of {run.total} tests had run, {failed} had failed")
        return 130
    if run.waiting:
        print(f"\n{len(run.waiting)} tests did not run: what they need could not be built or installed")
    print("\nCPU seconds of builds:", ", ".join(f"{folder} {cpu:.0f}" for folder, cpu in run.cpu.items()))
    return 0 if suites.summary(run.results) else 1


if __name__ == "__main__":
    sys.exit(main())
