#!/usr/bin/python3
"""Runs tests of this tree in checkouts at unusual places and with fewer rights, and prints the results.

    dev/places.py                          # tools/test.sh in each place: an hour or more
    dev/places.py --suite system           # one suite
    dev/places.py --tests nodes udp        # some tests
    dev/places.py --places tmp spaces      # some places

Each place gets a clone with all changed and new files of this tree, and its own build folders. The clone is deleted
afterwards; logs stay in build-places/. The last line counts places. The exit status is 1 if a test failed in a place,
77 if no place could be tried. Without root, places that need root are skipped.
"""

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
LOGS = ROOT / "build-places"
PATH = f"/usr/sbin:/usr/bin:/sbin:/bin:{os.environ.get('PATH', '')}"
LONG = 150  # length of the path in characters; Unix sockets can have at most 107
USER = 65534  # the user nobody, to whom the folder of the place is given
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped", re.MULTILINE)
SKIPPED = 77  # exit status


@dataclasses.dataclass
class Place:
    name: str
    what: str
    parent: str  # folder in which the temporary folder of the place is made
    folder: str = "checkout"  # name of the checkout in the temporary folder
    command: tuple = ()  # prefix of the command that runs the tests
    needs_root: bool = False
    user: int = 0
    has_rights: bool = True  # False: tests that need rights may be skipped


PLACES = [
    Place("tmp", "below /tmp", "/tmp"),
    Place("root", "below /root, which only root can enter", "/root", needs_root=True),
    Place("spaces", "in a path with spaces", "/var/tmp", "a checkout with spaces"),
    Place("long", f"in a path of {LONG} characters", "/var/tmp", "x" * LONG),
    Place("user", "as an ordinary user", "/var/tmp", needs_root=True, user=USER, has_rights=False,
          command=("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")),
    Place("no-net-admin", "as root without CAP_NET_ADMIN", "/var/tmp", needs_root=True, has_rights=False,
          command=("setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin")),
]


class Failed(Exception):
    """A step in a place that failed, so that there are no test results. The text says which."""


class Checkout:
    """A clone in its place, and the log of all that runs there."""

    def __init__(self, place, top, log):
        self.place, self.top, self.log = place, top, log
        self.tree = top / place.folder
        if place.folder.startswith("x" * LONG):
            self.tree = top / place.folder[:LONG - len(str(top)) - 1]
        self.environment = {**os.environ, "PATH": PATH, "CCACHE_BASEDIR": str(self.tree), "CCACHE_NOHASHDIR": "1"}
        if not place.has_rights:
            self.environment.pop("CI", None)  # it makes skipped tests fail
        if place.user:
            self.environment["HOME"] = str(top / "home")

    def run(self, *command, check=True):
        """Runs a command in the checkout and returns its exit status. Raises Failed if `check` is set and that is not
        0."""
        print("$", *command, file=self.log, flush=True)
        status = subprocess.run([str(word) for word in command], cwd=self.tree if self.tree.exists() else self.top,
                                stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=self.environment,
                                check=False).returncode
        if check and status:
            raise Failed(f"{command[0]} {command[1] if command[1:] else ''} ended with status {status}")
        return status

    def make(self):
        self.run("git", "clone", "--quiet", ROOT, self.tree)
        changes = subprocess.run(["git", "diff", "HEAD", "--binary"], cwd=ROOT, check=True, capture_output=True).stdout
        if changes:
            subprocess.run(["git", "apply", "-"], cwd=self.tree, input=changes, check=True)
        added = subprocess.run(["git", "ls-files", "--others", "--exclude-standard", "-z"], cwd=ROOT, check=True,
                               capture_output=True, text=True).stdout
        for name in filter(None, added.split("\0")):
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.tree / name)
        venv = ROOT / "build-pytorch"
        if (venv / "installed.txt").exists():  # otherwise tools/test.sh would download PyTorch
            # An ordinary user may not be able to enter ROOT, and gets a copy.
            self.run(*(["cp", "-a"] if self.place.user else ["ln", "-s"]), venv, self.tree / venv.name)

    def hand_over(self):
        """Gives all files to the user of the place, unless that is root."""
        if self.place.user:
            (self.top / "home").mkdir(exist_ok=True)
            self.run("chown", "-R", f"{self.place.user}:{self.place.user}", self.top)

    def build_for(self, tests, suites):
        """Configures build/ and builds what the chosen tests need. Returns the names of the tests. Raises Failed."""
        self.run("meson", "setup", "build")

        def introspect(what):
            return json.loads(subprocess.run(["meson", "introspect", "build", f"--{what}"], cwd=self.tree, check=True,
                                             capture_output=True, env=self.environment).stdout)

        chosen = [test for test in introspect("tests") if test["name"] in tests or {*suites} & suites_of(test)]
        lacking = {*tests} - {test["name"] for test in chosen}
        if lacking or not chosen:
            raise Failed(f"there are no tests {', '.join(sorted(lacking)) or ', '.join(suites)}")
        files = {target["id"]: target["filename"] for target in introspect("targets")}
        needed = {os.path.relpath(file, self.tree / "build") for test in chosen for target in test["depends"]
                  for file in files[target]}
        if needed:
            self.run("ninja", "-C", "build", "--quiet", *sorted(needed))
        return [test["name"] for test in chosen]


