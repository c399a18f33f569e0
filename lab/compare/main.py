# main.py - comparison of gradlane with other all-reduces, in one run (lab/compare.sh starts it; docs/benchmarks.md)

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from lab.compare import data
from lab.compare import plan

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
JOB = pathlib.Path(__file__).resolve().parent / "job.py"
SHM = "/dev/shm"
# Variables that would send Gloo, Open MPI or daemons to other links or settings than the report says. GRADLANE_LIBRARY
# is kept: it belongs to a build.
FOREIGN = ("GLOO_SOCKET_IFNAME", "OMPI_MCA_", "PMIX_MCA_", "GRADLANE_")
KEPT = ("GRADLANE_LIBRARY",)


class Refused(Exception):
    """A requirement that is missing here; the text says what to do."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def machine():
    with open("/proc/cpuinfo") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    import matplotlib
    import numpy
    import torch

    return {"cpu": models[0] if models else "unknown", "cores": os.cpu_count(), "kernel": platform.release(),
            "python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__,
            "matplotlib": matplotlib.__version__}


def environment():
    """Returns the environment of jobs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN) or name in KEPT}
    path = os.pathsep.join([str(ROOT), str(ROOT / "client" / "python")])
    return {**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


class Progress:
    """Counts finished points, and estimates how long the rest takes."""

    def __init__(self, jobs, effort):
        self.effort = effort
        self.started = time.monotonic()
        self.points = sum(len(job.points) for job in jobs)
        self.at = 0
        self.left = sum(sum(self.parts_of(job)) for job in jobs)
        self.gone = 0.0  # estimated seconds of the parts that are over
        self.parts = []  # estimated seconds of the parts of the running job that are not over; the current one is first

    def parts_of(self, job):
        return [plan.guess_start(job), *(plan.guess_seconds(job, point, self.effort) for point in job.points)]

    def begin(self, job):
        self.parts = self.parts_of(job)

    def end(self):
        """Ends a job, which may have failed before all of its points were measured."""
        self.past()
        self.left -= sum(self.parts)

    def past(self):
        seconds = self.parts.pop(0)
        self.gone += seconds
        self.left -= seconds

    def text(self):
        spent = time.monotonic() - self.started
        rate = spent / self.gone if self.gone > 20 else 1.0
        left = max(0.0, self.left * rate)
        return f"{self.at} of {self.points}, {spent / 60:.1f} min spent, about {left / 60:.0f} min left"

    def point(self, job, point):
        self.past()
        self.at += 1
        say(f"{job.name()}: {plan.size_text(point.size)} {point.data}: {self.text()}")


class Run:
    """Runs all jobs, one after the other, and keeps their results."""

    def __init__(self, args, jobs):
        self.args, self.jobs = args, jobs
        self.effort = plan.QUICK if args.quick else plan.FULL
        if args.samples:
            self.effort = dataclasses.replace(self.effort, least=args.samples, most=args.samples)
        self.deadline = time.monotonic() + args.minutes * 60
        self.progress = Progress(jobs, self.effort)
        self.results = {"about": machine(), "quick": args.quick, "mtu": args.mtu, "data": {}, "jobs": [], "notes": [],
                        "rows": []}

    def save(self):
        path = self.args.out / "results.json"
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(self.results, indent=1) + "\n")
        fresh.rename(path)

    def note(self, text):
        say(f"compare.sh: {text}")
        self.results["notes"].append(text)

    def all(self):
        with contextlib.ExitStack() as stack:
            folder = self.make_data(stack)
            for job in self.jobs:
                self.progress.begin(job)
                self.job(job, pathlib.Path(folder))
                self.progress.end()
                self.save()
        self.results["seconds"] = time.monotonic() - self.progress.started
        self.save()

    def make_data(self, stack):
        """Writes the data to memory (/dev/shm). Returns the folder, which is removed with the stack. Raises Refused."""
        say("making data")
        try:
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix=f"gradlane-compare-{os.getpid()}-", dir=SHM))
            self.results["data"] = data.write(folder, self.jobs, self.args.quick)
        except OSError as error:
            need = data.room(self.jobs) / plan.MIB
            raise Refused(f"cannot write data to {SHM}, where {need:.0f} MiB are needed: {error}; make it larger "
                          f"('mount -o remount,size=1G {SHM}'), or leave out large tensors with --only "
                          "size=...") from error
        return folder

    def job(self, job, folder):
        mine = folder / f"job-{len(self.results['jobs'])}"
        mine.mkdir()
        for file in folder.glob("*.f32"):
            (mine / file.name).symlink_to(file)
        orders = {**dataclasses.asdict(job), "effort": dataclasses.asdict(self.effort), "folder": str(mine),
                  "deadline": self.deadline, "torch": self.args.torch}
        (mine / "orders.json").write_text(json.dumps(orders))
        command = [self.args.gradlane, "run", "-n", job.nodes, "--no-prefix"]
        if job.rate != "none":
            command += ["--link", job.link, "--inside", "--mtu", job.mtu]
            command += [] if job.rate == "full" else ["--rate", job.rate]
        command += ["--strategies", ",".join(plan.strategies_of(job))]
        command += ["--", sys.executable, "-u", JOB, mine / "orders.json"]
        say(f"{job.name()}: starting")
        self.results["jobs"].append({"nodes": job.nodes, "rate": job.rate, "mtu": job.mtu, "link": job.link})
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   text=True, env=environment())
        self.results["jobs"][-1]["pid"] = process.pid  # namespaces are named after it
        try:
            for line in process.stdout:
                self.heard(job, line)
        except BaseException:
            process.send_signal(signal.SIGTERM)
            raise
        finally:
            code = process.wait(timeout=60)
        if code != 0:
            self.note(f"{job.name()}: ended with status {code}")
            self.results["failed"] = True
        shutil.rmtree(mine)

    def heard(self, job, line):
        try:
            said = json.loads(line)
            kind = said["say"]
        except (ValueError, TypeError, KeyError):
            say(line.rstrip("\n"))
            return
        if kind == "row":
            self.results["rows"].append(said["row"])
            self.save()
            row = said["row"]
            right = "" if row["wrong"] == 0 and row["same_on_all_ranks"] else "   WRONG"
            say(f"    {plan.LABELS[row['method']]:24} {row['median'] * 1e3:9.3f} ms   {row['min'] * 1e3:.3f} to "
                f"{row['max'] * 1e3:.3f}, {len(row['samples'])} samples of {row['operations']}{right}")
        elif kind == "about":
            self.results["about"].update(said["about"])
        elif kind == "idle":
            self.results["jobs"][-1]["idle_cores"] = said["busy_cores"]
            if said["busy_cores"] > plan.QUIET:
                say(f"compare.sh: WARNING: {said['busy_cores']:.1f} cores are busy with other work; do not rely on "
                    "these times")
        else:
            point = job.points[said["number"]]
            self.progress.point(job, point)
            if kind == "late":
                self.note(f"{job.name()}: {plan.size_text(point.size)} {point.data} left out, because "
                          f"{self.args.minutes} minutes (--minutes) are over")


