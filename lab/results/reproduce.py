#!/usr/bin/python3
"""reproduce.py - measures all results again, in batches

Measures what is missing or stale, a batch at a time, and writes each sample at once: after an interruption the same
command continues. It waits while the machine is busy with other work, and discards samples during which the machine was
not quiet. Needs root for network namespaces. Pages are written at the end.
"""

import argparse
import dataclasses
import datetime
import os
import pathlib
import subprocess
import sys
import time
from typing import Callable

from lab.results import machine, pages
from lab.results.experiment import ROOT, experiments
from lab.results.store import Sample, Store

PATIENCE = 120  # seconds to wait for a quiet machine
MOST_TRIES = 3  # of a batch that failed or was disturbed


@dataclasses.dataclass(frozen=True)
class Context:
    """The programs that measuring functions run."""

    gradlane: pathlib.Path
    python: str  # interpreter with PyTorch
    # Called between the parts of a job, so that each is quiet by itself. See machine.Watch.
    note: Callable = lambda: None

    def environment(self):
        """Returns the environment of trainers: their PYTHONPATH, and no settings of other libraries."""
        foreign = ("GLOO_SOCKET_IFNAME", "OMPI_MCA_", "GRADLANE_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        path = os.pathsep.join([str(ROOT), str(ROOT / "client" / "python")])
        library = self.gradlane.parents[1] / "client" / "libgradlane.so.0"  # beside the program in its build folder
        if library.exists():
            kept["GRADLANE_LIBRARY"] = str(library)
        return {**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}


def say(text):
    print(text, file=sys.stderr, flush=True)


def commit():
    """Returns the present commit, "-dirty" if anything but pages and samples differs from it."""
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", ".", ":!docs", ":!README.md")
    return git("describe", "--always") + ("-dirty" if changed else "")


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def wait_until_quiet(end):
    """Returns a Watch when the machine is quiet; None if it is not for PATIENCE seconds, or until `end`."""
    until = min(end, time.monotonic() + PATIENCE)
    told = False
    while True:
        watch = machine.Watch()
        if watch.before <= machine.QUIET:
            return watch
        if time.monotonic() > until:
            return None
        if not told:
            say(f"{watch.before:.1f} cores are busy with other work; waiting for a quiet machine")
            told = True
        time.sleep(2)


def measure_batch(store, batch, context, about, watch):
    """Measures a batch, and ends it if the machine was not quiet. Returns whether all samples are stored."""
    for key, values, command in store.experiment.measure(batch, dataclasses.replace(context, note=watch.note)):
        load = watch.load()
        if store.experiment.timed and not machine.is_quiet(load):
            say(f"  {key}: discarded: other programs used {load['others']:.2f} cores, and {100 * load['steal']:.1f} % of "
                "the time was stolen")
            return False
        store.add(Sample(key, values, now(), commit(), store.hash, about, command, load))
    return True


def samples_of(store, args, begin):
    """Returns the samples that need not be measured again."""
    if not args.again:
        return store.values(fresh=not args.keep_stale)
    found = {}
    for sample in store.samples:
        if sample.when >= begin:
            found.setdefault(sample.key, []).append(sample.values)
    return found


def run(args, chosen, context):
    """Measures until nothing is missing or the time is over. Returns the number of batches that could not be measured.
    """
    about = machine.describe(context.python)
    begin = now()
    end = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    failed = 0
    for store in chosen:
        tries = {}
        while time.monotonic() < end:
            waiting = [batch for batch in store.experiment.batches(samples_of(store, args, begin))
                       if tries.get(batch.keys, 0) < MOST_TRIES]
            if not waiting:
                break
            batch = waiting[0]
            left = sum(each.seconds for each in waiting)
            say(f"{store.experiment.name}: {', '.join(batch.keys)} ({len(waiting)} batches left, about "
                f"{left / 60:.0f} min)")
            watch = wait_until_quiet(end) if store.experiment.timed else machine.Watch()
            if watch is None:
                say("the machine is not quiet, and noisy samples would be of no use; continue later with the same command")
                failed += 1
                break
            tries[batch.keys] = tries.get(batch.keys, 0) + 1
            try:
                if measure_batch(store, batch, context, about, watch):
                    tries[batch.keys] = 0
            except (RuntimeError, subprocess.SubprocessError, OSError) as error:
                say(f"{store.experiment.name}: {', '.join(batch.keys)}: {error}")
            failed += tries[batch.keys] == MOST_TRIES
    return failed


def find_python(given):
    """Returns an interpreter with PyTorch. Raises SystemExit if there is none."""
    for python in [given] if given else [ROOT / "build-pytorch" / "bin" / "python", sys.executable]:
        if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
            return str(python)
    raise SystemExit("lab/reproduce.sh: found no PyTorch; tools/setup.sh --all installs it in build-pytorch/")


def main():
    known = experiments()
    parser = argparse.ArgumentParser(prog="lab/reproduce.sh", description=__doc__.split("\n\n", 1)[1],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="end after this time, when the current batch ends")
    parser.add_argument("--only", metavar="EXPERIMENT,...", help="there are " + ", ".join(known))
    parser.add_argument("--keep-stale", action="store_true", help="measure only what is missing, not what is stale")
    parser.add_argument("--again", action="store_true", help="measure everything once more, beside the samples there are")
    parser.add_argument("--list", action="store_true", help="say what there is to measure, and measure nothing")
    parser.add_argument("--python", metavar="EXE", help="Python with PyTorch (that of build-pytorch/, or this one)")
    parser.add_argument("--gradlane", metavar="EXE", type=pathlib.Path, default=ROOT / "build" / "tools" / "gradlane",
                        help="the program gradlane (build/tools/gradlane)")
    args = parser.parse_args()
    if args.minutes is not None and args.minutes <= 0:
        parser.error(f"--minutes {args.minutes:g}: must be above 0")
    names = args.only.split(",") if args.only else list(known)
    for name in names:
        if name not in known:
            parser.error(f"--only: unknown experiment '{name}'; there are {', '.join(known)}")
    chosen = [Store(known[name]) for name in names]
    if args.list:
        for store in chosen:
            waiting = store.experiment.batches(samples_of(store, args, now()))
            print(f"{store.experiment.name:<12} {store.experiment.title}: {len(store.samples)} samples, "
                  f"{len(store.stale())} stale; {len(waiting)} batches to measure, about "
                  f"{sum(each.seconds for each in waiting) / 60:.0f} min")
        return 0
    if os.geteuid() != 0:
        parser.error("network namespaces need root; use sudo")
    context = Context(args.gradlane.resolve(), find_python(args.python))
    try:
        failed = run(args, chosen, context)
    except KeyboardInterrupt:
        say("interrupted; the same command continues")
        return 130
    sys.argv = [sys.argv[0], "--write"]
    pages.main()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