def suites_of(test):
    return {suite.rpartition(":")[2] for suite in test["suite"]}


def meson_counts(tree):
    """Returns the counts of a run of `meson test`, and the names of the failed tests."""
    counts, failed = collections.Counter(), []
    for line in (tree / "build/meson-logs/testlog.json").read_text().splitlines():
        test = json.loads(line)
        kind = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}.get(test["result"], "failed")
        counts[kind] += 1
        failed += [test["name"].rpartition(" / ")[2]] if kind == "failed" else []
    return counts, failed


def script_counts(text):
    """Returns the counts of a run of tools/test.sh and the names of its failed tests, from its output. Raises Failed if
    the run has not ended."""
    found = [*COUNTS.finditer(text)]
    if not found:
        raise Failed("tools/test.sh ended before it printed its results")
    last = found[-1]
    counts = collections.Counter(passed=int(last[1]), failed=int(last[2]), skipped=int(last[3]))
    return counts, re.findall(r"^failed: (\S+?):", text, re.MULTILINE)


def try_place(place, top, log, options):
    checkout = Checkout(place, top, log)
    checkout.make()
    if not options.tests and not options.suite:
        checkout.hand_over()
        start = log.tell()
        status = checkout.run(*place.command, "tools/test.sh", check=False)
        log.flush()
        counts, failed = script_counts(pathlib.Path(log.name).read_text(errors="replace")[start:])
        return counts, failed, status
    names = checkout.build_for(options.tests, options.suite)
    checkout.hand_over()
    status = checkout.run(*place.command, "meson", "test", "-C", "build", "--no-rebuild", "--print-errorlogs", *names,
                          check=False)
    return *meson_counts(checkout.tree), status


def report(place, options):
    """Tries one place and prints a line. Returns whether all went well; None if the place is left out."""
    if place.needs_root and os.geteuid() != 0:
        print(f"{place.name:14} skipped: needs root", flush=True)
        return None
    top = pathlib.Path(tempfile.mkdtemp(prefix="gl-place-", dir=place.parent))
    top.chmod(0o755)
    try:
        with open(LOGS / f"{place.name}.log", "w+", encoding="utf-8", errors="replace") as log:
            counts, failed, status = try_place(place, top, log, options)
        good = status == 0 and counts["failed"] == 0
        text = ", ".join(f"{counts[kind]} {kind}" for kind in ("passed", "failed", "skipped"))
        text += f": {', '.join(failed)}" if failed else "" if good else f", exit status {status}"
    except Failed as error:
        good, text = False, str(error)
    finally:
        if options.keep:
            print(f"{place.name:14} checkout kept in {top}", flush=True)
        else:
            shutil.rmtree(top, ignore_errors=True)
    print(f"{place.name:14} {place.what}: {text}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", nargs="+", default=[], metavar="NAME", help="run only these tests, from build/")
    parser.add_argument("--suite", nargs="+", default=[], metavar="SUITE", help="run only these suites, from build/")
    parser.add_argument("--places", nargs="+", choices=[place.name for place in PLACES], metavar="PLACE",
                        default=[place.name for place in PLACES], help=", ".join(place.name for place in PLACES))
    parser.add_argument("--keep", action="store_true", help="do not delete the checkouts")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # SystemExit removes the checkout
    LOGS.mkdir(exist_ok=True)
    results = [report(place, options) for place in PLACES if place.name in options.places]
    good, bad, out = (results.count(value) for value in (True, False, None))
    print(f"{good} places passed, {bad} failed, {out} skipped; logs are in {LOGS.relative_to(ROOT)}/")
    return 1 if bad else 0 if good else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
