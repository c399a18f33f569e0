"""Lists the tests of Meson's build folders, runs a test, and summarises results.

A test is a test() of a meson.build. A Result counts each case of a GoogleTest program. CPU seconds are those of the
test's process and its descendants; processes that nobody has reaped with wait() are not counted.
"""

import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import textwrap
import threading
import time
import traceback
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
SKIPPED = 77  # exit status
LAST_LINES = 30  # number of lines that are shown of a failed test's log
FIRST_MESSAGES = 5  # number of messages of failed cases that are shown
GRACE = 10  # s, between SIGTERM and SIGKILL

# GoogleTest begins the message of a skipped case with the line that skipped it.
SOURCE_LINE = re.compile(r"\S+:\d+\s+")
# The line that unittest prints with verbosity=2 for a skipped case. `gradlane run` writes "[RANK] " before each line.
# All ranks run the same tests, so only lines of rank 0 count.
SKIPPED_CASE = re.compile(r"^(?!\[[1-9]\d*\] )(?:.* )?skipped (?:'(.*)'|\"(.*)\")$", re.MULTILINE)

# The values that `meson test` sets.
SANITIZERS = {
    "ASAN_OPTIONS": "halt_on_error=1:abort_on_error=1:print_summary=1",
    "UBSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:print_summary=1:print_stacktrace=1",
    "MALLOC_PERTURB_": "165",  # fills memory that is freed or not yet written with non-zero bytes
}


@dataclasses.dataclass(frozen=True)
class Test:
    """One test of a build folder, or a command that counts as one."""

    folder: str  # build folder or ".", from the root; the test runs there
    name: str
    suite: str
    command: tuple
    environment: dict = dataclasses.field(default_factory=dict, hash=False)
    timeout: float = 600.0  # s
    exclusive: bool = False
    gtest: bool = False
    depends: tuple = ()  # ids of meson's targets

    def log_path(self, suffix="txt"):
        # Nightly items and Meson's tests can have the same name.
        other = "build-nightly" if self.suite == "nightly" else "build"
        folder = ROOT / (self.folder if self.folder.startswith("build") else other) / "test-logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self.name}.{suffix}"


@dataclasses.dataclass
class Result:
    name: str
    suite: str
    folder: str
    seconds: float
    cpu: float
    passed: int = 0
    failed: int = 0
    skipped: dict = dataclasses.field(default_factory=dict)  # reason: number of cases
    failures: list = dataclasses.field(default_factory=list)  # names of cases
    messages: list = dataclasses.field(default_factory=list)  # messages of failed cases, if a report has them
    log: str = ""

    @property
    def verdict(self):
        if self.failed:
            return "FAILED"
        return "passed" if self.passed else "skipped"


def load(folder, suites):
    """Returns the tests of a configured build folder that are in one of `suites`, the longest time limit first."""
    found = []
    for test in json.loads((ROOT / folder / "meson-info/intro-tests.json").read_text()):
        suite = test["suite"][0].partition(":")[2]
        if suite in suites:
            found.append(Test(folder, test["name"], suite, tuple(test["cmd"]), test["env"], test["timeout"],
                              not test["is_parallel"], test["protocol"] == "gtest", tuple(test["depends"])))
    return sorted(found, key=lambda test: -test.timeout)


def targets(folder, tests):
    """Returns the files that ninja must build for these tests."""
    base = ROOT / folder
    files = {target["id"]: target["filename"]
             for target in json.loads((base / "meson-info/intro-targets.json").read_text())}
    wanted = {name for test in tests for target in test.depends for name in files[target]}
    return sorted(os.path.relpath(name, base) for name in wanted)


def products(folder):
    """Returns the files that ninja builds by default, without tests. Meson's `all` has the program of each test, too.
    """
    base = ROOT / folder
    files = [pathlib.Path(target["filename"][0]).relative_to(base)
             for target in json.loads((base / "meson-info/intro-targets.json").read_text())
             if target["build_by_default"]]
    return [str(name) for name in files if name.parts[0] != "tests"]


# ---- One test


class Processes:
    """Runs commands, each in its own session. end() ends the commands that run."""

    def __init__(self):
        self.lock = threading.RLock()  # a signal handler calls end(), perhaps while its thread has the lock
        self.running = set()

    def end(self):
        with self.lock:
            for pid in self.running:
                signal_all(pid, signal.SIGINT)  # lets Python remove its temporary folders
                timer = threading.Timer(GRACE, self.kill, (pid, signal.SIGKILL))
                timer.daemon = True
                timer.start()

    def run(self, command, output, timeout=None, environment=None, cwd=ROOT):
        """Runs a command. Returns its exit status (negative: a signal), seconds and CPU seconds. `output` is a file, or
        a function that is called for each line."""
        lines = callable(output)
        started = time.monotonic()
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", "--", *command], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if lines else output, stderr=subprocess.STDOUT, cwd=cwd,
            env={**os.environ, **(environment or {})}, start_new_session=True, text=lines or None)
        with self.lock:
            self.running.add(process.pid)
        timers = [threading.Timer(timeout + more, self.kill, (process.pid, number))
                  for more, number in ((0, signal.SIGTERM), (GRACE, signal.SIGKILL))] if timeout else []
        for timer in timers:
            timer.start()
        if lines:
            for line in process.stdout:
                output(line.rstrip("\n"))
        # The process is not reaped yet, so no other process can have its number, and the signals below reach only its
        # group.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        for timer in timers:
            timer.cancel()
        with self.lock:
            self.running.discard(process.pid)
            signal_all(process.pid, signal.SIGKILL)  # ends processes that it has left
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode, time.monotonic() - started, usage.ru_utime + usage.ru_stime

    def kill(self, pid, number):
        with self.lock:
            if pid in self.running:
                signal_all(pid, number)