def parse():
    parser = argparse.ArgumentParser(prog="lab/compare.sh", allow_abbrev=False, description=(
        "Times all-reduce by gradlane, Gloo, a worker-aggregator, PyTorch's fp16 hook and Open MPI, in turn, on the "
        "same links, and checks each result. Writes results.json, tables and plots. Needs root for links with a rate, "
        "and a machine that does nothing else. docs/benchmarks.md explains the rest."))
    parser.add_argument("--out", type=pathlib.Path, default="compare-results", metavar="DIR",
                        help="folder for results.json, report.md and PNGs (%(default)s); old files are replaced")
    parser.add_argument("--only", nargs="+", action="extend", default=[], metavar="KEY=VALUES",
                        help="measure only these: nodes=2, rate=1gbit,none, size=64K,16M, data=gauss, mtu=1500, "
                        "'method=gloo,gradlane raw'")
    parser.add_argument("--quick", action="store_true", help="two nodes, small tensors, two samples: half a minute")
    parser.add_argument("--samples", type=int, metavar="N", help="samples of each point (7 to 21, as time allows)")
    parser.add_argument("--mtu", type=int, default=plan.MTU, help="MTU of links with a rate (%(default)s)")
    parser.add_argument("--minutes", type=float, default=40, metavar="M",
                        help="after this time, leave out the remaining points (%(default)s)")
    parser.add_argument("--torch", metavar="PYTHON",
                        help="a Python with another PyTorch; its Gloo is measured, too, and the faster Gloo counts")
    parser.add_argument("--json", action="store_true", help="print results.json instead of tables")
    parser.add_argument("--render", action="store_true",
                        help="measure nothing; make tables and plots of DIR/results.json")
    parser.add_argument("--write-docs", action="store_true",
                        help="write tables to docs/results/compare.md, and plots to docs/images")
    parser.add_argument("--gradlane", type=pathlib.Path, default=ROOT / "build" / "tools" / "gradlane",
                        help="build/tools/gradlane")
    args = parser.parse_args()
    try:
        kept = plan.parse_filter(args.only)
        if not args.torch:
            kept["method"] = kept.get("method", set(plan.METHODS)) - {"gloo 2"}
        args.jobs = plan.jobs(args.quick, args.mtu, kept)
    except ValueError as error:
        parser.error(str(error))
    if not args.jobs:
        parser.error("--only leaves nothing to measure; 'gloo 2' needs --torch")
    if args.samples is not None and args.samples < 1:
        parser.error(f"--samples {args.samples}: must be 1 or more")
    if not 576 <= args.mtu <= 9000:
        parser.error(f"--mtu {args.mtu}: must be from 576 to 9000")
    if not args.minutes > 0:
        parser.error(f"--minutes {args.minutes:g}: must be more than 0")
    few = args.samples is not None and args.samples < plan.FULL.least
    if args.write_docs and (args.quick or args.only or few or args.mtu != plan.MTU):
        parser.error(f"--write-docs: the page needs all points, MTU {plan.MTU} and {plan.FULL.least} samples or more; "
                     "leave out --quick, --only, --mtu and --samples")
    return args


