#!/usr/bin/python3
"""Says what the tests catch: puts the faults of tests/mutants/*.toml into the product, one at a time, and asks tests.

Works in a tree of its own, build-mutants/main, at a commit of this checkout, and remembers what it found in
build-mutants/main.json: run again, it goes on where it stopped. Each fault is built, the unit tests of its own folder
are asked first, then the rest of each suite, the quickest tests first, until one fails. That one must pass without the
fault, or it counts for nothing. A test that takes too long has caught the fault; a fault that does not build is a
mistake in the list. Programs that are the same bytes with the fault and without are not asked.

    tools/dev/mutants.py --check                        # whether the lists are right; takes no time
    tools/dev/mutants.py --minutes 60                   # an hour of those that are left
    tools/dev/mutants.py --survivors                    # once more those that no test has caught
    tools/dev/mutants.py --tree ../old --folder build-test --suites unit,daemon --state old.json --only ID,ID

The last one asks the tests of another checkout, as it is, with its build folder.
"""

import argparse
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build-mutants"
# Build folders, and what configures them in tools/dev/build.sh.
FOLDERS = {"build": "configure_native", "build-sanitize": "configure_sanitize", "build-thread": "configure_thread"}
# Where the tests of a suite run, in the order in which they are asked.
STAGES = [("build-sanitize", "unit"), ("build-sanitize", "sim"), ("build-thread", "threads"), ("build", "system")]
SKIPPED = 77
SLOW = 5  # times as long as a test took before, or as meson says: then it hangs


class Broken(Exception):
    """What ends the program: its text says why."""


def mutants():
    """All lists, by id. Raises Broken."""
    found = {}
    for path in sorted((ROOT / "tests/mutants").glob("*.toml")):
        for each in tomllib.loads(path.read_text())["mutant"]:
            if set(each) != {"id", "file", "before", "after", "breaks"} or each["before"] == each["after"]:
                raise Broken(f"{path.name}: {each.get('id')}: a mutant has id, file, before, after and breaks")
            if found.setdefault(each["id"], each) is not each:
                raise Broken(f"{path.name}: {each['id']} is there twice")
            each["digest"] = hashlib.sha256(f"{each['file']}\0{each['before']}\0{each['after']}".encode()).hexdigest()
    return found


def misfits(some, root):
    """By id, a line about each whose text is not in its file, or more than once."""
    found = {}
    for name, each in some.items():
        path = root / each["file"]
        count = path.read_text().count(each["before"]) if path.is_file() else 0
        if count != 1:
            found[name] = f"{name}: 'before' occurs {count} times in {each['file']}, and must once"
    return found


def words(text):
    return set(re.split(r"[\W_]+", text))


def git(root, *command):
    return subprocess.run(["git", "-C", root, *command], check=True, stdout=subprocess.PIPE, text=True).stdout


