#!/usr/bin/python3
"""Mutation testing: applies the mutants of tests/mutants/*.toml to the product, one at a time, and runs the tests.

A mutant is a small fault in the product. It is "caught" if a test fails or times out that passes without the mutant,
and "survived" if no test fails. It is the "same program" if all tested binaries have the same bytes with and without
it. A mutant that does not build is an error in the list.

Builds each mutant in a worktree, build-mutants/main, at the current commit. Runs first the tests whose sources are
named like the changed file, then those of its folders, then all others, the fastest first. Writes results to
build-mutants/main.json; a later call continues there. A verdict is for one commit: at another commit each mutant runs
again, and the test that caught it before runs first.

The exit status is 1 if a mutant survives that has no `nightly`, the reason why only a nightly test can detect it.

    dev/mutants.py --check                        # checks that each mutant applies; takes a second
    dev/mutants.py --minutes 60                   # runs mutants without a result, for an hour
    dev/mutants.py --survivors                    # runs mutants without a result, and surviving ones again
    dev/mutants.py --tree ../old --folder build-test --suites unit,daemon --state old.json --only ID,ID

The last line runs the tests of another checkout, in its build folder.
"""

import argparse
import collections
import contextlib
import ctypes
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import tomllib

import suites

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORK = ROOT / "build-mutants"
# Build folders, and the functions of dev/build.sh that configure them.
FOLDERS = {"build": "configure_native", "build-sanitize": "configure_sanitize", "build-thread": "configure_thread"}
# The build folder and the suite of each stage, in the order in which stages run.
STAGES = [("build-sanitize", "unit"), ("build-sanitize", "sim"), ("build-sanitize", "threads"),
          ("build-thread", "threads"), ("build", "system")]
SLOW = 5  # a test counts as hanging after this many times its usual run time, but not before 60 s
LONGEST = 300  # s; time limit of a test that has not run before


class Fatal(Exception):
    """An error that ends the program. Its text says why."""


def mutants():
    """Returns the mutants of all lists, by id. Raises Fatal."""
    found = {}
    for path in sorted((ROOT / "tests/mutants").glob("*.toml")):
        for each in tomllib.loads(path.read_text())["mutant"]:
            if set(each) - {"nightly"} != {"id", "file", "before", "after", "breaks"} or each["before"] == each["after"]:
                raise Fatal(f"{path.name}: {each.get('id')}: a mutant needs id, file, before, after, breaks, and may "
                            "have nightly; before and after must differ")
            if found.setdefault(each["id"], each) is not each:
                raise Fatal(f"{path.name}: two mutants have the id {each['id']}")
            each["digest"] = hashlib.sha256(f"{each['file']}\0{each['before']}\0{each['after']}".encode()).hexdigest()
    return found


def unmatched(some, root):
    """Returns, by id, a line about each mutant whose text does not occur exactly once in its file."""
    found = {}
    for name, each in some.items():
        path = root / each["file"]
        count = path.read_text().count(each["before"]) if path.is_file() else 0
        if count != 1:
            found[name] = (f"{name}: 'before' occurs {count} times in {each['file']}, but must occur once; "
                           "update it in tests/mutants/")
    return found


def words(text):
    return set(re.split(r"[\W_]+", text))


def git(root, *command):
    return subprocess.run(["git", "-C", root, *command], check=True, stdout=subprocess.PIPE, text=True).stdout