def missing_torch(python):
    """Returns why that Python cannot be used; None if it can."""
    if python is None:
        return None
    try:
        found = subprocess.run([python, "-c", "import numpy, torch.distributed"], capture_output=True, text=True,
                               timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if found.returncode == 0 else (found.stderr.strip().splitlines() or ["no numpy or torch"])[-1]


def missing_mpi(jobs):
    """Returns what Open MPI lacks here, if it is to be measured; None if nothing is missing."""
    if not any(name.startswith("mpi ") for job in jobs for point in job.points for name in point.methods):
        return None
    if shutil.which("mpirun") is None:
        return "mpirun"
    return None if importlib.util.find_spec("mpi4py") else "mpi4py"


def measure(args):
    """Returns the exit status: 0, 1 if something failed, 2 if it cannot measure here, 130 if it was interrupted."""
    shaped = [job for job in args.jobs if job.rate != "none"]
    if shaped and os.getuid() != 0:
        say("compare.sh: links with a rate need root: run 'sudo lab/compare.sh', or add --only rate=none")
        return 2
    lacks = missing_mpi(args.jobs)
    if lacks:
        say(f"compare.sh: {lacks} is missing; run tools/setup.sh --all, or leave out Open MPI with --only method=...")
        return 2
    fault = missing_torch(args.torch)
    if fault:
        say(f"compare.sh: --torch {args.torch}: {fault}; to make a Python with PyTorch and NumPy, run 'python3 -m venv "
            "DIR && DIR/bin/pip install torch numpy', then use --torch DIR/bin/python")
        return 2
    args.gradlane = args.gradlane.resolve()
    run = Run(args, args.jobs)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # a signal that nohup ignores stays ignored
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        run.all()
    except Refused as reason:
        say(f"compare.sh: {reason}")
        return 2
    except KeyboardInterrupt:
        run.note("interrupted")
        run.save()
        return 130
    wrong = [row for row in run.results["rows"] if row["wrong"] or not row["same_on_all_ranks"]]
    if wrong:
        run.note(f"{len(wrong)} of {len(run.results['rows'])} results are wrong")
        run.save()
    if not run.results["rows"]:
        run.note("nothing was measured")
        run.save()
        return 1
    return 1 if wrong or run.results.get("failed") else 0


def write_docs(results, out):
    """Writes the results to docs/ if they are good enough. Returns whether they are."""
    from lab.compare import report

    reasons = report.unfit(results)
    if reasons:
        say(f"compare.sh: --write-docs: docs/results/compare.md was not changed: {'; '.join(reasons)}")
        return False
    report.write_docs(results, out, ROOT / "docs")
    return True


def main():
    args = parse()
    args.out.mkdir(parents=True, exist_ok=True)
    code = 0 if args.render else measure(args)
    path = args.out / "results.json"
    if code == 2 or not path.exists():
        return code or 1
    from lab.compare import report  # imported here, because it imports Matplotlib, which is slow

    results = json.loads(path.read_text())
    text = report.write(results, args.out)
    if args.write_docs and not write_docs(results, args.out):
        code = code or 1
    print(path.read_text() if args.json else text)
    return code


if __name__ == "__main__":
    sys.exit(main())