class Tree:
    """A checkout with its build folders. is_ours: it is made, and is at the commit of this checkout."""

    def __init__(self, path, is_ours):
        self.path, self.sums_of, self.tests, self.output = path, {}, {}, ""
        self.clean = {}  # digests of what is without a fault
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
            subprocess.run(["bash", "-ec", f"source tools/dev/build.sh; {FOLDERS[folder]}"], cwd=self.path, check=True)
        if folder not in self.tests:
            self.build(folder, ["build.ninja"], must=True)
            told = json.loads(subprocess.check_output(["meson", "introspect", folder, "--tests", "--targets"],
                                                      cwd=self.path))
            files = {target["id"]: target["filename"] for target in told["targets"]}
            for test in told["tests"]:
                test["files"] = {file for name in test["depends"] for file in files.get(name, [])}
                test["suites"] = {name.rpartition(":")[2] for name in test["suite"]}
            self.tests[folder] = told["tests"]
        return [test for test in self.tests[folder] if suite in test["suites"]]

    def build(self, folder, targets, must=False):
        """Whether it builds."""
        names = [target.removeprefix(f"{self.path / folder}/") for target in targets]
        done = subprocess.run(["ninja", "-C", folder, *names], cwd=self.path, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace")
        if must and done.returncode != 0:
            raise Broken(f"{folder} does not build without a fault:\n{done.stdout[-3000:]}")
        self.output = done.stdout
        return done.returncode == 0

    def sums(self, files):
        """Digests of programs and libraries."""
        found = {}
        for file in files:
            status = os.stat(file)
            key = file, status.st_mtime_ns, status.st_size
            if key not in self.sums_of:
                self.sums_of[key] = hashlib.sha256(pathlib.Path(file).read_bytes()).digest()
            found[file] = self.sums_of[key]
        return found


def run_test(test, seconds):
    """'passed', 'failed', 'skipped' or 'time-out'; and how long it took. Nothing that it has started is left."""
    begin = time.monotonic()
    process = subprocess.Popen(test["cmd"], cwd=test["workdir"] or "/", env=os.environ | test["env"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True)
    try:
        code = process.wait(seconds)
        result = {0: "passed", SKIPPED: "skipped"}.get(code, "failed")
    except subprocess.TimeoutExpired:
        result = "time-out"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
    while orphans := children.read_text().split():
        for orphan in map(int, orphans):
            os.kill(orphan, signal.SIGKILL)
            os.waitpid(orphan, 0)
    return result, time.monotonic() - begin


class Hunt:
    """Of one mutant."""

    def __init__(self, tree, state, mutant):
        self.tree, self.known, self.mutant = tree, state["tests"], mutant
        self.path = tree.path / mutant["file"]
        self.original = self.path.read_text()
        self.faulty = self.original.replace(mutant["before"], mutant["after"])
        self.compiled = not mutant["file"].endswith(".py")
        self.asked, self.differs = set(), not self.compiled

    def facts(self, folder, test):
        """What is known of a test: 'seconds' that it takes; of this commit, 'passes': with some other fault, or with
        none, and 'fails': with none."""
        return self.known.setdefault(f"{folder} {test['name']}", {})

    def alike(self, test):
        return len(words(self.mutant["file"]) & words(test["name"]))

    def run(self, folder, test):
        usual = self.facts(folder, test).get("seconds")
        result, seconds = run_test(test, max(60, SLOW * usual) if usual else SLOW * test["timeout"])
        if result in ("passed", "skipped"):
            self.facts(folder, test).update(seconds=round(seconds, 2), passes=True)
        return result

    def put(self, text):
        """Into the file, whose time stays if it has that."""
        if self.path.read_text() != text:
            self.path.write_text(text)

    def ask(self, stages, own_alone):
        """Verdict, test, and how. own_alone: by tests whose names have a word of the file's path."""
        for folder, suite in stages:
            tests = self.tree.tests_of(folder, suite)
            tests.sort(key=lambda test: (-self.alike(test), self.facts(folder, test).get("seconds", test["timeout"])))
            best = [test for test in tests if self.alike(test) == self.alike(tests[0])]
            own = [test for test in tests[len(best):] if self.alike(test) > 0]
            for group in (best, own, [] if own_alone else tests[len(best) + len(own):]):
                if found := group and self.ask_group(folder, suite, group):
                    return found
        return "survived" if self.differs else "same program", "", f"{len(self.asked)} tests"

    def ask_group(self, folder, suite, tests):
        files = set().union(*(test["files"] for test in tests))
        # Whole programs may need more than they say.
        targets = ["all"] * (folder == "build") + sorted(files)
        if not files <= self.tree.clean.keys():
            self.put(self.original)
            self.tree.build(folder, targets, must=True)
            self.tree.clean |= self.tree.sums(files)
        self.put(self.faulty)
        if not self.tree.build(folder, targets):
            return "does not build", "", self.tree.output[-1500:]
        changed = {file for file, digest in self.tree.sums(files).items() if digest != self.tree.clean[file]}
        self.differs = self.differs or bool(changed)
        for test in tests:
            untouched = self.compiled and not changed & test["files"] and test["cmd"][0] in test["files"]
            if untouched or "fails" in self.facts(folder, test) or (folder, test["name"]) in self.asked:
                continue
            self.asked.add((folder, test["name"]))
            result = self.run(folder, test)
            if result in ("passed", "skipped"):
                continue
            found = "caught", f"{folder} {suite} {test['name']}", result
            if "passes" in self.facts(folder, test):
                return found
            self.put(self.original)
            self.tree.build(folder, targets, must=True)
            if self.run(folder, test) == "passed":
                return found
            self.facts(folder, test)["fails"] = True
            self.put(self.faulty)
            self.tree.build(folder, targets)
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no other after so many")
    parser.add_argument("--only", help="these ids, with commas between them, whatever is known of them")
    parser.add_argument("--survivors", action="store_true", help="ask again about those that no test has caught")
    parser.add_argument("--suites", default="unit,sim,threads,system", help="whose tests are asked (%(default)s)")
    parser.add_argument("--own", action="store_true", help="ask the tests of the fault's own folder alone")
    parser.add_argument("--tree", type=pathlib.Path, help="another checkout, which nobody else needs meanwhile")
    parser.add_argument("--folder", default="build", help="with --tree: its build folder")
    parser.add_argument("--state", type=pathlib.Path, default=WORK / "main.json", help="what is known")
    parser.add_argument("--list", action="store_true", help="what there is, and what is known of it")
    parser.add_argument("--check", action="store_true", help="whether each fault fits this checkout")
    parser.add_argument("--json", action="store_true", help="with --list: as JSON")
    options = parser.parse_args()
    suites = options.suites.split(",")
    every = mutants()
    if options.check:
        wrong = misfits(every, ROOT)
        print("".join(f"{line}\n" for line in wrong.values()), end="", file=sys.stderr)
        return 1 if wrong else 0
    state = json.loads(options.state.read_text()) if options.state.exists() else {"tests": {}, "mutants": {}}
    known = {name: found for name, found in state["mutants"].items()
             if name in every and found["digest"] == every[name]["digest"]}
    if options.list:
        rows = [{**each, "verdict": "not asked", "test": "", **known.get(name, {})} for name, each in every.items()]
        lines = [f"{row['id']:26} {row['verdict']:14} {row['test']}\n    {row['breaks']}" for row in rows]
        print(json.dumps(rows, indent=2) if options.json else "\n".join(lines))
        return 0

    chosen = options.only.split(",") if options.only else [
        name for name in every if name not in known or (options.survivors and known[name]["verdict"] != "caught")]
    if unknown := set(chosen) - every.keys():
        raise Broken(f"there is no mutant {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored, which tests would inherit
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # takes the fault out, too
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: what tests leave behind becomes this one's
    tree = Tree(options.tree.resolve() if options.tree else WORK / "main", options.tree is None)
    if state.get("commit") != tree.commit:
        state["tests"] = {name: {"seconds": test["seconds"]} for name, test in state["tests"].items()
                          if "seconds" in test}
    state["commit"] = tree.commit
    unfit = misfits({name: every[name] for name in chosen}, tree.path)
    print("".join(f"{line}\n" for line in unfit.values()), end="")
    stages = [stage for stage in STAGES if stage[1] in suites]
    if options.tree:
        stages = [(options.folder, suite) for suite in suites]
    end = time.monotonic() + 60 * options.minutes
    for name in chosen:
        if name in unfit:
            continue
        begin = time.monotonic()
        if begin >= end:
            break
        hunt = Hunt(tree, state, every[name])
        try:
            verdict, test, how = hunt.ask(stages, options.own)
        finally:
            hunt.put(hunt.original)
        seconds = round(time.monotonic() - begin)
        state["mutants"][name] = {"verdict": verdict, "test": test, "how": how, "seconds": seconds, "suites": suites,
                                  "commit": tree.commit, "digest": every[name]["digest"]}
        fresh = options.state.with_suffix(".new")
        fresh.write_text(json.dumps(state, indent=1))
        fresh.replace(options.state)
        print(f"{name:26} {verdict:14} {seconds:5} s  {test or how}", flush=True)
    verdicts = [state["mutants"][name]["verdict"] for name in every if name in state["mutants"]]
    print(", ".join(f"{verdicts.count(each)} {each}" for each in dict.fromkeys(verdicts)))
    return 0 if not unfit and set(verdicts) <= {"caught"} else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Broken as error:
        sys.exit(f"tools/dev/mutants.py: {error}")