def signal_all(group, number):
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def run_test(processes, test, wrapper=()):
    """Runs a test and returns its Result. An exception, such as a full disk, counts as a failure of the test."""
    try:
        return run_and_count(processes, test, wrapper)
    except Exception as error:
        traceback.print_exc()
        return failure(test.name, test.suite, test.folder, repr(error))


def failure(name, suite, folder, why):
    """Returns a Result for something that could not run."""
    return Result(name, suite, folder, 0.0, 0.0, failed=1, failures=[f"{name}: {why}"])


def run_and_count(processes, test, wrapper):
    xml = test.log_path("xml")
    xml.unlink(missing_ok=True)
    environment = {**SANITIZERS, **test.environment}
    if test.gtest:
        environment["GTEST_OUTPUT"] = f"xml:{xml}"
    with open(test.log_path(), "wb") as output:
        status, seconds, cpu = processes.run((*wrapper, *test.command), output, test.timeout, environment,
                                             ROOT / test.folder)
    result = Result(test.name, test.suite, test.folder, round(seconds, 2), round(cpu, 2),
                    log=str(test.log_path().relative_to(ROOT)))
    has_report = test.gtest and count_cases(xml, result)
    text = test.log_path().read_text(errors="replace").strip()
    if status == SKIPPED:
        result.skipped = {text.splitlines()[-1] if text else f"{test.name} printed no reason": 1}
    elif status != 0 and not result.failed:
        late = seconds >= test.timeout
        result.failed, result.failures = 1, [f"{test.name}: " + (f"took longer than {test.timeout} s" if late else
                                             f"ended with status {status}")]
    elif status == 0 and test.gtest and not has_report:
        result.failed, result.failures = 1, [f"{test.name}: ended before it wrote its report"]
    elif status == 0 and not test.gtest:
        result.passed = 1
        result.skipped = dict(collections.Counter(single or double for single, double in SKIPPED_CASE.findall(text)))
    return result


def count_cases(xml, result):
    """Adds the cases of GoogleTest's report to the result. Returns whether there is a complete report."""
    try:
        tree = ElementTree.parse(xml)
    except (OSError, ElementTree.ParseError):
        return False  # the program ended before it wrote the report
    for case in tree.iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        skip = case.find("skipped")
        if case.find("failure") is not None:
            result.failed += 1
            result.failures.append(f"{result.name}: {name}")
            result.messages += [f"{name}: {failure.get('message')}" for failure in case.findall("failure")]
        elif case.get("status") == "notrun" or skip is not None:
            message = SOURCE_LINE.sub("", (skip.get("message") or "") if skip is not None else "", count=1).strip()
            reason = message.splitlines()[0] if message else f"{name} is disabled"
            result.skipped[reason] = result.skipped.get(reason, 0) + 1
        else:
            result.passed += 1
    return True


# ---- All of them


def summary(results):
    """Prints slowest, skipped and failed tests, CPU seconds, counts. Returns whether some passed and none failed."""
    print("\nthe slowest:")
    for result in sorted(results, key=lambda result: -result.seconds)[:10]:
        print(f"{result.seconds:7.1f} s, {result.cpu:6.1f} s of CPU  {result.suite} {result.name} ({result.folder})")
    reasons, skipping = collections.Counter(), collections.defaultdict(list)
    for result in results:
        reasons.update(result.skipped)
        for reason in result.skipped:
            skipping[reason].append(result.name)
    for reason, count in reasons.most_common():
        print(f"skipped {count} in {', '.join(sorted(skipping[reason]))}: {reason}")
    for result in results:
        if result.failed:
            print(f"-- {result.name}, see {result.log or 'above'}:")
            print(textwrap.indent(told(result), "   "))
    for result in results:
        for failure in result.failures:
            print(f"failed: {failure}")
    cpu = collections.Counter()
    for result in results:
        cpu[result.suite] += result.cpu
    print("CPU seconds:", ", ".join(f"{suite} {seconds:.0f}" for suite, seconds in cpu.items()))
    passed, failed = (sum(getattr(result, what) for result in results) for what in ("passed", "failed"))
    print(f"{passed} passed, {failed} failed, {sum(reasons.values())} skipped")
    return passed > 0 and failed == 0


def told(result):
    """Returns the messages of a test's first failures; if there are none, the end of its log."""
    if result.messages:
        return "\n".join(result.messages[:FIRST_MESSAGES])
    with contextlib.suppress(OSError):  # an earlier run's log may be gone
        return "\n".join((ROOT / result.log).read_text(errors="replace").strip().splitlines()[-LAST_LINES:])
    return ""


def commit():
    """Returns the commit of the tree, with a + if files differ from it."""
    name = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True)
    return name.stdout.strip() or "unknown"