class Tree:
    """A checkout with its build folders. If is_ours, this is a worktree that is made here, at the commit of this
    checkout."""

    def __init__(self, path, is_ours):
        self.path, self.sums_of, self.tests, self.output = path, {}, {}, ""
        self.baseline = {}  # digests of programs and libraries without a mutant
        self.commit = git(ROOT if is_ours else path, "rev-parse", "HEAD").strip()
        if not is_ours:
            return
        if not (path / ".git").exists():
            git(ROOT, "worktree", "prune")
            git(ROOT, "worktree", "add", "--detach", path, self.commit)
        git(path, "checkout", "--quiet", "--force", "--detach", self.commit)
        venv = ROOT / "build-pytorch"
        if venv.exists() and not (path / venv.name).exists():
            (path / venv.name).symlink_to(venv)

    def tests_of(self, folder, suite):
        if folder in FOLDERS and not (self.path / folder / "build.ninja").exists():
            subprocess.run(["bash", "-ec", f"source dev/build.sh; {FOLDERS[folder]}"], cwd=self.path, check=True)
        if folder not in self.tests:
            self.build(folder, ["build.ninja"], must=True)
            told = json.loads(subprocess.check_output(["meson", "introspect", folder, "--tests", "--targets"],
                                                      cwd=self.path))
            files = {target["id"]: target["filename"] for target in told["targets"]}
            sources = {target["id"]: self.sources_of(target) for target in told["targets"]}
            for test in told["tests"]:
                test["files"] = {file for name in test["depends"] for file in files.get(name, [])}
                test["words"] = [words(test["name"])] + [found for name in test["depends"]
                                                         for found in sources.get(name, [])]
                test["suites"] = {name.rpartition(":")[2] for name in test["suite"]}
                test["workdir"] = test["workdir"] or str(self.path / folder)  # `meson test` does the same
            self.tests[folder] = told["tests"]
        return [test for test in self.tests[folder] if suite in test["suites"]]

    def sources_of(self, target):
        """Returns the words of the path of each source below tests/, also of sources that a unity build includes."""
        paths = []
        for part in target["target_sources"]:
            paths += part.get("sources", [])
            for unit in map(pathlib.Path, part.get("generated_sources", [])):
                if "-unity" in unit.name and unit.exists():
                    paths += re.findall(r"#include\s*[<\"](.*)[>\"]", unit.read_text())
        return [words(path.rpartition("/tests/")[2].removesuffix("_test.cc")) for path in paths if "/tests/" in path]

    def build(self, folder, targets, must=False):
        """Builds the targets and returns whether that worked. Raises Fatal if it failed and `must` is set."""
        names = [target.removeprefix(f"{self.path / folder}/") for target in targets]
        done = subprocess.run(["ninja", "-C", folder, *names], cwd=self.path, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace")
        if must and done.returncode != 0:
            raise Fatal(f"{folder} does not build, even without a mutant:\n{done.stdout[-3000:]}")
        self.output = done.stdout
        return done.returncode == 0

    def sums(self, files):
        """Returns digests of programs and libraries, by file."""
        found = {}
        for file in files:
            status = os.stat(file)
            key = file, status.st_mtime_ns, status.st_size
            if key not in self.sums_of:
                self.sums_of[key] = hashlib.sha256(pathlib.Path(file).read_bytes()).digest()
            found[file] = self.sums_of[key]
        return found


def run_test(test, seconds):
    """Runs a test. Returns 'passed', 'failed', 'skipped' or 'time-out', and the seconds it took. Kills all processes
    that the test has left."""
    begin = time.monotonic()
    process = subprocess.Popen(test["cmd"], cwd=test["workdir"], env=os.environ | suites.SANITIZERS | test["env"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True)
    try:
        code = process.wait(seconds)
        result = {0: "passed", suites.SKIPPED: "skipped"}.get(code, "failed")
    except subprocess.TimeoutExpired:
        result = "time-out"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
    while orphans := children.read_text().split():
        for orphan in map(int, orphans):
            os.kill(orphan, signal.SIGKILL)
            os.waitpid(orphan, 0)
    return result, time.monotonic() - begin


class MutantRun:
    """Runs the tests on one mutant."""

    def __init__(self, tree, state, mutant):
        self.tree, self.known, self.mutant = tree, state["tests"], mutant
        self.path = tree.path / mutant["file"]
        self.original = self.path.read_text()
        self.faulty = self.original.replace(mutant["before"], mutant["after"])
        self.compiled = not mutant["file"].endswith(".py")
        self.asked, self.differs = set(), not self.compiled

    def record(self, folder, test):
        """Returns the stored record of a test. 'seconds' is its run time. For this commit, 'passes' says that it has
        passed, with another mutant or without any; 'fails' says that it fails without a mutant."""
        return self.known.setdefault(f"{folder} {test['name']}", {})

    def name_overlap(self, test):
        """Returns how many words the mutant's path has in common with the test's name, or with one of its sources."""
        path = words(self.mutant["file"].rpartition(".")[0])
        return max(len(path & each) for each in test["words"])

    def run(self, folder, test):
        usual = self.record(folder, test).get("seconds")
        result, seconds = run_test(test, max(60, SLOW * usual) if usual else LONGEST)
        if result in ("passed", "skipped"):
            self.record(folder, test).update(seconds=round(seconds, 2), passes=True)
        return result

    def write_source(self, text):
        """Writes `text` to the mutant's file. A file that has it already is left alone, so that ninja does not rebuild.
        """
        if self.path.read_text() != text:
            self.path.write_text(text)

    def run_stages(self, stages, own_alone, first):
        """Runs the tests of the stages on the mutant. Returns verdict, test, result.

        If own_alone, only tests run that have a word of the file's path in their name or sources. The test `first` runs
        first; it is "FOLDER SUITE NAME", or "".
        """
        for folder, suite in stages:
            if first.startswith(f"{folder} {suite} "):
                tests = [test for test in self.tree.tests_of(folder, suite) if test["name"] == first.split(" ")[2]]
                if found := tests and self.run_group(folder, suite, tests):
                    return found
        stages = [(folder, suite, self.tree.tests_of(folder, suite)) for folder, suite in stages]
        most = max((self.name_overlap(test) for _, _, tests in stages for test in tests), default=0)
        # The tests of the mutated file come first, then those of its folders, then all others.
        for least in [most, 1] if own_alone else [most, 1, 0]:
            for folder, suite, tests in stages:
                tests = [test for test in tests if self.name_overlap(test) >= least]
                tests.sort(key=lambda test: self.record(folder, test).get("seconds", test["timeout"]))
                if found := tests and self.run_group(folder, suite, tests):
                    return found
        return "survived" if self.differs else "same program", "", f"{len(self.asked)} tests"

    def run_group(self, folder, suite, tests):
        files = set().union(*(test["files"] for test in tests))
        # Tests of complete programs may need targets that they do not list.
        targets = ["all"] * (folder == "build") + sorted(files)
        if not files <= self.tree.baseline.keys():
            self.write_source(self.original)
            self.tree.build(folder, targets, must=True)
            self.tree.baseline |= self.tree.sums(files)
        self.write_source(self.faulty)
        if not self.tree.build(folder, targets):
            return "does not build", "", self.tree.output[-1500:]
        changed = {file for file, digest in self.tree.sums(files).items() if digest != self.tree.baseline[file]}
        self.differs = self.differs or bool(changed)
        for test in tests:
            untouched = self.compiled and not changed & test["files"] and test["cmd"][0] in test["files"]
            if untouched or "fails" in self.record(folder, test) or (folder, test["name"]) in self.asked:
                continue
            self.asked.add((folder, test["name"]))
            result = self.run(folder, test)
            if result in ("passed", "skipped"):
                continue
            found = "caught", f"{folder} {suite} {test['name']}", result
            if "passes" in self.record(folder, test):
                return found
            self.write_source(self.original)
            self.tree.build(folder, targets, must=True)
            if self.run(folder, test) == "passed":
                return found
            self.record(folder, test)["fails"] = True
            self.write_source(self.faulty)
            self.tree.build(folder, targets)
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1e9, help="start no mutant after this many minutes")
    parser.add_argument("--only",
                        help="run the mutants with these ids (separated by commas), even if they have a result")
    parser.add_argument("--survivors", action="store_true", help="also run again the mutants that were not caught")
    parser.add_argument("--suites", default="unit,sim,threads,system", help="suites to run (%(default)s)")
    parser.add_argument("--own", action="store_true",
                        help="run only tests whose name or sources share a word with the path of the changed file")
    parser.add_argument("--tree", type=pathlib.Path, help="use this checkout; its sources change during the run")
    parser.add_argument("--folder", default="build", help="with --tree: build folder of the checkout (%(default)s)")
    parser.add_argument("--state", type=pathlib.Path, default=WORK / "main.json", help="file for results (%(default)s)")
    parser.add_argument("--list", action="store_true", help="print all mutants with their results")
    parser.add_argument("--check", action="store_true", help="check that each mutant applies to this checkout")
    parser.add_argument("--json", action="store_true", help="with --list: print JSON")
    options = parser.parse_args()
    chosen_suites = options.suites.split(",")
    every = mutants()
    if options.check:
        wrong = unmatched(every, ROOT)
        print("".join(f"{line}\n" for line in wrong.values()), end="", file=sys.stderr)
        return 1 if wrong else 0
    state = json.loads(options.state.read_text()) if options.state.exists() else {"tests": {}, "mutants": {}}
    known = {name: found for name, found in state["mutants"].items()
             if name in every and found["digest"] == every[name]["digest"]}  # of any commit
    if options.list:
        rows = [{**each, "verdict": "not asked", "test": "", "commit": "", **known.get(name, {})}
                for name, each in every.items()]
        lines = [f"{row['id']:26} {row['verdict']:14} {row['commit'][:9]:9} {row['test']}\n    {row['breaks']}"
                 for row in rows]
        print(json.dumps(rows, indent=2) if options.json else "\n".join(lines))
        return 0

    only = options.only.split(",") if options.only else []
    if unknown := set(only) - every.keys():
        raise Fatal(f"there is no mutant {', '.join(sorted(unknown))}")
    # A background job ignores SIGINT, and tests would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # SystemExit restores the mutant's file, too
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: processes that tests leave become its children
    tree = Tree(options.tree.resolve() if options.tree else WORK / "main", options.tree is None)
    if state.get("commit") != tree.commit:
        state["tests"] = {name: {"seconds": test["seconds"]} for name, test in state["tests"].items()
                          if "seconds" in test}
    state["commit"] = tree.commit

    def is_known(name):
        return name in known and known[name]["commit"] == tree.commit

    # Mutants without a result come first, then those with the oldest results.
    order = [*state["mutants"]]
    chosen = only or sorted(
        (name for name in every
         if not is_known(name) or (options.survivors and known[name]["verdict"] != "caught")),
        key=lambda name: order.index(name) if name in order else -1)
    unfit = unmatched({name: every[name] for name in chosen}, tree.path)
    print("".join(f"{line}\n" for line in unfit.values()), end="")
    stages = [stage for stage in STAGES if stage[1] in chosen_suites]
    if options.tree:
        stages = [(options.folder, suite) for suite in chosen_suites]
    end = time.monotonic() + 60 * options.minutes
    for name in chosen:
        if name in unfit:
            continue
        begin = time.monotonic()
        if begin >= end:
            break
        mutant_run = MutantRun(tree, state, every[name])
        before = state["mutants"].pop(name, {})  # the new result becomes the last entry
        try:
            verdict, test, how = mutant_run.run_stages(stages, options.own, before.get("test", ""))
        finally:
            mutant_run.write_source(mutant_run.original)
        seconds = round(time.monotonic() - begin)
        known[name] = state["mutants"][name] = {
            "verdict": verdict, "test": test, "how": how, "seconds": seconds, "suites": chosen_suites,
            "commit": tree.commit, "digest": every[name]["digest"]}
        fresh = options.state.with_suffix(".new")
        fresh.write_text(json.dumps(state, indent=1))
        fresh.replace(options.state)
        print(f"{name:26} {verdict:14} {seconds:5} s  {test or how}", flush=True)
    verdicts = {name: known[name]["verdict"] if is_known(name) else "not asked" for name in every}
    wrong = {*unfit}
    for name, verdict in verdicts.items():
        if verdict == "survived" and "nightly" in every[name]:
            print(f"{name}: {verdict}; only nightly tests can detect it: {every[name]['nightly']}")
        elif verdict not in ("caught", "not asked"):
            print(f"{name}: {verdict}")
            wrong.add(name)
    counts = collections.Counter(verdicts.values())
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Fatal as error:
        sys.exit(f"dev/mutants.py: {error}")
